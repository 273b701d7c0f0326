"""Naive Bayes: a mixture whose labels are observed, over mixed columns or over the words of documents.

    k ~ π,   categories_j ~ p_kj,   numbers_d ~ N(m_kd, v_kd),   counts_p ~ Poisson(λ_kp),   words_w ~ p_kw

==================  =============================================================================
paper               code
==================  =============================================================================
e_y                 r_nk: the label of a row as zeros and a one
π, p_kj, p_kw       number_k, expected_kv, word_kw: Dirichlet and beta posteriors
m_kd, v_kd, λ_kp    numbers, rates: see `number_posterior` and `rate_posterior`
block "count"       Σ e_y, norm 1
block "categories"  Σ e_y ⊗ onehots of D columns, norm √D; numbers are categories too, by public bins
block "moments"     Σ e_y ⊗ (x, x², c/most) of M numbers and P counts, norm √(2M + P)
block "words"       Σ e_y ⊗ x min(1, C/‖x‖), norm C; the wall clips
==================  =============================================================================

All is released once. Posteriors and predictions are estimated from noisy sums.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from scipy.special import gammaln

from dpvb.core.blocks import Block, Contributions
from dpvb.core.estimate import Estimate
from dpvb.core.forms import Kron, Rows, SparseRows
from dpvb.core.model import ESTIMATES, Model, PosteriorOrMAP, Schedule
from dpvb.guards.arrays import Floats, Ints
from dpvb.guards.domains import PROBABILITIES, Nonnegative, Nonnegatives, Positives
from dpvb.guards.errors import ParameterError, check_choice, check_integer, check_number
from dpvb.models import empirical_bayes
from dpvb.models.expfam import dirichlet_logz
from dpvb.models.mixtures import categorical, tuned
from dpvb.models.mixtures.components import MixedColumns, RunningCounts
from dpvb.rows import CountRows, MixedRows

# Share of a class's documents that hold a word typical of the class; benchmark `forecasts` chose it and the next two.
_WORD = 0.1
# Part of the noise variance that is left in a table after it is shrunk towards that of all classes.
_LEFT = 0.5
# A typical probability, over that of equally probable values.
_EVEN = 0.5
# Variance of a number in [-1, 1] where there are no rows: that of a quarter of the range.
_PUBLIC_VARIANCE = 0.25
# Least total of a class, over its share.
_LEAST_TOTAL = 0.05


@dataclass(frozen=True)
class NaiveBayesModel(Model["Classes", MixedRows | CountRows]):
    """The model; every field is public.

    Attributes:
        n_classes: K.
        columns: declarations of the columns other than the label, whose place is before their categories.
        num_bins: bins of each number; 0: numbers are Gaussian.
        num_words: W, of documents; they have no columns.
        clip_norm: C, the bound of a document.
        lengths: whether classes differ in how many words a document has.
        prior: rows that the priors count for: of each class, of each category, of each mean.
        estimate: "posterior" (predictions average over the parameters) or "map".

    Raises:
        ParameterError: for a field outside its range.
    """

    n_classes: int
    columns: MixedColumns
    num_bins: int = tuned.BINS
    num_words: int = 0
    clip_norm: float = tuned.WORDS
    lengths: bool = False
    prior: float = 1.0
    estimate: PosteriorOrMAP = "posterior"

    def __post_init__(self) -> None:
        check_integer("classes", self.n_classes, low=2, high=10**4)
        check_integer("bins", self.num_bins, low=0, high=10**4)
        check_number("clip_norm", self.clip_norm, low=1e-2, high=1e6)
        check_number("alpha", self.prior, low=0, high=1e9)
        check_choice("estimate", self.estimate, ESTIMATES)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Categories of each column that has any: of those declared, then of bins or of gaps."""
        sizes, gaps = self.columns.sizes, self.columns.gaps
        if not self.num_bins:
            return sizes
        return (*sizes[: len(sizes) - len(gaps)], *bin_sizes(self.columns.numbers, gaps, self.num_bins))

    @property
    def gaussians(self) -> int:
        """M: numbers that have moments."""
        return 0 if self.num_bins else self.columns.numbers

    @property
    def blocks(self) -> Mapping[str, Block]:
        """Labels, and the other columns: each entry of a table has the noise of any other."""
        k, p, blocks = self.n_classes, len(self.columns.max_counts), dict[str, Block]()
        if self.sizes:
            bound = math.sqrt(len(self.sizes))
            blocks["categories"] = Block((k * sum(self.sizes),), bound, "nonnegative", "first", weight=bound)
        if size := 2 * self.gaussians + p:
            blocks["moments"] = Block((k, size), math.sqrt(size), "real", "first", weight=math.sqrt(size))
        if self.num_words:
            blocks["words"] = Block((k * self.num_words,), self.clip_norm, "nonnegative", "first", weight=1.0)
        length = math.hypot(*(block.weight for block in blocks.values()))
        weight = tuned.LABELS / math.sqrt(1 - tuned.LABELS**2) * length
        return {"count": Block((k,), 1.0, "nonnegative", "first", weight=weight), **blocks}

    @property
    def schedule(self) -> Schedule:
        """No steps."""
        return Schedule(())

    def init(self, rng: np.random.Generator) -> Classes:
        """The prior, before any row."""
        return self.read({name: np.zeros(block.shape) for name, block in self.blocks.items()}, {})

    def e_step(self, q: Classes, batch: MixedRows | CountRows, blocks: Mapping[str, Block]) -> Contributions:
        """Every row's label, and its other columns; a row with a fault in either has neither."""
        parts: dict[str, Any] = {}
        if isinstance(batch, CountRows):
            parts["count"], parts["words"] = split_labels(batch, self.num_words, self.n_classes)
            parts["count"] = Rows(parts["count"])
        else:
            r_nk = categorical.one_hot(batch.code_nj[:, :1], (self.n_classes,)) * batch.sound_n[:, None]
            parts["count"] = Rows(r_nk)
            parts["categories"] = self._cells(batch)
            x_nd = np.nan_to_num(batch.x_nd[:, : self.gaussians])
            parts["moments"] = Kron(r_nk, np.hstack([x_nd, x_nd**2, batch.count_np / self.columns.most_p]))
        return {name: parts[name] for name in blocks}

    def started(self, s: Estimate, q: Classes) -> Classes:
        """Estimates from one release, without further passes."""
        return self.read({name: s.noisy(name) for name in self.blocks}, {n: s.noise_std(n) for n in self.blocks})

    def read(self, sums: Mapping[str, Floats], std: Mapping[str, float]) -> Classes:
        """Posteriors from sums and their noise, by the names of the blocks."""
        k, none = self.n_classes, np.zeros((self.n_classes, 0))
        names = ("categories", "moments", "words")
        cell_kv, moment_kf, word_kw = (sums[name].reshape(k, -1) if name in sums else none for name in names)
        noise = (std.get(name, 0.0) for name in ("count", *names))
        released = ReleasedTables(sums["count"], cell_kv, moment_kf, word_kw, *noise)
        return self.posteriors(released)

    def posteriors(self, new: ReleasedTables) -> Classes:
        """Return the posteriors of all classes from noisy sums."""
        columns, sizes, num_bins, prior = self.columns, self.sizes, self.num_bins, max(self.prior, 1e-9)
        number_k, std = RunningCounts(new.count_k, new.cell_kv, new.count_std, new.cell_std, 1.0, 1).rows(sizes)
        row_k = np.maximum(number_k, tuned.LEAST_ROWS * std)
        cell_kv, std_v = new.cell_kv, np.full(sum(sizes), new.cell_std)
        for places in categorical.starts(sizes)[len(sizes) - columns.numbers :] if num_bins else []:
            together = bins_together(float(row_k.mean()), new.cell_std, num_bins)
            cell_kv = merged_bins(cell_kv, places.start, num_bins, together)
            std_v[places.start : places.start + num_bins] /= math.sqrt(together)
        base_v = categorical.marginals(cell_kv.sum(axis=0), new.cell_std * math.sqrt(len(row_k)), sizes)
        noise_kv = categorical.shares(cell_kv, row_k, base_v, std_v, sizes)
        noise_kv *= (std_v / np.maximum(row_k, 1.0)[:, None]) ** 2
        gaussians = self.gaussians
        # Rows that have a number: of one that may be missing, its own category counts them.
        there_kd = np.repeat(row_k[:, None], gaussians, axis=1)
        gaps = columns.gaps if gaussians else ()
        for place, places in zip(gaps, categorical.starts(sizes)[len(sizes) - len(gaps) :], strict=True):
            there_kd[:, place] = np.maximum(new.cell_kv[:, places.start], 0.0)
        first_kd, second_kd, count_kp = np.split(new.moment_kf, [gaussians, 2 * gaussians], axis=1)
        most_p, total_k1 = columns.most_p, row_k[:, None] + 2 * prior
        present_kw = read_words(new.word_kw, row_k + prior, new.word_std, lengths=self.lengths)
        return Classes(
            row_k + prior,
            std,
            categorical.drawn(cell_kv, row_k, base_v, std_v, sizes) + prior,
            noise_kv,
            number_posterior(first_kd, second_kd, there_kd, new.moment_std, prior),
            rate_posterior(count_kp * most_p, row_k, new.moment_std * most_p, most_p, prior),
            (np.minimum(present_kw, row_k[:, None]) + prior) / total_k1,
            np.minimum((new.word_std / total_k1) ** 2, 0.25) * np.ones_like(new.word_kw),
        )

    def lower_bound(self, q: Classes) -> float:
        """Return the log evidence of labels and categories, in nats; q is exact, so that the bound is attained.

        Raises:
            ParameterError: where numbers are Gaussian, and for counts and words: priors of these are read from the
                rows, or do not determine the data from the released sums.
        """
        if self.gaussians or self.columns.max_counts or self.num_words:
            raise ParameterError(
                "lower_bound needs columns that are categories or numbers in bins: Gaussian numbers have a prior that "
                "is read from the rows, and sums of counts or words do not determine their likelihood."
            )
        prior = max(self.prior, 1e-9)
        parts = [q.number_k[None], *(q.expected_kv[:, places] for places in categorical.starts(self.sizes))]
        return float(sum((dirichlet_logz(one) - dirichlet_logz(np.full(one.shape, prior))).sum() for one in parts))

    def log_joint(self, q: Classes, rows: MixedRows | CountRows) -> Floats:
        """Log-probability of each class with all other columns of a row, (n, K), in nats."""
        log_k = np.log(q.number_k / q.number_k.sum())
        if isinstance(rows, CountRows):
            return np.asarray(log_words(rows, q.word_kw, self.clip_norm) + log_k)
        labelled = rows.code_nj.shape[1] - len(self.columns.sizes)
        log_kv, predictive = np.log(categorical.normalised(q.expected_kv, self.sizes)), self.estimate == "posterior"
        log_nk = categorical.log_density(self._codes(rows, labelled), log_kv, self.sizes) + log_k
        log_nk += log_number(rows.x_nd[:, : self.gaussians], q.numbers, predictive=predictive)
        log_nk += log_count(rows.count_np, q.rates, predictive=predictive)
        return np.asarray(log_nk)

    def foreseen(self, rows: float, cells: float, words: float) -> tuple[Floats, Floats, Floats]:
        """Return a typical probability of each column, its standard deviation, and that of bins apart, (columns,).

        Documents have one entry, a word's.

        Args:
            rows: expected number of rows of a class.
            cells, words: noise std of a number of rows in a table, and of a word.
        """
        if self.num_words:
            std = np.minimum(np.array([math.hypot(math.sqrt(_WORD * (1 - _WORD) / (rows + 1)), words / rows)]), 0.5)
            return np.array([_WORD]), std, std
        numbers = self.columns.numbers if self.num_bins else 0
        probability_j = _EVEN / np.array(self.sizes, dtype=np.float64)
        noise_j = np.full(len(probability_j), math.sqrt(_LEFT) * cells / rows)
        merged_j = noise_j.copy()
        if numbers:  # Neighbouring bins are brought together where noise demands.
            together = bins_together(max(rows, tuned.LEAST_ROWS * cells), cells, self.num_bins)
            merged_j[-numbers:] /= math.sqrt(together)
        sampled_j = np.sqrt(probability_j * (1 - probability_j) / (rows + 1))
        return probability_j, np.minimum(np.hypot(sampled_j, merged_j), 0.5), np.hypot(sampled_j, noise_j)

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
        return np.hstack([own_nj, bin_codes(rows.x_nd, self.columns.gaps, self.num_bins)])


