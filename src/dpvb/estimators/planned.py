"""`dpvb.plan`: the forecast of a fit of any kind, from public facts alone."""

from __future__ import annotations

import math
from bisect import bisect
from collections.abc import Callable, Sequence
from contextlib import suppress

from sklearn.base import clone

from dpvb import accounting
from dpvb.core.plan import Plan
from dpvb.data import Schema
from dpvb.estimators.base import PrivateEstimator
from dpvb.guards.errors import ParameterError, check_integer, check_number
from dpvb.guards.lacking import says_what_lacks
from dpvb.results.forecast import MOST, Forecast, Knowledge, Rung, least

# Budgets that are shown beside the estimator's own, and the largest epsilon that is searched.
_LADDER, _LARGEST = (0.1, 0.3, 1.0, 3.0, 10.0), 100.0


@says_what_lacks
def plan(
    estimator: PrivateEstimator,
    n: int,
    width: int | None = None,
    *,
    schema: Schema | None = None,
    vocabulary: Sequence[str] | None = None,
    responses: int | None = None,
    epsilons: Sequence[float] = _LADDER,
) -> Forecast:
    """Forecast a fit before any data are touched; reads nothing and spends nothing.

    Args:
        estimator: not fitted; its parameters specify the budget and the model.
        n: roughly how many units there will be, a number that does not come from the data.
        width, schema, vocabulary, responses: what is public of the columns, as in `dry_run`.
        epsilons: budgets to compare with; an empty list: neither budgets nor sizes of the model are compared.

    Raises:
        ParameterError: for a number outside its range, or for what a fit would be refused.
    """
    if not isinstance(estimator, PrivateEstimator):
        raise ParameterError(f"estimator must be one of dpvb's, got {type(estimator).__name__}.")
    if isinstance(width, Schema):
        raise ParameterError("width must be the number of columns. Give a schema by its name: schema=...")
    number = check_integer("n", n, low=1, high=MOST)
    budgets = {check_number("epsilons", one, low=0, high=_LARGEST, closed="right") for one in epsilons}
    columns = {"width": width, "schema": schema, "vocabulary": vocabulary, "responses": responses}

    def at(**changed: float) -> tuple[Plan, Callable[[float], Knowledge]]:
        copy = clone(estimator).set_params(**changed)
        task, releases = copy._foreseen(**columns)
        return releases, lambda units: copy._knows(task, releases, units)

    def rung(epsilon: float) -> Rung:
        releases, knows = at(epsilon=epsilon)
        power = accounting.power(releases.events(), neighboring_relation=releases.neighboring_relation)
        return Rung(epsilon, knows(number), accounting.belief(epsilon), power)

    def is_enough(**changed: float) -> bool:
        return not at(**changed)[1](number).is_weak

    epsilon, (releases, knows), budgeted = estimator.epsilon, at(), rung(estimator.epsilon)
    weak = budgeted.knowledge.is_weak
    needed_units = least(lambda units: not knows(units).is_weak, number, MOST) if weak else float(number)
    needed_epsilon, needed_size = math.nan, 0
    ladder: tuple[Rung, ...] = ()
    size = getattr(estimator, str(estimator._size_parameter), None)
    # With a given noise multiplier, or without noise, no noise follows epsilon.
    if budgets and estimator.noise_multiplier is None and math.isfinite(epsilon):
        ladder = tuple(budgeted if one == epsilon else rung(one) for one in sorted({*budgets, epsilon}))
        needed_epsilon = epsilon
        if weak:
            needed_epsilon = (
                least(lambda e: is_enough(epsilon=e), epsilon, _LARGEST) if epsilon < _LARGEST else math.inf
            )
    if budgets and weak and isinstance(size, int):
        with suppress(ParameterError):  # A prior may allow one size alone.
            # The largest size below this one that is enough, as all smaller ones are; 0: none.
            needed_size = bisect(range(1, size), 0, key=lambda k: not is_enough(**{str(estimator._size_parameter): k}))
    return Forecast(
        kind=type(estimator).__name__,
        unit=releases.unit,
        num_units=number,
        delta=estimator.delta,
        rung=budgeted,
        ladder=ladder,
        needed_units=needed_units,
        needed_epsilon=needed_epsilon,
        size=(estimator._size_parameter or "", size if isinstance(size, int) else 0),
        needed_size=needed_size,
        releases=_in_words(releases),
    )


def _in_words(releases: Plan) -> str:
    """The releases of a plan, and why there are as many."""
    units, drawn = f"{releases.unit}s", [r for r in releases if r.mechanism.sampler.sampling_prob < 1]
    if len(releases) == 1:
        return f"One release of all {units}. Everything that is computed from it costs no further budget."
    if not drawn:
        return f"{len(releases)} releases, of all {units} each. Batches would save time and add noise."
    rate = drawn[0].mechanism.sampler.sampling_prob
    return (
        f"{len(releases)} releases, {len(drawn)} of them of batches with a part of {rate:.3g} of the {units}. "
        "Batches save time and add noise."
    )
