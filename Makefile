# Two commands do everything: `make demo` and `make test`. Both set up one virtual environment, .venv, anew only when
# pyproject.toml or constraints.txt has changed.
#
#   PIP_ARGS   handed to pip, e.g. PIP_ARGS="--extra-index-url https://download.pytorch.org/whl/cpu"
#   PYTHON     the interpreter to make the environment with
#   JOBS       processes that `make test` runs tests in, beside each other: two more than two cores, since tests wait for
#              processes and browsers; `make test-slow` runs its own in two, since some of them measure memory
#   REPEATS    of each measurement of `make bench` and `make bench-peers`

PYTHON ?= python3
PIP_ARGS ?=
JOBS ?= 4
REPEATS ?= 3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/stamp-$(shell cat pyproject.toml constraints.txt | cksum | tr ' ' '-')
PEERS := .venv-peers
PEERS_STAMP := $(PEERS)/stamp-$(shell cksum < benchmarks/peers/requirements.txt | tr ' ' '-')

# what a test starts in a process of its own reads what others compiled, also where the environment forbids to write it
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-slow test-all lint docs dist bench bench-peers setup clean

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
	$(BIN)/python -m pytest -m 'not slow and not release' -n $(JOBS) --dist worksteal

test-slow: $(STAMP)
# those of a group, which share a Ray or look at the network namespaces of the machine, run one after the other
	$(BIN)/python -m pytest -m 'slow and not release' -n 2 --dist loadgroup

test-all: $(STAMP)
# every test, also those of a release: long sweeps, studies, whole families of cases of which `make test-slow` has a few
	$(BIN)/python -m pytest -n 2 --dist loadgroup

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(BIN)/mypy emul benchmarks

docs: $(STAMP)
	$(BIN)/python -m sphinx --jobs auto --fail-on-warning --keep-going -b html docs docs/_build/html
	$(BIN)/python docs/sheets.py docs/_build/html/sheets

dist:
# sdist and wheel of the commit, checked and tried in an empty environment
	PYTHON=$(PYTHON) PIP_ARGS="$(PIP_ARGS)" .ci/dist

bench: $(STAMP)
	$(BIN)/python -m benchmarks --repeats $(REPEATS) --write

bench-peers: $(STAMP) $(PEERS_STAMP)
	$(BIN)/python -m benchmarks.bench_peers $(PEERS)/bin/python --repeats $(REPEATS) --write

$(PEERS_STAMP): benchmarks/peers/requirements.txt
	test -x $(PEERS)/bin/python || $(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/python -m pip install --quiet $(PIP_ARGS) --requirement benchmarks/peers/requirements.txt
	rm -f $(PEERS)/stamp-*
	touch $@

clean:
	rm -rf $(VENV) $(PEERS) runs dist docs/made docs/_build .pytest_cache .ruff_cache .mypy_cache .hypothesis