# Classes of naive Bayes, and how they are estimated from the noisy sums of one release; all of it is public.


@dataclass(frozen=True)
class Classes:
    """State of the classes; all of it is public.

    Attributes:
        number_k, number_std: rows of each class, those of the prior among them, and their noise.
        expected_kv, cell_noise_kv: parameters of the tables of categories, and noise variances of the probabilities.
        numbers, rates: posteriors of numbers and counts.
        word_kw, word_noise_kw: probabilities of words, and their noise variances.
    """

    number_k: Positives
    number_std: Nonnegative
    expected_kv: Positives
    cell_noise_kv: Nonnegatives
    numbers: NumberPosterior
    rates: RatePosterior
    word_kw: Annotated[Floats, PROBABILITIES]
    word_noise_kw: Nonnegatives


@dataclass(frozen=True)
class ReleasedTables:
    """Noisy sums of labels, of categories, of moments and of words in each class, and the noise of each."""

    count_k: Floats
    cell_kv: Floats
    moment_kf: Floats
    word_kw: Floats
    count_std: float
    cell_std: float
    moment_std: float
    word_std: float


# Numbers and counts in known classes: posteriors from one release of noisy moments, and what they say of a new row.
#
#     numbers: m, v ~ normal-gamma,   x new ~ Student t;     counts: λ ~ gamma,   c new ~ negative binomial
#
# A class that is lost in the noise is shrunk towards all rows: its mean by a prior as wide as all rows are, its
# variance and its rate likewise. Without noise the posteriors are exactly the conjugate ones.


