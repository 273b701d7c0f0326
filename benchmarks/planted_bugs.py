"""Do the tests see the bugs that break privacy? Plant them one at a time and look.

Copies the package to a temporary directory, checks that the chosen tests pass on the clean copy, then plants each bug
by a textual change that must match exactly once, and runs the few tests that ought to fail. One row a bug, sorted by
the way to fail that it stands for; the last line is `caught N of M`. The exit status is 1 if a bug escapes, 2 if the
clean copy fails or a bug no longer fits the source.

    python benchmarks/planted_bugs.py [part of a bug's name ...]
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


#: Ways in which such software has failed: every one has a bug here.
FAILURES = (
    "low bits of floating-point noise",
    "time that tells a draw",
    "sums that overflow, round or reorder",
    "norms beyond the clip",
    "NaN and infinity",
    "generators that can be guessed",
    "noise used twice",
    "another sampler than the accounted one",
    "a sampling rate above the accounted one",
    "division by the batch that was drawn",
    "empty batches",
    "noise or sensitivity off by a factor",
    "public facts read off private data",
    "choices among settings that nobody counts",
    "training that ends by private values",
    "many rows of one person",
    "crashes, retries and races",
    "leaks by text, logs and files",
    "code in model files",
    "files of strangers that are believed",
    "work that depends on the record",
    "an accountant beyond its range or precision",
    "calibration beyond its target",
    "neighbours of two kinds mixed up",
    "records that touch each other",
    "sums of several parties without their noise, masks or room",
    "readers that take records apart, or read one differently because of another",
    "persons that are several units, or several persons that are one",
    "queries made by somebody else",
    "a unit that makes a computation fail",
    "files, folders and names that others choose",
    "releases about the same people that nobody adds up",
)


@dataclass(frozen=True)
class Bug:
    """A way to fail, and a change of the source: `edits` are (file, text that occurs once, its replacement)."""

    failure: str
    name: str
    edits: tuple[tuple[str, str, str], ...]
    test: str


BUGS = [
    Bug(
        "norms beyond the clip",
        "scores of one group declared in the place of those of all",
        (("models/mixtures/scores.py", "for norm_n in self._clipped[1]:", "for norm_n in self._clipped[1][:1]:"),),
        "test_mixtures.py::test_scores_that_are_summed_have_the_norm_that_is_declared",
    ),
    Bug(
        "norms beyond the clip",
        "groups clipped by the sum over all of them",
        (
            (
                "models/mixtures/scores.py",
                "factor_kn = np.maximum(norm_kn, 1.0)",
                "factor_kn = np.maximum(self.r_kn * norm_kn, 1.0)",
            ),
        ),
        "test_mixtures.py::test_each_component_is_clipped_by_itself",
    ),
    Bug(
        "noise or sensitivity off by a factor",
        "one category a row in the bound of all columns",
        (
            (
                "models/mixtures/mixture.py",
                "bound, shape = math.sqrt(len(self.columns.sizes)), (",
                "bound, shape = 1.0, (",
            ),
        ),
        "test_mixtures.py::test_no_row_passes_a_bound_and_some_reach_it",
    ),
    Bug(
        "releases about the same people that nobody adds up",
        "groups of the same people as a prior",
        (("estimators/group_prior.py", '    check_release("prior", model, fit, public=fit.public_prior)\n', ""),),
        "test_group_prior.py::test_a_release_of_the_same_people_is_no_prior",
    ),
    Bug(
        "noise or sensitivity off by a factor",
        "one pair a row in the bound of the tables of all pairs",
        (("models/mixtures/pairs.py", "return math.sqrt(len(self.places))", "return 1.0"),),
        "test_mixtures.py::test_a_row_has_one_cell_of_each_pair_of_columns_whatever_it_holds",
    ),
    Bug(
        "noise or sensitivity off by a factor",
        "weights of a release whose squares do not add up to 1",
        (
            ("core/plan.py", "name: block.weight / length for", "name: min(block.weight, 1.0) for"),
            ("core/plan.py", "> 1.0 + 1e-12", "> 1e9"),
        ),
        "test_mixtures.py::test_blocks_share_one_unit_of_sensitivity",
    ),
    Bug(
        "NaN and infinity",
        "a faulty row that counts in a mixture",
        (("models/mixtures/mixture.py", "            r_kn *= batch.sound_n\n", ""),),
        "test_mixtures.py::test_a_faulty_row_adds_nothing",
    ),
    Bug(
        "records that touch each other",
        "responsibilities that hang on the likeliest row of the batch",
        (
            (
                "models/mixtures/mixture.py",
                "log_kn -= log_kn.max(axis=0)",
                "log_kn -= log_kn.max(initial=-1e3)",
            ),
        ),
        "test_conformance.py::test_bits_of_a_record_do_not_depend_on_its_batch[gaussians_step]",
    ),
    Bug(
        "norms beyond the clip",
        "a bound of categories that forgets the bins of numbers",
        (
            (
                "models/mixtures/naive_bayes.py",
                "bound = math.sqrt(len(self.sizes))",
                "bound = math.sqrt(len(self.columns.sizes))",
            ),
        ),
        "test_naive_bayes.py::test_no_row_of_a_known_class_passes_a_bound_and_some_reach_it",
    ),
    Bug(
        "NaN and infinity",
        "a faulty row that counts in its class",
        (
            ("models/mixtures/naive_bayes.py", "(self.n_classes,)) * batch.sound_n[:, None]", "(self.n_classes,))"),
            ("models/mixtures/naive_bayes.py", "np.repeat(batch.sound_n, width)", "np.ones(n * width)"),
        ),
        "test_naive_bayes.py::test_a_row_of_no_class_or_with_a_fault_adds_nothing",
    ),
    Bug(
        "NaN and infinity",
        "a document with an unknown label that counts in a class",
        (("data/documents/labelled.py", "unseen=-1, missing=-1", "unseen=0, missing=-1"),),
        "test_naive_bayes.py::test_a_document_without_a_declared_label_is_no_row",
    ),
    Bug(
        "NaN and infinity",
        "a row with an undeclared label that makes a class of its own",
        (("estimators/naive_bayes.py", "answer = replace(answer, unseen=False, missing=False)", "pass"),),
        "test_naive_bayes.py::test_classes_of_a_mixed_table_are_learnt_and_sampled_in_its_types",
    ),
    Bug(
        "files of strangers that are believed",
        "classes of a file whose tables have another shape",
        (("estimators/naive_bayes.py", 'raise ValueError("classes of another shape")', "pass"),),
        "test_naive_bayes.py::test_a_file_with_rates_that_are_none_is_refused",
    ),
    Bug(
        "files of strangers that are believed",
        "groups of a file with a covariance that is none",
        (("estimators/mixture.py", "or not (diagonal_kd > 0).all()", ""),),
        "test_mixtures.py::test_a_file_with_a_covariance_that_is_none_is_refused",
    ),
    Bug(
        "low bits of floating-point noise",
        "a threshold for names that forgets that the noise is rounded",
        (("core/names.py", "return math.ceil(self.threshold", "return math.floor(self.threshold"),),
        "test_names.py::test_no_pattern_of_a_units_own_names_passes_more_often_than_it_may",
    ),
    Bug(
        "noise or sensitivity off by a factor",
        "a threshold for the one name of a unit that gives one, and not for its hundred",
        (("core/names.py", "t = np.arange(1.0, self.most_names + 1)", "t = np.ones(1)"),),
        "test_names.py::test_no_pattern_of_a_units_own_names_passes_more_often_than_it_may",
    ),
    Bug(
        "another sampler than the accounted one",
        "names of all units leave by a release that is charged as one of a batch",
        (("core/names.py", 'if release != covered or plan.neighboring_relation != "add_or_remove_one":', "if False:"),),
        "test_names.py::test_names_leave_only_as_the_proof_has_it",
    ),
    Bug(
        "norms beyond the clip",
        "all names of a unit count, however many there are",
        (("core/names.py", "given = order[np.arange(len(unit)) - first_n[unit] < most]", "given = order"),),
        "test_names.py::test_the_names_of_a_unit_have_norm_one_at_most_and_a_hundred_at_most_count",
    ),
    Bug(
        "records that touch each other",
        "the names that units give are drawn for all of them at once",
        (
            (
                "core/names.py",
                "order = np.lexsort((words(len(unit), used), unit))",
                "order = np.lexsort((words(num_names)[name], unit))",
            ),
        ),
        "test_names.py::test_units_draw_their_names_apart",
    ),
    Bug(
        "many rows of one person",
        "a person's name counts once for each row that has it",
        (
            (
                "core/names.py",
                "np.divmod(np.unique(unit * num_names + rows.indices), num_names)",
                "np.divmod(np.sort(unit * num_names + rows.indices), num_names)",
            ),
        ),
        "test_names.py::test_a_person_gives_a_name_once",
    ),
    Bug(
        "public facts read off private data",
        "names leave in the order of the data",
        (
            (
                "core/names.py",
                "sorted(np.flatnonzero(total).tolist(), key=names.__getitem__)",
                "np.flatnonzero(total).tolist()",
            ),
        ),
        "test_names.py::test_names_leave_in_the_order_of_the_alphabet_whatever_the_order_of_the_data",
    ),
    Bug(
        "noise or sensitivity off by a factor",
        "what names add to delta is in no plan's epsilon",
        (("accounting/answers.py", "answer(noise, delta=delta - added, **how)", "answer(noise, delta=delta, **how)"),),
        "test_added_delta.py::test_noise_has_what_the_releases_leave_of_delta",
    ),
    Bug(
        "releases about the same people that nobody adds up",
        "what plans add to delta is not charged",
        (("accounting/covering.py", "return m, left_out + added", "return m, left_out"),),
        "test_added_delta.py::test_a_tenth_of_a_caps_delta_is_kept_for_all_that_plans_add",
    ),
    Bug(
        "releases about the same people that nobody adds up",
        "a plan that adds to delta counts by Rényi orders, which do not see it",
        (
            (
                "accounting/costs.py",
                "event.noise_multiplier == 0 or event.added_delta for event",
                "event.noise_multiplier == 0 for event",
            ),
        ),
        "test_added_delta.py::test_no_order_has_a_cost_for_it",
    ),
    Bug(
        "crashes, retries and races",
        "a run whose words are lost goes on with others",
        (
            (
                "estimators/private_words.py",
                "if run is not None and run.num_recorded and run.recorded(0) is None:",
                "if False:",
            ),
        ),
        "test_private_words.py::test_a_fit_whose_words_are_lost_does_not_go_on_with_others",
    ),
    Bug(
        "norms beyond the clip",
        "rows of a factor model are not shortened to the radius",
        (
            (
                "models/factors/three_releases.py",
                "z_nd *= (1.0 / np.maximum(length_n, q.radius))[:, None]",
                "z_nd *= 1.0 / q.radius",
            ),
        ),
        "test_factors.py::test_every_block_reaches_its_bound_and_never_passes_it",
    ),
    Bug(
        "norms beyond the clip",
        "the constant beside a row leaves no room for it",
        (("models/factors/three_releases.py", "Rows(_beside(_C, _REST * y_nd))", "Rows(_beside(_C, y_nd))"),),
        "test_factors.py::test_every_block_reaches_its_bound_and_never_passes_it",
    ),
    Bug(
        "norms beyond the clip",
        "second moments are in other scales than the radius",
        (
            (
                "models/factors/three_releases.py",
                "np.ascontiguousarray((y_nd - q.mean_d) / q.scale_d)\n            length_n = upper_norms(z_nd)",
                "np.ascontiguousarray((y_nd - q.mean_d) / q.scale_d)\n            length_n = upper_norms(y_nd)",
            ),
        ),
        "test_factors.py::test_every_block_reaches_its_bound_and_never_passes_it",
    ),
    Bug(
        "another sampler than the accounted one",
        "a drawn batch reads the whole chunk that is kept",
        (
            (
                "data/units.py",
                "return Chunk(which[units], None, chosen, self.read)",
                "return Chunk(which[units], None, chosen, self.read, self.place, self.kept)",
            ),
        ),
        "test_design.py::test_what_is_kept_between_passes_is_what_was_read",
    ),
    Bug(
        "records that touch each other",
        "rows in coordinates that were another step's",
        (
            (
                "data/tables/design.py",
                "if known is function and np.array_equal(its_matrix, matrix):",
                "if known is function:",
            ),
        ),
        "test_design.py::test_what_is_derived_is_formed_anew_for_another_matrix_or_function",
    ),
    Bug(
        "norms beyond the clip",
        "the norm of a scaled row without its scale",
        (
            (
                "core/forms.py",
                "np.abs(self.scale_n) * self.rows.length_n * (1.0 + 2.0**-50)",
                "self.rows.length_n * (1.0 + 2.0**-50)",
            ),
        ),
        "test_contributions.py::test_the_law",
    ),
    Bug(
        "NaN and infinity",
        "NaN passes the clip",
        (
            ("core/contributions.py", "2.0**-1000, 0.0), np.inf)", "2.0**-1000, 0.0), 0.0)"),
            ("core/clipped_sums.py", "np.where(usable & (norms[name] > 0),", "np.where(usable,"),
        ),
        "test_conformance.py::test_a_record_without_a_finite_statistic_adds_nothing[True-nan-location]",
    ),
    Bug(
        "division by the batch that was drawn",
        "division by the realised batch size",
        (
            (
                "core/clipped_sums.py",
                "_MARGIN / np.maximum(relative[name], _MARGIN), 0.0)",
                "_MARGIN / np.maximum(relative[name], _MARGIN), 0.0) / max(len(usable), 1)",
            ),
        ),
        "test_conformance.py::test_a_record_adds_the_same_whatever_else_is_there[1-location]",
    ),
    Bug(
        "neighbours of two kinds mixed up",
        "add/remove factor used under replace-one",
        (("accounting/events.py", 'swap = relation == "replace_one" or event', "swap = event"),),
        "test_mechanism.py::test_full_batch_calibration_is_the_gaussian_one",
    ),
    Bug(
        "noise or sensitivity off by a factor",
        "swap ratio of nonnegative blocks taken as 1",
        (("core/blocks.py", "return math.sqrt(2.0) if certain", "return 1.0 if certain"),),
        "test_blocks.py::test_swap_ratio_bounds_every_pair_and_is_near_one",
    ),
    Bug(
        "another sampler than the accounted one",
        "shuffled epochs accounted as Poisson",
        (
            (
                "core/sampling.py",
                "return lambda m: bits(m) < threshold",
                "turn, period = next(_TURNS), round(1 / self.sampling_prob)\n"
                "        return lambda m: (np.arange(m) + turn) % period == 0\n",
            ),
            (
                "core/sampling.py",
                "#: Says, chunk after chunk",
                "_TURNS = iter(range(10**9))\n#: Says, chunk after chunk",
            ),
        ),
        "test_mechanism.py::test_batches_are_fresh[poisson]",
    ),
    Bug(
        "a sampling rate above the accounted one",
        "Poisson threshold rounded up",
        (
            (
                "core/sampling.py",
                "np.uint64(math.floor(math.ldexp(self.sampling_prob, 64)))",
                "np.uint64(math.floor(math.ldexp(self.sampling_prob, 64)) + 1)",
            ),
        ),
        "test_mechanism.py::test_poisson_rate_is_never_above_q",
    ),
    Bug(
        "another sampler than the accounted one",
        "every chunk meets the same random words",
        (("core/clipped_sums.py", "            position += count\n", "            position = count\n"),),
        "test_wall.py::test_sums_do_not_depend_on_chunks",
    ),
    Bug(
        "a sampling rate above the accounted one",
        "fixed-size batches drawn above their rate",
        (("core/sampling.py", "places = max(self.num_examples, count())", "places = max(self.batch_size, count())"),),
        "test_mechanism.py::test_fixed_size_pads_and_never_exceeds_its_rate",
    ),
    Bug(
        "records that touch each other",
        "warm start of a document from the one before",
        (
            (
                "models/topics/kernel.py",
                "gamma_k = last_k = np.ones(alpha_k.size)\n",
                "gamma_k = last_k = _LAST.get(alpha_k.size, np.ones(alpha_k.size))\n",
            ),
            (
                "models/topics/kernel.py",
                "gamma_nk[n] = _fixed_point(",
                "gamma_nk[n] = _LAST[num_topics] = _fixed_point(",
            ),
            ("models/topics/kernel.py", "TIGHT = 1e-4", "_LAST: dict = {}\nTIGHT = 1e-4"),
        ),
        "test_conformance.py::test_a_record_adds_the_same_whatever_else_is_there[1-lda_numpy]",
    ),
    Bug(
        "noise or sensitivity off by a factor",
        "noise 2 % too small",
        (("core/wall.py", "grids[name].step * ratio\n", "grids[name].step * ratio * 0.98\n"),),
        "test_wall.py::test_noise_std_is_right_at_every_batch_size",
    ),
    Bug(
        "noise or sensitivity off by a factor",
        "noise of a block forgets the block's weight",
        (("core/plan.py", "self.blocks[name].bound / self.weights[name]", "self.blocks[name].bound"),),
        "test_mechanism.py::test_noise_is_shared_by_the_weights",
    ),
    Bug(
        "noise or sensitivity off by a factor",
        "off-diagonal noise halved once too often",
        (("core/blocks.py", "slice(d, None)), math.sqrt(0.5))", "slice(d, None)), 0.5)"),),
        "test_blocks.py::test_noise_parts_are_iid_noise_on_svec",
    ),
    Bug(
        "empty batches",
        "no chunk of no units where there are none",
        (("data/slabs.py", "    if not num_units:\n        yield 0, 0\n", ""),),
        "test_batches_of_own_models.py::test_a_model_that_fails_on_no_rows_fails_whatever_the_data_are[memory]",
    ),
    Bug(
        "empty batches",
        "a source of somebody's own without a chunk of no units",
        (("core/source.py", 'if chunk is None and hasattr(type(source), "empty"):', "if False:"),),
        "test_batches_of_own_models.py::test_a_model_that_fails_on_no_rows_fails_whatever_the_data_are"
        "[a source of one's own]",
    ),
    Bug(
        "empty batches",
        "a streamed table of no rows that has no chunk",
        (("data/tables/table.py", "        if design is None:\n            yield self._like\n", ""),),
        "test_batches_of_own_models.py::test_every_source_of_no_units_has_a_chunk_of_none[a streamed csv]",
    ),
    Bug(
        "records that touch each other",
        "larger batches than the audit asks about",
        (
            (
                "core/source.py",
                "    if num_rows(chunk) <= LARGEST_BATCH:\n        yield chunk\n        return\n",
                "    if chunk is not None:\n        yield chunk\n        return\n",
            ),
            ("core/clipped_sums.py", "if length > LARGEST_BATCH and not", "if length < 0 and not"),
        ),
        "test_batches_of_own_models.py::test_no_model_of_ones_own_meets_more_rows_than_the_audit_asks_about",
    ),
    Bug(
        "records that touch each other",
        "a person with more rows than the audit asks a model of one's own about",
        (("core/clipped_sums.py", "if length > LARGEST_BATCH and not", "if length < 0 and not"),),
        "test_batches_of_own_models.py::test_a_unit_with_more_rows_than_the_largest_batch_reaches_nobody_else",
    ),
    Bug(
        "records that touch each other",
        "scores of larger batches than the audit asks about",
        (("estimators/private.py", "if len(rows) > LARGEST_BATCH:", "if len(rows) < 0:"),),
        "test_batches_of_own_models.py::test_no_model_of_ones_own_meets_more_rows_than_the_audit_asks_about",
    ),
    Bug(
        "readers that take records apart, or read one differently because of another",
        "lists of words that are documents only if most records are",
        (
            (
                "data/documents/bag_of_words.py",
                "(cell if is_words(cell) else document(cell) for cell in cells_of(texts))",
                "map(document if 2 * sum(map(is_words, cells_of(texts))) < len(cells_of(texts)) else "
                "(lambda cell: cell), cells_of(texts))",
            ),
        ),
        "test_useless_calls.py::test_each_record_by_itself_is_a_text_or_a_list_of_words",
    ),
    Bug(
        "public facts read off private data",
        "a call that is refused by the dtype of an array, which cells decide",
        (
            (
                "data/tables/design.py",
                '    cells = column("y", y, num_rows)\n',
                '    cells = column("y", y, num_rows)\n'
                '    if cells.dtype.kind == "b":\n        raise ParameterError("y")\n',
            ),
        ),
        "test_useless_calls.py::test_no_value_and_no_type_of_a_cell_refuses_a_call",
    ),
    Bug(
        "empty batches",
        "no noise where the batch is empty",
        (
            (
                "core/wall.py",
                "        for part, ratio in block.noise_parts():\n",
                "        for part, ratio in block.noise_parts() if sums[name].any() else ():\n",
            ),
        ),
        "test_wall.py::test_an_empty_corpus_is_pure_noise[block-location]",
    ),
    Bug(
        "noise used twice",
        "the same secret in every run",
        (("core/noise.py", "return secrets.token_bytes(32)", "return bytes(32)"),),
        "test_wall.py::test_neighbours_never_share_noise",
    ),
    Bug(
        "noise used twice",
        "one key for all draws of a run",
        (
            (
                "core/noise.py",
                "return secrets.token_bytes(32)",
                'return bytes(vars(self).setdefault("_key", secrets.token_bytes(32)))',
            ),
        ),
        "test_wall.py::test_equal_sums_of_two_blocks_and_steps_get_their_own_noise",
    ),
    Bug(
        "low bits of floating-point noise",
        "noise added in floating point, off the grid",
        (
            (
                "core/wall.py",
                "self.__grids[step][name].units(ints) for",
                "self.__grids[step][name].units(ints) + np.random.default_rng().normal(0.0, 1e-6, ints.shape) for",
            ),
        ),
        "test_wall.py::test_a_release_is_an_exact_multiple_of_its_grid[1.0-location]",
    ),
    Bug(
        "public facts read off private data",
        "width of the vocabulary from the data",
        (
            (
                "data/documents/bag_of_words.py",
                "    width = int(matrix.shape[1])\n",
                "    width = int(max(matrix.nonzero()[1], default=0)) + 1\n",
            ),
        ),
        "test_trust_leaks.py::test_the_width_is_declared_and_not_found",
    ),
    Bug(
        "public facts read off private data",
        "columns that private texts have named, without a question",
        (("estimators/lda.py", "if source.vocabulary is None and not self.public_vocabulary:", "if False:"),),
        "test_public.py::test_counts_without_names_are_refused_before_the_charge_unless_their_columns_are_public",
    ),
    Bug(
        "releases about the same people that nobody adds up",
        "a release of the same data set as prior of its next fit",
        (
            (
                "estimators/earlier.py",
                '    if charge.dataset == dataset:\n        return "same" if whole else "namesake"\n',
                "",
            ),
        ),
        "test_topic_prior.py::test_a_prior_of_the_same_data_set_is_refused_before_the_charge",
    ),
    Bug(
        "releases about the same people that nobody adds up",
        "what is known of coefficients for predictions, taken for intervals",
        (("estimators/coefficient_prior.py", "data, model._table.data\n", "data, model._weights.data\n"),),
        "test_coefficient_prior.py::test_rows_without_anybody_leave_what_was_known",
    ),
    Bug(
        "releases about the same people that nobody adds up",
        "an earlier linear regression whose noise its prior forgets",
        (("models/regression/linear_path.py", "data = score.info", "data = replace(score, noise=0.0).info"),),
        "test_linear_prior.py::test_a_second_fit_is_as_sure_as_it_may_be",
    ),
    Bug(
        "releases about the same people that nobody adds up",
        "a study whose mean is not measured in halves of the range of y",
        (("estimators/coefficient_prior.py", "at_zero[name]) / half, std", "at_zero[name]), std"),),
        "test_linear_prior.py::test_a_public_study_is_a_measurement_in_the_units_of_y",
    ),
    Bug(
        "releases about the same people that nobody adds up",
        "moments of an earlier release whose noise is dropped",
        (("models/factors/moments.py", "share * other.noise)", "0.0)"),),
        "test_factor_prior.py::test_joined_moments_know_their_noise_and_weigh_by_it",
    ),
    Bug(
        "releases about the same people that nobody adds up",
        "moments of the same data set as prior of its next factors",
        (("estimators/factor_prior.py", '    check_release("prior", model, fit, public=public)\n', ""),),
        "test_factor_prior.py::test_the_ledger_knows_whose_prior_it_is",
    ),
    Bug(
        "releases about the same people that nobody adds up",
        "a point estimate that gives intervals, of width 0",
        (("estimators/regression.py", "if table.covariance.any() else (None, None)", ""),),
        "test_mode.py::test_predictions_are_of_variance_zero_and_intervals_are_refused",
    ),
    Bug(
        "releases about the same people that nobody adds up",
        "a prior of a file that forged what it cost",
        (("estimators/earlier.py", "    statement.verify()\n", ""),),
        "test_linear_prior.py::test_a_prior_whose_releases_cost_more_than_it_says_is_refused",
    ),
    Bug(
        "releases about the same people that nobody adds up",
        "a release that is called public and loses the name of its data set",
        (("estimators/earlier.py", 'f"{_EARLIER}{charged}, {_PUBLIC}{behind}" if charged else ', ""),),
        "test_linear_prior.py::test_a_release_that_is_called_public_keeps_the_name_of_its_data",
    ),
    Bug(
        "releases about the same people that nobody adds up",
        "a prior of hostile numbers that ends a fit after its charge",
        (("estimators/coefficient_prior.py", "if not all(map(_is_of_a_fit, both)):", "if False:"),),
        "test_linear_prior.py::test_a_prior_of_hostile_numbers_is_refused_before_the_charge",
    ),
    Bug(
        "persons that are several units, or several persons that are one",
        "persons of labelled documents who become as many units as they have documents",
        (("data/documents/labelled.py", 'if documents.unit == "person":', "if False:"),),
        "test_naive_bayes.py::test_documents_that_are_grouped_already_are_refused",
    ),
    Bug(
        "releases about the same people that nobody adds up",
        "a prior without noise that nobody called public",
        (("estimators/earlier.py", "if not (statement.private or public):", "if False:"),),
        "test_topic_prior.py::test_a_prior_that_does_not_fit_is_refused",
    ),
    Bug(
        "releases about the same people that nobody adds up",
        "a prior without noise that is public because it has none",
        (("estimators/earlier.py", "public or statement.published", "public or statement.epsilon == math.inf"),),
        "test_topic_prior.py::test_documents_that_were_said_to_be_public_make_a_public_prior",
    ),
    Bug(
        "releases about the same people that nobody adds up",
        "an earlier release whose cost the statement does not add",
        (("estimators/earlier.py", "past.epsilon + fit.epsilon:.6g", "fit.epsilon:.6g"),),
        "test_topic_prior.py::test_the_statement_says_where_a_prior_came_from_and_what_it_cost_whom",
    ),
    Bug(
        "releases about the same people that nobody adds up",
        "a release behind a prior's own prior that the statement leaves out",
        (("estimators/earlier.py", "for said in past.public if _EARLIER in said", "for said in ()"),),
        "test_coefficient_prior.py::test_the_statement_names_all_releases_behind_a_prior",
    ),
    Bug(
        "norms beyond the clip",
        "the norm of a person's windows as if no two were alike",
        (("kernels/windows.py", "square += 2 * count[place] + 1", "square += 1"),),
        "test_markov_chain.py::test_norms_and_sums_are_those_of_the_definition",
    ),
    Bug(
        "many rows of one person",
        "each sequence of a person weighed by its own windows",
        (
            (
                "models/sequences/counts.py",
                "return replace(self, units=by_unit(unit_of_row, num_units))",
                "return self",
            ),
        ),
        "test_markov_chain.py::test_norms_and_sums_are_those_of_the_definition",
    ),
    Bug(
        "records that touch each other",
        "counts of windows that go on from one person to the next",
        (("kernels/windows.py", "                count[place] = 0\n", "                count[place] += 0\n"),),
        "test_markov_chain.py::test_norms_and_sums_are_those_of_the_definition",
    ),
    Bug(
        "norms beyond the clip",
        "entries beside the diagonal of a person's moments counted once",
        (("models/sequences/grams_numba.py", "if i == j else 2.0 * share * share", "if i == j else share * share"),),
        "test_linear_dynamical.py::test_norms_and_sums_are_those_of_the_definition",
    ),
    Bug(
        "norms beyond the clip",
        "moments declared by a person's first sequence alone",
        (
            (
                "models/sequences/grams_numba.py",
                "out_u[u] = 0.0\n        own = order[first[u] : first[u + 1]]",
                "out_u[u] = 0.0\n        own = order[first[u] : first[u] + 1]",
            ),
        ),
        "test_linear_dynamical.py::test_norms_and_sums_are_those_of_the_definition",
    ),
    Bug(
        "a unit that makes a computation fail",
        "an odd object in the place of a sequence asked what it is",
        (("data/sequences/content.py", "    if issubclass(type(one), np.", "    if issubclass(one.__class__, np."),),
        "test_sequences.py::test_an_odd_sequence_in_a_list_is_one_without_symbols",
    ),
    Bug(
        "a unit that makes a computation fail",
        "an odd object in the place of a sequence of numbers asked what it is",
        (("data/sequences/numbers.py", "issubclass(type(one), np.ndarray) else", "isinstance(one, np.ndarray) else"),),
        "test_numbers.py::test_an_odd_sequence_or_point_is_its_own_alone",
    ),
    Bug(
        "readers that take records apart, or read one differently because of another",
        "a symbol that nobody has declared is the last one",
        (("data/sequences/symbols.py", "unseen=-1, missing=-1", "unseen=len(self) - 1, missing=-1"),),
        "test_sequences.py::test_an_odd_cell_reaches_its_own_person_alone",
    ),
    Bug(
        "readers that take records apart, or read one differently because of another",
        "windows that cross a gap",
        (("kernels/windows.py", "            run, place = 0, 0\n", "            pass\n"),),
        "test_markov_chain.py::test_windows_cross_no_gap_no_end_and_nothing_beyond_the_cap",
    ),
    Bug(
        "persons that are several units, or several persons that are one",
        "persons of a streamed table told apart by their parts alone",
        (("data/sequences/events.py", 'for name in ("person", "part"))', 'for name in ("part", "part"))'),),
        "test_sequences.py::test_all_forms_of_long_tables_are_the_same_units",
    ),
    Bug(
        "leaks by text, logs and files",
        "files of a streamed table that others may read",
        (("data/sequences/events.py", "os.O_EXCL, 0o600", "os.O_EXCL, 0o644"),),
        "test_sequences.py::test_files_of_a_streamed_table_are_this_users_alone_and_go_away",
    ),
    Bug(
        "leaks by text, logs and files",
        "files of a streamed table stay where its reading was broken off",
        (("data/sequences/events.py", "            undone.callback(self._removed)", "            pass"),),
        "test_sequences.py::test_a_table_that_is_not_read_to_its_end_leaves_no_files",
    ),
    Bug(
        "generators that can be guessed",
        "persons of a streamed table by digests without a secret key",
        (("data/sequences/events.py", "key = secrets.token_bytes(32)", "key = bytes(32)"),),
        "test_sequences.py::test_files_of_a_streamed_table_are_this_users_alone_and_go_away",
    ),
    Bug(
        "many rows of one person",
        "each of a person's sequences begins with the weight of one",
        (("models/sequences/hidden_markov.py", "self.n_symbols + 1, 2, 0.0)", "self.n_symbols + 1, 2, 1.0)"),),
        "test_hidden_markov.py::test_sequences_of_a_person_are_one_unit",
    ),
    Bug(
        "many rows of one person",
        "each of a person's sequences passed as a person of its own",
        (
            (
                "models/sequences/steps.py",
                "self._of = unit_of_row, replace(self, units=by_unit(unit_of_row, num_units),",
                "self._of = unit_of_row, replace(self, units=None,",
            ),
        ),
        "test_hidden_steps.py::test_a_persons_sums_are_those_of_the_plain_passes",
    ),
    Bug(
        "records that touch each other",
        "sums over states that go on from one person to the next",
        (
            (
                "models/sequences/kernel_steps_numba.py",
                "sum_vk[v, k] = 0.0\n",
                "sum_vk[v, k] *= 0.5\n",
            ),
        ),
        "test_hidden_steps.py::test_a_persons_sums_are_those_of_the_plain_passes",
    ),
    Bug(
        "records that touch each other",
        "pairs of states that stay in a lane for the next sequence",
        (
            (
                "models/sequences/kernel_numba.py",
                "        pair_kkn[:] = 0.0\n",
                "        if begin == 0:\n            pair_kkn[:] = 0.0\n",
            ),
        ),
        "test_hidden_steps.py::test_sums_are_the_same_bits_in_any_order_and_any_parts",
    ),
    Bug(
        "norms beyond the clip",
        "pairs of states that are added without the weight that their norm has",
        (
            (
                "models/sequences/kernel_steps_numba.py",
                "scale = weight_u[u] * share_u[u] / step\n",
                "scale = weight_u[u] / step\n",
            ),
        ),
        "test_hidden_steps.py::test_no_person_reaches_beyond_the_proven_bounds",
    ),
    Bug(
        "readers that take records apart, or read one differently because of another",
        "an array of sequences in the shape that all of them happen to have",
        (("data/sequences/content.py", "        data = _apart(data)\n", ""),),
        "test_sequences.py::test_one_odd_sequence_makes_another_shape_of_an_array_of_objects_and_nothing_else",
    ),
    Bug(
        "queries made by somebody else",
        "passes over sequences with probabilities below zero",
        (("models/sequences/steps.py", "Laws(*(np.maximum(law, 0.0) for law in self.laws))", "self.laws"),),
        "test_hidden_steps.py::test_at_laws_below_zero_no_sum_is_negative",
    ),
    Bug(
        "a unit that makes a computation fail",
        "a point that lacks a number counted as one in the middle",
        (("models/sequences/cells.py", "return np.where(known_t, code_t, -1), ", "return code_t, "),),
        "test_hidden_cells.py::test_a_point_that_lacks_a_number_is_a_gap",
    ),
    Bug(
        "a unit that makes a computation fail",
        "a symbol beyond the public ones counted as the end of a sequence",
        (
            (
                "models/sequences/starts.py",
                "np.where((rows.code >= 0) & (rows.code < n_symbols), rows.code, -1)",
                "rows.code",
            ),
        ),
        "test_hidden_markov.py::test_a_symbol_as_large_as_the_end_of_a_sequence_is_a_gap",
    ),
    Bug(
        "persons that are several units, or several persons that are one",
        "a person of an earlier month who counts again in a later one",
        (("data/persons.py", "None if identity(cell) in known else cell", "cell"),),
        "test_topic_months.py::test_whoever_was_seen_adds_nothing_and_nothing_says_so",
    ),
    Bug(
        "persons that are several units, or several persons that are one",
        "ids of an earlier month in another spelling",
        (("data/persons.py", "None if identity(cell) in known else cell", "None if cell in known else cell"),),
        "test_topic_months.py::test_whoever_was_seen_adds_nothing_and_nothing_says_so",
    ),
    Bug(
        "noise or sensitivity off by a factor",
        "sums of months that forget the noise of the earlier ones",
        (("models/topics/reading.py", "math.hypot(std, model.earlier.words_std)", "std"),),
        "test_topic_months.py::test_sums_of_months_are_those_of_each_added_up",
    ),
    Bug(
        "public facts read off private data",
        "a forecast of topics that counts the private documents",
        (
            ("estimators/lda.py", "if self.num_examples is None or task.model.means:", "if task.model.means:"),
            (
                "estimators/lda.py",
                "self._forecast(task, plan, self.num_examples)",
                "self._forecast(task, plan, max(task.source.count(), 1))",
            ),
        ),
        "test_above_noise.py::test_a_warning_comes_before_anything_is_spent_where_the_number_is_public",
    ),
    Bug(
        "public facts read off private data",
        "a number of topics that is chosen by the number of private documents",
        (
            ("estimators/lda.py", "if self.num_examples is None or self.epsilon == math.inf:", "if False:"),
            (
                "estimators/lda.py",
                "above_noise.signal(one, plan, schedule.rho, self.num_examples)",
                "above_noise.signal(one, plan, schedule.rho, max(source.count(), 1))",
            ),
        ),
        "test_above_noise.py::test_auto_is_refused_without_public_facts",
    ),
    Bug(
        "public facts read off private data",
        "a warning that knows how many rows there are",
        (
            (
                "estimators/base.py",
                "            num_units=self.num_examples,\n            events=",
                "            num_units=task.source.count(),\n            events=",
            ),
        ),
        "test_doubts.py::test_what_is_said_does_not_depend_on_the_data",
    ),
    Bug(
        "public facts read off private data",
        "a longest row that is declared as it was measured, and nothing is said of it",
        (("estimators/base.py", '("low", "high", "y_range", "row_norm"), ("max', '("low", "high", "y_range"), ("max'),),
        "test_public.py::test_a_range_that_looks_computed_is_spoken_of_and_its_ends_are_not_shown",
    ),
    Bug(
        "public facts read off private data",
        "rows set beside what was released, whoever stands behind them",
        (("estimators/mixture.py", "        if synthetic is not True:", "        if False:"),),
        "test_mixtures.py::test_private_rows_and_no_rows_have_no_fidelity",
    ),
    Bug(
        "files of strangers that are believed",
        "a curve that nobody accounts for anew",
        (("results/statement.py", "for delta, said in self.points:", "for delta, said in self.points[:1]:"),),
        "test_report.py::test_a_curve_that_claims_too_little_is_found_out",
    ),
    Bug(
        "files, folders and names that others choose",
        "a symbol that a terminal obeys in the summary of a chain",
        (("estimators/markov_chain.py", "{printable(str(self.symbols_[a]))[:15]:<16}", "{self.symbols_[a]:<16}"),),
        "test_pages.py::test_a_summary_holds_nothing_that_a_terminal_obeys",
    ),
    Bug(
        "leaks by text, logs and files",
        "un-noised loss printed in training",
        (
            (
                "core/clipped_sums.py",
                '        if release.clip == "joint":\n',
                '        print("loss", *map(np.sum, norms.values()))\n        if release.clip == "joint":\n',
            ),
        ),
        "test_conformance.py::test_a_record_without_a_finite_statistic_adds_nothing[True-nan-location]",
    ),
    Bug(
        "norms beyond the clip",
        "norms in float32 and no margin",
        (
            (
                "core/contributions.py",
                "    flat = np.ascontiguousarray(values, dtype=np.float64)",
                "    flat = np.ascontiguousarray(values, dtype=np.float32)",
            ),
            ("core/clipped_sums.py", "_MARGIN = 1.0 - 2.0**-20", "_MARGIN = 1.0"),
        ),
        "test_conformance.py::test_the_worst_records_come_near_the_declared_bounds[location]",
    ),
    Bug(
        "records that touch each other",
        "norm bound that knows the size of the batch",
        (
            (
                "core/forms.py",
                "np.bincount(self.unit_of_row, minlength=self.num_units) * 2.0**-52",
                "len(self.unit_of_row) * 2.0**-40",
            ),
        ),
        "test_contributions.py::test_a_persons_sum_does_not_depend_on_the_other_persons",
    ),
    Bug(
        "leaks by text, logs and files",
        "the text of an exception comes out",
        (
            (
                "core/wall.py",
                "        end = next((kind() for kind in STOPS if isinstance(error, kind)), end)\n",
                "        raise WallError(str(error))\n",
            ),
        ),
        "test_trust_leaks.py::test_no_error_behind_the_wall_speaks[e_step-value]",
    ),
    Bug(
        "crashes, retries and races",
        "charge after the look",
        (
            ("core/wall.py", "            self.__step += 1\n", ""),
            (
                "core/wall.py",
                "        noise_std = {name: release.noise_std(name) for",
                "        self.__step += 1\n        noise_std = {name: release.noise_std(name) for",
            ),
        ),
        "test_wall.py::test_the_charge_comes_before_the_look_and_stands",
    ),
    Bug(
        "many rows of one person",
        "groups ignored",
        (
            ("core/clipped_sums.py", "if batch.unit_of_row is not None:", "if False:"),
            ("core/clipped_sums.py", "if any(norm.shape != (num_units,) for norm in norms.values()):", "if False:"),
        ),
        "test_conformance.py::test_a_person_with_many_rows_counts_once[copies1-location]",
    ),
    Bug(
        "norms beyond the clip",
        "truncation replaced by rounding away",
        (
            (
                "core/forms.py",
                "np.copyto(whole[: len(own)], own, casting",
                "np.copyto(whole[: len(own)], np.round(own * (1 + 2.0**-19)), casting",
            ),
        ),
        "test_conformance.py::test_the_worst_records_come_near_the_declared_bounds[location]",
    ),
    Bug(
        "norms beyond the clip",
        "outer products declared too short",
        (("core/forms.py", "length * length * _GRAM_ROOM", "0.5 * length * length * _GRAM_ROOM"),),
        "test_conformance.py::test_a_record_adds_the_same_whatever_else_is_there[1-first_order_first]",
    ),
    Bug(
        "norms beyond the clip",
        "weights of rows without their bound",
        (
            (
                "data/tables/response.py",
                "found[name] = np.clip(value_n, -bound, bound)",
                'found[name] = np.clip(value_n, -bound, np.inf if name == "weights" else bound)',
            ),
        ),
        "test_offset_and_weights.py::test_what_is_beyond_its_bound_counts_as_the_bound[weights-2.0]",
    ),
    Bug(
        "norms beyond the clip",
        "exposures of rows without their bound",
        (
            (
                "data/tables/response.py",
                "found[name] = np.clip(value_n, -bound, bound)",
                'found[name] = np.clip(value_n, -bound, np.inf if name == "exposure" else bound)',
            ),
        ),
        "test_offset_and_weights.py::test_what_is_beyond_its_bound_counts_as_the_bound[exposure-2.0]",
    ),
    Bug(
        "norms beyond the clip",
        "weights of rows applied twice",
        (
            (
                "models/regression/multiplicity.py",
                "scale_n=form.scale_n * weight_n)",
                "scale_n=form.scale_n * weight_n**2)",
            ),
        ),
        "test_offset_and_weights.py::test_no_row_exceeds_the_bounds_whatever_stands_beside_it",
    ),
    Bug(
        "noise or sensitivity off by a factor",
        "noise for rows that count once where they weigh more",
        (("models/regression/multiplicity.py", "bound=most * block.bound", "bound=block.bound"),),
        "test_offset_and_weights.py::test_the_bound_of_the_weights_makes_the_noise",
    ),
    Bug(
        "sums that overflow, round or reorder",
        "products of rows rounded as BLAS likes",
        (
            (
                "kernels/linear.py",
                "np.rint(np.multiply(part, scale_n[:, None], out=room), out=room)",
                "np.multiply(part, scale_n[:, None], out=room)",
            ),
        ),
        "test_kernel_linear.py::test_the_sum_is_exact",
    ),
    Bug(
        "records that touch each other",
        "an audit that takes no record on the edge of a decision",
        (
            (
                "audit/neighbours.py",
                "> _JUMP:\n            step",
                "> 1e300:\n            step",
            ),
            ("audit/neighbours.py", "for tied in [q, *ties(q)]:", "for tied in [q]:"),
        ),
        "test_audit.py::test_a_nearest_centre_that_blas_decides_is_found[3]",
    ),
    Bug(
        "records that touch each other",
        "an audit that asks about each record once",
        (("audit/neighbours.py", "if twice else alone", "if False else alone"),),
        "test_audit.py::test_state_from_the_26th_row_on_is_found[the process ends]",
    ),
    Bug(
        "records that touch each other",
        "rows turned by BLAS, which rounds by the size of the batch",
        (("core/forms.py", "MeasuredRows(product(x_nd, matrix_de))", "MeasuredRows(x_nd @ matrix_de)"),),
        "test_conformance.py::test_bits_of_a_record_do_not_depend_on_its_batch[first_order_step]",
    ),
    Bug(
        "norms beyond the clip",
        "residuals of a linear regression left unclipped",
        (("models/regression/linear.py", "np.clip(residual_n / q.clip, -1.0, 1.0)", "residual_n / q.clip"),),
        "test_linear_model.py::test_no_row_exceeds_a_bound_at_any_query_and_some_rows_reach_each",
    ),
    Bug(
        "norms beyond the clip",
        "the excess of long rows left unclipped",
        (
            (
                "models/regression/linear.py",
                "np.clip(rows.length_n - 1.0, 0.0, 1.0)",
                "np.maximum(rows.length_n - 1.0, 0.0)",
            ),
        ),
        "test_linear_model.py::test_no_row_exceeds_a_bound_at_any_query_and_some_rows_reach_each",
    ),
    Bug(
        "norms beyond the clip",
        "squares of residuals left unclipped",
        (
            (
                "models/regression/linear.py",
                "np.minimum(np.abs(residual_n) / q.reach, 1.0) ** 2",
                "(np.abs(residual_n) / q.reach) ** 2",
            ),
        ),
        "test_linear_model.py::test_no_row_exceeds_a_bound_at_any_query_and_some_rows_reach_each",
    ),
    Bug(
        "noise or sensitivity off by a factor",
        "the histogram of residuals left out of a step's joint norm",
        (
            (
                "core/plan.py",
                "length = math.sqrt(math.fsum(block.weight**2 for block in self.blocks.values()))",
                "length = math.sqrt(math.fsum(b.weight**2 for n, b in self.blocks.items() if n != 'residual'))",
            ),
            ("core/plan.py", "> 1.0 + 1e-12:", "> 1e9:"),
        ),
        "test_linear_model.py::test_all_blocks_of_a_release_share_one_unit_of_noise",
    ),
    Bug(
        "public facts read off private data",
        "the range of y read off the data",
        (
            (
                "data/tables/design.py",
                "y_n = response.places(y_n)",
                "y_n = response.places(y_n) / np.nanmax(np.abs(response.places(y_n)), initial=1e-9)",
            ),
        ),
        "test_linear.py::test_the_range_of_y_is_the_declared_one",
    ),
    Bug(
        "NaN and infinity",
        "a faulty response kept in its row",
        (("data/tables/design.py", "faulty = np.isnan(scale_n) | np.isnan(y_n)", "faulty = np.isnan(scale_n)"),),
        "test_design.py::test_a_label_outside_the_classes_silences_its_row",
    ),
    Bug(
        "public facts read off private data",
        "the classes read off the data",
        (("data/tables/response.py", "Categories(self.classes)", "Categories(np.unique(cells)[:2].tolist())"),),
        "test_design.py::test_constant_labels_and_no_rows_are_ordinary",
    ),
    Bug(
        "norms beyond the clip",
        "gradients of a belief network declared too short",
        (
            (
                "models/belief_network/kernel.py",
                "np.maximum(square_n, 0.0) + slack_n",
                "0.99 * np.maximum(square_n, 0.0) + slack_n",
            ),
        ),
        "test_kernel_sbn.py::test_norms_bound_the_very_numbers_that_are_summed",
    ),
    Bug(
        "an accountant beyond its range or precision",
        "the second accountant not heard",
        (("accounting/independent.py", "if opinion.lower > epsilon:", "if opinion.lower > 2 * epsilon:"),),
        "test_accounting.py::test_a_plan_with_too_little_noise_is_stopped_before_any_data",
    ),
    Bug(
        "time that tells a draw",
        "large draws take more rounds",
        (
            (
                "core/noise.py",
                "    sign = (words & np.uint64(1)).view(np.int64)\n",
                "    for _ in range(round(8 * magnitude[0] / std)):\n        np.rint(u)\n"
                "    sign = (words & np.uint64(1)).view(np.int64)\n",
            ),
        ),
        "test_noise.py::test_time_of_a_draw_does_not_tell_its_size",
    ),
    Bug(
        "sums that overflow, round or reorder",
        "no room for the sum asked of the grid",
        (
            (
                "core/grids.py",
                "max(std * share / _NOISE_STEPS, bound * capacity / 2.0**62)",
                "std * share / _NOISE_STEPS or bound * 2.0**-62",
            ),
        ),
        "test_wall.py::test_the_grid_leaves_room_and_resolution",
    ),
    Bug(
        "generators that can be guessed",
        "noise from a 32-bit seed",
        (
            (
                "core/noise.py",
                "return secrets.token_bytes(32)",
                "return np.random.default_rng(int.from_bytes(secrets.token_bytes(4))).bytes(32)",
            ),
        ),
        "test_noise.py::test_no_ordinary_generator_is_touched",
    ),
    Bug(
        "noise used twice",
        "a forked process keeps its parent's secret",
        (("core/noise.py", 'self._origin.check("this source of noise")', "pass"),),
        "test_noise.py::test_processes_never_share_a_draw[fork-False]",
    ),
    Bug(
        "choices among settings that nobody counts",
        "private rows scored because nobody said that they were",
        (("estimators/base.py", "if public is not True:", "if public is None:"),),
        "test_sklearn.py::test_score_is_refused_unless_the_caller_says_public",
    ),
    Bug(
        "choices among settings that nobody counts",
        "a search that pays for a fit before its score is refused",
        (("estimators/base.py", 'if not hasattr(estimator, "privacy_"):', "if False:"),),
        "test_sklearn.py::test_what_scores_fits_of_private_rows_is_refused_before_the_first_charge",
    ),
    Bug(
        "training that ends by private values",
        "training ends when a private sum vanishes",
        (
            (
                "core/wall.py",
                "        if isinstance(self.__source, Spread):\n",
                "        found = work.sums(self.__source.chunks(), work.draw(int)).values()\n"
                "        if not any(total.any() for total in found):\n"
                "            self.__step = len(self.__plan)\n        if isinstance(self.__source, Spread):\n",
            ),
        ),
        "test_wall.py::test_empty_batches_are_releases_like_any_other[poisson-location]",
    ),
    Bug(
        "leaks by text, logs and files",
        "checkpoints hold sums without noise",
        (
            (
                "core/wall.py",
                "self.__journal.record(step, total)",
                "self.__journal.record(step, {n: 1.0 * ints for n, ints in self._sums(query, release, step).items()})",
            ),
        ),
        "test_runs.py::test_an_ended_run_is_read_again_and_spends_nothing",
    ),
    Bug(
        "code in model files",
        "arrays of a model file unpickled",
        (
            (
                "results/model_file.py",
                '    shape, dtype = tuple(entry["shape"]), entry["dtype"]\n',
                "    with archive.open(info) as member:\n        return np.load(member, allow_pickle=True)\n"
                '    shape, dtype = tuple(entry["shape"]), entry["dtype"]\n',
            ),
        ),
        "test_storage.py::test_pickled_objects_are_never_run",
    ),
    Bug(
        "code in model files",
        "a ledger that a model file chooses",
        (("estimators/base.py", "if foreign := params.keys() & OF_THE_RUN:", "if foreign := params.keys() & ():"),),
        "test_strangers.py::test_a_model_file_says_nothing_of_later_fits",
    ),
    Bug(
        "code in model files",
        "a module asked for what a model file names",
        (
            (
                "guards/strangers.py",
                "vars(sys.modules[module]).get(name) if",
                "getattr(sys.modules[module], name, None) if",
            ),
        ),
        "test_private.py::test_no_module_runs_code_for_what_a_file_says",
    ),
    Bug(
        "code in model files",
        "a start as large as a model file says",
        (
            (
                "estimators/private.py",
                "        self.q_ = domains",
                "        self.model.init(None)\n        self.q_ = domains",
            ),
        ),
        "test_private.py::test_a_file_makes_nothing_that_is_larger_than_itself",
    ),
    Bug(
        "crashes, retries and races",
        "a run continued with another model",
        (("estimators/base.py", '"others": others, "learned": declared(model)}', '"others": {}, "learned": {}}'),),
        "test_private.py::test_a_run_is_continued_and_read_with_its_own_model_alone",
    ),
    Bug(
        "leaks by text, logs and files",
        "a tryout on the private rows",
        (("estimators/private.py", "return source, Rows(zeros)", "return source, source"),),
        "test_private.py::test_a_tryout_looks_at_no_row_of_the_data",
    ),
    Bug(
        "code in model files",
        "objects of JSON that name a key twice",
        (("guards/strangers.py", "    if len(found) != len(pairs):\n", "    if len(found) > len(pairs):\n"),),
        "test_strangers.py::test_json_that_readers_could_take_for_different_things_is_refused",
    ),
    Bug(
        "code in model files",
        "half a surrogate pair in JSON",
        (("guards/strangers.py", 'one.encode("utf-8")  #', 'one.encode("utf-8", "replace")  #'),),
        "test_strangers.py::test_json_that_readers_could_take_for_different_things_is_refused",
    ),
    Bug(
        "files, folders and names that others choose",
        "a file of mine that others can write",
        (("guards/own.py", '0o077 if secret else 0o022, "a file"', '0o007 if secret else 0o002, "a file"'),),
        "test_own.py::test_a_file_with_access_for_others_is_refused",
    ),
    Bug(
        "files, folders and names that others choose",
        "a file of somebody else's that root believes",
        (("guards/own.py", "if found.st_uid != os.geteuid():", "if found.st_uid != os.geteuid() and os.geteuid():"),),
        "test_own.py::test_what_belongs_to_somebody_else_is_refused_even_to_root",
    ),
    Bug(
        "files, folders and names that others choose",
        "a link that somebody laid",
        (("guards/own.py", "if os.path.islink(path):", "if not path:"),),
        "test_own.py::test_only_regular_files_that_are_no_links_are_read",
    ),
    Bug(
        "files, folders and names that others choose",
        "a kept call that replaces files",
        (
            (
                "cli/fit.py",
                '"overwrite": overwrite}',
                '"overwrite": (overwrite := overwrite or given["overwrite"])}',
            ),
        ),
        "test_cli_runs.py::test_a_resumed_fit_never_replaces_a_file_by_itself",
    ),
    Bug(
        "files, folders and names that others choose",
        "a kept call that belongs to no run",
        (("cli/fit.py", "    resumption.check_run(checkpoint, call)\n", ""),),
        "test_cli_runs.py::test_a_call_that_no_fit_left_is_not_made",
    ),
    Bug(
        "files, folders and names that others choose",
        "a kept call that others can write",
        (
            ("cli/resumption.py", "        check_own_folder(folder)\n        call =", "        call ="),
            ("runs/checkpoint.py", "            own.check_own_folder(self.path)\n", ""),
        ),
        "test_cli_runs.py::test_a_folder_of_somebody_else_is_not_resumed",
    ),
    Bug(
        "files, folders and names that others choose",
        "code beside the data in worker processes",
        (("cluster/local.py", "*filter(os.path.isabs, sys.path)", "*sys.path"),),
        "test_cluster.py::test_worker_processes_run_no_code_of_the_current_folder",
    ),
    Bug(
        "files, folders and names that others choose",
        "a cluster that whoever reaches it can read",
        (
            (
                "cluster/dask.py",
                'if protocol not in ("tls", "inproc") and',
                'if protocol not in ("tls", "tcp", "inproc") and',
            ),
        ),
        "test_cluster.py::test_a_cluster_that_strangers_could_reach_is_refused",
    ),
    Bug(
        "files, folders and names that others choose",
        "rows that a worker of Dask spills for all to read",
        (("cluster/dask.py", "                os.umask(0o077)", "                os.umask(0o022)"),),
        "test_cluster.py::test_what_workers_of_dask_spill_is_their_users_alone",
    ),
    Bug(
        "files, folders and names that others choose",
        "names that look alike",
        (
            (
                "ledger/names.py",
                'drawn = unicodedata.normalize("NFD", "".join(parts))',
                'drawn = unicodedata.normalize("NFD", shown)',
            ),
        ),
        "test_ledger_names.py::test_a_name_that_looks_like_another_is_refused_and_named",
    ),
    Bug(
        "files, folders and names that others choose",
        "a name in two forms",
        (("ledger/names.py", "    if name != plain:\n", "    if not plain:\n"),),
        "test_ledger_names.py::test_a_name_has_one_form",
    ),
    Bug(
        "files, folders and names that others choose",
        "a network drive at a folder that is not ASCII",
        (("ledger/sqlite.py", "os.fsencode(point))", 'point.encode("latin-1", "replace"))'),),
        "test_ledger.py::test_network_drives_are_seen_whatever_their_folder_is_called",
    ),
    Bug(
        "files, folders and names that others choose",
        "a network drive of a host or of an unknown program",
        (("ledger/sqlite.py", "return kind in _NETWORK or", "return kind in _NETWORK and"),),
        "test_ledger.py::test_kinds_of_network_drives",
    ),
    Bug(
        "leaks by text, logs and files",
        "faults of private data in a pipe",
        (
            (
                "cli/faults.py",
                "if not is_terminal(sys.stdin, sys.stdout, sys.stderr):",
                "if not any(map(is_terminal, (sys.stdin, sys.stdout, sys.stderr))):",
            ),
        ),
        "test_cli_look.py::test_pipes_and_files_are_refused",
    ),
    Bug(
        "leaks by text, logs and files",
        "a look without a typed yes",
        (("cli/faults.py", '!= "yes":', '== "no":'),),
        "test_cli_look.py::test_only_a_typed_yes_goes_on",
    ),
    Bug(
        "leaks by text, logs and files",
        "faults of private data as shares",
        (
            (
                "cli/faults.py",
                "    return SHARES[1 if 2 * count <= total else 2]",
                '    return f"{count / total:.0%}"',
            ),
        ),
        "test_cli_look.py::test_faults_of_a_table_are_said_in_words",
    ),
    Bug(
        "leaks by text, logs and files",
        "the share of words that a list knows",
        (
            (
                "data/documents/vocabulary.py",
                "        return self._find_all(str.lower(text))",
                "        return [token for token in self._find_all(str.lower(text)) if token in self._id_of]",
            ),
        ),
        "test_cli_look.py::test_the_share_of_words_that_a_list_knows_is_not_said",
    ),
    Bug(
        "leaks by text, logs and files",
        "a rehearsal that is saved as a model",
        (("estimators/base.py", "        if self.privacy_.rehearsal:\n", "        if False:\n"),),
        "test_cli_rehearse.py::test_a_rehearsal_is_taken_for_no_fit",
    ),
    Bug(
        "crashes, retries and races",
        "a rehearsal that is charged",
        (("estimators/base.py", "        if not rehearses:\n", "        if True:\n"),),
        "test_cli_rehearse.py::test_a_rehearsal_has_the_plan_of_its_fit_and_charges_nothing",
    ),
    Bug(
        "leaks by text, logs and files",
        "a rehearsal that promises what it never did",
        (("results/statement.py", "return not self.rehearsal and self.secret_noise", "return self.secret_noise"),),
        "test_cli_rehearse.py::test_a_rehearsal_is_taken_for_no_fit",
    ),
    Bug(
        "leaks by text, logs and files",
        "commands to a terminal",
        (
            (
                "cli/terminal.py",
                'typer.echo("\\n".join(map(printable, text.split("\\n"))), err=err)',
                "typer.echo(text, err=err)",
            ),
        ),
        "test_strangers.py::test_the_doors_to_a_terminal_let_no_command_out",
    ),
    Bug(
        "leaks by text, logs and files",
        "words of a picture that are mathematics",
        (("results/pictures.py", ", parse_math=False)", ")"),),
        "test_pictures.py::test_words_in_a_picture_are_words",
    ),
    Bug(
        "leaks by text, logs and files",
        "rows of documents for all to read",
        (("guards/own.py", 'flags, 0o600), "wb+")', 'flags, 0o644), "wb+")'),),
        "test_cli.py::test_rows_of_documents_are_their_owners_alone",
    ),
    Bug(
        "leaks by text, logs and files",
        "a password in an estimator's repr",
        (("ledger/address.py", "return repr(without_password(str(self)))", "return repr(str(self))"),),
        "test_cli_runs.py::test_a_ledgers_address_is_kept_without_its_secrets",
    ),
    Bug(
        "leaks by text, logs and files",
        "a password in the query of an address",
        (
            (
                "ledger/address.py",
                "return bool(separator) and unquote(name) in _PUBLIC and",
                "return bool(separator) and",
            ),
        ),
        "test_cli_runs.py::test_a_ledgers_address_is_kept_without_its_secrets",
    ),
    Bug(
        "work that depends on the record",
        "fixed work that stops at convergence",
        (
            (
                "models/topics/kernel.py",
                "np.abs(residual_k).mean() < tol and not fixed_work:",
                "np.abs(residual_k).mean() < tol:",
            ),
        ),
        "test_trust_leaks.py::test_fixed_work_runs_every_document_to_the_same_iteration",
    ),
    Bug(
        "an accountant beyond its range or precision",
        "NaN passes the check of public numbers",
        (("guards/errors.py", "    if not inside:\n", "    if not inside and number == number:\n"),),
        "test_accounting_properties.py::test_bad_targets[nan]",
    ),
    Bug(
        "an accountant beyond its range or precision",
        "no noise read as no loss",
        (
            (
                "accounting/answers.py",
                'return Answer(math.inf, delta, name, "no noise"',
                'return Answer(0.0, delta, name, "no noise"',
            ),
        ),
        "test_accounting.py::test_no_noise_is_no_privacy",
    ),
    Bug(
        "calibration beyond its target",
        "calibration ends on the far side of its target",
        (
            (
                "accounting/calibration.py",
                "    return high, slope\n",
                "    return (high if math.isnan(low) else low), slope\n",
            ),
        ),
        "test_accounting_properties.py::test_calibration_lands_below_and_near_the_target",
    ),
    Bug(
        "choices among settings that nobody counts",
        "fits of the same plan share one charge",
        (
            (
                "runs/run.py",
                "self.name, token, checkpoint = secrets.token_hex(16)",
                "self.name, token, checkpoint = self._plan.digest.hex()",
            ),
        ),
        "test_runs.py::test_every_copy_of_an_estimator_is_charged_once_a_fit",
    ),
    Bug(
        "crashes, retries and races",
        "a release that is on record and lost made again for nothing",
        (("runs/run.py", 'if (step, "") in self._released and', "if False and"),),
        "test_runs.py::test_a_release_on_record_whose_bytes_are_lost_is_charged_again",
    ),
    Bug(
        "crashes, retries and races",
        "a release that can be read before it is on record",
        (
            (
                "runs/checkpoint.py",
                "sealed = AESGCM(key).encrypt(_NONCE, packed, None)",
                "sealed = packed",
            ),
        ),
        "test_runs.py::test_what_is_sealed_and_not_on_record_tells_nothing",
    ),
    Bug(
        "crashes, retries and races",
        "the key of a release left beside it",
        (
            (
                "runs/checkpoint.py",
                "        return Seal(hashlib.sha256(sealed)",
                '        own.write_own(self.path / "release.key", key.hex().encode())\n'
                "        return Seal(hashlib.sha256(sealed)",
            ),
        ),
        "test_runs.py::test_what_is_sealed_and_not_on_record_tells_nothing",
    ),
    Bug(
        "crashes, retries and races",
        "two processes at work in one folder",
        (("runs/checkpoint.py", 'self._lock = own.locked(self.path / "lock")', "pass"),),
        "test_runs.py::test_two_processes_in_one_folder_are_one_run",
    ),
    Bug(
        "crashes, retries and races",
        "a forked child goes on with its parent's fit",
        (("core/forks.py", "return self._num_forks == _num_forks", "return True"),),
        "test_runs.py::test_a_fit_goes_on_in_one_process_after_a_fork[False]",
    ),
    Bug(
        "crashes, retries and races",
        "a forked child gives back what its parent was charged",
        (
            (
                "runs/run.py",
                "if not self._writes or not self._origin.is_here:",
                "if not self._writes:",
            ),
            ("ledger/session.py", "session.tokens.clear()", "pass"),
        ),
        "test_runs.py::test_a_fit_goes_on_in_one_process_after_a_fork[False]",
    ),
    Bug(
        "files of strangers that are believed",
        "a checkpoint in a folder that somebody else made",
        (("runs/checkpoint.py", "            own.check_own_folder(self.path)\n", ""),),
        "test_runs.py::test_a_folder_of_a_stranger_is_refused",
    ),
    Bug(
        "crashes, retries and races",
        "masks used again from a folder that was set back",
        (("federated/membership.py", "self._may_repeat_masks |= self._run.has_lost", "pass"),),
        "test_federated_client.py::test_a_folder_that_was_set_back_hides_no_two_sums_alike",
    ),
    Bug(
        "crashes, retries and races",
        "a ledger's file with two names",
        (("ledger/sqlite.py", "if links != 1 or points &", "if points &"),),
        "test_ledger_histories.py::test_a_file_with_another_name_is_refused",
    ),
    Bug(
        "crashes, retries and races",
        "a look at a copy taken for what its user has seen",
        (
            (
                "ledger/__init__.py",
                "            if not self._read_only:\n                self._keep",
                "            if True:\n                self._keep",
            ),
        ),
        "test_ledger_histories.py::test_a_look_at_a_copy_does_not_speak_for_the_original",
    ),
    Bug(
        "crashes, retries and races",
        "PostgreSQL: a body that two readers read in two ways",
        (
            (
                "ledger/schema.py",
                "(SELECT count(*) FROM regexp_matches(bones, '\":', 'g')) = (",
                "0 <= (",
            ),
        ),
        "test_ledger_appenders.py::test_what_dpvb_never_writes_is_refused",
    ),
    Bug(
        "crashes, retries and races",
        "masks used again by a client that begins its run anew",
        (
            (
                "federated/membership.py",
                "if is_new and self.restarted and owner.federation.trust.secure:",
                "if False:",
            ),
        ),
        "test_federated_client.py::test_a_damaged_folder_hides_no_two_sums_alike",
    ),
    Bug(
        "crashes, retries and races",
        "a forked client that answers",
        (("federated/client.py", 'try:\n                self._origin.check("this client")\n', "try:\n"),),
        "test_federated_client.py::test_a_client_belongs_to_one_process[False-False]",
    ),
    Bug(
        "crashes, retries and races",
        "an attempt that is charged though it cannot be bound",
        (
            (
                "federated/membership.py",
                "        memory.begin(self.offer, request.step, request.attempt, digest)\n        journal =",
                "        journal =",
            ),
        ),
        "test_federated_client.py::test_an_attempt_is_bound_before_it_is_charged",
    ),
    Bug(
        "crashes, retries and races",
        "a history that is read before the fence",
        (
            (
                "runs/run.py",
                "                history = self._ledger.history(self.name)  # From now on",
                "                # From now on",
            ),
        ),
        "test_runs.py::test_what_is_put_on_record_while_another_attempt_begins_is_not_made_again",
    ),
    Bug(
        "crashes, retries and races",
        "a release taken for what something else asked for",
        (
            (
                "runs/run.py",
                "key=seal.key, request=request or None)",
                "key=seal.key, request=None)",
            ),
        ),
        "test_runs.py::test_each_release_is_given_for_what_asked_for_it",
    ),
    Bug(
        "crashes, retries and races",
        "a mark that speaks of its first step alone",
        (("runs/run.py", "step=self._started - 1)", "step=step)"),),
        "test_runs.py::test_nothing_that_has_begun_comes_back_in_the_middle_of_a_fit",
    ),
    Bug(
        "crashes, retries and races",
        "masks used again after a restart that nobody counts",
        (
            (
                "federated/client.py",
                "if trust.secure and current.restarted and self._owner.ledger is None:",
                "if False:",
            ),
        ),
        "test_federated_client.py::test_a_folder_that_was_set_back_hides_no_two_sums_alike",
    ),
    Bug(
        "crashes, retries and races",
        "a second server drops the locks of the first",
        (("federated/record.py", "os.O_RDWR | os.O_CREAT | os.O_EXCL", "os.O_RDWR | os.O_CREAT"),),
        "test_federated_record.py::test_a_second_server_in_the_process_lets_no_other_process_in",
    ),
    Bug(
        "crashes, retries and races",
        "a trusted server noises a sum twice",
        (
            ("core/wall.py", "total = recorded(journal, step, release, np.float64)", "total = None"),
            ("federated/record.py", "INSERT INTO releases", "INSERT OR REPLACE INTO releases"),
        ),
        "test_federated_record.py",
    ),
    Bug(
        "crashes, retries and races",
        "a plan beyond the cap granted",
        (
            ("ledger/__init__.py", "if sole or price.spent <= facts.cap:", "if sole or price.spent > 0:"),
            (
                "ledger/state.py",
                'return "it is over the cap" if price.spent > self.datasets[entry.dataset].cap else ""',
                'return ""',
            ),
        ),
        "test_runs.py::test_budget_beyond_the_cap_is_refused_before_the_data_are_read",
    ),
    Bug(
        "leaks by text, logs and files",
        "the token of a run left in its folder",
        (
            (
                "runs/run.py",
                "        self._writes = False\n        if self._checkpoint is not None:",
                "        self._writes = False\n        if self._checkpoint is None:",
            ),
        ),
        "test_runs.py::test_a_fit_killed_anywhere_goes_on[before the end-part of the cap]",
    ),
    Bug(
        "crashes, retries and races",
        "two writers look before either writes",
        (("ledger/sqlite.py", '"BEGIN IMMEDIATE" if write else "BEGIN"', '"BEGIN"'),),
        "test_ledger.py::test_nobody_writes_between_a_look_and_its_charge",
    ),
    Bug(
        "crashes, retries and races",
        "a row of a ledger taken without a look at its hash",
        (("ledger/state.py", "if entry.hash != entry.digest_of_row:", "if not entry.hash:"),),
        "test_ledger.py::test_edited_rows",
    ),
    Bug(
        "crashes, retries and races",
        "a restored backup taken for the ledger",
        (
            (
                "ledger/following.py",
                "return State.at(head, rows.row, rows.first_charge if store.shared else None)",
                "return walk(store.uuid, rows.since(1))",
            ),
            (
                "ledger/state.py",
                "    if head.uuid != uuid:\n",
                "    if True:\n        return\n    if head.uuid != uuid:\n",
            ),
        ),
        "test_ledger.py::test_a_restored_backup",
    ),
    Bug(
        "crashes, retries and races",
        "the database opened beside SQLite, whose locks are dropped by that",
        (("ledger/sqlite.py", "sha256(fresh.serialize())", "sha256(self._path.read_bytes())"),),
        "test_ledger_histories.py::test_nothing_but_sqlite_opens_the_database",
    ),
    Bug(
        "crashes, retries and races",
        "a head taken for a chain's own by its number",
        (
            (
                "ledger/sqlite.py",
                "        check_kept(kept, self.uuid, None if row is None else row.hash, RESTORE)\n",
                "",
            ),
        ),
        "test_ledger_histories.py::test_a_head_settles_between_two_histories",
    ),
    Bug(
        "crashes, retries and races",
        "a file replaced while it is open, and nobody looks",
        (
            (
                "ledger/sqlite.py",
                "return bool(self._places) and (_identity(self._path)",
                "return False and (_identity(self._path)",
            ),
        ),
        "test_ledger_histories.py::test_a_look_at_replaced_files_says_so",
    ),
    Bug(
        "crashes, retries and races",
        "a log that was taken away written over its successor",
        (
            (
                "ledger/sqlite.py",
                "        if self._is_moved():\n            # SQLite",
                "        if False:\n            # SQLite",
            ),
        ),
        "test_ledger_histories.py::test_a_process_whose_log_was_taken_away_leaves_the_file_alone",
    ),
    Bug(
        "crashes, retries and races",
        "what a user has seen of a ledger forgotten",
        (
            (
                "ledger/__init__.py",
                "        if seen is not None:\n            self._check_kept(seen",
                "        if False:\n            self._check_kept(seen",
            ),
        ),
        "test_ledger_histories.py::test_a_copy_that_goes_its_own_way",
    ),
    Bug(
        "crashes, retries and races",
        "a forked process that goes on with its parent's runs",
        (("ledger/session.py", "session.tokens.clear()", "pass"),),
        "test_ledger_histories.py::test_a_forked_process_does_not_go_on_with_its_parents_runs",
    ),
    Bug(
        "crashes, retries and races",
        "a run that everybody may end",
        (("ledger/__init__.py", "elif token is None or _hash(token) != owner:", "elif token is None:"),),
        "test_ledger_histories.py::test_a_token_goes_where_it_is_told",
    ),
    Bug(
        "crashes, retries and races",
        "releases that have begun given back",
        (("ledger/past.py", "left, before = Counter[Event](), self.begun", "left, before = Counter[Event](), 0"),),
        "test_ledger_refunds.py::test_what_has_begun_is_never_given_back",
    ),
    Bug(
        "crashes, retries and races",
        "steps that were charged again not counted as begun",
        (("ledger/past.py", "self.begun = max(self.begun, 1 + max(named))", "pass"),),
        "test_ledger_refunds.py::test_charges_of_what_was_done_again_never_come_back",
    ),
    Bug(
        "crashes, retries and races",
        "everybody's charges taken back by one row",
        (
            (
                "ledger/past.py",
                "if any(-back > most for back, most in zip_longest(cost, self.planned",
                "if any(False for _ in zip_longest(cost, self.planned",
            ),
        ),
        "test_ledger_refunds.py::test_no_refund_goes_beyond_its_runs_own_charge",
    ),
    Bug(
        "crashes, retries and races",
        "an order favoured after the fact",
        (
            (
                "ledger/state.py",
                "        if first is None:\n            return int(",
                "        if True:\n            return int(",
            ),
        ),
        "test_ledger_refunds.py::test_an_order_favoured_by_a_stranger_is_not_believed",
    ),
    Bug(
        "crashes, retries and races",
        "one row that stops everybody",
        (("ledger/state.py", "if odd and not self.shared:", "if odd:"),),
        "test_ledger_refunds.py::test_an_odd_row_stops_nobody_where_others_may_append",
    ),
    Bug(
        "crashes, retries and races",
        "PostgreSQL: a run that anybody may end or take back",
        (
            (
                "ledger/schema.py",
                "(beginning.writer = current_user OR",
                "(true OR",
            ),
        ),
        "test_ledger_appenders.py::test_the_writer_is_who_wrote",
    ),
    Bug(
        "crashes, retries and races",
        "PostgreSQL: the writer is who the client says",
        (("ledger/schema.py", "NEW.writer := current_user;", "NEW.writer := coalesce(NEW.writer, current_user);"),),
        "test_ledger_appenders.py::test_the_writer_is_who_wrote",
    ),
    Bug(
        "crashes, retries and races",
        "PostgreSQL: a refund beyond what its run was charged",
        (("ledger/schema.py", "(SELECT min(part) FROM parts) >= 0 AND ", ""),),
        "test_ledger_appenders.py::test_what_dpvb_never_writes_is_refused",
    ),
    Bug(
        "crashes, retries and races",
        "PostgreSQL: one row that no reader takes",
        (
            (
                "ledger/schema.py",
                "WHEN (NEW.kind IN ('event', 'charge', 'sole', 'refund')) IS NOT TRUE THEN 'it has an unknown kind'",
                "WHEN (NEW.kind IN ('event', 'charge', 'sole', 'refund')) IS NOT TRUE THEN NULL",
            ),
            ("ledger/schema.py", "ELSE dpvb.charge_fault(NEW, facts)", "WHEN 'charge' THEN NULL"),
            ("ledger/schema.py", "IF NEW.kind <> 'event' AND fault IS NULL THEN", "IF NEW.kind = 'charge' THEN"),
        ),
        "test_ledger_appenders.py::test_whatever_row_is_changed_it_is_refused_or_stops_nobody[0]",
    ),
    Bug(
        "crashes, retries and races",
        "PostgreSQL: rows of a run on another data set than its first charge",
        (("ledger/schema.py", "IF one.dataset <> beginning.dataset THEN", "IF false THEN"),),
        "test_ledger_appenders.py::test_what_dpvb_never_writes_is_refused",
    ),
    Bug(
        "crashes, retries and races",
        "PostgreSQL: a refund beyond what counts as infinite",
        (
            (
                "ledger/schema.py",
                "SELECT least({SATURATED}, sum(part)",
                "SELECT greatest(0, sum(part)",
            ),
        ),
        "test_ledger_appenders.py::test_no_more_comes_back_than_counts_as_infinite",
    ),
    Bug(
        "crashes, retries and races",
        "PostgreSQL: a cost that nobody can calculate stops who asks what remains",
        (("ledger/pricing.py", "            except ODD:\n", "            except LookupError:\n"),),
        "test_ledger_appenders.py::test_a_cost_that_nobody_can_calculate_stops_nobody[fixed_size-1e-300-1e+100-1e-300]",
    ),
    Bug(
        "crashes, retries and races",
        "PostgreSQL: operators of the caller's decide in the triggers",
        (
            (
                "ledger/schema.py",
                '            f" SET search_path = {_PATH} AS $body${body}$body$"',
                '            f" AS $body${body}$body$"',
            ),
            ("ledger/schema.py", 'body, False, f"search_path={_PATH}", "plpgsql")', 'body, False, None, "plpgsql")'),
        ),
        "test_ledger_appenders.py::test_nothing_that_a_session_can_change_decides_in_the_triggers",
    ),
    Bug(
        "an accountant beyond its range or precision",
        "all of delta twice, for Gaussians and for the orders",
        (
            (
                "accounting/filter.py",
                "left = 1 - _OF_GAUSSIANS - _LEFT_OUT if beside_gaussians else Decimal(1)",
                "left = Decimal(1)",
            ),
        ),
        "test_filter.py::test_the_orders_beside_gaussians_have_what_is_left_of_delta",
    ),
    Bug(
        "an accountant beyond its range or precision",
        "sampled plans that count as Gaussians",
        (
            (
                "accounting/covering.py",
                "event.sampling_prob == 1 and event.noise_multiplier > 0",
                "event.noise_multiplier > 0",
            ),
        ),
        "test_covering.py::test_full_batches_cover_themselves",
    ),
    Bug(
        "an accountant beyond its range or precision",
        "a Gaussian that leaves out as much as it likes",
        (("accounting/filter.py", "if left_out > _LEFT_OUT * 10**9:", "if left_out > 10**18:"),),
        "test_filter.py::test_what_gaussians_spend_has_no_gaps",
    ),
    Bug(
        "an accountant beyond its range or precision",
        "a Gaussian that covers a plan between points of a grid only by luck",
        (("accounting/covering.py", "(delta_g[:-1] - left_out)", "(0.9 * delta_g[:-1] - left_out)"),),
        "test_covering.py::test_no_epsilon_has_a_larger_delta_than_the_covering_release",
    ),
    Bug(
        "an accountant beyond its range or precision",
        "the Gaussian of a sampled plan comes back for steps that never ran",
        (("ledger/past.py", "found[-1] if alone else 0, 0", "found[-1], 0"),),
        "test_ledger_gaussians.py::test_a_sampled_plan_that_stops_gets_back_what_the_orders_say_and_nothing_of_its_gaussian",
    ),
    Bug(
        "an accountant beyond its range or precision",
        "discrete shares that count as Gaussians",
        (("runs/run.py", "normal: bool = False,", "normal: bool = True,"),),
        "test_ledger_gaussians.py::test_shares_of_several_owners_are_not_normal",
    ),
    Bug(
        "crashes, retries and races",
        "PostgreSQL: the head is what a client says",
        (("ledger/schema.py", "    NEW := OLD;\n", ""),),
        "test_ledger_postgresql.py::test_nobody_moves_the_head_but_to_the_last_row",
    ),
    Bug(
        "crashes, retries and races",
        "PostgreSQL: a ledger that somebody else made beforehand",
        (("ledger/postgresql.py", "        if not believed:\n", "        if not owner:\n"),),
        "test_ledger_postgresql.py::test_a_ledger_that_somebody_else_made_beforehand_is_refused",
    ),
    Bug(
        "crashes, retries and races",
        "PostgreSQL: a commit that did not wait for its standby",
        (
            (
                "ledger/postgresql.py",
                "                if self._warnings:\n",
                "                if self._warnings and not write:\n",
            ),
        ),
        "test_ledger_postgresql.py::test_a_commit_that_did_not_wait_for_its_standby_is_not_acknowledged",
    ),
    Bug(
        "leaks by text, logs and files",
        "a password in the refusal of an address",
        (("ledger/address.py", "return bool(_MEANT.search(place))", 'return place.startswith("postgresql://")'),),
        "test_ledger_postgresql.py::test_addresses_of_another_form_are_refused_and_not_shown",
    ),
    Bug(
        "an accountant beyond its range or precision",
        "charges of a ledger rounded down",
        (("accounting/filter.py", "return math.ceil(units)", "return math.floor(units)"),),
        "test_filter.py::test_gaussian_costs_are_the_closed_form_rounded_up",
    ),
    Bug(
        "choices among settings that nobody counts",
        "the best of several runs at the price of one",
        (("accounting/selection.py", "choice = (1.0 + law.eta) * min(price, rest)", "choice = 0.0"),),
        "test_selection.py::test_the_best_of_a_random_number_of_runs_costs_no_more_than_its_bound",
    ),
    Bug(
        "leaks by text, logs and files",
        "a notebook shows each run of a selection",
        (
            (
                "choosing/select.py",
                "    q, estimate = loop.fit(task.model, wall, choice.plans[c],",
                "    from dpvb.runs.shown import notebook_line\n\n    notebook_line()\n"
                "    q, estimate = loop.fit(task.model, wall, choice.plans[c],",
            ),
        ),
        "test_shown.py::test_how_many_runs_a_selection_made_is_not_shown",
    ),
    Bug(
        "files, folders and names that others choose",
        "a name runs in the notebook that shows it",
        (("guards/pages.py", "return escape(printable(text))", "return text"),),
        "test_pages.py::test_a_table_is_well_formed_and_its_cells_are_the_texts",
    ),
    Bug(
        "files, folders and names that others choose",
        "others read when a command made its releases",
        (("cli/log.py", "_file = os.open(path, flags, 0o600)", "_file = os.open(path, flags, 0o644)"),),
        "test_cli_log.py::test_a_log_has_what_is_said_and_each_release_in_order",
    ),
    Bug(
        "files, folders and names that others choose",
        "a log follows a link to a file of somebody else's choice",
        (("cli/log.py", ' | getattr(os, "O_NOFOLLOW", 0)', ""),),
        "test_cli_log.py::test_a_log_that_cannot_be_written_is_refused_or_left",
    ),
    Bug(
        "public facts read off private data",
        "words of texts that nobody calls public are written",
        (("cli/vocabulary.py", "    if not public:\n", "    if False:\n"),),
        "test_cli_vocabulary.py::test_nothing_is_written_of_texts_that_nobody_calls_public",
    ),
    Bug(
        "sums of several parties without their noise, masks or room",
        "a client's share of noise one in M",
        (
            (
                "federated/trust.py",
                "/ math.sqrt(self._honest))",
                "/ self._honest)",
            ),
        ),
        "test_federated_trust.py::test_shares_of_secure_aggregation",
    ),
    Bug(
        "sums of several parties without their noise, masks or room",
        "the noise of missing clients counted on",
        (
            (
                "federated/trust.py",
                "return self.num_clients - self.tolerated - self.colluders",
                "return self.num_clients - self.colluders",
            ),
        ),
        "test_gathered.py::test_noise_of_a_sum_under_secure_aggregation",
    ),
    Bug(
        "sums of several parties without their noise, masks or room",
        "the noise of colluding clients counted on",
        (
            (
                "federated/trust.py",
                "return self.num_clients - self.tolerated - self.colluders",
                "return self.num_clients - max(self.tolerated, self.colluders)",
            ),
        ),
        "test_federated_trust.py::test_the_noise_suffices_whoever_is_missing_and_whoever_colludes",
    ),
    Bug(
        "sums of several parties without their noise, masks or room",
        "no client taken to collude where nothing is said",
        (
            (
                "federated/trust.py",
                'return int(trust == "secure_aggregation") if colluders is None else colluders',
                "return colluders or 0",
            ),
        ),
        "test_federated_client.py::test_a_server_that_leaves_one_out_and_works_with_another_finds_the_promised_noise",
    ),
    Bug(
        "sums of several parties without their noise, masks or room",
        "as many colluders as take part, and nobody's noise left",
        (("federated/trust.py", "if self.secure and self._honest < 1:", "if self.secure and self._honest < 0:"),),
        "test_federated_trust.py::test_the_noise_suffices_whoever_is_missing_and_whoever_colludes",
    ),
    Bug(
        "sums of several parties without their noise, masks or room",
        "a server that leaves out as many as may be missing or collude",
        (
            (
                "federated/client.py",
                "len(request.participants) < trust.least:",
                "len(request.participants) < trust.least - (trust.colluders or 0):",
            ),
        ),
        "test_federated_client.py::test_whomever_a_server_leaves_out_enough_noise_is_asked_for",
    ),
    Bug(
        "sums of several parties without their noise, masks or room",
        "requests with any number of participants",
        (("federated/client.py", "if trust.secure and len(request.participants) < trust.least:", "if False:"),),
        "test_federated_client.py::test_whomever_a_server_leaves_out_enough_noise_is_asked_for",
    ),
    Bug(
        "crashes, retries and races",
        "answers to offers that make room for others",
        (
            ("federated/memory.py", "return (self._answers if offered else self._replies)", "return self._replies"),
            (
                "federated/memory.py",
                "            self._answers[offer] = answer\n",
                "            self.keep(offer, answer)\n",
            ),
        ),
        "test_federated_client.py::test_what_was_answered_once_is_answered_the_same_or_not_at_all",
    ),
    Bug(
        "crashes, retries and races",
        "an offer accepted anew whose answer is gone",
        (("federated/client.py", "if digest in earlier:", "if earlier.pop(digest, None) is None and False:"),),
        "test_federated_client.py::test_an_offer_whose_answer_vanished_is_never_accepted_anew",
    ),
    Bug(
        "crashes, retries and races",
        "a release given anew whose answer made room for others",
        (
            ("federated/membership.py", "if self._position > step:\n            raise", "if False:\n            raise"),
            (
                "federated/membership.py",
                "return wall.share(query, self.plan.releases[step], conceal)",
                "return self._behind(self.plan, None).share(query, self.plan.releases[0], conceal)",
            ),
        ),
        "test_federated_client.py::test_what_was_answered_once_is_answered_the_same_or_not_at_all",
    ),
    Bug(
        "sums of several parties without their noise, masks or room",
        "no noise of a client that trusts nobody",
        (
            (
                "core/wall.py",
                "else self.__party.noise_share\n",
                "else self.__party.noise_share * (self.__party.num_parties > 1)\n",
            ),
        ),
        "test_gathered.py::test_noise_of_a_sum_without_trust",
    ),
    Bug(
        "sums of several parties without their noise, masks or room",
        "a trusted server that forgets its noise",
        (
            (
                "core/wall.py",
                "sums if noise is None else _with_noise(noise, sums, release, step, plan, grids, 1.0)",
                "sums",
            ),
        ),
        "test_gathered.py::test_noise_of_a_sum_at_a_trusted_server",
    ),
    Bug(
        "sums of several parties without their noise, masks or room",
        "room for one party's sums alone",
        (("core/grids.py", "capacity = parties * (_CAPACITY if", "capacity = (_CAPACITY if"),),
        "test_gathered.py::test_the_largest_sums_of_all_parties_do_not_wrap",
    ),
    Bug(
        "sums of several parties without their noise, masks or room",
        "masks added by both of a pair",
        (("federated/masks.py", "part -= _sum_of_next(self._subtracted", "part += _sum_of_next(self._subtracted"),),
        "test_gathered.py::test_shares_without_noise_add_up_to_the_sums_of_all_data[location]",
    ),
    Bug(
        "sums of several parties without their noise, masks or room",
        "masks that are the same for every request",
        (("federated/masks.py", "self._participants, request_digest, *names", "self._participants, *names"),),
        "test_federated_masks.py::test_whatever_names_a_request_gives_masks_of_its_own",
    ),
    Bug(
        "sums of several parties without their noise, masks or room",
        "masks used again by a client that forgot what it said",
        (("federated/client.py", "request.nonces.get(self.name) != current.nonce", "current.nonce is None"),),
        "test_federated_client.py::test_a_client_that_forgot_what_it_said_never_uses_masks_again",
    ),
    Bug(
        "sums of several parties without their noise, masks or room",
        "a sum with a share missing taken for the sum",
        (("federated/server.py", "if len(shares) == len(present) or not trust.secure:", "if shares:"),),
        "test_federated.py::test_secure_aggregation_goes_on_without_a_client_that_may_be_missing[3]",
    ),
    Bug(
        "crashes, retries and races",
        "a trusted server that forgets for whom it waited in vain, and noises another sum",
        (("federated/record.py", "if self._has_looked:", "if False:"),),
        "test_federated_record.py::test_a_trusted_server_noises_no_second_sum_of_a_step[3-after]",
    ),
    Bug(
        "crashes, retries and races",
        "a repeated request answered with fresh noise",
        (
            (
                "federated/client.py",
                "known = self._memory.reply(digest)\n                return",
                "known = None\n                return",
            ),
            ("federated/client.py", "return attempts[min(attempts)] != digest", "return True"),
            (
                "federated/membership.py",
                "known = digest in memory.begun(self.offer).get(request.step, {}).values()",
                "known = False",
            ),
        ),
        "test_federated.py::test_what_no_honest_server_asks_is_refused_for_nothing[none]",
    ),
    Bug(
        "crashes, retries and races",
        "a request known by all but those who are asked",
        (
            (
                "federated/client.py",
                "digest = self._shared.digest(data := bytes(data))\n",
                "known = self._form_of_q.classes\n"
                "        found = messages.decode(data := bytes(data), known)\n"
                "        if isinstance(found, Request):\n"
                "            found = Request(found.offer, found.step, found.attempt, (self.name,), found.q)\n"
                "        digest = messages.digest(messages.encode(found, known))\n",
            ),
        ),
        "test_federated.py::test_what_no_honest_server_asks_is_refused_for_nothing[none]",
    ),
    Bug(
        "crashes, retries and races",
        "another attempt at a federated release for nothing",
        (
            (
                "federated/membership.py",
                "journal = None if self._run is None else self._run.repeated(request.step, digest)",
                "journal = None",
            ),
        ),
        "test_federated.py::test_another_attempt_is_another_release[none]",
    ),
    Bug(
        "readers that take records apart, or read one differently because of another",
        "a CSV record beyond the limit taken apart, line by line",
        (
            (
                "data/csv_files.py",
                'rest, state = b"", _end_of_record(rest, 0, dialect)[1]',
                "yield nothing\n            rest = rest.partition(b'\\n')[2]",
            ),
        ),
        "test_readers.py::test_a_record_too_long_is_one_faulty_record",
    ),
    Bug(
        "readers that take records apart, or read one differently because of another",
        "the quotes of a CSV record that is too long forgotten where it is dropped",
        (("data/csv_files.py", "_end_of_record(rest, 0, dialect)[1]", "0"),),
        "test_readers.py::test_a_record_too_long_is_one_faulty_record",
    ),
    Bug(
        "readers that take records apart, or read one differently because of another",
        "the quotes of a long CSV record forgotten from piece to piece",
        (("data/csv_files.py", "_end_of_record(piece, state, dialect)", "_end_of_record(piece, 0, dialect)"),),
        "test_readers.py::test_a_record_too_long_is_one_faulty_record",
    ),
    Bug(
        "readers that take records apart, or read one differently because of another",
        "a CSV record in a large block longer than one in small blocks may be",
        (
            (
                "data/csv_numba.py",
                "-1 if place - start > longest or state == QUOTED else",
                "-1 if state == QUOTED else",
            ),
        ),
        "test_readers.py::test_blocks_of_a_csv_file_decide_nothing",
    ),
    Bug(
        "readers that take records apart, or read one differently because of another",
        "a byte order mark dropped from the records with which pieces of a CSV file begin",
        (("data/csv_files.py", "not piece, rest + piece", "not piece, rest + piece.removeprefix(BOM)"),),
        "test_readers.py::test_a_mark_at_the_start_of_a_piece_is_text_of_its_record",
    ),
    Bug(
        "readers that take records apart, or read one differently because of another",
        "a byte order mark dropped from the first line alone",
        (
            (
                "data/documents/text_files.py",
                "        for line in lines(file):\n            yield (line.removeprefix(BOM),)",
                "        for n, line in enumerate(lines(file)):\n"
                "            yield (line if n else line.removeprefix(BOM),)",
            ),
        ),
        "test_readers.py::test_marks_and_line_ends_are_no_text_on_whatever_line_they_stand",
    ),
    Bug(
        "readers that take records apart, or read one differently because of another",
        "a blank line of a CSV file of one column skipped",
        (("data/csv_files.py", "skips_blank=num_fields > 1)", "skips_blank=True)"),),
        "test_readers.py::test_a_blank_line_is_a_record_of_a_file_of_one_column",
    ),
    Bug(
        "readers that take records apart, or read one differently because of another",
        "what follows a quote that is never closed read as that record's text",
        (
            (
                "data/csv_numba.py",
                "-1 if place - start > longest or state == QUOTED else",
                "-1 if place - start > longest else",
            ),
        ),
        "test_readers.py::test_an_unclosed_quote_reaches_to_the_next_quote",
    ),
    Bug(
        "readers that take records apart, or read one differently because of another",
        "a byte that is nothing in the encoding of a CSV file fails the file",
        (
            (
                "data/csv_files.py",
                "        except UnicodeDecodeError:\n            return UNREADABLE\n",
                "        except TypeError:\n            return UNREADABLE\n",
            ),
        ),
        "test_dialects.py::test_bytes_that_are_no_text_reach_their_own_field",
    ),
    Bug(
        "leaks by text, logs and files",
        "a person's row in the place of a header written into a schema",
        (("data/tables/dictionary.py", "        if doubt and not sure:\n", "        if False:\n"),),
        "test_cli_schema.py::test_a_first_line_that_may_be_a_persons_row_is_neither_shown_nor_written",
    ),
    Bug(
        "leaks by text, logs and files",
        "statistics of the data taken for what was declared of them",
        (("data/tables/dictionary.py", "    return _plain(head) in _HEADS.keys() | _DECLARED\n", "    return True\n"),),
        "test_cli_schema.py::test_a_field_that_declares_nothing_is_named_and_must_be_vouched_for",
    ),
    Bug(
        "leaks by text, logs and files",
        "a person's row of plain words written into a schema unasked",
        (("cli/schema.py", "    if not (sure or asked):\n", "    if False:\n"),),
        "test_cli_schema.py::test_on_a_terminal_a_typed_yes_says_what_the_first_line_is",
    ),
    Bug(
        "readers that take records apart, or read one differently because of another",
        "a quote inside a CSV field taken for one that opens it",
        (("data/csv_numba.py", "if state in (START, CLOSED):", "if state != QUOTED:"),),
        "test_readers.py::test_csv_is_read_as_the_csv_module_reads_it",
    ),
    Bug(
        "readers that take records apart, or read one differently because of another",
        "memory for as many CSV records as a quoted text has line ends",
        (("data/csv_files.py", 'min(text.count(b"\\n"), CELLS // slots) + 1', 'text.count(b"\\n") + 1'),),
        "test_readers.py::test_line_ends_inside_quotes_ask_for_no_memory",
    ),
    Bug(
        "readers that take records apart, or read one differently because of another",
        "a line read or not by where it stands in a block",
        (
            (
                "data/readable.py",
                'line.removesuffix(b"\\r") if len(line) <= MAX_DOCUMENT_BYTES else UNREADABLE',
                'line.removesuffix(b"\\r")',
            ),
        ),
        "test_readers.py::test_a_record_too_long_is_one_faulty_record",
    ),
    Bug(
        "readers that take records apart, or read one differently because of another",
        "the line behind one that is too long taken for its end",
        (
            (
                "data/readable.py",
                "piece, is_dropping = piece[end:], False",
                "piece, is_dropping = piece[end + 1 :], False",
            ),
        ),
        "test_readers.py::test_a_record_too_long_is_one_faulty_record",
    ),
    Bug(
        "readers that take records apart, or read one differently because of another",
        "gzip told by the first bytes, which may be somebody's",
        (
            (
                "data/readable.py",
                'return path.name.lower().endswith(".gz")',
                'return path.is_file() and path.read_bytes()[:2] == b"\\x1f\\x8b"',
            ),
        ),
        "test_readers.py::test_gzip_is_told_by_the_name_alone",
    ),
    Bug(
        "readers that take records apart, or read one differently because of another",
        "an object of another kind on one line of JSON ends the file",
        (("data/documents/text_files.py", "if isinstance(record, dict) else nothing", "if record else nothing"),),
        "test_readers.py::test_no_bytes_at_all_raise_what_speaks_of_a_record",
    ),
    Bug(
        "readers that take records apart, or read one differently because of another",
        "one document as deep as the parser goes ends a file of JSON lines",
        (("data/documents/text_files.py", "except (ValueError, RecursionError, MemoryError):", "except ValueError:"),),
        "test_data.py::test_a_malformed_record_is_an_empty_document",
    ),
    Bug(
        "readers that take records apart, or read one differently because of another",
        "a malformed line of triples leaves its tokens to the next one",
        (("data/documents/triples_numba.py", "        else:\n            left = left_before\n", ""),),
        "test_readers.py::test_numbers_are_those_of_float_and_tokens_those_of_split",
    ),
    Bug(
        "readers that take records apart, or read one differently because of another",
        "triples parsed by another parser where all lines of their block please it",
        (
            (
                "data/documents/matrix_files.py",
                '    most = block.count(b"\\n") + 1\n',
                "    try:\n        with silence():\n"
                '            found = np.loadtxt(block.decode("latin-1").split("\\n"), ndmin=2, comments=None)\n'
                "        if found.shape[1] == num_fields:\n            return found\n"
                "    except ValueError:\n        pass\n"
                '    most = block.count(b"\\n") + 1\n',
            ),
        ),
        "test_readers.py::test_no_sign_but_ascii_blanks_stands_between_numbers",
    ),
    Bug(
        "readers that take records apart, or read one differently because of another",
        "digits of one number carried into the next",
        (
            ("data/documents/triples_numba.py", "if mantissa > LARGEST_EXACT:\n", "if mantissa > 2**62:\n"),
            ("data/documents/triples_numba.py", "if digits == 0 or mantissa > LARGEST_EXACT:", "if digits == 0:"),
        ),
        "test_readers.py::test_numbers_near_the_limits_of_exact_arithmetic",
    ),
    Bug(
        "readers that take records apart, or read one differently because of another",
        "blocks of triples without a record warn",
        (
            (
                "data/documents/matrix_files.py",
                "    return table[:rows]\n",
                "    if not rows:\n        np.loadtxt([])\n    return table[:rows]\n",
            ),
        ),
        "test_readers.py::test_numbers_are_those_of_float_and_tokens_those_of_split",
    ),
    Bug(
        "readers that take records apart, or read one differently because of another",
        "the symmetry of a whole matrix decides whether its file is read",
        (("data/documents/matrix_files.py", "(general|symmetric|skew-symmetric|hermitian)", "(general)"),),
        "test_readers.py::test_what_a_writer_infers_of_a_whole_matrix_decides_nothing",
    ),
    Bug(
        "readers that take records apart, or read one differently because of another",
        "of a symmetric matrix the lower half alone",
        (("data/documents/matrix_files.py", "        if self.mirrored:\n", "        if self.mirrored and False:\n"),),
        "test_readers.py::test_what_a_writer_infers_of_a_whole_matrix_decides_nothing",
    ),
    Bug(
        "readers that take records apart, or read one differently because of another",
        "one imaginary part makes a whole npz file unreadable",
        (("data/documents/matrix_files.py", 'types["data"].kind not in "biufc"', 'types["data"].kind not in "biuf"'),),
        "test_readers.py::test_a_record_more_is_a_unit_more[npz]",
    ),
    Bug(
        "readers that take records apart, or read one differently because of another",
        "the order of entries decides whether documents stream",
        (
            (
                "data/documents/matrix_files.py",
                "    width: int | None\n    slabs:",
                "    width: int | None\n    ordered: bool\n    slabs:",
            ),
            (
                "data/documents/matrix_files.py",
                "return OpenedFile(header.width, slabs)",
                "return OpenedFile(header.width, False, slabs)",
            ),
            (
                "data/documents/matrix_files.py",
                "return OpenedFile(None, slabs)",
                "return OpenedFile(None, False, slabs)",
            ),
            (
                "data/documents/matrix_files.py",
                "return OpenedFile(form.width, lambda: _slabs_in_row_order(triples(), form.num_rows))",
                "return OpenedFile(form.width, True, lambda: _slabs_in_row_order(triples(), form.num_rows))",
            ),
            (
                "data/documents/matrix_files.py",
                "return OpenedFile(form.width, lambda: _slabs_in_row_order(_sorted(triples()), form.num_rows))",
                "return OpenedFile(form.width, False, lambda: _slabs_in_row_order(_sorted(triples()), form.num_rows))",
            ),
            (
                "data/documents/files.py",
                "    return Stream(opened.slabs, declared, vocabulary=words)",
                "    return Stream(opened.slabs, declared, vocabulary=words), opened.ordered",
            ),
            (
                "data/documents/files.py",
                "source = _open_counts(location, name, vocabulary, width)",
                "source, ordered = _open_counts(location, name, vocabulary, width)\n        stream = stream or ordered",
            ),
        ),
        "test_readers.py::test_only_stream_decides_whether_data_stream",
    ),
    Bug(
        "readers that take records apart, or read one differently because of another",
        "the size of a file decides whether documents stream",
        (
            (
                "data/documents/files.py",
                "    return source if stream else in_memory(source)",
                "    return source if stream or location.stat().st_size > 2**14 else in_memory(source)",
            ),
        ),
        "test_readers.py::test_only_stream_decides_whether_data_stream",
    ),
    Bug(
        "readers that take records apart, or read one differently because of another",
        "the size of a file decides whether a table streams",
        (
            (
                "data/tables/table.py",
                "        if not stream:\n            self._held",
                "        if not (stream or (is_file and Path(data).stat().st_size > 2**14)):\n            self._held",
            ),
        ),
        "test_readers.py::test_only_stream_decides_whether_data_stream",
    ),
    Bug(
        "readers that take records apart, or read one differently because of another",
        "a column of Parquet refused by a type that a cell may have decided",
        (
            (
                "data/arrow.py",
                "column.to_pylist())\n    return [None] * len(column)\n",
                'column.to_pylist())\n    raise DataFormatError(f"A column must hold numbers or text, got {kind}.")\n',
            ),
        ),
        "test_readers.py::test_every_kind_of_arrow_column_has_cells",
    ),
    Bug(
        "readers that take records apart, or read one differently because of another",
        "a null makes floats of the whole numbers beside it",
        (("data/arrow.py", "(types.is_integer(kind) and column.null_count == 0)", "types.is_integer(kind)"),),
        "test_readers.py::test_every_kind_of_arrow_column_has_cells",
    ),
    Bug(
        "readers that take records apart, or read one differently because of another",
        "arrays of text refused, which one cell made text",
        (
            (
                "data/tables/matrices.py",
                "    return DenseMatrix(real(array))\n",
                '    if array.dtype.kind in "SU":\n'
                '        raise DataFormatError(f"X must be a matrix of numbers, got {array.dtype}. {_WAY_OUT}")\n'
                "    return DenseMatrix(real(array))\n",
            ),
        ),
        "test_law_in_memory.py::test_one_cell_changes_one_unit[numbers]",
    ),
    Bug(
        "readers that take records apart, or read one differently because of another",
        "one complex number makes unknown what stands beside it",
        (("data/spelling.py", "np.where(cells.imag == 0, cells.real, np.nan)", "np.full(cells.shape, np.nan)"),),
        "test_law_in_memory.py::test_one_cell_changes_one_unit[numbers]",
    ),
    Bug(
        "readers that take records apart, or read one differently because of another",
        "numbers that one text made text are unknown",
        (
            (
                "data/spelling.py",
                "    if kind is str or kind is bytes:\n",
                "    if kind is str:\n        return math.nan\n    if kind is bytes:\n",
            ),
        ),
        "test_law_in_memory.py::test_one_cell_changes_one_unit[numbers]",
    ),
    Bug(
        "readers that take records apart, or read one differently because of another",
        "truth values among texts are no numbers",
        (("data/spelling.py", "    if value in _TRUTH:\n        return _TRUTH[value]\n", ""),),
        "test_law_in_memory.py::test_a_number_and_its_texts_are_one",
    ),
    Bug(
        "readers that take records apart, or read one differently because of another",
        "rows that hold as many entries as full ones together are read as full ones",
        (
            (
                "data/tables/matrices.py",
                "if (np.diff(own) == self.width).all():",
                "if own[-1] == (len(own) - 1) * self.width:",
            ),
        ),
        "test_stacked.py::test_as_many_entries_as_full_rows_have_are_not_taken_for_full_rows",
    ),
    Bug(
        "readers that take records apart, or read one differently because of another",
        "the first row of a list decides how wide all others are",
        (
            (
                "data/tables/matrices.py",
                "key=lambda one: (lengths[one], one is not None, -(one or 0))",
                "key=lambda one: 0",
            ),
        ),
        "test_law_in_memory.py::test_a_list_of_lists_has_the_width_of_most_rows",
    ),
    Bug(
        "readers that take records apart, or read one differently because of another",
        "a list of labels in the type that NumPy infers from all of them",
        (
            (
                "data/tables/matrices.py",
                "    if isinstance(values, (list, tuple)):\n        array = _objects(values)\n",
                "    if isinstance(values, (list, tuple)):\n        array = np.asarray(values)\n",
            ),
        ),
        "test_law_in_memory.py::test_columns_of_lists_of_one_and_of_tuples_are_read_whatever_their_lengths",
    ),
    Bug(
        "readers that take records apart, or read one differently because of another",
        "labels and categories compared as they are written alone",
        (
            (
                "data/spelling.py",
                "            name = label(cell)\n",
                "            name = str(cell)\n",
            ),
        ),
        "test_law_in_memory.py::test_one_cell_changes_one_unit[labels]",
    ),
    Bug(
        "persons that are several units, or several persons that are one",
        "equal cells of two types asked once, as the first one is",
        (("data/spelling.py", "key = (kind, cell)  # 1 and True are equal, but two texts", "key = cell"),),
        "test_persons.py::test_equal_cells_of_two_types_are_asked_for_their_names_one_by_one",
    ),
    Bug(
        "readers that take records apart, or read one differently because of another",
        "the text of a number is a document where a column became text",
        (("data/spelling.py", 'stripped == "nan" or _number_of_text(stripped) is not None', 'stripped == "nan"'),),
        "test_law_in_memory.py::test_one_cell_changes_one_unit[texts]",
    ),
    Bug(
        "readers that take records apart, or read one differently because of another",
        "a damaged row of a LIL matrix moves the values of all rows behind it",
        (
            (
                "data/slabs.py",
                'raise DataFormatError(f"A sparse matrix must be CSR, CSC or COO, got {matrix.format.upper()}; '
                'use .tocsr().")',
                "matrix = matrix.tocsr()",
            ),
        ),
        "test_design.py::test_faulty_forms_of_features_are_refused",
    ),
    Bug(
        "leaks by text, logs and files",
        "an odd cell asked for its number, and warning",
        (
            (
                "data/spelling.py",
                "    if kind is np.ndarray and cell.ndim == 0:",
                '    if hasattr(kind, "__float__"):\n        return float(cell)\n'
                "    if kind is np.ndarray and cell.ndim == 0:",
            ),
        ),
        "test_law_in_memory.py::test_no_cell_says_anything",
    ),
    Bug(
        "leaks by text, logs and files",
        "a complex number in an array warns",
        (
            (
                "data/spelling.py",
                "    with silence():\n        if not isinstance(cells, np.ndarray):",
                "    if True:\n        if not isinstance(cells, np.ndarray):",
            ),
            (
                "data/spelling.py",
                "np.where(cells.imag == 0, cells.real, np.nan).astype(np.float64)",
                "cells.astype(np.float64)",
            ),
        ),
        "test_law_in_memory.py::test_one_cell_changes_one_unit[numbers]",
    ),
    Bug(
        "leaks by text, logs and files",
        "silence that ends with the first of two threads",
        (("guards/silence.py", "if self._users == 0 and self._made is not None:", "if self._made is not None:"),),
        "test_silence.py::test_the_first_thread_that_leaves_takes_no_silence_away",
    ),
    Bug(
        "leaks by text, logs and files",
        "silence of each thread by itself",
        (("guards/silence.py", "with _warnings, np.errstate", "with _without_warnings(), np.errstate"),),
        "test_silence.py::test_the_first_thread_that_leaves_takes_no_silence_away",
    ),
    Bug(
        "persons that are several units, or several persons that are one",
        "rows of nobody are a person",
        (
            (
                "data/persons.py",
                "return -1 if name is None else numbers.setdefault(name, len(numbers))",
                "return numbers.setdefault(str(name), len(numbers))",
            ),
        ),
        "test_persons.py::test_rows_of_nobody_are_left_out_of_the_order",
    ),
    Bug(
        "persons that are several units, or several persons that are one",
        "each row of nobody is a person",
        (
            (
                "data/persons.py",
                "return -1 if name is None else numbers.setdefault(name, len(numbers))",
                "return numbers.setdefault(name or str(len(numbers)) + chr(0), len(numbers))",
            ),
        ),
        "test_persons.py::test_spellings_of_an_id_are_one_person_and_nobody_is_none",
    ),
    Bug(
        "persons that are several units, or several persons that are one",
        "an id as text and the same as a number are two persons",
        (
            (
                "data/persons.py",
                "else numbers.setdefault(name, len(numbers))",
                "else numbers.setdefault(f'{type(cell)} {name}', len(numbers))",
            ),
        ),
        "test_persons.py::test_spellings_of_an_id_are_one_person_and_nobody_is_none",
    ),
    Bug(
        "persons that are several units, or several persons that are one",
        "a person in files of two formats is two units",
        (("data/persons.py", "hashlib.blake2b(name.encode(", "hashlib.blake2b(f'{type(cell)} {name}'.encode("),),
        "test_persons.py::test_a_person_in_several_files_of_documents_is_one_unit",
    ),
    Bug(
        "persons that are several units, or several persons that are one",
        "zeros before an id make another person",
        (("data/spelling.py", 'whole.lstrip("0") or "0"', "whole"),),
        "test_persons.py::test_spellings_of_an_id_are_one_person_and_nobody_is_none",
    ),
    Bug(
        "persons that are several units, or several persons that are one",
        "zeros behind an id make another person",
        (("data/spelling.py", 'or "0", fraction.rstrip("0")', 'or "0", fraction'),),
        "test_persons.py::test_spellings_of_an_id_are_one_person_and_nobody_is_none",
    ),
    Bug(
        "persons that are several units, or several persons that are one",
        "letters of two codings make another person",
        (("data/spelling.py", 'unicodedata.normalize("NFC", value)', "value"),),
        "test_persons.py::test_spellings_of_an_id_are_one_person_and_nobody_is_none",
    ),
    Bug(
        "persons that are several units, or several persons that are one",
        "documents of a person count once in each file",
        (("data/documents/files.py", "group=group if others is None else others.left(group)", "group=group"),),
        "test_persons.py::test_a_person_moves_a_sum_over_files_by_one_bound_at_most",
    ),
    Bug(
        "readers that take records apart, or read one differently because of another",
        "what is no date refused, and shown",
        (
            (
                "data/tables/ranged.py",
                "    return _UNREAD if found is None else found\n",
                "    if found is None and cell is not None:\n"
                '        raise ParameterError(f"no date: {cell}")\n'
                "    return _UNREAD if found is None else found\n",
            ),
        ),
        "test_terms.py::test_what_is_no_date_is_faulty_or_the_declared_one",
    ),
    Bug(
        "public facts read off private data",
        "the range of a column read off its cells",
        (
            (
                "data/tables/ranged.py",
                "        value_n, (low_k, high_k) = self.numbers(cells), self.ends\n",
                "        value_n = self.numbers(cells)\n"
                "        low_k, high_k = self.ends\n"
                "        seen_nk = self.functions(np.clip(value_n, *self.range))\n"
                "        low_k = np.minimum(high_k - 1e-9, np.fmin.reduce(seen_nk))\n",
            ),
        ),
        "test_terms.py::test_a_fault_in_a_cell_of_any_kind_silences_its_row_alone",
    ),
    Bug(
        "records that touch each other",
        "products about the means of their batch",
        (
            (
                "models/regression/slants.py",
                "        slanted_nr = x_nr.copy()\n",
                "        slanted_nr = x_nr - x_nr.mean(axis=0)\n",
            ),
        ),
        "test_products.py::test_a_row_contributes_the_same_alone_to_the_last_bit",
    ),
    Bug(
        "persons that are several units, or several persons that are one",
        "rows of a person count once in each file of a table",
        (("data/tables/table.py", "group=others.left(table._held.group)", "group=table._held.group"),),
        "test_persons.py::test_a_person_in_several_files_of_a_table_is_one_unit",
    ),
    Bug(
        "persons that are several units, or several persons that are one",
        "persons of the last file but one forgotten",
        (("data/persons.py", "        seen |= own\n", "        seen = own\n"),),
        "test_persons.py::test_a_person_in_several_files_of_documents_is_one_unit",
    ),
    Bug(
        "persons that are several units, or several persons that are one",
        "persons of earlier months who count again where files are read",
        (("data/persons.py", '_ids("seen", earlier)', '_ids("seen", ())'),),
        "test_persons.py::test_persons_who_were_seen_count_as_if_a_file_before_had_them",
    ),
    Bug(
        "persons that are several units, or several persons that are one",
        "a person in two files refused",
        (
            (
                "data/persons.py",
                "        found.append(Elsewhere(",
                '        if own & seen:\n            raise DataFormatError("A person has rows in two files.")\n'
                "        found.append(Elsewhere(",
            ),
        ),
        "test_persons.py::test_a_person_in_several_files_of_documents_is_one_unit",
    ),
    Bug(
        "persons that are several units, or several persons that are one",
        "all ids that cannot be decoded name one person",
        (
            (
                "data/spelling.py",
                "return None if name is None or name == UNREADABLE or",
                "return None if name is None or",
            ),
        ),
        "test_persons.py::test_rows_of_nobody_are_left_out_of_the_order",
    ),
    Bug(
        "persons that are several units, or several persons that are one",
        "a number that rounding made of several ids names one person",
        (("data/spelling.py", "    if _is_vague(_plain(cell)):\n", "    if False:\n"),),
        "test_persons.py::test_rows_of_nobody_are_left_out_of_the_order",
    ),
    Bug(
        "persons that are several units, or several persons that are one",
        "the texts of missing values name a person",
        (("data/spelling.py", "or name.casefold() in _NOBODY else name", "else name"),),
        "test_persons.py::test_rows_of_nobody_are_left_out_of_the_order",
    ),
    Bug(
        "persons that are several units, or several persons that are one",
        "two ids of two parts each that read alike together",
        (("data/spelling.py", 'f"{len(member)}:{member}" for member', "member for member"),),
        "test_law_in_memory.py::test_persons_of_several_parts_are_one_where_all_their_parts_are",
    ),
    Bug(
        "queries made by somebody else",
        "q with numbers that are not finite asked",
        (("core/loop.py", "domains.checked(q)", "q"),),
        "test_queries.py::test_no_number_that_is_not_finite_reaches_an_e_step[inf-LDA]",
    ),
    Bug(
        "queries made by somebody else",
        "q with infinity taken for finite",
        (("guards/domains.py", "if not np.isfinite(array).all():", "if np.isnan(array).any():"),),
        "test_queries.py::test_no_number_that_is_not_finite_reaches_an_e_step[inf-LDA]",
    ),
    Bug(
        "queries made by somebody else",
        "q with NaN in its domain",
        (("guards/domains.py", "if not np.isfinite(array).all():", "if np.isinf(array).any():"),),
        "test_queries.py::test_no_number_that_is_not_finite_reaches_an_e_step[nan-LDA]",
    ),
    Bug(
        "queries made by somebody else",
        "declared domains of q never looked at",
        (("guards/domains.py", "if not domain.holds(array):", "if False:"),),
        "test_queries.py::test_every_declared_domain_is_checked[LDA]",
    ),
    Bug(
        "queries made by somebody else",
        "domains of parts that may be absent not found",
        (("guards/domains.py", "parts = (hint, *get_args(hint))", "parts = (hint,)"),),
        "test_queries.py::test_what_is_outside_is_named",
    ),
    Bug(
        "queries made by somebody else",
        "a server's q asked whatever numbers it holds",
        (
            ("federated/form_of_q.py", "if (fault := domains.outside(q)) is not None:", "if fault := None:"),
            (
                "federated/membership.py",
                "query = loop.query(self._owner.task.model, request.q, self.plan.releases[request.step])",
                "query = partial(\n"
                "            self._owner.task.model.e_step, request.q, blocks=self.plan.releases[request.step].blocks\n"
                "        )",
            ),
        ),
        "test_federated_client.py::test_a_q_outside_its_domain_is_refused_and_nothing_is_spent",
    ),
    Bug(
        "queries made by somebody else",
        "a server's q asked whatever its form",
        (("federated/form_of_q.py", "if not any(_fits(form, own) for own in self._forms) or not", "if not"),),
        "test_federated_client.py::test_a_q_of_another_form_is_refused_before_its_release_is_begun",
    ),
    Bug(
        "queries made by somebody else",
        "a class that a message names, taken from whatever is loaded",
        (
            (
                "federated/messages.py",
                "kind = self._known.get(form[0])",
                'place, _, own = form[0].partition(":")\n'
                "        kind = vars(__import__(place, fromlist=[own])).get(own) if place.isidentifier() else None\n"
                "        kind = kind or self._known.get(form[0])",
            ),
        ),
        "test_federated_messages.py::test_a_name_is_looked_up_and_never_imported",
    ),
    Bug(
        "queries made by somebody else",
        "a class of any kind made from a message",
        (
            (
                "federated/messages.py",
                "for kind in (*classes, *_MESSAGES) if _fields(kind) is not None}",
                "for kind in (*classes, *_MESSAGES)}",
            ),
        ),
        "test_federated_messages.py::test_what_is_no_frozen_dataclass_or_named_tuple_is_never_made",
    ),
    Bug(
        "queries made by somebody else",
        "a stranger's class that takes the name of a message",
        (("federated/messages.py", "for kind in (*classes, *_MESSAGES)", "for kind in (*_MESSAGES, *classes)"),),
        "test_federated_messages.py::test_nobody_takes_the_name_of_another_class",
    ),
    Bug(
        "queries made by somebody else",
        "a model file's topics taken whatever their numbers",
        (
            ("estimators/lda.py", "if not fits or not (lambda_vk > 0).all():", "if not fits:"),
            (
                "estimators/lda.py",
                "domains.checked(replace(model.topics(lambda_vk), **known))",
                "replace(model.topics(lambda_vk), **known)",
            ),
        ),
        "test_queries.py::test_a_model_file_outside_the_domain_is_refused[LDA]",
    ),
    Bug(
        "queries made by somebody else",
        "a model file's weights taken whatever their covariance",
        (("estimators/regression.py", "domains.checked(weights)", "weights"),),
        "test_queries.py::test_a_model_file_outside_the_domain_is_refused[asymmetric]",
    ),
    Bug(
        "queries made by somebody else",
        "a model file's network taken whatever its probabilities",
        (("estimators/sbn.py", "q = domains.checked(made(", "q = (made("),),
        "test_queries.py::test_a_model_file_outside_the_domain_is_refused[network]",
    ),
    Bug(
        "queries made by somebody else",
        "negative entries of a nonnegative block kept",
        (
            (
                "core/clipped_sums.py",
                'return nonnegative(contribution) if block.domain == "nonnegative" else contribution',
                "return contribution",
            ),
        ),
        "test_audit.py::test_a_declared_domain_that_does_not_hold_costs_accuracy_and_no_privacy",
    ),
    Bug(
        "queries made by somebody else",
        "negative entries of forms that nobody knows kept",
        (("core/forms.py", "_UnitByUnit(contribution) if own is None", "contribution if own is None"),),
        "test_queries.py::test_no_nonnegative_block_gets_a_negative_entry",
    ),
    Bug(
        "queries made by somebody else",
        "negative entries of persons kept",
        (
            (
                "core/forms.py",
                "        return replace(self, rows=nonnegative(self.rows))\n",
                "        return self\n",
            ),
        ),
        "test_queries.py::test_no_nonnegative_block_gets_a_negative_entry",
    ),
    Bug(
        "queries made by somebody else",
        "a Gram block takes any matrices",
        (("core/clipped_sums.py", 'if block.domain == "gram" and not is_gram(contribution):', "if False:"),),
        "test_queries.py::test_a_gram_block_takes_gram_forms_alone",
    ),
    Bug(
        "neighbours of two kinds mixed up",
        "the distance √2 on a model's word that its matrices are positive semidefinite",
        (
            (
                "core/blocks.py",
                'block.domain in ("nonnegative", "gram") for',
                'block.domain in ("nonnegative", "psd", "gram") for',
            ),
        ),
        "test_blocks.py::test_swap_ratio_bounds_every_pair_and_is_near_one",
    ),
    Bug(
        "queries made by somebody else",
        "norm 0 given weight 1",
        (("core/clipped_sums.py", "np.where(usable & (norms[name] > 0),", "np.where(usable,"),),
        "test_queries.py::test_a_unit_of_norm_zero_or_unknown_adds_nothing",
    ),
    Bug(
        "queries made by somebody else",
        "what topics of any numbers give added as it is, compiled",
        (
            ("models/topics/kernel_numba.py", "                s = s if s > 0.0 else 0.0  # NaN as well\n", ""),
            ("models/topics/kernel_numba.py", "np.int64(s if s < most else most)", "np.int64(s)"),
        ),
        "test_queries.py::test_topics_of_any_numbers_add_nothing_below_0_or_beyond_the_bound",
    ),
    Bug(
        "queries made by somebody else",
        "what topics of any numbers give added as it is, interpreted",
        (("models/topics/kernel.py", "np.where(s_jk > 0, np.minimum(s_jk, most), 0.0)", "np.trunc(s_jk)"),),
        "test_queries.py::test_topics_of_any_numbers_add_nothing_below_0_or_beyond_the_bound",
    ),
    Bug(
        "queries made by somebody else",
        "an audit that asks honest q for hostile ones",
        (
            (
                "audit/queries.py",
                "return _rebuilt(q, lambda value: _changed(value, rng) if next(number) in chosen else value)",
                "return q",
            ),
        ),
        "test_queries.py::test_hostile_q_are_of_many_kinds_and_some_are_accepted",
    ),
    Bug(
        "queries made by somebody else",
        "an audit of hostile q that passes whatever it measures",
        (("audit/queries.py", "not found.faults and max(found.norm, found.distance) <= 1", "not found.faults"),),
        "test_audit.py::test_a_model_that_breaks_the_law_at_hostile_q_is_found",
    ),
    Bug(
        "queries made by somebody else",
        "an audit of hostile q that hears of no fault",
        (("audit/queries.py", "not found.faults and max(", "max("),),
        "test_audit.py::test_a_model_that_breaks_the_law_at_hostile_q_is_found",
    ),
    Bug(
        "readers that take records apart, or read one differently because of another",
        "an audit of readers that lets a record change any number of units",
        (("audit/readers.py", "if max(more, less) > 1:", "if min(more, less) > 10**6:"),),
        "test_audit.py::test_a_reader_that_breaks_the_law_is_found",
    ),
    Bug(
        "readers that take records apart, or read one differently because of another",
        "an audit of readers that hears no warning and no refusal",
        (("audit/readers.py", "if one.face != other.face:", "if False:"),),
        "test_audit.py::test_a_reader_that_breaks_the_law_is_found",
    ),
    Bug(
        "a unit that makes a computation fail",
        "a document's length beside its counts, which need not add up to it",
        (
            (
                "models/topics/documents.py",
                "        total_j = np.cumsum(batch.counts[row])\n",
                "        share_j = batch.counts[row] / length_n[n]\n"
                "        counts[row] = np.random.default_rng(seed).multinomial(length, share_j)\n"
                "        continue\n        total_j = np.cumsum(batch.counts[row])\n",
            ),
        ),
        "test_extreme_units.py::test_no_document_makes_a_length_rule_fail",
    ),
    Bug(
        "a unit that makes a computation fail",
        "a unit that cannot be computed ends the release",
        (
            (
                "core/clipped_sums.py",
                "                raise\n            return False\n",
                "                raise\n            raise\n",
            ),
        ),
        "test_wall.py::test_a_unit_that_cannot_be_computed_is_zero_and_touches_no_other",
    ),
    Bug(
        "a unit that makes a computation fail",
        "a unit that cannot be computed takes its batch along",
        (("core/clipped_sums.py", "for n in range(batch.num_units):  # A unit", "for n in range(0):  # A unit"),),
        "test_wall.py::test_a_unit_that_cannot_be_computed_is_zero_and_touches_no_other",
    ),
    Bug(
        "a unit that makes a computation fail",
        "a unit that cannot be computed takes those behind it along",
        (
            ("core/clipped_sums.py", "                    self._add(", "                    if not self._add("),
            (
                "core/clipped_sums.py",
                "np.arange(batch.num_units) == n), sums)\n",
                "np.arange(batch.num_units) == n), sums):\n                        break\n",
            ),
        ),
        "test_wall.py::test_a_unit_that_cannot_be_computed_is_zero_and_touches_no_other",
    ),
    Bug(
        "a unit that makes a computation fail",
        "a unit that breaks off leaves what it had added",
        (
            (
                "core/clipped_sums.py",
                "            added = self._added(batch)\n",
                "            self._added(batch, sums)\n",
            ),
            (
                "core/clipped_sums.py",
                "        for name, total in added.items():\n            sums[name] += total\n",
                "",
            ),
            ("core/clipped_sums.py", "def _added(self, batch: Chunk[Batch])", "def _added(self, batch, sums=None)"),
            (
                "core/clipped_sums.py",
                "        sums = zeros(release)\n        for",
                "        sums = zeros(release) if sums is None else sums\n        for",
            ),
        ),
        "test_wall.py::test_a_unit_that_cannot_be_computed_is_zero_and_touches_no_other",
    ),
    Bug(
        "a unit that makes a computation fail",
        "what fails whatever the data are taken for a unit's own failure",
        (("core/clipped_sums.py", "            if not asked:", "            if False:"),),
        "test_wall.py::test_every_failure_is_the_same_error",
    ),
    Bug(
        "queries made by somebody else",
        "a record of another form is believed",
        (
            (
                "core/journal.py",
                "if made is not None and {",
                "if False and {",
            ),
        ),
        "test_queries.py::test_a_record_of_another_form_is_refused_and_nothing_is_released",
    ),
    Bug(
        "a unit that makes a computation fail",
        "what extensions raise comes out",
        (
            (
                "core/clipped_sums.py",
                "except BaseException as error:\n            if isinstance(error, STOPS):\n                raise\n",
                "except Exception:\n",
            ),
        ),
        "test_wall.py::test_whatever_a_computation_raises_ends_behind_the_wall",
    ),
    Bug(
        "norms beyond the clip",
        "statistics of another shape than their block's are stretched",
        (("core/clipped_sums.py", "answer[name].of_block(block, num_rows)", "answer[name]"),),
        "test_form_shapes.py::test_no_form_of_any_type_or_shape_reaches_past_its_bound",
    ),
    Bug(
        "norms beyond the clip",
        "norms are found in the numbers' own narrow type",
        (("core/forms.py", "np.asarray(self.indices), floats(self.values)", "np.asarray(self.indices), self.values"),),
        "test_form_shapes.py::test_no_form_of_any_type_or_shape_reaches_past_its_bound",
    ),
    Bug(
        "norms beyond the clip",
        "the upper half of a matrix is summed, and its norm is that of the full one",
        (("core/forms.py", "values = 0.5 * values + 0.5 * np.swapaxes(values, -1, -2)", "values = values + 0.0"),),
        "test_form_shapes.py::test_a_matrix_that_is_not_symmetric_counts_by_its_mean_halves",
    ),
    Bug(
        "norms beyond the clip",
        "a unit counts twice",
        (("core/clipped_sums.py", "np.count_nonzero(units) * int(", "2 * np.count_nonzero(units) * int("),),
        "test_counting.py::test_without_noise_both_counts_are_exact",
    ),
    Bug(
        "norms beyond the clip",
        "joint clipping forgets what the counts take",
        (("core/clipped_sums.py", "np.sqrt(np.sum(squares, axis=0) / share)", "np.sqrt(np.sum(squares, axis=0))"),),
        "test_counting.py::test_joint_clipping_leaves_room_for_the_counts",
    ),
    Bug(
        "leaks by text, logs and files",
        "rows meet the very model and q that the M-step reads",
        (("core/loop.py", "deepcopy((model, domains.checked(q)))", "(model, domains.checked(q))"),),
        "test_wall.py::test_what_an_e_step_writes_into_q_or_the_model_reaches_nobody",
    ),
    Bug(
        "leaks by text, logs and files",
        "who stops a fit while noise is drawn holds the sums",
        (
            (
                "core/wall.py",
                "    except BaseException as error:\n        end",
                "    except Exception as error:\n        end",
            ),
        ),
        "test_wall.py::test_who_stops_a_fit_while_noise_is_drawn_holds_no_sum",
    ),
    Bug(
        "leaks by text, logs and files",
        "who stops a fit sees what was going on",
        (
            (
                "core/wall.py",
                "end = next((kind() for kind in STOPS if isinstance(error, kind)), end)",
                "if isinstance(error, STOPS):\n            raise",
            ),
        ),
        "test_wall.py::test_who_stops_a_fit_sees_nothing_of_what_was_going_on",
    ),
    Bug(
        "leaks by text, logs and files",
        "log records pass the wall",
        (("core/wall.py", "with silence(logs=True):", "with silence():"),),
        "test_wall.py::test_no_log_record_leaves_a_computation",
    ),
    Bug(
        "norms beyond the clip",
        "repeated places of a sparse unit",
        (("core/forms.py", "return np.where(faulty, np.inf, norm_n)", "return norm_n"),),
        "test_contributions.py::test_sparse_units_with_repeated_or_negative_places_are_dropped",
    ),
    Bug(
        "crashes, retries and races",
        "threads that race for a release",
        (
            (
                "core/wall.py",
                "        with self.__turn:\n",
                "        if True:\n",
            ),
        ),
        "test_wall.py::test_threads_that_race_for_a_release_get_it_once",
    ),
]


def copied(directory: Path) -> Path:
    """A clean copy of the package in a directory of its own."""
    package = Path(tempfile.mkdtemp(dir=directory)) / "dpvb"
    shutil.copytree(ROOT / "src" / "dpvb", package, ignore=shutil.ignore_patterns("__pycache__"))
    return package


def planted(directory: Path, bug: Bug) -> Path:
    """A copy with the bug in it."""
    package = copied(directory)
    for name, old, new in bug.edits:
        path = package / name
        text = path.read_text()
        if text.count(old) != 1:
            raise SystemExit(f"{bug.name}: {text.count(old)} places in {name} read {old!r}; there must be one.")
        path.write_text(text.replace(old, new))
    return package


def place(test: str) -> str:
    """Where a test is: its file lies in the folder of its room."""
    file, colons, name = test.partition("::")
    (path,) = (ROOT / "tests").rglob(file)
    return f"{path}{colons}{name}"


def failure(package: Path, tests: list[str]) -> str:
    """Run tests against a copy; return what they print if they fail, or nothing."""
    environment = {**os.environ, "PYTHONPATH": str(package.parent), "PYTHONDONTWRITEBYTECODE": "1"}
    chosen = [place(name) for name in tests]
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *chosen]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    if done.returncode not in (0, 1):
        raise SystemExit(f"pytest could not run {tests}:\n{done.stdout}{done.stderr}")
    return done.stdout if done.returncode else ""


def imported_from(package: Path) -> Path:
    """Where a Python that is given the copy finds dpvb."""
    command = [sys.executable, "-c", "import dpvb; print(dpvb.__file__)"]
    environment = {**os.environ, "PYTHONPATH": str(package.parent)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return Path(done.stdout.strip()).resolve().parent


def main(wanted: list[str]) -> int:
    """Plant all bugs, or those whose names contain one of the given texts, two at a time."""
    if without := [failure for failure in FAILURES if all(bug.failure != failure for bug in BUGS)]:
        raise SystemExit(f"no bug fails by {', '.join(without)}.")
    bugs = [bug for bug in BUGS if not wanted or any(text in bug.name for text in wanted)]
    bugs.sort(key=lambda bug: FAILURES.index(bug.failure))
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(2) as pool:
        directory = Path(name)
        clean = copied(directory)
        if imported_from(clean) != clean.resolve():
            raise SystemExit(f"the tests would import {imported_from(clean)}, not the copy.")
        packages = [planted(directory, bug) for bug in bugs]  # each must fit before anything runs
        if text := failure(clean, list(dict.fromkeys(bug.test for bug in bugs))):
            print(f"{text}\nthe clean copy fails its tests")
            return 2
        print("## Planted bugs\n\n| | way to fail | bug |\n|---|---|---|", flush=True)
        caught = 0
        for bug, text in zip(bugs, pool.map(failure, packages, [[bug.test] for bug in bugs]), strict=True):
            caught += bool(text)
            print(f"| {'caught' if text else '**escaped**'} | {bug.failure} | {bug.name} |", flush=True)
    ways = len({bug.failure for bug in bugs})
    print(f"\nThe clean copy passes its tests. {ways} ways to fail, {time.perf_counter() - start:.0f} s.\n")
    print(f"caught {caught} of {len(bugs)}")
    return 0 if caught == len(bugs) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
