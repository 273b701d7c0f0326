"""Natural cubic splines by the values that they take at knots: f(x) = Σ_k f(ξ_k) C_k(x).

C_k is the natural spline that is 1 at the knot ξ_k and 0 at all others. Between knots it is a cubic with continuous
second derivatives M_ik, before the first and behind the last knot a straight line. A spline depends on its knots alone,
and on no range. All of this is public; every value is made from its own x.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dpvb.data.spelling import Floats


class NaturalSpline:
    """The functions C_k of some knots."""

    def __init__(self, knots: Sequence[float]) -> None:
        """Take three or more numbers in increasing order."""
        self._knot_k = np.array(knots, dtype=np.float64)
        self._gap_i = np.diff(self._knot_k)
        self._bend_kk = self._second_derivatives()
        gap_i, line_ik = self._gap_i, np.diff(np.eye(len(self._knot_k)), axis=0) / self._gap_i[:, None]
        self._slopes = (
            line_ik[0] - gap_i[0] / 6 * self._bend_kk[1],
            line_ik[-1] + gap_i[-1] / 6 * self._bend_kk[-2],
        )

    def __call__(self, x_n: Floats) -> Floats:
        """C_k(x), (n, k); NaN where x is."""
        knot_k, (first_k, last_k) = self._knot_k, self._slopes
        inside_n = np.clip(x_n, knot_k[0], knot_k[-1])
        i_n = np.clip(np.searchsorted(knot_k, inside_n, side="right") - 1, 0, len(self._gap_i) - 1)
        gap_n1, one_kk = self._gap_i[i_n][:, None], np.eye(len(knot_k))
        t_n1 = (inside_n - knot_k[i_n])[:, None] / gap_n1
        s_n1 = 1.0 - t_n1
        # Products, since a power may be rounded by the place that an entry has in its array.
        bent_nk = (s_n1 * s_n1 * s_n1 - s_n1) * self._bend_kk[i_n] + (t_n1 * t_n1 * t_n1 - t_n1) * self._bend_kk[
            i_n + 1
        ]
        value_nk = s_n1 * one_kk[i_n] + t_n1 * one_kk[i_n + 1] + gap_n1 * gap_n1 / 6 * bent_nk
        slope_nk = np.where((x_n < knot_k[0])[:, None], first_k, last_k)
        return np.asarray(value_nk + (x_n - inside_n)[:, None] * slope_nk)

    def ends(self, low: float, high: float) -> tuple[Floats, Floats]:
        """The least and the largest C_k(x) of low ≤ x ≤ high, (k,) each: at an end, at a knot, or where C_k is flat."""
        gap_i1, knot_i1 = self._gap_i[:, None], self._knot_k[:-1, None]
        before_ik, behind_ik = self._bend_kk[:-1], self._bend_kk[1:]
        slope_ik = np.diff(np.eye(len(self._knot_k)), axis=0) / gap_i1
        # The derivative of C_k in interval i is a·t² + b·t + c.
        a_ik, b_ik = gap_i1 / 2 * (behind_ik - before_ik), gap_i1 * before_ik
        c_ik = slope_ik - gap_i1 / 6 * (2 * before_ik + behind_ik)
        with np.errstate(all="ignore"):
            root_ik = np.sqrt(b_ik**2 - 4 * a_ik * c_ik)
            half_ik = -0.5 * (b_ik + np.where(b_ik < 0, -root_ik, root_ik))
            flat = np.concatenate([half_ik / a_ik, c_ik / half_ik])
        flat = np.where((flat > 0) & (flat < 1), flat, 0.0) * np.tile(gap_i1, (2, 1)) + np.tile(knot_i1, (2, 1))
        points = np.unique(np.concatenate([[low, high], self._knot_k, flat.ravel()]))
        value_pk = self(points[(points >= low) & (points <= high)])
        return value_pk.min(axis=0), value_pk.max(axis=0)

    def _second_derivatives(self) -> Floats:
        """M, (k, k): row i has the second derivatives of all C_k at knot i, which are 0 at both ends.

        Continuous slopes at the inner knots are a tridiagonal system, which is solved by elimination in a fixed order,
        so that every machine gets the same bits.
        """
        gap_i, bend_kk = self._gap_i, np.zeros((len(self._knot_k), len(self._knot_k)))
        jump_ik = np.diff(np.diff(np.eye(len(self._knot_k)), axis=0) / gap_i[:, None], axis=0)
        diagonal_i = (gap_i[:-1] + gap_i[1:]) / 3
        for i in range(1, len(jump_ik)):
            share = gap_i[i] / 6 / diagonal_i[i - 1]
            diagonal_i[i] -= share * gap_i[i] / 6
            jump_ik[i] -= share * jump_ik[i - 1]
        for i in reversed(range(len(jump_ik))):
            bend_kk[i + 1] = (jump_ik[i] - gap_i[i + 1] / 6 * bend_kk[i + 2]) / diagonal_i[i]
        return bend_kk