@dataclass(frozen=True)
class NumberPosterior:
    """Posterior of numbers in [-1, 1].

    Attributes:
        mean_kd, variance_kd: of the rows of a class.
        freedom_kd: degrees of freedom of the variance.
        error_kd, noise_kd: variance of a mean, and the part of it that is privacy noise.
    """

    mean_kd: Floats
    variance_kd: Positives
    freedom_kd: Positives
    error_kd: Nonnegatives
    noise_kd: Nonnegatives


@dataclass(frozen=True)
class RatePosterior:
    """Posterior of the rates of counts: means, variances, and the part of these that is privacy noise."""

    mean_kp: Positives
    error_kp: Positives
    noise_kp: Nonnegatives


def number_posterior(
    first_kd: Floats, second_kd: Floats, number_kd: Floats, std: float, prior: float
) -> NumberPosterior:
    """The posterior from sums of x and x².

    Args:
        first_kd, second_kd: noisy sums.
        number_kd: rows of each class that have the number.
        std: noise standard deviation of a sum.
        prior: rows that the prior of a mean counts for, and half of those of a variance: all rows, as they are.
    """
    row_kd = np.maximum(number_kd, 2 * std)
    all_d = row_kd.sum(axis=0) + 1.0
    middle_d = np.clip(first_kd.sum(axis=0) / all_d, -1, 1)
    wide_d = (second_kd.sum(axis=0) + _PUBLIC_VARIANCE) / all_d - middle_d**2
    wide_d = np.clip(wide_d, tuned.LEAST_VARIANCE, 1.0)
    divisor_kd = np.where(row_kd > 0, row_kd, 1.0)
    noise_kd = (std / divisor_kd) ** 2
    seen_kd = first_kd / divisor_kd
    share_kd = wide_d / (wide_d + noise_kd)
    mean_kd = np.clip(share_kd * seen_kd + (1 - share_kd) * middle_d, -1, 1)
    square_kd = second_kd / divisor_kd - seen_kd**2 + noise_kd
    # Noise of the mean square, and of the square of the mean.
    certain_kd = wide_d**2 / (wide_d**2 + noise_kd * (1 + 4 * mean_kd**2))
    variance_kd = certain_kd * np.clip(square_kd, tuned.LEAST_VARIANCE, 1.0) + (1 - certain_kd) * wide_d
    total_kd, freedom_kd = row_kd + prior, row_kd + 2 * prior
    pull_kd = prior * row_kd / total_kd * (mean_kd - middle_d) ** 2
    variance_kd = (row_kd * variance_kd + 2 * prior * wide_d + pull_kd) / freedom_kd
    mean_kd = (row_kd * mean_kd + prior * middle_d) / total_kd
    noise_kd = share_kd * noise_kd
    variance_kd = np.maximum(variance_kd, tuned.LEAST_VARIANCE)
    return NumberPosterior(mean_kd, variance_kd, freedom_kd, variance_kd / total_kd + noise_kd, noise_kd)


