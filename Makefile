# Everything runs in an environment that this file makes; nothing else on the machine is touched.
VENV := .venv
PY := $(VENV)/bin/python
# One BLAS thread a process: parallelism is the kernels' own.
export OMP_NUM_THREADS ?= 1
export OPENBLAS_NUM_THREADS ?= 1

.PHONY: demo test test-slow benchmarks peers planted-bugs break-it fuzz lint clean

demo: $(VENV)/plot
	$(VENV)/bin/dpvb demo --out demo-output

test: lint
	$(PY) -m pytest -q -n 2 --dist worksteal

test-slow: $(VENV)/dev
	$(PY) -m pytest -q -n 2 --dist worksteal -m "slow or not slow"

benchmarks: $(VENV)/dev
	$(PY) -m benchmarks

# Other libraries' logistic regressions, each in an environment of its own; fits whose results exist are not repeated.
PEERS := diffprivlib opacus d3p
peers: $(VENV)/dev $(PEERS:%=.venv-peers-%/ready)
	$(PY) benchmarks/peers/noise.py
	.venv-peers-diffprivlib/bin/python benchmarks/peers/scikit_learn.py
	.venv-peers-diffprivlib/bin/python benchmarks/peers/dp_sgd.py
	set -e; for peer in $(PEERS); do .venv-peers-$$peer/bin/python benchmarks/peers/with_$$peer.py; done

.venv-peers-%/ready: benchmarks/peers/%.txt
	python3 -m venv .venv-peers-$*
	.venv-peers-$*/bin/python -m pip install -q --disable-pip-version-check --no-deps -r $<
	touch $@

planted-bugs: $(VENV)/dev
	$(PY) benchmarks/planted_bugs.py

# Takes a while: about fifteen minutes on two quiet cores.
break-it: $(VENV)/dev
	$(PY) -m benchmarks.break_it

# Atheris has an environment of its own.
fuzz: .venv-fuzz/ready
	.venv-fuzz/bin/python -m benchmarks.fuzz 10

.venv-fuzz/ready: pyproject.toml
	python3 -m venv .venv-fuzz
	.venv-fuzz/bin/python -m pip install -q --disable-pip-version-check -e '.[fuzz]'
	touch $@

lint: $(VENV)/dev
	$(VENV)/bin/ruff format --check -q .
	$(VENV)/bin/ruff check -q .
	$(VENV)/bin/mypy

$(PY):
	python3 -m venv $(VENV)

$(VENV)/plot: $(PY) pyproject.toml
	$(PY) -m pip install -q --disable-pip-version-check -e '.[plot]'
	touch $@

$(VENV)/dev: $(PY) pyproject.toml
	setup/debian.sh
	$(PY) -m pip install -q --disable-pip-version-check -e '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) .venv-fuzz build dist demo-output .pytest_cache .mypy_cache .ruff_cache .hypothesis
