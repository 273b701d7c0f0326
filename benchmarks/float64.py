"""Models whose E-steps keep their parameters in float64, where the package's keep them in float32 for speed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from dpvb.models.belief_network import kernel
from dpvb.models.belief_network.sbn import SBN
from dpvb.models.topics.lda import LDAModel, met


class Float64Topics(LDAModel):
    """Latent Dirichlet allocation with exp⟨log β⟩ in float64."""

    def topics(self, lambda_vk: Any, *others: Any) -> Any:
        """Return q(β) with these Dirichlet parameters."""
        beta_vk = met(lambda_vk, means=self.means, mode=self.mode)
        return replace(super().topics(lambda_vk, *others), beta_vk=beta_vk)


class Float64Network(SBN):
    """A sigmoid belief network with weights and expectations in float64."""

    def local(self, q: Any, y_nj: Any, sweeps: int) -> Any:
        """Return each example's ⟨z⟩, ⟨ξ⟩ and ⟨ψ⟩."""
        return kernel.local_step(y_nj, q.w_kj, q.c_j, q.b_k, sweeps=sweeps, dtype=np.float64)
