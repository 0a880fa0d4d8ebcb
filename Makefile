# Crier: `make help` lists the targets.
.DEFAULT_GOAL := help
.PHONY: help demo up test test-rest test-all search bench mutants lint format lock advisories images screenshots shell clean runtime dev whatsapp
SHELL := /bin/sh

PORT ?= 8000
PYTHON ?= python3

VENV := .venv
PY := $(VENV)/bin/python
# A copy of the lock file in the environment records what is installed: an unchanged lock file costs nothing.
RUNTIME_STAMP := $(VENV)/installed.lock
DEV_STAMP := $(VENV)/installed-dev.lock
WHATSAPP_STAMP := $(VENV)/installed-whatsapp.lock
PIP_INSTALL := $(PY) -u -m pip install --disable-pip-version-check --no-input --progress-bar off --require-hashes
# Says how far it is: the packages take a minute or two. pip's own lines are several hundred.
install = { \
	echo "Installing $(1) …"; all=$$(grep -c '==' $(1)); n=0; \
	{ $(PIP_INSTALL) -r $(1) || echo FAILED; } | while read -r line; do case $$line in \
		*'->'*) ;; \
		Collecting* | Processing* | Requirement*) n=$$((n + 1)); [ $$((n % 10)) -gt 0 ] || echo "  $$n of $$all packages" ;; \
		Installing*) echo "  unpacking them …" ;; \
		FAILED) exit 1 ;; \
	esac; done; }
PIP_COMPILE := $(PY) -m piptools compile --quiet --generate-hashes --no-emit-index-url --no-emit-find-links \
	--strip-extras --allow-unsafe --no-annotate --no-header

help: ## Show this help
	@echo "Crier. The web server listens on PORT=$(PORT)."
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/  make \1	\2/p' Makefile | expand -t 16

demo: runtime ## Start everything with demo data; CHANNEL=waha adds a scripted gateway, WHATSAPP=1 a number to pair
	@$(if $(WHATSAPP),WHATSAPP_SCRIPT=whatsapp-script) $(if $(CHANNEL),$(PY) -m tests.gateways.trial $(CHANNEL) --port $(PORT),$(PY) manage.py up --demo --port $(PORT))

up: runtime ## Start everything with your own data
	@$(PY) manage.py up --port $(PORT)

test: dev ## Run linters, types and all tests that need no browser and no long-lived processes
	@$(PY) -m tests.run quick

test-rest: dev ## Run the other tests: browser, processes, gateways, simulations, hostile input, mutants
	@$(PY) -m tests.run rest

test-all: dev ## Run everything that make test and make test-rest run, in one go
	@$(PY) -m tests.run all

search: dev ## Let Hypothesis draw new examples for the property tests (make test uses the same ones every time)
	@$(PY) -m pytest -n auto --dist worksteal -m hypothesis --hypothesis-profile search

bench: dev ## Measure speed, alone and beside other queues; figures go to var/bench.jsonl (docs/performance.md)
	@$(PY) -m benchmarks.accounts --accounts 1000 3000 6000 --drivers 2 --json var/bench.jsonl
	@$(PY) -m benchmarks.firing --json var/bench.jsonl
	@$(PY) -m benchmarks.overhead --json var/bench.jsonl
	@$(PY) -m benchmarks.overhead --drivers 2 --json var/bench.jsonl
	@$(PY) -m benchmarks.growth --json var/bench.jsonl
	@$(PY) -m benchmarks.reaction --json var/bench.jsonl
	@$(PY) -m benchmarks.recovery --json var/bench.jsonl
	@$(PY) -m benchmarks.numbers --json var/bench.jsonl
	@$(PY) -m benchmarks.machines --json var/bench.jsonl
	@$(PY) -m benchmarks.smtp_fanout --json var/bench.jsonl
	@$(PY) -m benchmarks.smtp_fanout --accounts 4 --connections 40 --json var/bench.jsonl
	@$(PY) -m benchmarks.api --json var/bench.jsonl || true
	@$(PY) -m benchmarks.api --messages --json var/bench.jsonl || true
	@$(PY) -m benchmarks.peers --json var/bench.jsonl

