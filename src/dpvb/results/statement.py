"""The privacy statement: what a run promises, generated from its plan and in words that need no mathematics."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, fields
from typing import Any, Self

from dpvb import accounting
from dpvb.accounting.answers import CURVE_DELTAS, as_json
from dpvb.accounting.events import RELATIONS
from dpvb.core.counting import Counts
from dpvb.core.plan import Plan
from dpvb.guards import pages
from dpvb.guards.errors import (
    ModelFileError,
    ParameterError,
    PrivacyError,
    check_choice,
    check_delta,
    check_integer,
    check_number,
)
from dpvb.results.facts import BlockFacts, ChargeFacts, ReleaseFacts, SelectionFacts

# Only methods that prove an upper bound for every plan may make a promise.
_METHODS = ("pld", "renyi")
_TOOLS = {
    "exact gaussian": "the exact privacy profile of the Gaussian mechanism",
    "pld": "composition of privacy loss distributions",
    "renyi": "composition of Rényi divergences",
    "no noise": "none, as a release without noise has no finite epsilon",
}

_TITLE = "PRIVACY STATEMENT"
# What a notebook shows of it at once.
_IN_SIGHT = ("Promise", "Protected", "Holds against", "Counted")
_TEST_NOISE = (
    "NOT PRIVATE: the noise of this run came from a test source and can be computed again. What follows says what "
    "secret noise would have promised; this run promises nothing. Do not publish its result as private."
)
_DRY_RUN = (
    "DRY RUN: the rows were made up from public declarations, and no private row was read. The result says nothing "
    "about anybody, and nothing was spent. What follows is what the same call would promise for private rows."
)
_NO_NOISE = (
    "NO PRIVACY: epsilon is infinite. At least one release carries no noise, and the result may reveal everything "
    "about the data. Do not publish it as private."
)
_PUBLISHED = "PUBLIC DATA: whoever made this says that the data are public. No privacy is claimed for them."
_NOT_COVERED = (
    "what can be learned from the time, the memory or the power that the run took",
    "public arguments that somebody chose by looking at the data, and what was fitted to them before, as a scaler",
    "{others}",
    "facts about groups: several {unit}s together are protected less than one",
    "what is true of the population: it can be learned from the data of others, with or without any one {unit}",
)
_OTHERS = "several runs on the same data: their epsilons and deltas add up, and nobody keeps count here"
_OTHERS_COUNTED = "other runs on the same data that the ledger was not told of: their epsilons and deltas add up"
_OF_A_PROMISE = frozenset({"Protected", "Plain meaning", "Curve", "Accounting", "Size", "Not covered"})
_WIDTH = 110
_LABEL = 15
_MAX_LISTED = 6


@dataclass(frozen=True)
class PrivacyStatement:
    """What one run promises about the people behind its data; every fact in it is public.

    Attributes:
        unit: whose presence is protected, in words.
        neighboring_relation: "add_or_remove_one" or "replace_one".
        epsilon, delta: the promise; an upper bound.
        curve: (delta, epsilon) pairs, all of which hold at once.
        releases: how the result was made.
        method, tool: the accountant's method, and what gave its number in the end (see accounting.Answer).
        secret_noise: False if the noise came from a test source.
        public: what the promise treats as known to everybody.
        n_units: the public number of units, where there is one.
        run_id, plan_digest: public name of the run, and SHA-256 of its plan.
        charge: the run's newest entry in the ledger that counted it, where one did.
        selection: how the result was chosen, where it was; `releases` are then the winner's own.
        against: in a federated run, against whom the promise holds; empty: against everybody.
        counts: how many units counted, as the run released it with noise; None where it did not.
        dry_run: whether the rows were made up, so that nothing is promised to anybody.
        remarks: what the released numbers say of the result, in words.
        published: whether the data are said to be public, so that no privacy is claimed; epsilon is infinite then.

    Raises:
        ParameterError: for a field outside its range.
    """

    unit: str
    neighboring_relation: str
    epsilon: float
    delta: float
    curve: tuple[tuple[float, float], ...]
    releases: tuple[ReleaseFacts, ...]
    method: str
    tool: str
    secret_noise: bool
    public: tuple[str, ...]
    n_units: int | None
    run_id: str
    plan_digest: str
    charge: ChargeFacts | None = None
    selection: SelectionFacts | None = None
    against: str = ""
    counts: Counts | None = None
    dry_run: bool = False
    remarks: tuple[str, ...] = ()
    published: bool = False

    def __post_init__(self) -> None:
        check_choice("neighboring_relation", self.neighboring_relation, RELATIONS)
        check_choice("method", self.method, _METHODS)
        check_choice("tool", self.tool, tuple(_TOOLS))
        for delta, epsilon in self.points:
            check_delta(delta)
            check_number("epsilon", epsilon, low=0)
        for name in ("secret_noise", "dry_run", "published"):
            if type(getattr(self, name)) is not bool:
                raise ParameterError(f"{name} must be True or False, got {getattr(self, name)!r}.")
        if self.published and self.epsilon < math.inf:
            raise ParameterError(f"epsilon must be inf where data are published, got {self.epsilon!r}.")
        if self.published and self.charge is not None:
            raise ParameterError("charge must be None where data are published: a ledger counts private data alone.")
        if self.n_units is not None:
            check_integer("n_units", self.n_units, low=1)
        names = [block.name for release in self.releases for block in release.blocks]
        charge = [] if self.charge is None else [self.charge.ledger, self.charge.hash, self.charge.dataset]
        if self.charge is not None:
            check_integer("seq", self.charge.seq, low=1)
        for text in [
            *(self.unit, self.run_id, self.plan_digest, self.against),
            *(*self.public, *names, *charge, *self.remarks),
        ]:
            if not isinstance(text, str) or not text.isprintable():
                raise ParameterError(f"a privacy statement is made of printable text, got {text!r}.")

    @classmethod
    def from_plan(
        cls,
        plan: Plan,
        *,
        delta: float,
        private: bool,
        run_id: str,
        public: Sequence[str],
        n_units: int | None = None,
        epsilon_method: str = "pld",
        charge: ChargeFacts | None = None,
        against: str = "",
        counts: Counts | None = None,
        dry_run: bool = False,
        published: bool = False,
        selection: SelectionFacts | None = None,
        plan_digest: str | None = None,
    ) -> Self:
        """The statement of a run that followed a plan, or of a result that was chosen.

        Args:
            plan: all releases of the run; of a selection those of the winner's run.
            delta: in (0, 1).
            private: whether the run's noise was secret, as its receipts say.
            run_id: the run's public name.
            public: what is treated as known to everybody, in words.
            n_units: public number of units, if there is one.
            epsilon_method: a sound method of the accountant, "pld" or "renyi".
            charge: the run's entry in a ledger, if one counted it.
            against: against whom it holds, if not everybody.
            counts: what the run released about the number of its units.
            dry_run: whether the rows were made up.
            published: whether the data are said to be public.
            selection: what the result was chosen from, and what that cost, which is then promised.
            plan_digest: SHA-256 of everything that a selection might release; None: the plan's.

        Raises:
            ParameterError: for an argument outside its range.
        """
        check_choice("epsilon_method", epsilon_method, _METHODS)
        relation = plan.neighboring_relation
        if selection is None:
            events = plan.events()
            answer = accounting.answer(events, delta=delta, neighboring_relation=relation, method=epsilon_method)
            epsilon, delta, tool = answer.epsilon, answer.delta, answer.used
            curve = tuple(accounting.curve(events, neighboring_relation=relation, method=epsilon_method))
        else:
            epsilon, relation = selection.cost.epsilon(delta), selection.cost.neighboring_relation
            epsilon_method = "renyi"
            tool = "renyi" if epsilon < math.inf else "no noise"
            curve = tuple((one, selection.cost.epsilon(one)) for one in CURVE_DELTAS)
        return cls(
            unit=plan.unit,
            neighboring_relation=relation,
            epsilon=epsilon,
            delta=delta,
            curve=curve,
            releases=ReleaseFacts.of_plan(plan),
            method=epsilon_method,
            tool=tool,
            secret_noise=private,
            public=tuple(public),
            n_units=n_units,
            run_id=run_id,
            plan_digest=plan.digest.hex() if plan_digest is None else plan_digest,
            charge=charge,
            against=against,
            counts=counts,
            dry_run=dry_run,
            published=published,
            selection=selection,
        )

    @property
    def private(self) -> bool:
        """Whether anything is promised: rows were private, the noise was secret and epsilon is finite."""
        return not self.dry_run and self.secret_noise and self.epsilon < math.inf

    @property
    def brief(self) -> str:
        """The promise in a line."""
        faults = [
            *(["NOT PRIVATE, the noise came from a test source"] if not self.secret_noise else []),
            *(["DRY RUN on made-up rows"] if self.dry_run else []),
            *(["public data, no privacy claimed"] if self.published else []),
            *(["NO PRIVACY, epsilon is infinite"] if self.epsilon == math.inf and not self.published else []),
        ]
        return (
            "; ".join(faults)
            or f"epsilon = {accounting.rounded_up(self.epsilon)} at delta = {self.delta:g}, for each {self.unit}"
        )

    @property
    def points(self) -> list[tuple[float, float]]:
        """All (delta, epsilon) that hold."""
        return [(self.delta, self.epsilon), *self.curve]

    @property
    def belief(self) -> float:
        """How sure somebody can become who gave even odds to a unit's presence (`accounting.belief`)."""
        return accounting.belief(self.epsilon)

    def true_positive_rate(self, false_positive_rate: float = 0.01) -> float:
        """Upper bound on the power of any test for a unit's presence (`accounting.power`).

        Raises:
            ParameterError: unless 0 ≤ false_positive_rate ≤ 1.
        """
        bound = accounting.true_positive_rate(self.points, false_positive_rate)
        if self.selection is not None or not self.releases:
            return bound
        events, relation = [release.event for release in self.releases], self.neighboring_relation
        power = accounting.power(events, neighboring_relation=relation, false_positive_rate=false_positive_rate)
        return min(bound, power)

    @property
    def second_opinion(self) -> str:
        """What dp-accounting, which shares no code with this package's accountant, finds of the releases, in words."""
        return str(
            accounting.second_opinion(
                [release.event for release in self.releases],
                epsilon=self.epsilon,
                delta=self.delta,
                neighboring_relation=self.neighboring_relation,
            )
        )

    def verify(self) -> None:
        """Account for the listed releases anew, at every delta: a check of a statement that came with a file.

        Raises:
            PrivacyError: if they cost more than the statement says.
        """
        events = [release.event for release in self.releases]
        for delta, said in self.points:
            if self.selection is not None:
                epsilon = self.selection.cost.epsilon(delta)
            else:
                relation, method = self.neighboring_relation, self.method
                epsilon = accounting.epsilon_of(events, delta=delta, neighboring_relation=relation, method=method)
            if epsilon > said * (1 + 1e-9):
                earlier = (
                    " Up to version 0.2, dpvb accounted too little for fixed-size batches: use the larger epsilon if "
                    "the file is your own."
                )
                fixed = any(event.sampler == "fixed_size" for event in events)
                raise PrivacyError(
                    f"the statement says epsilon = {said:.6g} at delta = {delta:g}, but its releases cost "
                    f"{epsilon:.6g}. Do not trust this file.{earlier if fixed else ''}"
                )

    def to_dict(self) -> dict[str, Any]:
        """The statement as plain JSON values; an infinite epsilon is the text "inf"."""
        facts = asdict(self) | {
            "private": self.private,
            "epsilon": as_json(self.epsilon),
            "curve": [[delta, as_json(epsilon)] for delta, epsilon in self.curve],
            "public": list(self.public),
            "remarks": list(self.remarks),
            "selection": None if self.selection is None else self.selection.to_dict(),
        }
        facts["releases"] = [
            release
            | {"event": facts_of.event.to_dict()}
            | {"blocks": [block | {"shape": list(block["shape"])} for block in release["blocks"]]}
            for facts_of, release in zip(self.releases, facts["releases"], strict=True)
        ]
        return facts

    @classmethod
    def from_dict(cls, facts: Mapping[str, Any]) -> Self:
        """Inverse of `to_dict`.

        Raises:
            ModelFileError: if the facts are not those of a statement.
        """
        try:
            defaults = {field.name: field.default for field in fields(cls) if field.default is not MISSING}
            values = {field.name: (defaults | dict(facts))[field.name] for field in fields(cls)}
            values["epsilon"] = float(facts["epsilon"])
            values["curve"] = tuple((float(delta), float(epsilon)) for delta, epsilon in facts["curve"])
            values["public"], values["remarks"] = tuple(facts["public"]), tuple(values["remarks"])
            values["releases"] = tuple(map(ReleaseFacts.from_dict, facts["releases"]))
            values["charge"] = None if values["charge"] is None else ChargeFacts(**values["charge"])
            values["counts"] = None if values["counts"] is None else Counts(**values["counts"])
            chosen = values["selection"]
            values["selection"] = None if chosen is None else SelectionFacts.from_dict(chosen)
            statement = cls(**values)
            str(statement)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise ModelFileError("the file's privacy statement is damaged; save the model again.") from error
        return statement

    def __str__(self) -> str:
        lines = [_TITLE, ""]
        for warning in self.warnings():
            lines += [*textwrap.wrap(f"!!! {warning}", _WIDTH, subsequent_indent="!!! "), ""]
        for label, paragraphs in self.sections():
            for n, paragraph in enumerate(paragraphs):
                head = f"{label:<{_LABEL}}" if n == 0 else " " * _LABEL
                lines += textwrap.wrap(
                    paragraph, _WIDTH, initial_indent=head, subsequent_indent=" " * _LABEL, break_on_hyphens=False
                )
        return "\n".join(lines)

    def in_short(self) -> str:
        """The statement in six lines, for whoever decides whether the result may go out."""
        warnings = [f"!!! {warning}" for warning in self.warnings()]
        return "\n".join([*warnings, *(f"{label:<{_LABEL}}{text}" for label, text in self.in_short_lines())])

    def in_short_lines(self) -> list[tuple[str, str]]:
        """The six lines, each with its label."""
        unit, charge = self.unit, self.charge
        meaning = (
            f"{self.unit}s may be told of in full."
            if self.epsilon == math.inf
            else f"Even odds of a {unit}'s presence become at most {percent(self.belief)}; a test with 1 % false "
            f"alarms finds at most {percent(self.true_positive_rate(0.01))}."
        )
        released = sum(release.event.n_steps for release in self.releases)
        counted = "" if self.counts is None else f" In them, {self.counts.say(unit)}."
        return list(
            {
                "Promise": f"{self.brief}.",
                "Meaning": "The data are public." if self.published else meaning,
                "Made by": f"{released} noisy sum{'s' * (released != 1)}, and public facts alone.{counted}",
                "Result": " ".join(self.remarks) or "Intervals and measures hold the noise; see the model's own pages.",
                "Charged": "Nobody keeps count here: several fits of the same data add up."
                if charge is None
                else f"Data set {charge.dataset!r}, entry {charge.seq} of ledger {charge.ledger}.",
                "Beyond it": "Time and memory of the run, public facts chosen by looking, several "
                f"{unit}s together, what is true of everybody.",
            }.items()
        )

    def _repr_html_(self) -> str:
        """The statement for a notebook: warnings and the promise in sight, the rest folded."""
        rows = dict(self.sections())
        first = [(label, rows.pop(label)) for label in _IN_SIGHT if label in rows]
        warnings = "".join(map(pages.boxed, self.warnings()))
        rest = pages.folded("The rest of the statement", pages.table([*rows.items()]))
        return f"<div>{pages.title(_TITLE)}{warnings}{pages.table(first)}{rest}</div>"

    def warnings(self) -> Iterator[str]:
        """Why the promise is none, or weak."""
        if self.dry_run:
            yield _DRY_RUN
        if not self.secret_noise:
            yield _TEST_NOISE
        if self.epsilon == math.inf:
            yield _PUBLISHED if self.published else _NO_NOISE
        if self.n_units is not None and self.delta * self.n_units >= 1:
            yield (
                f"WEAK: delta = {self.delta:g} is not below 1 in {self.n_units}, the number of {self.unit}s: "
                f"publishing one random {self.unit} would satisfy this guarantee."
            )

    def sections(self) -> Iterator[tuple[str, list[str]]]:
        """Labels and paragraphs of the statement."""
        return (section for section in self._all() if not (self.published and section[0] in _OF_A_PROMISE))

    def _all(self) -> Iterator[tuple[str, list[str]]]:
        """Those of a promise, too."""
        unit = self.unit
        yield "Promise", [self._promise()]
        relations = {
            "add_or_remove_one": f"one {unit}: data sets are compared that differ by one {unit} more or less "
            "(add_or_remove_one).",
            "replace_one": f"one {unit}: data sets are compared that differ by one {unit} put in the place of another "
            "(replace_one).",
        }
        yield "Protected", [relations[self.neighboring_relation]]
        if self.against:
            yield "Holds against", [self.against]
        yield "Plain meaning", self._meaning()
        values = ", ".join(f"{accounting.rounded_up(epsilon)} at {d:g}" for d, epsilon in self.curve)
        yield "Curve", [f"All of these hold at once, epsilon at delta: {values}."]
        yield "Mechanism", list(self._mechanism())
        best_of = "all K runs and the choice (Papernot & Steinke 2022, Theorem 2)"
        covered = "all releases above" if self.selection is None else best_of
        yield (
            "Accounting",
            [
                f"Upper bound over {covered}; method {self.method!r}, tool: {_TOOLS[self.tool]}.",
                *([f"Second accountant: {self.second_opinion}."] if self.selection is None else []),
            ],
        )
        if self.counts is not None:
            yield "Counted", [f"{self.counts.say(unit)} (95 % intervals; released with noise, as all else)."]
        if self.remarks:
            yield "Result", list(self.remarks)
        if self.n_units is not None:
            yield "Size", [f"{self.n_units} {unit}s, a public number."]
        elif self.neighboring_relation == "add_or_remove_one":
            yield "Size", [f"The number of {unit}s is private, too."]
        yield "Public", [f"- {fact}" for fact in self.public] or ["nothing but the plan above."]
        if self.charge is not None:
            charge = self.charge
            yield (
                "Charged",
                [f"data set {charge.dataset!r}: entry {charge.seq} of ledger {charge.ledger}, hash {charge.hash}"],
            )
        others = _OTHERS if self.charge is None else _OTHERS_COUNTED
        yield "Not covered", [f"- {fact.format(unit=unit, others=others)}" for fact in _NOT_COVERED]
        yield "Run", [f"{self.run_id}, plan {self.plan_digest}"]

    def _promise(self) -> str:
        """The promise in one sentence."""
        if self.epsilon == math.inf:
            return "None is claimed: the data are public." if self.published else "None: epsilon = inf."
        prefix = "" if self.secret_noise else "None. Had the noise been secret: "
        prefix = "None. Had the rows been private: " if self.dry_run else prefix
        return (
            f"{prefix}(epsilon, delta)-differential privacy with epsilon = {accounting.rounded_up(self.epsilon)}, "
            f"delta = {self.delta:g}. It bounds what the result can say about any one {self.unit} to anybody, whatever "
            "they know already."
        )

    def _meaning(self) -> list[str]:
        """What epsilon and delta allow an attacker, rounded up."""
        if self.epsilon == math.inf:
            return [f"None: whoever sees the result may learn everything about any {self.unit}."]
        question = {
            "add_or_remove_one": f"whether a {self.unit} is in the data",
            "replace_one": f"which of two {self.unit}s is in the data",
        }[self.neighboring_relation]
        power = {
            "add_or_remove_one": f"{self.unit}s that are not in the data finds at most {{}} of those that are",
            "replace_one": f"cases with the one {self.unit} finds at most {{}} of the cases with the other",
        }[self.neighboring_relation]
        return [
            f"Someone who knows everything else and is 50 % sure {question} can become at most "
            f"{percent(self.belief)} sure from the result, except that with a probability of at most {self.delta:g} "
            "more may be learned.",
            f"A test that raises a false alarm for 1 % of the {power.format(percent(self.true_positive_rate(0.01)))}.",
        ]

    def _mechanism(self) -> Iterator[str]:
        """The releases in words; a long schedule in short."""
        if self.selection is not None:
            yield _selection(self.selection, self.unit)
        total = sum(release.event.n_steps for release in self.releases)
        noise = [release.event.noise_multiplier for release in self.releases]
        spread = "" if min(noise) == max(noise) else f", noise multipliers from {min(noise):.6g} to {max(noise):.6g}"
        sums, them = ("1 sum was", "it") if total == 1 else (f"{total} sums were", "them")
        yield f"{sums} released{spread}; the result was computed from {them} and from public facts alone."
        for release in self.releases[:_MAX_LISTED]:
            yield f"- {_release(release, self.unit)}"
        if len(self.releases) > _MAX_LISTED:
            yield f"- and {len(self.releases) - _MAX_LISTED} more kinds of release (to_dict() lists them all)."