def rate_posterior(sum_kp: Floats, number_k: Floats, std_p: Floats, most_p: Floats, prior: float) -> RatePosterior:
    """The posterior from sums of counts.

    Args:
        sum_kp, std_p: noisy sums, and their noise.
        number_k: rows of each class.
        most_p: the largest of each count; public.
        prior: rows that the prior of a rate counts for: all rows, as they are.
    """
    row_kp = np.maximum(number_k[:, None], 2 * std_p / most_p)
    least_p = tuned.LEAST_RATE * np.minimum(most_p, 1.0)
    middle_p = np.clip((sum_kp.sum(axis=0) + np.sqrt(most_p)) / (row_kp.sum(axis=0) + 1.0), least_p, most_p)
    divisor_kp = np.where(row_kp > 0, row_kp, 1.0)
    noise_kp = (std_p / divisor_kp) ** 2
    share_kp = middle_p**2 / (middle_p**2 + noise_kp)
    mean_kp = share_kp * sum_kp / divisor_kp + (1 - share_kp) * middle_p
    total_kp = row_kp + prior
    mean_kp = np.clip((row_kp * mean_kp + prior * middle_p) / total_kp, least_p, most_p)
    noise_kp = share_kp * noise_kp
    return RatePosterior(mean_kp, mean_kp / total_kp + noise_kp, noise_kp)


