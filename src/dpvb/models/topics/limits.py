"""Numbers that the compiled kernel and the plain one share."""

#: Largest share of the last change of F(γ) that is added to it.
MOST_MOMENTUM = 0.95
#: Least part of γ_k - α_k that momentum leaves.
KEPT = 0.1
#: A word less probable than this has no topic, and adds nothing.
NO_MASS = 1e-200
#: A document whose largest count lies outside is taken as empty.
HUGE, TINY = 1e30, 1e-100
#: A relative rounding error of float64 is at most half of it.
ROUNDING = 2.0**-52
