# Two commands do everything: `make demo` and `make test`. Both set up one virtual environment, .venv, anew only when
# pyproject.toml or constraints.txt has changed.
#
#   PIP_ARGS   handed to pip, e.g. PIP_ARGS="--index-url https://download.pytorch.org/whl/cpu --extra-index-url https://pypi.org/simple"
#   PYTHON     the interpreter to make the environment with

PYTHON ?= python3
PIP_ARGS ?=
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/stamp-$(shell cat pyproject.toml constraints.txt | cksum | tr ' ' '-')

.PHONY: demo test test-slow lint bench setup clean

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "emul needs Python 3.11 or newer")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt $(PIP_ARGS) --editable '.[test]'
	rm -f $(VENV)/stamp-*
	touch $@

demo: $(STAMP)
	$(BIN)/emul run scenarios/quickstart.yaml

test: $(STAMP)
	$(BIN)/python -m pytest -m 'not slow'

test-slow: $(STAMP)
	$(BIN)/python -m pytest -m slow

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(BIN)/mypy emul

bench: $(STAMP)
	$(BIN)/python -m benchmarks

clean:
	rm -rf $(VENV) runs .pytest_cache .ruff_cache .mypy_cache .hypothesis