def log_number(x_nd: Floats, of: NumberPosterior, *, predictive: bool) -> Floats:
    """Log-density of the numbers of each row in each class, (n, K); one that is missing has density 1.

    Args:
        predictive: averaged over the posterior; False: at its means.
    """
    lacks_nd = np.isnan(x_nd)
    away_nkd = np.where(lacks_nd, 0.0, x_nd)[:, None, :] - of.mean_kd
    scale_kd = of.variance_kd + of.error_kd * predictive
    square_nkd = np.ascontiguousarray(away_nkd**2 / scale_kd)
    each_nkd = -0.5 * np.log(2 * math.pi * scale_kd) - 0.5 * square_nkd
    if predictive:
        f_kd = of.freedom_kd
        start_kd = gammaln((f_kd + 1) / 2) - gammaln(f_kd / 2) - 0.5 * np.log(math.pi * f_kd * scale_kd)
        each_nkd = start_kd - (f_kd + 1) / 2 * np.log1p(square_nkd / f_kd)
    return np.asarray(np.add.reduce(np.where(lacks_nd[:, None, :], 0.0, each_nkd), axis=2))


def log_count(count_np: Floats, of: RatePosterior, *, predictive: bool) -> Floats:
    """Log-probability of the counts of each row in each class, (n, K); see `log_number`."""
    c_n1p = np.ascontiguousarray(count_np)[:, None, :]
    if predictive:
        shape_kp = of.mean_kp**2 / of.error_kp
        each_nkp = gammaln(c_n1p + shape_kp) - gammaln(shape_kp) - gammaln(c_n1p + 1)
        each_nkp += shape_kp * np.log(shape_kp / (shape_kp + of.mean_kp))
        each_nkp += c_n1p * np.log(of.mean_kp / (shape_kp + of.mean_kp))
    else:
        each_nkp = c_n1p * np.log(of.mean_kp) - of.mean_kp - gammaln(c_n1p + 1)
    return np.asarray(np.add.reduce(np.ascontiguousarray(each_nkp), axis=2))


# Numbers as categories: public bins of equal width on [-1, 1], and one more for a number that is missing.


def bin_sizes(width: int, gaps: Sequence[int], bins: int) -> tuple[int, ...]:
    """Categories of each number: its bins, and a place for a missing one where it may be missing."""
    return tuple(bins + (place in gaps) for place in range(width))


def bin_codes(x_nd: Floats, gaps: Sequence[int], bins: int) -> Ints:
    """The bin of each number, (n, d); a missing one is in the last place, or in the first where there is none."""
    lacks_nd = np.isnan(x_nd)
    code_nd = np.clip(np.floor((np.where(lacks_nd, 0.0, x_nd) + 1) / 2 * bins), 0, bins - 1).astype(np.int64)
    last_d = np.array([bins if place in gaps else 0 for place in range(x_nd.shape[1])], dtype=np.int64)
    return np.where(lacks_nd, last_d, code_nd)


def bins_together(rows: float, std: float, bins: int) -> int:
    """Number of neighbouring bins that are merged, so that a class of so many rows is above the noise of a bin."""
    together = 1
    while bins % (2 * together) == 0 and bins > 4 * together and rows * together**0.5 < tuned.CLEAR * std * bins:
        together *= 2
    return together


def merged_bins(cell_kv: Floats, place: int, bins: int, together: int) -> Floats:
    """Counts of categories, those of neighbouring bins from a place on being their means, (k, V)."""
    mean_kb = cell_kv[:, place : place + bins].reshape(len(cell_kv), -1, together).mean(axis=2)
    made_kv = cell_kv.copy()
    made_kv[:, place : place + bins] = np.repeat(mean_kb, together, axis=1)
    return made_kv


