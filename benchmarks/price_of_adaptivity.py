"""What a ledger counts for equal plans, over what they cost if all were fixed beforehand (Markdown)."""

from __future__ import annotations

from collections.abc import Sequence

from dpvb import accounting
from dpvb.accounting import Event, costs
from dpvb.accounting import filter as spending
from dpvb.accounting.costs import Composition

DELTA, NUMBERS, CAPS = 1e-6, (1, 2, 3, 4, 5, 10), (3.0, 10.0)
SHAPES = {
    "full batch, 12 steps": Event("full_batch", 1.0, 1.0, 12),
    "q = 0.05, 20 steps": Event("poisson", 0.05, 1.0, 20),
    "q = 0.25, 20 steps": Event("poisson", 0.25, 1.0, 20),
    "q = 0.01, 1,000 steps": Event("poisson", 0.01, 1.0, 1_000),
}


def plan(shape: Event, epsilon: float) -> Composition:
    """A plan of a shape with a budget of its own."""

    def events(noise: float) -> list[Event]:
        return [Event(shape.sampler, shape.sampling_prob, noise, shape.n_steps)]

    relation = "add_or_remove_one"
    noise = accounting.calibrate(events, epsilon=epsilon, delta=DELTA, neighboring_relation=relation)
    return Composition(events(noise), relation)


def by_orders(units: Sequence[int], number: int, cap: float) -> float:
    """By the rule of Renyi orders, where the first plan chooses the order that is favoured."""
    favoured = spending.favoured_order(units, epsilon=spending.cap_units(cap), delta=DELTA)
    offsets = spending.offset_units(DELTA, favoured)
    return spending.spent_units([number * part for part in units], offsets) * spending.UNIT


def row(name: str, shape: Event, epsilon: float, how: str, cap: float) -> list[str]:
    cost, limit = plan(shape, epsilon), spending.cap_units(cap)
    units = spending.covered_units(cost, epsilon=limit, delta=DELTA, normal=True)
    orders = units[: len(spending.ORDERS)]
    favoured = spending.favoured_order(orders, epsilon=limit, delta=DELTA)
    found = []
    for number in NUMBERS:
        if how == "counted":
            total = spending.counted_units([number * part for part in units], favoured, DELTA) * spending.UNIT
        elif how == "best order":
            total = costs.from_renyi(lambda at, k=number: k * cost.renyi(at), DELTA)  # type: ignore[misc]
        else:
            total = by_orders(orders, number, cap)
        found.append(f"{total / costs.total({cost: number}).epsilon(DELTA):.3f}")
    return [name, f"{epsilon:g}", how, *found]


def main() -> None:
    print("## What a ledger counts for plans that are chosen one after the other\n")
    print(
        f"Over the epsilon of the same plans, all fixed beforehand, at delta = {DELTA:g}. 'counted' is what a ledger in"
    )
    print(
        "a file counts; 'orders alone' what it counts in PostgreSQL; 'best order' is a Renyi order that somebody knew"
    )
    print("beforehand: no rule that ends with one order counts less.")
    for cap in CAPS:
        head = ["plan", "epsilon of each", "rule", *map(str, NUMBERS)]
        print(f"\n### Cap {cap:g}\n\n| {' | '.join(head)} |\n|{'---|' * len(head)}")
        for epsilon in (0.5, 1.0):
            for name, shape in SHAPES.items():
                for how in ("counted", "orders alone", "best order"):
                    print(f"| {' | '.join(row(name, shape, epsilon, how, cap))} |")


if __name__ == "__main__":
    main()
