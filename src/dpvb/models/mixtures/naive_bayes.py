"""Naive Bayes: a mixture whose labels are observed, over mixed columns or over the words of documents.

    k ~ π,   categories_j ~ p_kj,   numbers_d ~ N(m_kd, v_kd),   counts_p ~ Poisson(λ_kp),   words_w ~ p_kw

==================  =============================================================================
paper               code
==================  =============================================================================
e_y                 r_nk: the label of a row as zeros and a one
π, p_kj, p_kw       number_k, expected_kv, word_kw: Dirichlet and beta posteriors
m_kd, v_kd, λ_kp    numbers, rates: see `moments`
block "count"       Σ e_y, norm 1
block "categories"  Σ e_y ⊗ onehots of D columns, norm √D; numbers are categories too, by public bins
block "moments"     Σ e_y ⊗ (x, x², c/most) of M numbers and P counts, norm √(2M + P)
block "words"       Σ e_y ⊗ x min(1, C/‖x‖), norm C; the wall clips
==================  =============================================================================

All is released once. What follows, posteriors and predictions, is read from noisy sums.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpvb.core.blocks import Block
from dpvb.core.contributions import Contributions
from dpvb.core.estimate import Estimate
from dpvb.core.forms import Kron, Rows, SparseRows
from dpvb.core.schedule import Schedule
from dpvb.guards.arrays import Floats, Ints
from dpvb.guards.errors import check_choice, check_integer, check_number
from dpvb.models.mixtures import bins, categorical, moments, tuned, words
from dpvb.models.mixtures.classes import Classes, Released, read
from dpvb.models.mixtures.columns import Columns
from dpvb.models.mixtures.components import MixedRows


@dataclass(frozen=True)
class NaiveBayes:
    """The model; every field is public.

    Attributes:
        n_classes: K.
        columns: what is declared of the columns beside the label, whose place stands before their categories.
        num_bins: bins of each number; 0: numbers are Gaussian.
        num_words: W, of documents; they have no columns.
        clip: C, the bound of a document.
        lengths: whether classes differ in how many words a document has.
        prior: rows that the priors count for: of each class, of each category, of each mean.
        estimate: "posterior" (predictions average over the parameters) or "mode".

    Raises:
        ParameterError: for a field outside its range.
    """

    n_classes: int
    columns: Columns
    num_bins: int = tuned.BINS
    num_words: int = 0
    clip: float = tuned.WORDS
    lengths: bool = False
    prior: float = 1.0
    estimate: str = "posterior"

    def __post_init__(self) -> None:
        check_integer("classes", self.n_classes, low=2, high=10**4)
        check_integer("bins", self.num_bins, low=0, high=10**4)
        check_number("clip", self.clip, low=1e-2, high=1e6)
        check_number("alpha", self.prior, low=0, high=1e9)
        check_choice("estimate", self.estimate, ("posterior", "mode"))

    @property
    def sizes(self) -> tuple[int, ...]:
        """Categories of each column that has any: of those declared, then of bins or of gaps."""
        own, gaps = self.columns.sizes, self.columns.gaps
        if not self.num_bins:
            return own
        return (*own[: len(own) - len(gaps)], *bins.sizes(self.columns.numbers, gaps, self.num_bins))

    @property
    def gaussians(self) -> int:
        """M: numbers that have moments."""
        return 0 if self.num_bins else self.columns.numbers

    @property
    def blocks(self) -> Mapping[str, Block]:
        """Labels, and what stands beside them: each entry of a table has the noise of any other."""
        k, p, own = self.n_classes, len(self.columns.max_counts), dict[str, Block]()
        if self.sizes:
            bound = math.sqrt(len(self.sizes))
            own["categories"] = Block((k * sum(self.sizes),), bound, "nonnegative", "first", weight=bound)
        if size := 2 * self.gaussians + p:
            own["moments"] = Block((k, size), math.sqrt(size), "real", "first", weight=math.sqrt(size))
        if self.num_words:
            own["words"] = Block((k * self.num_words,), self.clip, "nonnegative", "first", weight=1.0)
        length = math.hypot(*(block.weight for block in own.values()))
        weight = tuned.LABELS / math.sqrt(1 - tuned.LABELS**2) * length
        return {"count": Block((k,), 1.0, "nonnegative", "first", weight=weight), **own}

    @property
    def schedule(self) -> Schedule:
        """No steps."""
        return Schedule(())

    def init(self, rng: np.random.Generator) -> Classes:
        """The prior, before any row."""
        return self.read({name: np.zeros(block.shape) for name, block in self.blocks.items()}, {})

    def e_step(self, q: Classes, batch: Any, blocks: Mapping[str, Block]) -> Contributions:
        """Every row's label, and what it has beside it; a row with a fault in either has neither."""
        made: dict[str, Any] = {}
        if self.num_words:
            made["count"], made["words"] = words.split(batch, self.num_words, self.n_classes)
            made["count"] = Rows(made["count"])
        else:
            r_nk = categorical.one_hot(batch.code_nj[:, :1], (self.n_classes,)) * batch.sound_n[:, None]
            made["count"] = Rows(r_nk)
            made["categories"] = self._cells(batch)
            x_nd = np.nan_to_num(batch.x_nd[:, : self.gaussians])
            made["moments"] = Kron(r_nk, np.hstack([x_nd, x_nd**2, batch.count_np / self.columns.most_p]))
        return {name: made[name] for name in blocks}

    def m_step(self, s: Estimate, q: Classes) -> Classes:
        """What one release says, without further passes."""
        return self.read({name: s.read(name) for name in self.blocks}, {n: s.noise_std(n) for n in self.blocks})

    def read(self, sums: Mapping[str, Floats], std: Mapping[str, float]) -> Classes:
        """Posteriors from sums and their noise, by the names of the blocks."""
        k, none = self.n_classes, np.zeros((self.n_classes, 0))
        names = ("categories", "moments", "words")
        cell_kv, moment_kf, word_kw = (sums[name].reshape(k, -1) if name in sums else none for name in names)
        noise = (std.get(name, 0.0) for name in ("count", *names))
        released = Released(sums["count"], cell_kv, moment_kf, word_kw, *noise)
        return read(released, self.columns, self.sizes, self.num_bins, max(self.prior, 1e-9), lengths=self.lengths)

    def log_joint(self, q: Classes, rows: Any) -> Floats:
        """Log-probability of each class with all that a row has beside its label, (n, K), in nats."""
        log_k = np.log(q.number_k / q.number_k.sum())
        if self.num_words:
            return np.asarray(words.log_probability(rows, q.word_kw, self.clip) + log_k)
        labelled = rows.code_nj.shape[1] - len(self.columns.sizes)
        log_kv, predictive = np.log(categorical.normalised(q.expected_kv, self.sizes)), self.estimate == "posterior"
        log_nk = categorical.log_density(self._codes(rows, labelled), log_kv, self.sizes) + log_k
        log_nk += moments.log_number(rows.x_nd[:, : self.gaussians], q.numbers, predictive=predictive)
        log_nk += moments.log_count(rows.count_np, q.rates, predictive=predictive)
        return np.asarray(log_nk)

    def _cells(self, batch: MixedRows) -> SparseRows:
        """A one for each column, at the place of the row's class and category."""
        start_j, code_nj = np.cumsum((0, *self.sizes)), self._codes(batch, 1)
        n, width = code_nj.shape
        place_nj = batch.code_nj[:, :1] * start_j[-1] + start_j[:-1] + code_nj
        return SparseRows(np.arange(n + 1) * width, place_nj.ravel(), np.repeat(batch.sound_n, width))

    def _codes(self, rows: MixedRows, labelled: int) -> Ints:
        """Places of all categories, bins among them, behind the label where there is one."""
        own_nj = rows.code_nj[:, labelled:]
        if not self.num_bins:
            return own_nj
        own_nj = own_nj[:, : own_nj.shape[1] - len(self.columns.gaps)]  # A gap is one more bin.
        return np.hstack([own_nj, bins.codes(rows.x_nd, self.columns.gaps, self.num_bins)])
