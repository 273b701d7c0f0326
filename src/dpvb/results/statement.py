"""The privacy statement: the guarantee of a run, from the public facts of its plan, in words without mathematics."""

from __future__ import annotations

import math
import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, fields, replace
from datetime import UTC, datetime
from typing import Any, Self

from dpvb import accounting
from dpvb.accounting.events import RELATIONS, Event
from dpvb.accounting.forms import from_dict
from dpvb.accounting.methods import CURVE_DELTAS, as_json
from dpvb.accounting.selection import Selection
from dpvb.core.counting import Counts
from dpvb.core.plan import Plan, Release
from dpvb.core.sampling import FixedSize
from dpvb.guards import notebook_html
from dpvb.guards.errors import (
    ModelFileError,
    ParameterError,
    PrivacyError,
    check_choice,
    check_delta,
    check_integer,
    check_number,
)
from dpvb.guards.version import version_with_commit

# A guarantee needs a method that proves an upper bound for every plan.
_METHODS = ("pld", "renyi")
_TOOLS = {
    "exact gaussian": "the exact privacy profile of the Gaussian mechanism",
    "pld": "composition of privacy loss distributions",
    "renyi": "composition of Rényi divergences",
    "no noise": "none: a release without noise has no finite epsilon",
}

_TITLE = "PRIVACY STATEMENT"
# Sections that a notebook displays unfolded.
_IN_SIGHT = ("Guarantee", "Protected", "Holds against", "Included")
_TEST_NOISE = (
    "NOT PRIVATE: the noise of this run came from a test source and can be computed again. The lines below describe "
    "the guarantee with secret noise. This run has no guarantee. Do not publish its result as private."
)
_DRY_RUN = (
    "DRY RUN: the rows are synthetic, drawn from public declarations. No private row was read, and no budget was used. "
    "The lines below describe the guarantee that the same call would have for private rows."
)
_NO_NOISE = (
    "NO PRIVACY: epsilon is infinite. At least one release has no noise, and the result may reveal everything about "
    "the data. Do not publish it as private."
)
_PUBLISHED = "PUBLIC DATA: the caller stated that the data are public. No privacy is claimed for them."
_NOT_COVERED = (
    "side channels: the running time, memory and power consumption of the run; other code in the process",
    "results per {unit}, such as a prediction of a private one",
    "public arguments that were chosen from the data, and preprocessing that was fitted to the data, such as a scaler",
    "{others}",
    "facts about several {unit}s together: the guarantee is weaker for groups",
    "facts about the population, which can be learned from the data of others, with or without any one {unit}",
)
_OTHERS = "other analyses of the same data: their epsilons and deltas add to these, and no ledger was used"
_OTHERS_OF_CLIENTS = (
    "all other analyses of the same data: their epsilons and deltas add to these; each client's statement names its "
    "ledger"
)
_OTHERS_COUNTED = (
    "all other analyses of the same data: their epsilons and deltas add to these; the ledger has the total"
)
# Sections of private data only.
_OF_A_GUARANTEE = frozenset({"Protected", "Meaning", "Curve", "Accounting", "Size", "Not covered"})
# Widths of the text, for a terminal of 120 characters, and of the labels; number of kinds of releases in the text.
_WIDTH = 110
_LABEL = 15
_MAX_LISTED = 6