mutants: dev ## Change the code in small wrong ways and list what no test notices; COUNT=60 SEED=1 ONLY=fanout/engine
	@$(PY) -m tests.mutants --count $(or $(COUNT),60) --seed $(or $(SEED),1) $(if $(ONLY),--only $(ONLY))

lint: dev ## Run ruff, import-linter, mypy, and the checks of docstrings and pins
	@echo "== ruff" && $(PY) -m ruff check . && $(PY) -m ruff format --check .
	@echo "== imports" && $(VENV)/bin/lint-imports --no-logo
	@echo "== plain English" && $(PY) .ci/structure.py --check
	@echo "== pins" && $(PY) .ci/pins.py
	@echo "== mypy" && $(PY) -m mypy .

format: dev ## Format with ruff
	@$(PY) -m ruff check --fix . && $(PY) -m ruff format .

lock: dev ## Refresh the lock files from pyproject.toml
	@echo "Resolving requirements.lock …" && $(PIP_COMPILE) --upgrade -o requirements.lock pyproject.toml
	@echo "Resolving requirements-dev.lock …" && \
		$(PIP_COMPILE) --upgrade --extra dev -c requirements.lock -o requirements-dev.lock pyproject.toml
	@echo "Resolving requirements-whatsapp.lock …" && \
		$(PIP_COMPILE) --upgrade --extra whatsapp -c requirements-dev.lock -o requirements-whatsapp.lock pyproject.toml

advisories: ## List pinned packages with known advisories (asks osv.dev)
	@$(PYTHON) .ci/advisories.py requirements.lock requirements-dev.lock requirements-whatsapp.lock

images: ## Pin the images of deploy/ by their digests, for a release (asks the registries through docker)
	@$(PYTHON) .ci/pins.py --pin

whatsapp: runtime ## Install what paired WhatsApp numbers need besides (neonize)
	@cmp -s requirements-whatsapp.lock $(WHATSAPP_STAMP) || { \
		$(call install,requirements-whatsapp.lock) && cp requirements-whatsapp.lock $(WHATSAPP_STAMP); }

screenshots: dev ## Update the screenshots in docs/img (needs chromium-headless-shell or chromium)
	@$(PY) -m tests.browser.screenshots
	@$(PY) -m tests.browser.guide

shell: runtime ## Open a Python shell with the models imported
	@$(PY) manage.py shell

clean: ## Remove the environment and caches; the data in var/ is kept
	rm -rf $(VENV) var/static .mypy_cache .ruff_cache .import_linter_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

runtime: $(PY)
	@cmp -s requirements.lock $(RUNTIME_STAMP) || { \
		$(call install,requirements.lock) && cp requirements.lock $(RUNTIME_STAMP); }

dev: $(PY)
	@cmp -s requirements-dev.lock $(DEV_STAMP) || { \
		$(call install,requirements-dev.lock) && \
		cp requirements-dev.lock $(DEV_STAMP) && cp requirements.lock $(RUNTIME_STAMP); }

# --clear: replaces an environment whose Python no longer works.
$(PY):
	@command -v $(PYTHON) >/dev/null || { \
		echo "Crier needs Python 3.11 or newer: '$(PYTHON)' was not found. Set PYTHON=/path/to/python." >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "Crier needs Python 3.11 or newer, and '$(PYTHON)' is older. Set PYTHON=/path/to/python." >&2; exit 1; }
	@echo "Creating the Python environment in $(VENV) …"
	@$(PYTHON) -m venv --clear $(VENV) || { rm -rf $(VENV); \
		echo "Python's venv module does not work here (on Debian: apt install python3-venv)." >&2; exit 1; }
