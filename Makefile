# make demo   sets everything up and runs the main job (SEEDS=n for more or fewer)
# make demo-tables  the same for people in a table, who are made up
# make test   sets everything up and runs the tests (COVERAGE=1 measures coverage)
# make torture  hostile random cases for MINUTES=n (SEED=n, CASE=campaign:n repeats one)
# make chaos  kills workers, nodes, drivers and files of a run on Ray (SEED=n)
# make browser  installs what the tests in a browser need, where apt and npm are
# make lint   format, lint, types        make docs   builds the documentation
# make hooks  lets git run the linters before each commit
# make oldest runs the tests with the oldest versions allowed, in .venv-oldest
# make sparse adds torch-sparse (compiles for about ten minutes, once)
# make text   adds the encoder of texts, for the tests that run it
# make benchmark  measures everything again (some hours) and fills its tables

PYTHON ?= python3
VENV ?= .venv
PY := $(VENV)/bin/python
READY := $(VENV)/.ready
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

.PHONY: demo demo-tables test torture chaos browser lint hooks docs oldest sparse text benchmark clean

$(READY): pyproject.toml constraints.txt
	test -x $(PY) || $(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $@

demo: $(READY)
	$(PY) -m experiments sentiment --seeds $(SEEDS) --out results/demo

demo-tables: $(READY)
	$(PY) -m experiments adult --variant invented --seeds $(SEEDS) --out results/demo-tables

# Processes share the cores: with a thread per core each, they would only get in each
# other's way.
test oldest: export OMP_NUM_THREADS = 1

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

lint: $(READY)
	$(PY) -m ruff format --check .
	$(PY) -m ruff check .
	$(PY) -m mypy

hooks: $(READY)
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
