"""Public members of estimators are those that users are told of; every other member begins with an underscore."""

import inspect

import pytest

from dpvb import PrivateEstimator

#: Members of every estimator, by purpose.
FIT = {"fit", "dry_run", "release_plan"}
KEEP = {"save", "report", "plot", "at_step"}
SCIKIT_LEARN = {"get_metadata_routing", "get_params", "set_params", "set_output", "get_feature_names_out"}
#: Members of some estimators, by purpose.
ROWS = {"transform", "fit_transform", "inverse_transform", "reconstruct", "decision_function"} | {
    f"predict{what}" for what in ("", "_proba", "_log_proba", "_interval", "_next")
}
MEASURES = {"score", "score_samples", "evaluate", "perplexity", "lower_bound", "fidelity"}
TABLES = {"coefficients", "summary", "contrast", "partial_effect", "component_table", "transition_table", "topics"}
TABLES |= {"scree", "marginal_bands", "get_covariance", "theta_", "above_noise_", "topics_above_noise_"}
INTERVALS = {"credible_interval", "intervals", "transition_intervals"} | {
    f"{what}_interval" for what in ("covariance", "dispersion", "explained_variance", "loadings", "sigma")
}
DRAWS = {"sample", "sample_posterior", "forecast", "to_arviz"}
DOCUMENTED = FIT | KEEP | SCIKIT_LEARN | ROWS | MEASURES | TABLES | INTERVALS | DRAWS

KINDS = {name: kind for name, kind in PrivateEstimator._registered.items() if kind.__module__.startswith("dpvb.")}


@pytest.mark.parametrize("name", KINDS)
def test_every_public_member_is_documented_for_users(name: str) -> None:
    kind = KINDS[name]
    parameters = {*inspect.signature(kind).parameters}
    requests = {one for one in dir(kind) if one.startswith("set_") and one.endswith("_request")}
    public = {one for one in dir(kind) if not one.startswith("_")} - parameters - requests
    assert public - DOCUMENTED == set()
