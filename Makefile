# What can be done with a clone. Each target sets up what it needs, and again only when the pins
# or pyproject.toml have changed.

PYTHON ?= $(shell for python in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	&& echo $$python && break; done)
BIN := .venv/bin
PYTEST := $(BIN)/python -m pytest
BESIDE := -n 3 --dist loadgroup
ARGS_CHOSE_NONE = test "$$?,$(if $(ARGS),given)" = "5,given"
ARGS ?=
VERSION = $(shell sed -n 's/^VERSION = "\(.*\)"/\1/p' pushlane/version.py)
LABELS = --build-arg VERSION=$(VERSION) --build-arg REVISION=$(shell git rev-parse HEAD 2>/dev/null)

# Tests start pushlane hundreds of times: without its bytecode, each start compiles all of it.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help install demo check test acceptance browser howto picture screenshots chart clients chart-live image bench shape site pins clean

help: ## Show this
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' Makefile | expand -t 18

install: .venv/.dev ## Make .venv with everything: development, console, plots and Spark

demo: .venv-demo/.demo ## Show the main job; needs Python 3.11 or newer, nothing else
	.venv-demo/bin/pushlane demo $(ARGS)

check: .venv/.dev ## Format, lint, types, import contracts, unit tests
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(PYTEST) -n auto --dist worksteal -q tests --ignore tests/contract --ignore tests/integration --ignore tests/acceptance --ignore tests/chart --ignore tests/generated --ignore tests/browser $(ARGS)

test: check ## All of check, contract, integration and browser tests (on Docker, or Java and Maven)
	$(PYTEST) $(BESIDE) tests/contract tests/integration tests/browser $(ARGS)

acceptance: .venv/.dev ## Long tests: side by side, then those that measure, each alone
	$(PYTEST) $(BESIDE) -m "not measures" tests/acceptance $(ARGS) || $(ARGS_CHOSE_NONE)
	$(PYTEST) -m measures tests/acceptance $(ARGS) || $(ARGS_CHOSE_NONE)

browser: .venv/.browser ## What tests in a browser need beside a Chromium: playwright (165 MB)

howto: .venv-howto/.howto ## What tests of how-tos need beside: FastAPI, Django and Celery, in a venv of their own

picture: .venv/.dev ## Make the moving picture of the demo, docs/demo.svg, of a run on this machine
	$(BIN)/python -m scripts.demo_picture

screenshots: .venv/.browser ## Make the pictures of docs/console.md on a live backlog (needs a Chromium)
	$(BIN)/python -m scripts.console_pictures

chart: .venv/.dev ## The chart: lint, render, validate, run its commands (needs Go; helm is built once)
	$(BIN)/python -m pytest tests/chart $(ARGS)

clients: .venv/.dev ## Generate clients in Go and TypeScript, and try each on a server (needs Go, npm)
	$(BIN)/python -m pytest tests/generated $(ARGS)

chart-live: .venv/.dev ## Install the chart on a real Kubernetes API server, which is built first (Go)
	$(BIN)/python -m scripts.chart_live $(ARGS)

image: ## Build both images with Docker; another base: make image ARGS="--build-arg PYTHON_IMAGE=…"
	docker build --target service --tag pushlane:$(VERSION) $(LABELS) $(ARGS) .
	docker build --target spark --tag pushlane-spark:$(VERSION) $(LABELS) $(ARGS) .

bench: .venv/.dev ## All benchmarks; one: make bench ARGS="fairness --broker embedded"
	$(BIN)/python -m bench $(or $(ARGS),all)

shape: ## Measure the code: files, functions, names; beside a revision: make shape ARGS=HEAD~9
	$(PYTHON) scripts/shape.py $(ARGS)

site: .venv-docs/.docs ## Build the documents as a site, in site/; a link that leads nowhere fails
	.venv-docs/bin/zensical build --strict --clean
	.venv-docs/bin/python -m scripts.built_site

pins: .venv/.dev ## Renew requirements/*.txt
	$(BIN)/pip install --quiet pip-tools
	PATH="$(CURDIR)/$(BIN):$$PATH" requirements/compile

clean: ## Remove what tests, builds and the demo leave (the venvs stay)
	rm -rf build dist out site .cache *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis \
		.import_linter_cache
	find . -name __pycache__ -not -path './.venv*' -prune -exec rm -rf {} +

# setuptools is among the pins, so nothing without a hash is fetched to build pushlane itself.
define install
	@test -n "$(PYTHON)" || { echo "error: needs Python 3.11 or newer; set PYTHON=..." >&2; exit 1; }
	test -x $(@D)/bin/python || $(PYTHON) -m venv $(@D)
	$(@D)/bin/pip install --quiet --disable-pip-version-check --require-hashes -r $<
	$(@D)/bin/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $@
endef

.venv/.browser: requirements/browser.txt .venv/.dev
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r $<
	touch $@

.venv/.dev: requirements/dev.txt pyproject.toml
	$(install)

.venv-demo/.demo: requirements/demo.txt pyproject.toml
	$(install)

.venv-docs/.docs: requirements/docs.txt pyproject.toml
	$(install)

.venv-howto/.howto: requirements/howto.txt pyproject.toml
	$(install)
