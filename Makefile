VENV := .venv
PYTHON := $(VENV)/bin/python
STAMP := $(VENV)/.installed

.PHONY: demo test test-all bench lint types

$(STAMP): pyproject.toml $(wildcard surgeon/native/*.[ch])
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

test: lint types
	OMP_NUM_THREADS=1 $(PYTHON) -m pytest -n 2 -m "not zoo and not long"

test-all: lint types
	OMP_NUM_THREADS=1 $(PYTHON) -m pytest -n 2

bench: $(STAMP)
	-$(PYTHON) benchmarks/norm_overhead.py
	-$(PYTHON) benchmarks/ghost_training.py
	-$(PYTHON) benchmarks/training_cost.py
	-$(PYTHON) benchmarks/startup.py
	-$(PYTHON) benchmarks/eval_speed.py
	-$(PYTHON) benchmarks/sweep_cost.py
	-$(PYTHON) benchmarks/lambda_cost.py
	-$(PYTHON) benchmarks/finetune_speed.py
	-$(PYTHON) benchmarks/mixing_speed.py
	-$(PYTHON) benchmarks/memory.py
