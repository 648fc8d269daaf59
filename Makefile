# make quick  the tests of the numerical core, in less than a minute
# make lint   format, lint, types; installs only the package and its extra "lint"
# make test   installs everything and runs all tests (COVERAGE=1 measures coverage)
# make docs   builds the documentation and runs its examples
# make demo   the main experiment, with tables and figures (SEEDS=n for more or fewer)
# make demo-tables  the same on a synthetic table
# make ci     everything that must pass before a change lands
# make torture  hostile random cases for MINUTES=n (SEED=n, CASE=campaign:n repeats one)
# make chaos  kills workers, nodes, drivers and files of a run on Ray (SEED=n)
# make browser  installs what the tests in a browser need, where apt and npm are
# make hooks  lets git format and lint before each commit
# make oldest runs the tests with the oldest versions allowed, in .venv-oldest
# make sparse adds torch-sparse (compiles for about ten minutes, once)
# make text   adds the encoder of texts, for the tests that run it
# make benchmark  measures everything again (some hours) and fills its tables
#
# Every target sets up .venv as far as it needs it.

PYTHON ?= python3
VENV ?= .venv
PY := $(VENV)/bin/python
INSTALL := $(PY) -m pip install --quiet --disable-pip-version-check -c constraints.txt
# One stamp per set of extras. A larger set contains the smaller ones.
READY := $(VENV)/.ready
LINT_READY := $(VENV)/.ready-lint
QUICK_READY := $(VENV)/.ready-quick
DEMO_READY := $(VENV)/.ready-demo
# Python 3.10 where there is one: the oldest that is allowed.
OLDEST_PYTHON ?= $(shell command -v python3.10 || echo $(PYTHON))
OLDEST := .venv-oldest
# Seeds of the demonstration; its time grows with them.
SEEDS ?= 1
# Data of the experiments, if a folder beside the checkout has them.
PYG_GLIF_DATA ?= $(abspath $(wildcard ../shared/data))
ifneq ($(PYG_GLIF_DATA),)
export PYG_GLIF_DATA
endif
# A process for each core, whole files at a time; JOBS=0 runs all in one process.
JOBS ?= logical
PYTEST_OPTIONS ?=
PYTEST := -m pytest -n $(JOBS) --dist loadfile $(PYTEST_OPTIONS)
COVERAGE ?=
ifneq ($(COVERAGE),)
PYTEST += --cov=pyg_glif --cov=experiments --cov-report=term:skip-covered
endif
# The adversarial campaign: where it starts, how long it takes, one case to repeat.
SEED ?= 0
MINUTES ?= 3
CASE ?=

# What must pass before a change lands, in this order. '.ci/run' runs 'make ci' in a
# clean clone; the jobs of .github/workflows/ci.yml share the same list.
CI := lint docs demo sparse-tests browser test
# The core: everything between features and smoothed outputs, and its shells for PyG.
QUICK := tests/distances tests/graph tests/solvers tests/nn tests/transforms \
	tests/test_functional.py tests/test_laplacian.py tests/test_links.py

.PHONY: ci quick demo demo-tables test torture chaos browser lint hooks docs oldest \
	sparse sparse-tests text benchmark clean

$(PY):
	$(PYTHON) -m venv $(VENV)

$(LINT_READY): pyproject.toml constraints.txt | $(PY)
	$(INSTALL) -e ".[lint]"
	touch $@

$(QUICK_READY): pyproject.toml constraints.txt | $(PY)
	$(INSTALL) -e . pytest pytest-xdist hypothesis mpmath cvxpy clarabel
	touch $@

$(DEMO_READY): pyproject.toml constraints.txt | $(PY)
	$(INSTALL) -e ".[plots]"
	touch $@

$(READY): pyproject.toml constraints.txt | $(PY)
	$(INSTALL) -e ".[dev]"
	touch $@ $(LINT_READY) $(QUICK_READY) $(DEMO_READY)

# One at a time: the targets share an environment and the cores.
ci:
	set -e; for target in $(CI); do $(MAKE) $$target; done

# Coverage is measured where all tests run.
ci: export COVERAGE = 1

demo: $(DEMO_READY)
	$(PY) -m experiments sentiment --seeds $(SEEDS) --out results/demo

demo-tables: $(DEMO_READY)
	$(PY) -m experiments adult --variant invented --seeds $(SEEDS) --out results/demo-tables

