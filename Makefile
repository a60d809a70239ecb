# `make` alone lists the targets. `make demo` and `make test` build what they need in .venv, in this checkout.

PYTHON ?= python3
PYTEST_ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
PIP_INSTALL := $(BIN)/python -m pip install --disable-pip-version-check -c constraints.txt

.DEFAULT_GOAL := help
.PHONY: help demo test lint bench clean

help: ## list the targets
	@echo "usage: make TARGET"
	@echo
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  %-8s %s\n", $$1, $$2 }' Makefile
	@echo
	@echo "  PYTHON=python3.12 make test        use another Python (3.11 or later) for a new .venv"
	@echo "  make test PYTEST_ARGS='-x -k oracle'    pass options to pytest"

demo: $(VENV)/.installed-train ## train FlexMDM and MDM on a small maze, compare them, write demo/index.html
	$(BIN)/flexmdm demo maze

test: $(VENV)/.installed-dev ## run the tests and the examples in the docstrings
	$(BIN)/python -m pytest -n auto $(PYTEST_ARGS)

lint: $(VENV)/.installed-dev ## ruff check, ruff format --check, ty
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/ty check --python $(VENV)

bench: $(VENV)/.installed-train ## run the benchmarks (hours; each can be run alone)
	$(BIN)/python benchmarks/network.py
	$(BIN)/python benchmarks/targets.py
	$(BIN)/python benchmarks/overhead.py
	$(BIN)/python benchmarks/samplers.py

clean: ## remove .venv, caches and builds (demo/ and runs/ stay)
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis build dist
	find src tests benchmarks -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true
	rm -rf src/*.egg-info

# One stamp per set of extras: `.installed-dev` is the package with [dev]; any other extra works too,
# e.g. `make .venv/.installed-train`.
$(VENV)/.installed-base: pyproject.toml constraints.txt $(VENV)/.created
	$(PIP_INSTALL) -e .
	@touch $@

$(VENV)/.installed-%: pyproject.toml constraints.txt $(VENV)/.created
	$(PIP_INSTALL) -e '.[$*]'
	@touch $@

$(VENV)/.created:
	@command -v $(PYTHON) >/dev/null || { echo "error: $(PYTHON) not found; install Python 3.11 or later, or name one: make PYTHON=/path/to/python" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "error: flexmdm needs Python 3.11 or later, but $(PYTHON) is $$($(PYTHON) -V 2>&1); name another: make PYTHON=python3.11" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@
