# Two commands on a machine with Python >= 3.11, git and make: `make demo` and `make test`.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
OUT ?= out/demo
WORKERS ?= 2
COUNT ?= 40
SECONDS ?= 25
# The tests start many processes. Without bytecode each of them would compile the packages again.
unexport PYTHONDONTWRITEBYTECODE

PYTEST := OMP_NUM_THREADS=1 $(BIN)/pytest -q -n $(WORKERS) --dist worksteal

.PHONY: demo results test examples coverage test-slow test-all ratios mutants docs lint format test-lowest wheel-check data clean help

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1	/' | expand -t 16

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "rfgp needs Python 3.11 or newer; '$(PYTHON)' is" "$$($(PYTHON) --version 2>&1 || echo missing)." \
	       "Try: make PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { \
	  echo "'$(PYTHON)' lacks the venv module. On Debian and Ubuntu: apt install python3-venv"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt torch
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $(STAMP)

demo: $(STAMP)  ## a table, a mesh, roads and a terrain, each against its exact process, and a page (OUT=out/demo)
	$(BIN)/rfgp demo --out $(OUT)

results: $(STAMP)  ## the papers' tables and figures beside ours (ONLY=couplings/table-1, QUICK=1: a tenth)
	OMP_NUM_THREADS=$(WORKERS) $(BIN)/python -m benchmarks.papers $(if $(ONLY),--only $(ONLY)) $(if $(QUICK),--quick)
	$(if $(QUICK),,$(BIN)/python -m benchmarks.page)

test: $(STAMP)  ## the fast tests (WORKERS=2)
	$(PYTEST) -m 'not slow'

examples: $(STAMP)  ## the examples of docstrings
	$(PYTEST) --doctest-modules rfgp graphs

coverage: $(STAMP)  ## the fast tests and the examples of docstrings, and how much of the code they reach
	$(PYTEST) -m 'not slow' --cov --cov-report=
	$(PYTEST) --doctest-modules rfgp graphs --cov --cov-append --cov-report=term-missing:skip-covered
	$(BIN)/python .ci/coverage-least

test-slow: $(STAMP)  ## the slow tests (PART=1/2: one of two parts)
	$(PYTEST) -m 'slow and not pages' $(if $(PART),--part $(PART))

test-all: coverage test-slow  ## all tests but those of pages, which `make docs` has

mutants: $(STAMP)  ## small errors in the code, and whether a test fails (COUNT=40, SECONDS=25 of tests for each)
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.mutants --count $(COUNT) --seconds $(SECONDS)

ratios: $(STAMP)  ## five speed ratios against plain implementations, compared with the recorded ones
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.races.watched

lint: $(STAMP)  ## format, lint, types, and the arrows between modules
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

format: $(STAMP)  ## write the format that lint expects
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(STAMP)  ## the site in out/docs, and the code of its pages; warnings and broken links are errors
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[docs]'
	WORKERS=$(WORKERS) OMP_NUM_THREADS=1 $(BIN)/sphinx-build -j $(WORKERS) -W --keep-going -q -b html docs out/docs
	$(PYTEST) -m pages tests/house

data: $(STAMP)  ## write data/ again from the seeded generators
	$(BIN)/python -c 'from rfgp import datasets; datasets.write_all("data")'

wheel-check: $(STAMP)  ## build the wheel and use it in an empty environment outside the checkout
	bash .ci/wheel-check $(BIN)/python

test-lowest:  ## the fast tests on the lowest supported versions (all but torch, which is pinned)
	$(PYTHON) -m venv .venv-lowest
	.venv-lowest/bin/pip install --quiet --constraint constraints.txt torch uv
	.venv-lowest/bin/python -m uv pip install --quiet --python .venv-lowest/bin/python \
	  --resolution lowest-direct --editable '.[dev]' 'torch==2.13.0'
	OMP_NUM_THREADS=1 .venv-lowest/bin/pytest -q -n $(WORKERS) --dist worksteal -m 'not slow'

clean:  ## remove what the targets made
	rm -rf $(VENV) .venv-lowest .coverage* build dist out .mypy_cache .ruff_cache .pytest_cache