# Processes share the cores: with a thread per core each, they would only get in each
# other's way.
test quick oldest: export OMP_NUM_THREADS = 1

quick: $(QUICK_READY)
	$(PY) $(PYTEST) -q -m "not slow" $(QUICK)

test: $(READY)
	$(PY) $(PYTEST)

# The tests of the service look for a browser and for axe-core, and say so where they
# are missing. A registry of one's own is npm's setting.
AXE := .browser/node_modules/axe-core/axe.min.js
AXE_VERSION := 4.10.3

browser: $(AXE)
	@if command -v chromium >/dev/null && command -v chromedriver >/dev/null; then :; \
	elif command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ]; then \
		apt-get update -qq && apt-get install -y -qq --no-install-recommends \
			chromium chromium-driver; \
	else echo "no chromium and no way to install it: its tests will be skipped"; fi

$(AXE):
	@mkdir -p .browser
	@if command -v npm >/dev/null; then \
		npm install --silent --no-audit --no-fund --prefix .browser \
			axe-core@$(AXE_VERSION); \
	else echo "no npm: the tests with axe-core will be skipped"; fi

torture: $(READY)
	$(PY) -m tests.torture --seed $(SEED) --minutes $(MINUTES) $(if $(CASE),--case $(CASE))

chaos: $(READY)
	OMP_NUM_THREADS=1 $(PY) -m tests.distributed.chaos --seed $(SEED) --record benchmarks/results/chaos.json

lint: $(LINT_READY)
	$(PY) -m ruff format --check .
	$(PY) -m ruff check .
	$(PY) -m mypy

hooks: $(LINT_READY)
	$(PY) -m pre_commit install

# What draws formulas while the pages are built.
docs/node_modules/.ready: docs/package.json
	npm install --prefix docs --no-package-lock --no-audit --no-fund --silent
	touch $@

# The doctests need no pictures of the gallery. The page about texts encodes some.
docs: $(VENV)/.text docs/node_modules/.ready
	$(PY) -m sphinx -W --keep-going -q -D plot_gallery=0 -b doctest docs docs/_build/doctest
	$(PY) -m sphinx -W --keep-going -q -b html docs docs/_build/html
	PYG_GLIF_PAGES=docs/_build/html $(PY) -m pytest -q tests/site

# Without the extra "text", whose oldest versions are not tried.
$(OLDEST)/.ready: pyproject.toml constraints-oldest.txt
	test -x $(OLDEST)/bin/python || $(OLDEST_PYTHON) -m venv $(OLDEST)
	$(OLDEST)/bin/python -m pip install --quiet --disable-pip-version-check \
		-c constraints-oldest.txt -e ".[test,plots,files,report,serve,ray]"
	touch $@

# Old packages warn about the newer ones they meet here; `make test` looks after ours.
oldest: $(OLDEST)/.ready
	$(OLDEST)/bin/python $(PYTEST) -W ignore::DeprecationWarning -W ignore::FutureWarning

# The extension builds against the torch that is installed, hence no isolation.
$(VENV)/.sparse: $(READY)
	$(PY) -m pip install --quiet "setuptools<82" wheel
	$(PY) -m pip install --quiet --no-build-isolation -c constraints.txt -e ".[sparse]"
	touch $@

sparse: $(VENV)/.sparse

# The layers and Laplacians give the same answers from torch-sparse's layout.
sparse-tests: sparse
	$(PY) -m pytest -q tests/test_laplacian.py tests/test_functional.py tests/nn

$(VENV)/.text: $(READY)
	$(PY) -m pip install --quiet -c constraints.txt -e ".[text]"
	touch $@

text: $(VENV)/.text

# The benchmarks take data and settings of the experiments.
benchmark: export PYTHONPATH = $(CURDIR)

benchmark: $(READY)
	$(PY) -m pip install --quiet -c constraints.txt -e ".[benchmark,text]"
	$(PY) benchmarks/radius_graph.py
	$(PY) benchmarks/smoothing.py
	$(PY) benchmarks/inductive.py
	$(PY) benchmarks/if_constraints.py
	$(PY) benchmarks/paper_scale.py
	$(PY) benchmarks/report.py

clean:
	rm -rf $(VENV) $(OLDEST) build dist docs/_build docs/api/generated docs/auto_gallery docs/node_modules
