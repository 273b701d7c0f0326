"""Expected standard errors of the transition probabilities of chains, from public numbers; unit: a person."""

from __future__ import annotations

import math

import numpy as np

from dpvb.models.sequences import markov_chain

# Benchmark `forecasts` shows what these do. Windows of a typical person, over those of the longest sequence; share of a
# typical symbol, over that of even ones; how much harder states are to tell than symbols are.
_USUAL, _SHARE, _HIDDEN = 0.2, 0.7, 0.5


def total(n: float, longest: int, width: int, k: int, power: float, bound: float) -> float:
    """Expected weight of all windows of n persons.

    Args:
        n: number of persons.
        longest: windows of the longest sequence that counts.
        width, k: number of symbols, and how many a window has.
        power, bound: how much persons with many windows weigh, and the bound on what one adds.
    """
    m = max(_USUAL * longest, 1.0)
    length = m ** (power - 1) * math.sqrt(m + m * m / float(width) ** k)
    return float(n * m**power * min(1.0, bound / length))


def deviation(symbols: int, order: int, weight: float, n: float, power: float, prior: float, noise: float) -> float:
    """Standard deviation of a transition probability where all symbols are as likely.

    Args:
        symbols, order: of a chain.
        weight: of all windows.
        n: number of persons.
        power, prior: as in `markov_chain`.
        noise: std of a window's weight.
    """
    law = np.full((1, symbols), 1 / symbols)
    each = markov_chain.window_weight(weight, n, power)
    return float(markov_chain.deviations(law, _SHARE * law * weight / symbols**order, prior, each, noise)[0, 0])


def hidden(states: int, symbols: int, length: int, weight: float, n: float, power: float, noise: float) -> float:
    """The same of states behind symbols, each of which stands for its part of them.

    Args:
        states, symbols, length: K, V, and symbols of a window.
        weight, n, power, noise: as in `deviation`.
    """
    cells = symbols**length / states**2
    return _HIDDEN * deviation(states, 1, weight, n, power, 0.0, noise * math.sqrt(cells))
