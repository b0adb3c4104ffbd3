# Everything here works on a machine with python3 (3.11 or later), make and git.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PORT ?= 8000
STAMP := $(VENV)/.installed

.PHONY: help run test test-browser test-slow check bench lock clean env
.DEFAULT_GOAL := help

help: ## show the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*##/\t/' | expand -t 14

env: $(STAMP) ## create the virtual environment from the lock

$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Halftone needs Python 3.11 or later; $(PYTHON) is older. Try: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --require-hashes --only-binary :all: -r requirements.lock
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

run: $(STAMP) ## demo data, migrations, service on localhost with printed keys
	$(BIN)/halftone demo --port $(PORT)

test: $(STAMP) ## the whole default suite
	$(BIN)/python -m pytest -n 4 --dist loadfile --no-loadscope-reorder

test-browser: $(STAMP) ## the console's journeys, in chromium (Debian: chromium, chromium-driver)
	$(BIN)/python -m pytest -m browser tests/console

test-slow: $(STAMP) ## long statistical, soak and scale runs
	$(BIN)/python -m pytest -m slow

check: $(STAMP) ## format, lint, types, import rules, names, sizes, pages
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest tests/test_tidy.py tests/test_names.py tests/test_architecture.py tests/test_docs.py

bench: $(STAMP) ## ratios measured side by side; writes benchmarks/RESULTS.md
	$(BIN)/python -m benchmarks

lock: ## pin again (needs uv on the path)
	uv pip compile pyproject.toml --extra dev --universal --python-version 3.11 --generate-hashes \
	  --no-emit-index-url --no-emit-find-links --no-header -o requirements.lock --upgrade
	uv pip compile pyproject.toml --universal --python-version 3.11 --generate-hashes \
	  --no-emit-index-url --no-emit-find-links --no-header -c requirements.lock -o requirements.run.lock

clean: ## remove the environment and caches, never data
	rm -rf $(VENV) build *.egg-info .mypy_cache .ruff_cache .hypothesis
