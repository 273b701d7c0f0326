"""A log-density in JAX: what users write, brought to one flat vector of parameters and one row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpvb.guards.arrays import Floats
from dpvb.guards.errors import ParameterError

#: Entries of the rows on which a density is tried. It must be finite on one of these rows only: zero may lie outside
#: its support.
_TRIED = (0.0, 1.0, 0.5)
_LARGEST = 10**8


@dataclass(frozen=True)
class Density:
    """Density log p(row | θ) and log p(θ); everything in it is public.

    Attributes:
        log_density: (θ, x) or (θ, x, y) -> scalar, written with jax.numpy; x is (features,), float32.
        parameters: number of parameters, θ being a vector (P,) that starts at zero; or an example of θ, any pytree of
            arrays, whose values are the start.
        features: length of x.
        responses: None: there is no y; 0: y is a scalar; k: y is (k,).
        log_prior: θ -> scalar; None: standard normal.

    Raises:
        ParameterError: if JAX is not installed, or a function is not what it should be; both are tried on public rows.
    """

    log_density: Callable[..., Any]
    parameters: Any
    features: int
    responses: int | None = None
    log_prior: Callable[[Any], Any] | None = None

    def __post_init__(self) -> None:
        for name, function in (("log_density", self.log_density), ("log_prior", self.log_prior)):
            if not (callable(function) or (name == "log_prior" and function is None)):
                raise ParameterError(f"{name} must be a function, got {type(function).__name__}.")
        _ = self._start
        rows = [tuple(np.full(shape, value, dtype=np.float32) for shape in self.shapes) for value in _TRIED]
        if not _is_finite(self._call, self.likelihood, self.start, rows):
            raise ParameterError(
                f"{self._call} and its gradient must be finite at the start of theta, on a row of zeros, of ones or of "
                "halves; they were on none. Give another start with parameters=, or write the density so that they are."
            )
        if not _is_finite("log_prior(theta)", self.prior, self.start, [()]):
            raise ParameterError(
                "log_prior(theta) and its gradient must be finite at the start of theta. Give another start with "
                "parameters=."
            )

    def __getstate__(self) -> dict[str, Any]:
        """Return only the fields; derived values are computed anew."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Shapes of a row's parts: x, and y if there is one."""
        if self.responses is None:
            return ((self.features,),)
        return (self.features,), (self.responses,) if self.responses else ()

    @property
    def num_parameters(self) -> int:
        """P."""
        return len(self.start)

    @property
    def start(self) -> NDArray[np.float32]:
        """Where θ starts, (P,)."""
        return self._start[0]

    @cached_property
    def _start(self) -> tuple[NDArray[np.float32], Callable[[Any], Any]]:
        """Flat start, and the way back to the form of θ."""
        ravel = optional("jax.flatten_util").ravel_pytree
        example = self.parameters
        if isinstance(example, (int, np.integer)) and not isinstance(example, bool):
            if not 1 <= example <= _LARGEST:
                raise ParameterError(f"parameters must be a number in [1, {_LARGEST}], or a pytree, got {example}.")
            example = np.zeros(int(example), dtype=np.float32)
        try:
            with np.errstate(over="ignore"):  # A value that is not a float32 is infinite, and refused below.
                tree = optional("jax").tree.map(lambda leaf: np.asarray(leaf, dtype=np.float32), example)
            flat, back = ravel(tree)
            start = np.asarray(flat, dtype=np.float32)
        except (TypeError, ValueError) as error:
            raise ParameterError(
                f"parameters must be a number of parameters, or a pytree of arrays of numbers: {error}"
            ) from None
        if not len(start) or not np.isfinite(start).all():
            raise ParameterError("parameters must hold at least one number, all of them finite.")
        return start, back

    def tree(self, theta_p: Any) -> Any:
        """θ in the form that the user's functions take."""
        return self._start[1](theta_p)

    def likelihood(self, theta_p: Any, *row: Any) -> Any:
        """Density log p(row | θ), a JAX scalar; a row is x, or x and y."""
        return self.log_density(self.tree(theta_p), *row)

    def prior(self, theta_p: Any) -> Any:
        """Density log p(θ), a JAX scalar; the default is given up to a constant."""
        if self.log_prior is None:
            return -0.5 * (theta_p**2).sum()
        return self.log_prior(self.tree(theta_p))

    def prior_gradient(self, theta_p: Floats) -> Floats:
        """∇ log p(θ), (P,)."""
        return np.asarray(self._prior_gradient(theta_p.astype(np.float32)), dtype=np.float64)

    @cached_property
    def _prior_gradient(self) -> Callable[[Any], Any]:
        jax = optional("jax")
        compiled: Callable[[Any], Any] = jax.jit(jax.grad(self.prior))
        return compiled

    @property
    def _call(self) -> str:
        return "log_density(theta, x)" if self.responses is None else "log_density(theta, x, y)"


def _is_finite(call: str, function: Callable[..., Any], theta_p: Any, rest: list[tuple[Any, ...]]) -> bool:
    """Whether a function and its gradient are finite numbers at one of some public arguments.

    Raises:
        ParameterError: if it does not return a real scalar.
    """
    jax = optional("jax")
    try:
        shape = jax.eval_shape(function, theta_p, *rest[0])
        if getattr(shape, "shape", None) == () and np.issubdtype(shape.dtype, np.floating):
            both = jax.jit(jax.value_and_grad(function))
            results = [both(theta_p, *arguments) for arguments in rest]
            return any(bool(np.isfinite(value)) and bool(np.isfinite(slope).all()) for value, slope in results)
        what = f"an array {shape.shape} of {shape.dtype}" if hasattr(shape, "shape") else type(shape).__name__
        fault = f"it returned {what}"
    except Exception as error:  # Any error of the user's code; it saw only public rows.
        fault = f"it raised {type(error).__name__}: {(str(error).strip().splitlines() or [''])[0].rstrip('.')}"
    raise ParameterError(
        f"{call} must return one real number for one theta and one row, written with jax.numpy; {fault}."
    )


# The optional packages, imported when they are first needed.


def optional(name: str) -> Any:
    """Import JAX, NumPyro or a part of theirs.

    Raises:
        ParameterError: if it is not installed.
    """
    try:
        return import_module(name)
    except ImportError:
        missing = name.split(".")[0]
    raise ParameterError(f"DPVI needs {missing}, which is not installed: pip install '.[jax]' in dpvb's source folder.")
