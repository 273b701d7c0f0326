"""What pip installs without extras: every model fits there, the list in docs/install.md is true, extras are named."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import first_fit
from dpvb.estimators import PrivateEstimator

#: For each extra a call that needs it; pandas is asked for by its own name.
_NEEDS = {
    "plot": "coefficients().forest()",
    "arviz": "to_arviz()",
    "arrow": "dpvb.Table(rows, schema)",
    "postgresql": 'dpvb.Ledger("postgresql://nobody@127.0.0.1:9/none")',
    "cluster": "dpvb.LogisticRegression(**given).fit(x, y, run=dpvb.Run(cluster=object()))",
    "jax": "dpvb.DPVI(lambda theta, row: 0.0, parameters=1, **budget).fit(x)",
    "federated": '_mailbox("server")',
}
_ASK = """
import json, sys, tempfile, warnings
from pathlib import Path
warnings.simplefilter("ignore")
import numpy as np
import dpvb
from dpvb.errors import DpvbError
from dpvb.cli.federate import _mailbox
rng = np.random.default_rng(0)
x, y = rng.random((300, 2)), rng.integers(0, 2, 300)
budget = {"epsilon": 1.0, "delta": 1e-6}
given = budget | {"low": 0, "high": 1}
schema = dpvb.Schema((dpvb.data.Numeric("a", low=0, high=1),))
model = dpvb.LogisticRegression(**given).fit(x, y)
rows = Path(tempfile.mkdtemp()) / "rows.parquet"
rows.write_bytes(b"PAR1")
said = {}
for extra, call in json.loads(sys.argv[1]).items():
    try:
        eval(call if "dpvb." in call or call.startswith("_") else "model." + call)
        said[extra] = ""
    except DpvbError as error:
        said[extra] = str(error)
print(json.dumps(said))
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    return first_fit.installed(tmp_path_factory.mktemp("core") / "installed")


def test_every_kind_is_fitted_or_needs_an_extra() -> None:
    assert {*first_fit.FITS} | {"DPVI", "PrivateModel"} == {*PrivateEstimator._registered}


@pytest.mark.parametrize("name", first_fit.FITS)
def test_the_core_fits_every_kind(name: str, python: Path) -> None:
    first_fit.first(python, name)


@pytest.mark.parametrize("name", ["LogisticRegression", "LDA", "Mixture", "MarkovChain"])
def test_a_new_process_has_its_first_fit_in_time(name: str, python: Path) -> None:
    """Not the first one after an installation, which compiles; twice, as other jobs slow a processor down."""
    assert first_fit.first(python, name)[1] < 2 * first_fit.MOST


def test_the_list_of_packages_is_true(python: Path) -> None:
    found, (names, total) = first_fit.packages(python), first_fit.on_page()
    assert set(found) == names, "python -m benchmarks.first_fit --list writes it"
    assert sum(found.values()) == pytest.approx(total, rel=0.2)


def test_an_extra_is_named_by_whatever_needs_it(python: Path) -> None:
    done = first_fit.alone(python, _ASK, json.dumps(_NEEDS | {"pandas": "coefficients().to_frame()"}))
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    assert {extra for extra, text in said.items() if f"'.[{extra}]'" not in text} == {"pandas"}
    assert "pip install pandas" in said["pandas"]
