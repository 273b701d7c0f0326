"""A NumPyro model as a log-density of one row and a log-prior, over unconstrained parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from dpvb.guards.errors import ParameterError
from dpvb.models.gradients.density import Density, optional


@dataclass(frozen=True)
class NumPyro:
    """A model split into rows and prior; θ is {site: unconstrained value}, which starts at zero.

    Attributes:
        model: takes x, (rows, features), and y, (rows,) or (rows, k), if there is one; draws its latent variables once
            for all rows, and observes in a plate over x.shape[0]. It is called with one row.
        features, responses: as in `Density`.
    """

    model: Callable[..., Any]
    features: int
    responses: int | None = None

    def density(self) -> Density:
        """The model as a log-density (with the log Jacobians of Kucukelbir et al. 2017 in the prior).

        Raises:
            ParameterError: if NumPyro is not installed, or for a model that is not a sum over rows: with latent
                variables of each row, sizes that are not taken from x, or a prior that looks at the rows.
        """
        self._check()
        start = {name: np.zeros(shape, dtype=np.float32) for name, shape in self._sites[1].items()}
        return Density(self.log_density, start, self.features, self.responses, self.log_prior)

    def __getstate__(self) -> dict[str, Any]:
        """Return only the fields; derived values are computed anew."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    def log_density(self, theta: Mapping[str, Any], x: Any, y: Any = None) -> Any:
        """Density log p(row | θ)."""
        return self._parts(theta, x[None], None if y is None else y[None])[0]

    def log_prior(self, theta: Mapping[str, Any]) -> Any:
        """Density log p(θ) with the Jacobians of the transforms."""
        return self._parts(theta, *self._rows(1))[1]

    def constrained(self, theta: Mapping[str, Any]) -> dict[str, Any]:
        """Values of the latent variables themselves."""
        return {name: transform(theta[name]) for name, transform in self._sites[0].items()}

    @cached_property
    def _sites(self) -> tuple[dict[str, Any], dict[str, tuple[int, ...]]]:
        """Transform of each latent variable, and its unconstrained shape."""
        biject_to = optional("numpyro.distributions").biject_to
        latent = {name: site for name, site in self._trace(1).items() if _is_latent(site)}
        transforms = {name: biject_to(site["fn"].support) for name, site in latent.items()}
        return transforms, {
            name: tuple(transforms[name].inverse_shape(np.shape(site["value"]))) for name, site in latent.items()
        }

    def _trace(self, num_rows: int) -> Any:
        """Sites of a run on public rows with drawn latent variables."""
        handlers = optional("numpyro.handlers")
        key = optional("jax").random.PRNGKey(0)
        arguments = [part for part in self._rows(num_rows) if part is not None]
        return handlers.trace(handlers.seed(self.model, key)).get_trace(*arguments)

    def _rows(self, num_rows: int) -> tuple[Any, Any]:
        """Public rows of zeros and ones."""
        value = np.arange(num_rows, dtype=np.float32)
        x = np.tile(value[:, None], (1, self.features))
        return x, None if self.responses is None else np.tile(
            value[:, None], self.responses
        ) if self.responses else value

    def _parts(self, theta: Mapping[str, Any], x: Any, y: Any) -> tuple[Any, Any]:
        """Sums of the log densities of what is observed and of what is latent."""
        handlers = optional("numpyro.handlers")
        values = self.constrained(theta)
        model = handlers.substitute(self.model, data=values)
        observed, latent = 0.0, 0.0
        for name, site in handlers.trace(model).get_trace(*([x] if y is None else [x, y])).items():
            if site["type"] != "sample":
                continue
            log_p = site["fn"].log_prob(site["value"], *([site["intermediates"]] if site["intermediates"] else []))
            total = (log_p if site["scale"] is None else site["scale"] * log_p).sum()
            if name in values:
                jacobian = self._sites[0][name].log_abs_det_jacobian(theta[name], values[name])
                latent = latent + total + jacobian.sum()
            else:
                observed = observed + total
        return observed, latent

    def _check(self) -> None:
        """Try the model on public rows: sites, shapes, and that it is a prior plus a sum over rows."""
        fault, cause = "", ""
        try:
            one, two = self._trace(1), self._trace(2)
            shapes = [{n: np.shape(site["value"]) for n, site in t.items() if _is_latent(site)} for t in (one, two)]
            if not shapes[0] or not any(site["type"] == "sample" and not _is_latent(site) for site in one.values()):
                fault = "it needs a latent variable and an observed one"
            elif shapes[0] != shapes[1]:
                fault = "its latent variables must be drawn once for all rows; integrate out those of each row"
            else:
                draw = np.random.default_rng(0)
                theta = {n: draw.standard_normal(shape).astype(np.float32) for n, shape in self._sites[1].items()}
                both = [np.asarray(part) for part in self._parts(theta, *self._rows(2))]
                x, y = self._rows(2)
                each = [self._parts(theta, x[i : i + 1], None if y is None else y[i : i + 1]) for i in (0, 1)]
                if not np.allclose(each[0][1], each[1][1], rtol=1e-4, atol=1e-4, equal_nan=True):
                    fault = "its prior must not look at the rows"
                elif not np.allclose(each[0][0] + each[1][0], both[0], rtol=1e-4, atol=1e-4, equal_nan=True):
                    fault = "what it observes must be independent between rows, in a plate over x.shape[0]"
        except ParameterError:
            raise
        except Exception as error:  # Any error of the user's code; it saw only public rows.
            fault = f"it raised {type(error).__name__} on public rows"
            cause = f": {str(error).strip().splitlines()[0]}" if str(error).strip() else ""
        if fault:
            raise ParameterError(f"numpyro_model(x{'' if self.responses is None else ', y'}): {fault}{cause}.")


def _is_latent(site: Mapping[str, Any]) -> bool:
    return site["type"] == "sample" and not site["is_observed"]