def _release(release: ReleaseFacts, unit: str) -> str:
    """How equal releases were made."""
    event = release.event
    batch = {
        "full_batch": f"every {unit} (full batch)",
        "poisson": f"a Poisson batch (every {unit} drawn independently with probability {event.sampling_prob:.6g})",
        "fixed_size": f"a fresh batch of {release.batch_size} {unit}s drawn without replacement "
        f"(rate {event.sampling_prob:.6g})",
    }[event.sampler]
    joint = ", clipped jointly" if release.clip == "joint" else ""
    noise = f"Gaussian noise, noise multiplier {event.noise_multiplier:.6g}" if event.noise_multiplier else "NO NOISE"
    if event.added_delta:
        noise += (
            "; of names that nobody had listed those left whose noisy total is above a threshold, and one that a "
            f"{unit} alone has with a probability of at most {event.added_delta:g}, which is a part of delta"
        )
    number = "1 release" if event.n_steps == 1 else f"{event.n_steps} releases, each"
    return f"{number} the sum over {batch}{joint}; {noise}. {'; '.join(map(_block, release.blocks))}."


def _block(block: BlockFacts) -> str:
    """What was released of one block."""
    shape = " x ".join(map(str, block.shape)) or "scalar"
    return f"{block.name} ({shape}): clipped to norm {block.bound:.6g}, noise std {block.noise_std:.6g}"


def _selection(selection: SelectionFacts, unit: str) -> str:
    """How the result was chosen."""
    law, m = selection.cost.runs, selection.num_candidates
    settings = "1 candidate setting" if m == 1 else f"{m} candidate settings"
    return (
        f"The result is the best of K runs, each with a setting drawn from {settings}; of the others nothing left, "
        f"nor how many there were. K is random, {law.mean:.4g} expected (truncated negative binomial, eta "
        f"{law.eta:g}, gamma {law.gamma:.4g}). A run fits the {unit}s that a secret coin chooses, and scores the "
        f"others, a share of {selection.holdout:g}. The promise covers which setting won. The winner's own releases:"
    )


def percent(probability: float) -> str:
    """A probability in percent, rounded up to one decimal."""
    return f"{math.ceil(1000 * probability) / 10:.1f} %"