def numbers_in_bins(code_nd: Ints, bins: int, rng: np.random.Generator) -> Floats:
    """Numbers that are uniform in their bins, NaN where they are missing, (n, d)."""
    x_nd = -1 + 2 * (code_nd + rng.random(code_nd.shape)) / bins
    return np.where(code_nd < bins, x_nd, np.nan)


# Words that a document has or has not, in known classes: a probability for each, estimated from noisy sums.
#
# A document's row of zeros and ones has the norm of the root of its number of words, and is cut to a public bound C.
# A label stands behind the words of its document, as one more word.


def split_labels(batch: CountRows, width: int, classes: int) -> tuple[Floats, SparseRows]:
    """Labels as rows of zeros and ones, (n, K), and the words of each document at the places of its class.

    A document with no label, or several, has neither: it is not a row.
    """
    length_n = np.diff(batch.indptr)
    row_j = np.repeat(np.arange(len(length_n)), length_n)
    is_label_j = batch.indices >= width
    r_nk = np.zeros((len(length_n), classes))
    r_nk[row_j[is_label_j], batch.indices[is_label_j] - width] = 1.0
    r_nk[np.add.reduce(r_nk, axis=1) != 1] = 0.0
    code_n, known_n = r_nk.argmax(axis=1), np.add.reduce(r_nk, axis=1) == 1
    kept_j = ~is_label_j & known_n[row_j]
    place_j = code_n[row_j[kept_j]] * width + batch.indices[kept_j]
    indptr = np.append(0, np.cumsum(np.bincount(row_j[kept_j], minlength=len(length_n))))
    return r_nk, SparseRows(indptr, place_j.astype(np.int64), np.ones(len(place_j)))


def read_words(sum_kw: Floats, number_k: Floats, std: float, *, lengths: bool) -> Floats:
    """Numbers of documents of each class that have each word, (K, W), from noisy sums.

    The prior mean of an entry is the class's total times the word's share of all words, and the prior of the ratio is
    estimated; then a class's words are brought to its total. That is its share of the documents times all words, or
    with `lengths` what was released. The latter is the sum of many noisy entries, and its error stands in every
    prediction.

    Args:
        sum_kw: noisy sums.
        number_k: documents of each class, positive.
        std: noise standard deviation of an entry.
        lengths: whether classes differ in how many words a document has.
    """
    k, w = sum_kw.shape
    all_words = max(float(sum_kw.sum()), std * math.sqrt(k * w), 1e-300)
    total_k = number_k / number_k.sum() * all_words
    if lengths:
        total_k = np.maximum(sum_kw.sum(axis=1), _LEAST_TOTAL * total_k)
    found_kw = np.maximum(sum_kw, 0.0)
    if std > 0 and w:
        background_w = empirical_bayes.background(sum_kw.sum(axis=0), std * math.sqrt(k))
        mean_wk = np.outer(background_w, total_k)
        found_kw = empirical_bayes.around(np.ascontiguousarray(sum_kw.T), np.full(w, std), mean_wk).T
    elif lengths:
        return found_kw
    return np.asarray(found_kw * (total_k / np.maximum(found_kw.sum(axis=1), 1e-300))[:, None])


def log_words(batch: CountRows, probability_kw: Floats, bound: float) -> Floats:
    """Log-probability of each document's words, those that it has and those that it has not, (n, K), in nats.

    The words of a document beyond the bound weigh less, as they did in the sums.
    """
    odds_wk = np.ascontiguousarray((np.log(probability_kw) - np.log1p(-probability_kw)).T)
    width, length_n = len(odds_wk), np.diff(batch.indptr)
    is_word_j = batch.indices < width
    row_j = np.repeat(np.arange(len(length_n)), length_n)[is_word_j]
    weight_n = np.minimum(1.0, bound / np.sqrt(np.maximum(np.bincount(row_j, minlength=len(length_n)), 1)))
    log_nk = np.empty((len(length_n), odds_wk.shape[1]))
    for k, odds_w in enumerate(odds_wk.T):
        # bincount adds one row's words in their order: no bit depends on the rest of the batch.
        found_n = np.bincount(row_j, weights=odds_w[batch.indices[is_word_j]], minlength=len(length_n))
        log_nk[:, k] = weight_n * found_n
    return np.asarray(log_nk + np.log1p(-probability_kw).sum(axis=1))
