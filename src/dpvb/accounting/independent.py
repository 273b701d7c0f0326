"""A second opinion: the same plan through dp-accounting's own privacy loss distributions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dpvb.accounting.answers import answer, check_delta
from dpvb.accounting.events import Event, check_plan, check_relation, dominating_pairs

if TYPE_CHECKING:
    from dpvb.accounting.events import Pair

# dp-accounting builds its distributions in Python loops and keeps about 1 kB a cell.
_MAX_CELLS = 300_000


def independent_epsilon(events: Sequence[Event], *, delta: float, neighboring_relation: str) -> float | None:
    """Return an upper bound on epsilon by dp-accounting, which shares no code with this package's accountant.

    None where dp-accounting has no tool (fixed-size batches under replace-one, Poisson batches under replace-one
    with swap_ratio below 2), where it would run out of memory, or below delta = 1e-10, where its rounding shows.

    Args:
        events: the plan.
        delta: in (0, 1).
        neighboring_relation: "add_or_remove_one" or "replace_one".

    Raises:
        ParameterError: for a value outside its range.
    """
    plan, relation, delta = check_plan(events), check_relation(neighboring_relation), check_delta(delta)
    if any(event.noise_multiplier == 0 for event in plan):
        return math.inf
    pairs = dominating_pairs(plan, relation)[-1]
    kinds = {pair.kind for pair in pairs if pair.q < 1}
    if "swapped" in kinds or len(kinds) > 1 or delta < 1e-10:
        return None
    scale = answer(plan, delta=delta, neighboring_relation=relation).epsilon
    widest = max(pair.mu * pair.mu / 2 + 10 * pair.mu for pair in pairs)
    interval = min(1e-4, scale / 2000, *(pair.q * pair.mu / 20 for pair in pairs))
    if interval == 0 or widest / interval > _MAX_CELLS or scale / interval > _MAX_CELLS:
        return None
    return _compose(pairs, interval).get_epsilon(delta)  # type: ignore[no-any-return]


def _compose(pairs: Sequence[Pair], interval: float) -> Any:
    import dp_accounting
    from dp_accounting.pld import PLDAccountant

    opposite = any(pair.kind == "opposite" for pair in pairs)
    relations = dp_accounting.NeighboringRelation
    accountant = PLDAccountant(relations.REPLACE_ONE if opposite else relations.ADD_OR_REMOVE_ONE, interval)
    for pair in pairs:
        # Under replace-one dp-accounting puts contributions at +C and -C, so that a full batch's shift is 2C.
        noise = (2 if opposite and pair.kind != "opposite" else 1) / pair.mu
        event: Any = dp_accounting.GaussianDpEvent(noise)
        if pair.q < 1:
            event = dp_accounting.PoissonSampledDpEvent(pair.q, event)
        accountant.compose(event, pair.num_steps)
    return accountant
