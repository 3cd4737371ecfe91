# make demo    set up everything, then import the embedded graph, make features and report
# make test    set up everything, then run the tests
# make lint    ruff and mypy
# make bench   the benchmarks (what each times is in its docstring)

VENV ?= .venv
BIN := $(VENV)/bin
# The first interpreter that is new enough; override with: make PYTHON=/path/to/python test
PYTHON ?= $(shell for p in python3 python3.12 python3.11 python3.13; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)

.PHONY: setup demo test lint bench clean

setup: $(VENV)/.ready

$(VENV)/.ready: pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "chronospike needs Python 3.11 or later; none was found. Set PYTHON=/path/to/python"; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]'
	@touch $@

demo: setup
	$(BIN)/chronospike demo -o build/demo --overwrite

test: setup
	$(BIN)/python -m pytest -n 2

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: setup
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[bench]'
	$(BIN)/python benchmarks/features.py
	$(BIN)/python benchmarks/sampling.py

clean:
	rm -rf $(VENV) build
