"""`dpvb.plan`: what a fit of any kind would come to, from public facts alone."""

from __future__ import annotations

import math
from collections.abc import Sequence

from sklearn.base import clone

from dpvb import accounting
from dpvb.core.plan import Plan
from dpvb.data import Schema
from dpvb.estimators.base import PrivateEstimator, Task
from dpvb.guards.errors import ParameterError, check_integer, check_number
from dpvb.guards.lacking import says_what_lacks
from dpvb.results.forecast import MOST, Forecast, least, searched
from dpvb.results.outlook import Outlook, Rung

# What is shown beside the budget itself, and the largest epsilon that is looked for.
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
) -> Outlook:
    """Say what a fit would come to before any data are touched; reads nothing and spends nothing.

    Args:
        estimator: not fitted; its parameters name the budget and the model.
        n: roughly how many units there will be, a number that does not come from the data.
        width, schema, vocabulary, responses: what is public of the columns, as in `rehearse`.
        epsilons: other budgets, whose purchases are shown beside.

    Raises:
        ParameterError: for a number outside its range, or for what a fit would be refused.
    """
    if not isinstance(estimator, PrivateEstimator):
        raise ParameterError(f"estimator must be one of dpvb's, got {type(estimator).__name__}.")
    number = check_integer("n", n, low=1, high=MOST)
    others = [check_number("epsilons", one, low=0, high=_LARGEST, closed="right") for one in epsilons]
    columns = {"width": width, "schema": schema, "vocabulary": vocabulary, "responses": responses}

    def at(epsilon: float) -> tuple[Task, Plan, Forecast]:
        kind = clone(estimator).set_params(epsilon=epsilon)
        task, found = kind._foreseen(**columns)
        return task, found, kind._forecast(task, found, number)

    def rung(epsilon: float) -> Rung:
        _, found, forecast = at(epsilon)
        return _rung(epsilon, found, forecast)

    task, releases, _ = at(estimator.epsilon)
    own = _rung(estimator.epsilon, releases, searched(lambda many: estimator._forecast(task, releases, many), number))
    asked = estimator.noise_multiplier is None and math.isfinite(estimator.epsilon)  # Else no noise follows epsilon.
    needed = math.nan
    if asked:
        needed = estimator.epsilon
        if own.forecast.strength < 1:
            needed = least(lambda e: at(e)[2].strength >= 1, needed, _LARGEST) if needed < _LARGEST else math.inf
    steps = sorted({*others, estimator.epsilon}) if asked else []
    ladder = tuple(own if epsilon == estimator.epsilon else rung(epsilon) for epsilon in steps)
    return Outlook(type(estimator).__name__, estimator.delta, own, ladder, needed, *_told(releases))


def _rung(epsilon: float, found: Plan, forecast: Forecast) -> Rung:
    power = accounting.power(found.events(), neighboring_relation=found.neighboring_relation)
    return Rung(epsilon, forecast, accounting.belief(epsilon), power)


def _told(found: Plan) -> tuple[str, str]:
    """The releases of a plan, and why they are so, in words."""
    units, drawn = f"{found.unit}s", [r for r in found if r.mechanism.sampler.sampling_prob < 1]
    if len(found) == 1:
        return f"One release of all {units}.", "What is read from it is free, however long that takes."
    if not drawn:
        return (
            f"{len(found)} releases, of all {units} each.",
            "Without batches a budget buys the least noise; batches save time alone.",
        )
    rate = drawn[0].mechanism.sampler.sampling_prob
    return (
        f"{len(found)} releases, {len(drawn)} of them of batches with a part of {rate:.3g} of the {units}.",
        "Batches save time, and cost noise; without them a budget buys the least.",
    )
