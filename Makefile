# Two commands for a newcomer, `make reproduce` and `make test`. Each sets up all it needs.
SHELL := bash
.DEFAULT_GOAL := help
.PHONY: help reproduce test test-ci test-all check bench docs

PYTHON ?= python3
BIN := .venv/bin
EXTRAS := hf,gpu,reproduction,dev
BENCHMARKS := vectors budget clustering memory kills logs logging_truth nn dedup large scale soak reliability

# Our processes, not BLAS, use the cores: two test workers, one benchmark, one study.
ONE_THREAD := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1 NUMBA_NUM_THREADS=1

# A file of tests stays on one worker, so that fixtures of a module are made once.
PYTEST := -n 2 --dist loadfile --cov --cov-report=term-missing:skip-covered

help:
	@echo "make reproduce   run the studies, print their tables, write one HTML report to out/"
	@echo "make test        run the tests (5 minutes), with branch coverage of the core"
	@echo "make test-ci     also kills, interpreted kernels and the oldest supported transformers"
	@echo "make test-all    every test (more than 12 minutes)"
	@echo "make check       format, lint, types, import contracts, doctests"
	@echo "make bench       speed and quality against other libraries, on this machine"
	@echo "make docs        build the documentation into site/"

reproduce: .venv/.reproduce
	$(ONE_THREAD) $(BIN)/python -m reproduction --out out

test: .venv/.ready
	$(ONE_THREAD) $(BIN)/pytest $(PYTEST)

# What continuous integration runs: also kills, kernels in Triton's interpreter, the oldest transformers.
test-ci: test
	$(ONE_THREAD) $(BIN)/pytest -q -n 2 -m slow tests/cli/test_kill.py tests/scale tests/kernels/test_features.py tests/logs/test_compiled.py
	tests/hf/versions.sh short

test-all: .venv/.ready
	$(ONE_THREAD) $(BIN)/pytest $(PYTEST) -m ""
	tests/hf/versions.sh short

check: .venv/.ready
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/pytest -q --doctest-modules src reproduction

bench: .venv/.bench
	@for name in $(BENCHMARKS); do \
	  echo "== benchmarks.$$name"; $(ONE_THREAD) $(BIN)/python -m benchmarks.$$name || exit 1; done

docs: .venv/.ready
	$(BIN)/python docs/generate.py
	$(BIN)/zensical build --clean --strict --config-file mkdocs.yml
	cp -r results site/  # pages link to its tables

# uv does not read pip's settings, so it is handed pip's folder of wheels; where that has no CPU
# build of torch, uv knows the index that does. pip is the way out where uv cannot be had.
LINKS = $${UV_FIND_LINKS:-$${PIP_FIND_LINKS:-$$($(BIN)/python -m pip config get global.find-links 2>/dev/null)}}
define install
	@links=$$(echo $(LINKS) | tr ' ' ','); \
	uv() { UV_FIND_LINKS="$$links" $(BIN)/uv pip install -q --python $(BIN)/python "$$@"; }; \
	pip() { $(BIN)/python -m pip install -q "$$@"; }; \
	what=(-c constraints.txt -e ".[$(1)]"); \
	{ pip uv && { uv "$${what[@]}" || uv --torch-backend cpu "$${what[@]}"; }; } \
	|| { echo "uv could not do it, trying pip"; pip "$${what[@]}"; } \
	|| { echo "set-up failed: no index or folder (PIP_FIND_LINKS) offers constraints.txt"; exit 1; }
endef

# The second target needs the first one's environment, so that `make reproduce` installs the less.
.venv/.reproduce: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=...")'
	@echo "setting up .venv (once; minutes on a slow line)"
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv .venv
	$(call install,reproduction)
	@$(COMPILE)
	@touch $@

.venv/.ready: .venv/.reproduce
	@echo "adding what tests, checks and documentation need"
	$(call install,$(EXTRAS))
	@touch $@

# A write under a budget makes numba compile, ten seconds that are then kept on disk.
COMPILE = $(BIN)/python -c "from distinctkv import Cache, Concentration as C; Cache(C.fixed(budget=2)).write([[1.0]])"

.venv/.bench: .venv/.ready
	@echo "installing the libraries to compare with"
	$(call install,bench)
	@touch $@
