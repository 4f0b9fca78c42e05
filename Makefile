# Everything here needs only make and a Python (3.11 or newer) with venv. Try `make help`.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export PIP_DISABLE_PIP_VERSION_CHECK := 1

# More arguments for pytest: make test ARGS="-k lease"
ARGS ?=
# Most tests wait for processes most of the time, so two files of them run at once, each with a server of its own.
JOBS ?= 2
# For `make repeat`: which tests, and how many times.
TEST ?= tests
N ?= 50

.PHONY: help test demo lint format repeat package bench bench-peers clean
.DELETE_ON_ERROR:

help:
	@echo "make demo                      a fleet at work, with its admin; DEMO_SECONDS=20 make demo ends by itself"
	@echo "make test [ARGS='-k lease']    the whole suite"
	@echo "make repeat TEST=... [N=50]    the same tests again and again, until one fails"
	@echo "make lint                      style, types (mypy, pyright), import directions, missing migrations"
	@echo "make format                    let ruff mend the style"
	@echo "make package                   build the wheel and run a fresh project with it"
	@echo "make bench, make bench-peers   the figures of the README"
	@echo "make clean                     remove what these made"

test: $(VENV)/.test
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile $(ARGS)

demo: $(VENV)/.demo
	@exec $(BIN)/python -m testproject.demo

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/lint-imports
	$(BIN)/python -m testproject.postgres --fast -- $(BIN)/python manage.py makemigrations --check --dry-run

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

repeat: $(VENV)/.test
	@for run in $$(seq $(N)); do \
		echo "--- run $$run of $(N)"; \
		$(BIN)/python -m pytest -q $(TEST) $(ARGS) || exit 1; \
	done

package: $(VENV)/.dev
	scripts/package.sh $(BIN)/python

bench: $(VENV)/.test
	$(BIN)/python -m benchmarks

bench-peers: $(VENV)/.test
	$(BIN)/python -m benchmarks.peers

clean:
	rm -rf $(VENV) .tox build dist .postgres .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/.made:
	@command -v $(PYTHON) >/dev/null || { echo "There is no $(PYTHON). Name one: make PYTHON=python3.13 ..." >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "$(PYTHON) is `$(PYTHON) --version 2>&1`; 3.11 or newer is needed. Name one: make PYTHON=python3.13 ..." >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' || { \
		echo "$(PYTHON) has no venv. On Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; }
	$(PYTHON) -m venv --clear $(VENV)
	@touch $@

# Each set of extras is installed again when pyproject.toml has changed, and not otherwise.
$(VENV)/.demo $(VENV)/.test $(VENV)/.dev: $(VENV)/.%: $(VENV)/.made pyproject.toml
	$(BIN)/pip install --quiet --editable '.[$*]'
	@touch $@
