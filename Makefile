# Two commands do everything on a machine that has only Python >= 3.11 and make:
#   make demo   tables, figures and a page to read, small scale, embedded corpus
#   make test   lint and run the whole test suite
#   make quick  lint and the tests that take a minute in all, while you work

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
JOBS ?= 2
DEMO := runs/demo

.PHONY: demo test quick lint format clean

$(VENV)/.installed: pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "dwl_jax needs Python 3.11 or newer, found " + sys.version)'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $@

demo: $(VENV)/.installed
	rm -rf $(DEMO)
	$(BIN)/python -m experiments.demo --out=$(DEMO)

test: lint
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile

quick: lint
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile --quick

lint: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(VENV)/.installed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis *.egg-info
