# Every target works on a fresh clone: it makes .venv and installs the pinned dependencies when needed.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: setup demo test test-fast test-gpu fuzz check format bench code-map clean

setup: $(READY)

$(READY): pyproject.toml constraints.txt $(wildcard src/factorizer/native/*pp)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --disable-pip-version-check -q -c constraints.txt torch==2.13.0 -e ".[dev]"
	touch $@

demo: $(READY)
	$(BIN)/python examples/demo.py

test: $(READY)
	$(BIN)/pytest

# about a minute: for use while you work
test-fast: $(READY)
	$(BIN)/pytest -m "not slow and not gpu"

test-gpu: $(READY)
	$(BIN)/pytest -m gpu -rs tests/gpu

# hostile inputs for every reader, until MINUTES are over; failing inputs are kept in fuzz-failures
MINUTES ?= 10
fuzz: $(READY)
	$(BIN)/python tests/fuzz/fuzz.py --seed $(shell date +%j%H%M) --minutes $(MINUTES) --keep fuzz-failures

check: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(READY)
	$(BIN)/python benchmarks/speed.py
	$(BIN)/python benchmarks/data.py
	$(BIN)/python benchmarks/inference.py
	$(BIN)/factorizer profile --preset isles22 --measure

code-map: $(READY)
	cd tests && ../$(BIN)/python -m testkit.source_map

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
