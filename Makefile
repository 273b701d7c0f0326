# Everything runs in an environment that this file makes; nothing else on the machine is touched.
VENV := .venv
PY := $(VENV)/bin/python
# The tested versions, so that a release of another package breaks nothing here from one day to the next.
INSTALL := $(PY) -m pip install -q --disable-pip-version-check -c setup/tested.txt

.PHONY: demo docs quick test test-slow pages test-lowest test-highest first-contact benchmarks peers planted-bugs break-it fuzz lint clean

demo: $(VENV)/plot
	$(VENV)/bin/dpvb demo --out demo-output

# Runs every block and command of every page, then makes the site in `site`; a warning is an error.
docs: .venv-docs/ready
	$(PY) -m pytest -q -n 2 --dist worksteal -m "slow or not slow" tests/laws/test_site.py
	PATH="$(CURDIR)/.venv-docs/bin:$$PATH" NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build --strict --quiet

# The inner loop, at most 45 seconds on two quiet cores: the core, the guards, the laws, and the cheap tests of each
# room and of each family of models; without what compiles anew or starts a process.
IN_ROOMS := accounting/filter cli/cli_plain data/numbers estimators/members federated/federated_masks ledger/ledger_names \
	papers/printed results/metrics runs/record $(addprefix models/,expfam first_order hidden_markov kalman lda \
	linear_dynamical linear_model markov_chain products sbn saturation topic_reading tuned)
OF_MAKE_TEST := guards/test_imports core/test_form_shapes
room = $(dir $(1))test_$(notdir $(1))
QUICK := $(filter-out $(OF_MAKE_TEST:%=tests/%.py),$(sort $(wildcard tests/core/test_*.py tests/guards/test_*.py))) \
	tests/laws/test_architecture.py tests/laws/test_conformance.py tests/laws/test_docs.py \
	$(foreach one,$(IN_ROOMS),tests/$(call room,$(one)).py)
OTHER_CASES := joint] or _first] or _third] or _last] or paper_step] or lda_plain] or spreads_second] or spreads_step] or poisson_step] or beside_step] or dispersion_step] or cover or cluster or repeated or bits_of_a_record or first_fit or command_no_terminal or processes
RUN_QUICK := -m pytest -q -n 2 --dist worksteal $(QUICK) -k "not ($(OTHER_CASES))"

quick: $(VENV)/dev
	$(PY) $(RUN_QUICK)

test: lint
	$(PY) -m pytest -q -n 2 --dist worksteal

test-slow: $(VENV)/dev $(VENV)/ray .venv-flower/ready
	$(PY) -m pytest -q -n 2 --dist worksteal -m "slow or not slow"

# Reports in a headless browser, and the core as pip installs it in an environment of its own.
pages: $(VENV)/pages
	$(PY) -m pytest -q -n 0 tests_browser

$(VENV)/pages: $(VENV)/dev
	setup/debian.sh chromium
	$(INSTALL) -e '.[pages]'
	touch $@

$(VENV)/ray: $(VENV)/dev
	$(INSTALL) -e '.[ray]'
	touch $@

# The quick tests with the lowest versions that pyproject.toml allows, in an environment of their own.
test-lowest: .venv-lowest/ready
	NUMBA_CACHE_DIR=.venv-lowest/numba .venv-lowest/bin/python $(RUN_QUICK)

.venv-lowest/ready: pyproject.toml setup/lowest.txt
	python3 -m venv .venv-lowest
	.venv-lowest/bin/python -m pip install -q --disable-pip-version-check -e '.[plot,arrow,postgresql,federated,jax]' -r setup/lowest.txt
	touch $@

# The quick tests with the newest versions of everything that pyproject.toml allows, in an environment of their own.
test-highest: .venv-highest/ready
	NUMBA_CACHE_DIR=.venv-highest/numba .venv-highest/bin/python $(RUN_QUICK)

.venv-highest/ready: pyproject.toml
	python3 -m venv .venv-highest
	.venv-highest/bin/python -m pip install -q --disable-pip-version-check --upgrade -e '.[dev]'
	touch $@

# What a first user types, with a wheel in an environment of its own.
first-contact: $(VENV)/dev
	$(PY) -m benchmarks first_contact

benchmarks: $(VENV)/dev
	$(PY) -m benchmarks

# Other libraries' logistic regressions, each in an environment of its own; fits whose results exist are not repeated.
# Then those of sequences, beside our own: log-likelihoods, and the speed of a step.
PEERS := diffprivlib opacus d3p
OF_SEQUENCES := hmmlearn dynamax
peers: $(VENV)/dev $(PEERS:%=.venv-peers-%/ready) $(OF_SEQUENCES:%=.venv-peers-%/ready)
	$(PY) benchmarks/peers/noise.py
	.venv-peers-diffprivlib/bin/python benchmarks/peers/scikit_learn.py
	.venv-peers-diffprivlib/bin/python benchmarks/peers/dp_sgd.py
	set -e; for peer in $(PEERS); do .venv-peers-$$peer/bin/python benchmarks/peers/with_$$peer.py; done
	$(PY) -m benchmarks.hidden_markov speed systems

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
	$(PY) -m codespell_lib *.md docs src setup benchmarks flower
	$(PY) setup/prose.py

$(PY):
	python3 -m venv $(VENV)

$(VENV)/plot: $(PY) pyproject.toml setup/tested.txt
	$(INSTALL) -e '.[plot]'
	touch $@

$(VENV)/dev: $(PY) pyproject.toml setup/tested.txt
	setup/debian.sh
	$(INSTALL) -e '.[dev]'
	touch $@

# Flower beside the package, for the test of its app; what Flower brings comes first.
.venv-flower/ready: $(VENV)/dev
	python3 -m venv .venv-flower
	.venv-flower/bin/python -m pip install -q --disable-pip-version-check 'flwr>=1.42'
	.venv-flower/bin/python setup/see_packages.py $(PY)
	touch $@

# The tests see nothing of what a site needs.
.venv-docs/ready: $(VENV)/dev
	python3 -m venv .venv-docs
	.venv-docs/bin/python setup/see_packages.py $(PY)
	.venv-docs/bin/python -m pip install -q --disable-pip-version-check -c setup/tested.txt -e '.[docs]'
	touch $@

clean:
	rm -rf $(VENV) .venv-docs site .venv-fuzz .venv-flower .venv-lowest .venv-highest build dist demo-output .pytest_cache .mypy_cache .ruff_cache .hypothesis