@dataclass(frozen=True)
class PrivacyStatement:
    """Privacy guarantee of one run, with all facts that it depends on. Every fact is public.

    `model.privacy_` is the statement of a fit. It prints as text; `in_short()` is a summary, `to_dict()` is for JSON.

    Attributes:
        unit: Protected unit: "row", "document", "person" or another word.
        neighboring_relation: Neighbouring data sets: "add_or_remove_one" or "replace_one" unit.
        epsilon, delta: The guarantee, an upper bound.
        curve: Pairs (delta, epsilon), all of which hold.
        releases: Releases from which the result was computed.
        method: Accounting method, "pld" or "renyi".
        tool: Accountant whose number is reported (see `dpvb.accounting.Answer`).
        secret_noise: False if the noise came from a test source.
        public: Facts that the guarantee treats as public.
        n_units: Public number of units. None: the number is private.
        run_id: Public name of the run.
        plan_digest: SHA-256 of the plan.
        charge: Newest entry of the run in a ledger. None (default): no ledger was used.
        selection: Private selection of the result. None (default): none. Otherwise, `releases` are the winner's.
        against: Adversary of a federated run. Empty (default): anyone who sees the result.
        counts: Noisy numbers of included and clipped units. None (default): not released.
        dry_run: Whether the rows are synthetic, so that no guarantee is needed. Default: False.
        remarks: Conclusions from the released numbers about the result, in words. Default: none.
        published: Whether the data are stated to be public; epsilon is then infinite. Default: False.
        origin: Version of dpvb, date and schema digest of the result. None (default): unknown.

    Raises:
        ParameterError: If a field is outside its range.

    Examples:
        >>> import numpy as np
        >>> import dpvb
        >>> X = np.random.default_rng(0).uniform(-1, 1, (5000, 2))
        >>> model = dpvb.PCA(1, low=-1.0, high=1.0, epsilon=1.0, delta=1e-6).fit(X)
        >>> model.privacy_.unit, model.privacy_.delta
        ('row', 1e-06)
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
    origin: OriginFacts | None = None

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
            raise ParameterError(f"epsilon must be inf if the data are public, got {self.epsilon!r}.")
        if self.published and self.charge is not None:
            raise ParameterError("charge must be None if the data are public: a ledger records only private data.")
        if self.n_units is not None:
            check_integer("n_units", self.n_units, low=1)
        names = [block.name for release in self.releases for block in release.blocks]
        charge = [] if self.charge is None else [self.charge.ledger, self.charge.hash, self.charge.dataset]
        origin = [] if self.origin is None else [self.origin.version, self.origin.date, self.origin.schema or ""]
        if self.charge is not None:
            check_integer("seq", self.charge.seq, low=1)
        for text in [
            *(self.unit, self.run_id, self.plan_digest, self.against),
            *(*self.public, *names, *charge, *self.remarks, *origin),
        ]:
            if not isinstance(text, str) or not text.isprintable():
                raise ParameterError(f"Texts of a privacy statement must be printable, got {text!r}.")

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
        date: str | None = None,
    ) -> Self:
        """Return the statement of a run that followed a plan, or of a privately selected result.

        Args:
            plan: All releases of the run; for a selection, those of the winner.
            delta: Delta of the guarantee, in (0, 1).
            private: Whether the noise was secret, according to the receipts of the run.
            run_id: Public name of the run.
            public: Facts that are treated as public, in words.
            n_units: Public number of units. None (default): private.
            epsilon_method: Accounting method that proves an upper bound: "pld" (default) or "renyi".
            charge: Entry of the run in a ledger. None (default): no ledger was used.
            against: Adversary of a federated run. Empty (default): anyone.
            counts: Noisy numbers of included and clipped units. None (default): not released.
            dry_run: Whether the rows are synthetic. Default: False.
            published: Whether the data are stated to be public. Default: False.
            selection: Candidates and cost of a private selection. None (default): no selection.
            plan_digest: SHA-256 of everything that a selection may release. None (default): that of the plan.
            date: Day of the result in UTC. None (default): today.

        Raises:
            ParameterError: If an argument is outside its range.
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
            origin=OriginFacts.on(date),
        )

    @property
    def private(self) -> bool:
        """Whether the run has a guarantee: private rows, secret noise and finite epsilon."""
        return not self.dry_run and self.secret_noise and self.epsilon < math.inf

    @property
    def brief(self) -> str:
        """The guarantee in one line."""
        faults = [
            *(["NOT PRIVATE, the noise came from a test source"] if not self.secret_noise else []),
            *(["DRY RUN on synthetic rows"] if self.dry_run else []),
            *(["public data, no privacy claimed"] if self.published else []),
            *(["NO PRIVACY, epsilon is infinite"] if self.epsilon == math.inf and not self.published else []),
        ]
        return (
            "; ".join(faults)
            or f"epsilon = {accounting.rounded_up(self.epsilon)} at delta = {self.delta:g}, for each {self.unit}"
        )

    @property
    def points(self) -> list[tuple[float, float]]:
        """All pairs (delta, epsilon) that hold."""
        return [(self.delta, self.epsilon), *self.curve]

    @property
    def attack_accuracy(self) -> float:
        """Largest probability of a right guess whether a unit is present (see `accounting.attack_accuracy`)."""
        return accounting.attack_accuracy(self.epsilon, self.delta)

    def true_positive_rate(self, false_positive_rate: float = 0.01) -> float:
        """Return an upper bound on the power of any test for a unit's presence (see `accounting.power`).

        Args:
            false_positive_rate: False positive rate of the test, in [0, 1]. Default: 0.01.

        Raises:
            ParameterError: If `false_positive_rate` is outside [0, 1].
        """
        bound = accounting.true_positive_rate(self.points, false_positive_rate)
        if self.selection is not None or not self.releases:
            return bound
        events, relation = [release.event for release in self.releases], self.neighboring_relation
        power = accounting.power(events, neighboring_relation=relation, false_positive_rate=false_positive_rate)
        return min(bound, power)

    @property
    def cross_check(self) -> str:
        """Result of an independent accountant, dp-accounting, for the same releases, in words."""
        return str(
            accounting.cross_check(
                [release.event for release in self.releases],
                epsilon=self.epsilon,
                delta=self.delta,
                neighboring_relation=self.neighboring_relation,
            )
        )

    def verify(self) -> None:
        """Compute epsilon of the listed releases again, at every delta, and compare it with the statement.

        Raises:
            PrivacyError: If the releases cost more than the statement reports.
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
                    " Up to version 0.2, dpvb reported too small an epsilon for fixed-size batches. If the file is "
                    "your own, use the larger epsilon."
                )
                fixed = any(event.sampler == "fixed_size" for event in events)
                raise PrivacyError(
                    f"The privacy statement reports epsilon = {said:.6g} at delta = {delta:g}, but its releases cost "
                    f"{epsilon:.6g}. Do not trust this file.{earlier if fixed else ''}"
                )

    def to_dict(self) -> dict[str, Any]:
        """Return the statement as plain JSON values; an infinite epsilon is the text "inf"."""
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
        """Return the statement from the result of `to_dict`.

        Args:
            facts: Mapping that `to_dict` returned.

        Raises:
            ModelFileError: If the facts do not form a valid statement.
        """
        try:
            defaults = {field.name: field.default for field in fields(cls) if field.default is not MISSING}
            values = {field.name: (defaults | dict(facts))[field.name] for field in fields(cls)}
            values["epsilon"] = float(facts["epsilon"])
            values["curve"] = tuple((float(delta), float(epsilon)) for delta, epsilon in facts["curve"])
            values["public"], values["remarks"] = tuple(facts["public"]), tuple(values["remarks"])
            values["releases"] = tuple(map(ReleaseFacts.from_dict, facts["releases"]))
            values["charge"] = None if values["charge"] is None else ChargeFacts(**values["charge"])
            values["origin"] = None if values["origin"] is None else OriginFacts(**values["origin"])
            values["counts"] = None if values["counts"] is None else Counts(**values["counts"])
            chosen = values["selection"]
            values["selection"] = None if chosen is None else SelectionFacts.from_dict(chosen)
            statement = cls(**values)
            str(statement)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise ModelFileError("The privacy statement of the file is damaged. Save the model again.") from error
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
        """Return a summary of six lines, for the decision whether to publish the result."""
        warnings = [f"!!! {warning}" for warning in self.warnings()]
        return "\n".join([*warnings, *(f"{label:<{_LABEL}}{text}" for label, text in self.in_short_lines())])

    def in_short_lines(self) -> list[tuple[str, str]]:
        """Return the lines of `in_short`, each with its label."""
        unit, charge = self.unit, self.charge
        meaning = (
            f"The result may reveal everything about any {unit}."
            if self.epsilon == math.inf
            else f"An attacker who believes with probability 50 % that a {unit} is in the data guesses right with a "
            f"probability of at most {percent(self.attack_accuracy)}. At a false positive rate of 1 %, the true "
            f"positive rate is at most {percent(self.true_positive_rate(0.01))}."
        )
        released = sum(release.event.n_steps for release in self.releases)
        counted = "" if self.counts is None else f" {self.counts.say(unit).capitalize()}."
        return list(
            {
                "Guarantee": f"{self.brief}.",
                "Meaning": "The data are public." if self.published else meaning,
                "Computed from": f"{released} noisy sum{'s' * (released != 1)} and public facts only.{counted}",
                "Result": " ".join(self.remarks) or "Intervals and measures include the privacy noise.",
                **({"Holds against": self.against} if self.against else {}),
                "Ledger": ("See each client's own statement." if self.against else "None.")
                + " Losses of other fits to these data add to this one."
                if charge is None
                else f"Charged to data set {charge.dataset!r}, entry {charge.seq} of ledger {charge.ledger}.",
                "Not covered": "Time and memory of the run; public arguments chosen from the data; groups of "
                f"{unit}s; facts about the population.",
            }.items()
        )

    def _repr_html_(self) -> str:
        """Return HTML for a notebook: warnings and guarantee, with the rest folded."""
        rows = dict(self.sections())
        first = [(label, rows.pop(label)) for label in _IN_SIGHT if label in rows]
        warnings = "".join(map(notebook_html.boxed, self.warnings()))
        rest = notebook_html.folded("More of the statement", notebook_html.table([*rows.items()]))
        return f"<div>{notebook_html.title(_TITLE)}{warnings}{notebook_html.table(first)}{rest}</div>"

    def warnings(self) -> Iterator[str]:
        """Yield reasons why there is no guarantee, or a weak one."""
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
        """Return labels and paragraphs of the statement."""
        return (section for section in self._all() if not (self.published and section[0] in _OF_A_GUARANTEE))

    def _all(self) -> Iterator[tuple[str, list[str]]]:
        """Yield labels and paragraphs, including those of private data only."""
        unit = self.unit
        yield "Guarantee", [self._guarantee()]
        relations = {
            "add_or_remove_one": f"one {unit}: neighbouring data sets differ in the presence of one {unit} "
            "(add_or_remove_one).",
            "replace_one": f"one {unit}: neighbouring data sets differ in the content of one {unit} (replace_one).",
        }
        yield "Protected", [relations[self.neighboring_relation]]
        if self.against:
            yield "Holds against", [self.against]
        yield "Meaning", self._meaning()
        values = ", ".join(f"{accounting.rounded_up(epsilon)} at {d:g}" for d, epsilon in self.curve)
        yield "Curve", [f"All of these guarantees hold, epsilon at delta: {values}."]
        yield "Mechanism", list(self._mechanism())
        best_of = "all K runs and the selection (Papernot & Steinke 2022, Theorem 2)"
        covered = "all releases above" if self.selection is None else best_of
        yield (
            "Accounting",
            [
                f"Upper bound over {covered}; method {self.method!r}, tool: {_TOOLS[self.tool]}.",
                *([f"Cross-check: {self.cross_check}."] if self.selection is None else []),
            ],
        )
        if self.counts is not None:
            yield (
                "Included",
                [f"{self.counts.say(unit)}." + " Both numbers were released with noise." * (self.epsilon < math.inf)],
            )
        if self.remarks:
            yield "Result", list(self.remarks)
        if self.n_units is not None:
            yield "Size", [f"{self.n_units} {unit}s; the number is public."]
        elif self.neighboring_relation == "add_or_remove_one":
            yield "Size", [f"The number of {unit}s is private."]
        yield "Public", [f"- {fact}" for fact in self.public] or ["only the plan above."]
        if self.charge is not None:
            charge = self.charge
            yield (
                "Ledger",
                [f"data set {charge.dataset!r}: entry {charge.seq} of ledger {charge.ledger}, hash {charge.hash}"],
            )
        others = _OTHERS_COUNTED if self.charge else _OTHERS_OF_CLIENTS if self.against else _OTHERS
        yield "Not covered", [f"- {fact.format(unit=unit, others=others)}" for fact in _NOT_COVERED]
        yield "Run", [f"{self.run_id}, plan {self.plan_digest}"]
        if self.origin is not None:
            schema = "" if self.origin.schema is None else f", schema {self.origin.schema}"
            yield "Made by", [f"dpvb {self.origin.version}, on {self.origin.date} (UTC){schema}"]

    def _guarantee(self) -> str:
        """Return the guarantee in words."""
        if self.epsilon == math.inf:
            return "None: the data are public." if self.published else "None: epsilon = inf."
        prefix = "" if self.secret_noise else "None. With secret noise: "
        prefix = "None. With private rows: " if self.dry_run else prefix
        return (
            f"{prefix}(epsilon, delta)-differential privacy with epsilon = {accounting.rounded_up(self.epsilon)}, "
            f"delta = {self.delta:g}. It bounds what {'the adversaries below' if self.against else 'anyone'} can "
            f"infer from the result about any one {self.unit}, with any prior information."
        )

    def _meaning(self) -> list[str]:
        """Return what an attacker can learn, rounded up."""
        if self.epsilon == math.inf:
            return [f"The result may reveal everything about any {self.unit}."]
        question = {
            "add_or_remove_one": f"that a {self.unit} is in the data",
            "replace_one": f"that one of two {self.unit}s, and not the other, is in the data",
        }[self.neighboring_relation]
        return [
            f"An attacker who knows everything else and believes with probability 50 % {question} guesses right "
            f"from the result with a probability of at most {percent(self.attack_accuracy)}.",
            "At a false positive rate of 1 %, the true positive rate of an attacker is at most "
            f"{percent(self.true_positive_rate(0.01))}.",
        ]

    def _mechanism(self) -> Iterator[str]:
        """Yield the releases in words; a long schedule is abridged."""
        if self.selection is not None:
            yield _selection(self.selection, self.unit)
        total = sum(release.event.n_steps for release in self.releases)
        noise = [release.event.noise_multiplier for release in self.releases]
        spread = "" if min(noise) == max(noise) else f", noise multipliers from {min(noise):.6g} to {max(noise):.6g}"
        sums, them = ("1 sum was", "it") if total == 1 else (f"{total} sums were", "them")
        yield f"{sums} released{spread}; the result was computed from {them} and from public facts only."
        for release in self.releases[:_MAX_LISTED]:
            yield f"- {_release(release, self.unit)}"
        if len(self.releases) > _MAX_LISTED:
            yield f"- and {len(self.releases) - _MAX_LISTED} more kinds of release (dpvb show --json lists them)."


def _release(release: ReleaseFacts, unit: str) -> str:
    """Return equal releases in words."""
    event = release.event
    batch = {
        "full_batch": f"every {unit} (full batch)",
        "poisson": f"a Poisson batch (every {unit} drawn independently with probability {event.sampling_prob:.6g})",
        "fixed_size": f"a fresh batch of {release.batch_size} {unit}s drawn without replacement "
        f"(rate {event.sampling_prob:.6g})",
    }[event.sampler]
    joint = ", clipped jointly" if release.clipping == "joint" else ""
    noise = f"Gaussian noise, noise multiplier {event.noise_multiplier:.6g}" if event.noise_multiplier else "NO NOISE"
    if event.added_delta:
        noise += (
            "; only names whose noisy total exceeds a threshold were released, and a name that a single "
            f"{unit} has is released with a probability of at most {event.added_delta:g}, which is part of delta"
        )
    number = "1 release" if event.n_steps == 1 else f"{event.n_steps} releases"
    return f"{number}: the sum over {batch}{joint}; {noise}. {'; '.join(map(_block, release.blocks))}."


def _block(block: BlockFacts) -> str:
    """Return one block of a release in words."""
    shape = " x ".join(map(str, block.shape)) or "scalar"
    return f"{block.name} ({shape}): clipped to norm {block.bound:.6g}, noise std {block.noise_std:.6g}"


def _selection(selection: SelectionFacts, unit: str) -> str:
    """Return the private selection in words."""
    runs, m = selection.cost.runs, selection.num_candidates
    settings = "1 candidate setting" if m == 1 else f"{m} candidate settings"
    return (
        f"The result is the best of K runs, each with a setting drawn from {settings}. The other runs and K were not "
        f"released. K is random with mean {runs.mean:.4g} (truncated negative binomial, eta {runs.eta:g}, gamma "
        f"{runs.gamma:.4g}). Each run fits a secret random part of the {unit}s and scores the others, a share of "
        f"{selection.holdout:g}. The guarantee covers which setting won. Releases of the winner:"
    )


def percent(probability: float) -> str:
    """Return a probability in percent, rounded up to one decimal."""
    return f"{math.ceil(1000 * probability) / 10:.1f} %"


@dataclass(frozen=True)
class BlockFacts:
    """One block of a release: its shape, the L2 norm that one unit may reach, and the noise std, in its units."""

    name: str
    shape: tuple[int, ...]
    bound: float
    noise_std: float

    @classmethod
    def from_dict(cls, facts: Mapping[str, Any]) -> Self:
        """Read what `to_dict` of a statement wrote."""
        return cls(
            facts["name"],
            tuple(check_integer("shape", length, low=1) for length in facts["shape"]),
            check_number("bound", facts["bound"], low=0, closed="neither"),
            check_number("noise_std", facts["noise_std"], low=0, closed="left"),
        )


@dataclass(frozen=True)
class ReleaseFacts:
    """Equal releases of a plan.

    Attributes:
        event: sampler, rate, noise and number of these releases, as the accountant composes them.
        batch_size: for fixed-size batches, else None.
        clipping: "block" or "joint".
        blocks: released together.
    """

    event: Event
    batch_size: int | None
    clipping: str
    blocks: tuple[BlockFacts, ...]

    @classmethod
    def of(cls, release: Release) -> Self:
        """The public facts of one release."""
        sampler = release.mechanism.sampler
        blocks = (BlockFacts(n, b.shape, b.bound, release.noise_std(n)) for n, b in release.blocks.items())
        size = sampler.batch_size if isinstance(sampler, FixedSize) else None
        return cls(release.event(), size, release.clipping, tuple(blocks))

    @classmethod
    def of_plan(cls, plan: Plan) -> tuple[Self, ...]:
        """The releases of a plan, equal ones counted together."""
        counts = Counter(map(cls.of, plan))
        return tuple(replace(one, event=replace(one.event, n_steps=n)) for one, n in counts.items())

    @classmethod
    def from_dict(cls, facts: Mapping[str, Any]) -> Self:
        """Read what `to_dict` of a statement wrote."""
        size = facts["batch_size"]
        return cls(
            Event.from_dict(facts["event"]),
            None if size is None else check_integer("batch_size", size, low=1),
            check_choice("clipping", facts["clipping"], ("block", "joint")),
            tuple(map(BlockFacts.from_dict, facts["blocks"])),
        )


@dataclass(frozen=True)
class ChargeFacts:
    """An entry of a ledger: its name, the entry's number and hash, and the data set that was charged.

    Examples:
        >>> import dpvb
        >>> from dpvb.data import Categorical, Schema, Table
        >>> ledger = dpvb.Ledger("clinic.db")
        >>> ledger.register("people", unit="row", neighboring_relation="add_or_remove_one", epsilon=2.0, delta=1e-5)
        >>> schema = Schema([Categorical("sex", ("f", "m")), Categorical("smokes", ("no", "yes"))])
        >>> rows = Table({"sex": ["f", "m"], "smokes": ["no", "yes"]}, schema)
        >>> model = dpvb.NaiveBayes(response="sex", epsilon=1.0, delta=1e-6)
        >>> model.fit(rows, run=dpvb.Run(ledger=ledger, dataset="people")).privacy_.charge.dataset
        'people'
    """

    ledger: str
    seq: int
    hash: str
    dataset: str


@dataclass(frozen=True)
class OriginFacts:
    """Version, day and schema of a result.

    Attributes:
        version: of dpvb, with its commit where it is known.
        date: day of the release in UTC. A time of day would tell how long the run took, which no guarantee covers.
        schema: SHA-256 of the schema, as the file that `Schema.save` writes. None (default): there was none.
    """

    version: str
    date: str
    schema: str | None = None

    @classmethod
    def on(cls, date: str | None) -> Self:
        """Return the facts of a result that this version made on a day; None: today."""
        return cls(version_with_commit(), datetime.now(UTC).date().isoformat() if date is None else date)


@dataclass(frozen=True)
class SelectionFacts:
    """A result that was chosen, as the best of a random number of runs.

    Attributes:
        cost: of all runs together.
        num_candidates: number of settings that a run could have.
        holdout: probability that a unit was scored, and not fitted.
    """

    cost: Selection
    num_candidates: int
    holdout: float

    def to_dict(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return {"cost": self.cost.to_dict(), "num_candidates": self.num_candidates, "holdout": self.holdout}

    @classmethod
    def from_dict(cls, facts: Mapping[str, Any]) -> Self:
        """Inverse of `to_dict`."""
        holdout = check_number("holdout", facts["holdout"], low=0, high=1, closed="neither")
        number = check_integer("num_candidates", facts["num_candidates"], low=1)
        cost = from_dict(facts["cost"])
        if not isinstance(cost, Selection):
            raise ParameterError("cost must be that of a selection.")
        return cls(cost, number, holdout)
