VENV := .venv
PYTHON := $(VENV)/bin/python
STAMP := $(VENV)/.installed

.PHONY: demo test test-all bench lint types docs

$(STAMP): pyproject.toml $(wildcard surgeon/data/*.c surgeon/layers/native/*.[ch])
	test -x $(PYTHON) || python3 -m venv $(VENV)
	$(PYTHON) -m pip install --quiet --disable-pip-version-check --no-compile --editable ".[dev]"
	touch $@

demo: $(STAMP)
	$(VENV)/bin/surgeon demo

lint: $(STAMP)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/lint-imports

types: $(STAMP)
	$(VENV)/bin/mypy

# Into site/; a broken link or anchor, or a page in no menu, is an error (but not with --quiet, which silences the count).
docs: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --strict

test: lint types docs
	OMP_NUM_THREADS=1 $(PYTHON) -m pytest -n 2 -m "not zoo and not long"

test-all: lint types docs
	OMP_NUM_THREADS=1 $(PYTHON) -m pytest -n 2
	$(PYTHON) benchmarks/gate.py --fast

# Everything that benchmarks/gate.py lists: fails if a script crashes, misses a limit, or is slower than its committed figures.
bench: $(STAMP)
	$(PYTHON) benchmarks/gate.py
