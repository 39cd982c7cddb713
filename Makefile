# The one door. Every target sets up what it needs on a machine with Python 3.11 and Java 17.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: help setup demo test soak lint docs clean

help:  ## show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

setup: $(VENV)/.ready

$(VENV)/.ready: pyproject.toml requirements/lock.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Tidewheel needs Python 3.11 or newer; found " + sys.version.split()[0])'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing what Tidewheel needs into $(VENV) (once)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements/lock.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

demo: setup  ## a keyed stream job, killed, rescaled, resumed, and checked
	@$(BIN)/python examples/demo.py

test: setup  ## the whole test suite
	$(BIN)/python -m pytest

soak: setup  ## the long tests
	$(BIN)/python -m pytest -m slow

lint: setup  ## ruff and mypy
	$(BIN)/ruff check src tests benchmarks examples
	$(BIN)/ruff format --check src tests benchmarks examples
	$(BIN)/mypy

clean:  ## remove what the other targets made
	rm -rf $(VENV) .cache build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
