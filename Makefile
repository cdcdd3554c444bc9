# `make demo` and `make test` need Python 3.11 or later and nothing else.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

# Two for each core: a test waits as much as it works.
WORKERS := $(shell expr 2 \* $$(getconf _NPROCESSORS_ONLN))
PYTEST := $(BIN)/pytest --numprocesses $(WORKERS) --maxprocesses 8 --dist worksteal
# A test that fails beside the others runs once more by itself. If it passes then, the last lines name it as FLAKY.
ALONE := $(BIN)/pytest --last-failed --last-failed-no-failures none --again

ORDINARY := not slow and not n8n and not browser
QUICK := "$(ORDINARY) and not thorough"
MORE := "$(ORDINARY) and thorough"

.DEFAULT_GOAL := help
.PHONY: help python demo test check unit test-more test-slow test-workers test-n8n test-browser test-lowest test-chaos test-mutants bench lock clean

help: ## this list
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 12

demo: $(VENV)/.runtime ## the whole job on this machine against the sandbox
	@$(BIN)/tidings demo

test: check unit ## every check and every quick test

check: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

unit: $(VENV)/.test
	$(PYTEST) -m $(QUICK) || $(ALONE) -m $(QUICK)

test-more: $(VENV)/.test ## the thorough tests: each takes a second or more (6 minutes)
	$(PYTEST) -m $(MORE) || $(ALONE) -m $(MORE)

test-slow: $(VENV)/.test ## served and killed processes, full disks, drills, the mirror's faults (several minutes)
	$(PYTEST) -m slow || $(ALONE) -m slow

test-workers: $(VENV)/.test ## several machines on one PostgreSQL: workers killed and frozen, the database restarted (5 minutes)
	$(BIN)/pytest -m slow tests/test_workers.py tests/test_workers_chaos.py

test-n8n: $(VENV)/.test ## the shipped workflows in a real n8n, which is installed outside the repository first (once)
	$(BIN)/python -m tests.n8n.install
	$(BIN)/pytest -m n8n tests/n8n

test-browser: $(VENV)/.test ## the dashboard in a real Chromium, which is installed first if there is none (3 minutes)
	$(BIN)/python -m tests.browser.install
	$(BIN)/pytest -m browser tests/browser || $(ALONE) -m browser tests/browser

LOWEST := $(VENV)/lowest
test-lowest: ## the oldest libraries that pyproject.toml allows: demo, service, a page, a feed (needs uv; 2 minutes)
	uv venv --quiet --clear --python $(PYTHON) $(LOWEST)
	uv pip install --quiet --python $(LOWEST)/bin/python --resolution lowest-direct -e .
	$(LOWEST)/bin/python -m scripts.smoke

# docs/reliability.md says what each of them proves.
CHAOS := \
	tests/test_two_hundred_kills.py tests/test_bing_processes.py tests/test_workers_chaos.py \
	tests/collect/test_collect_chaos.py tests/collect/test_cookie_processes.py \
	tests/test_serving_outages.py tests/web/test_database_away.py tests/collect/test_feishu_outage.py \
	tests/announce/test_odd_clocks.py tests/announce/test_daily.py tests/announce/test_schedule.py \
	tests/announce/test_pipeline_engines.py tests/announce/test_pipeline_answers.py \
	tests/announce/test_pipeline_crawl.py tests/collect/test_outages.py tests/test_hostile_serving.py \
	tests/announce/test_announce_machine.py tests/collect/test_collect_machine.py tests/core/test_direct_statement.py
test-chaos: $(VENV)/.test ## kills, frozen processes, full disks, lost databases, odd clocks, bad networks (30 minutes at most)
	timeout --foreground 30m $(BIN)/pytest --numprocesses 3 --dist worksteal $(CHAOS)

# `make test-mutants MUTANTS="core/executions core/secrets/tokens"`: only these modules. scripts/mutants.py has the list.
MUTANTS ?=
test-mutants: $(VENV)/.mutants ## change the code that must not fail, one expression at a time: tests must notice (an hour)
	nice -n 15 $(BIN)/python -m scripts.mutants $(MUTANTS)

bench: $(VENV)/.bench $(VENV)/.test ## measure speed and memory (an hour)
	$(BIN)/python -m benchmarks.sitemap
	$(BIN)/python -m benchmarks.sitemap --only readers --variant entities
	$(BIN)/python -m benchmarks.sitemap --only readers --variant images
	$(BIN)/python -m benchmarks.start
	$(BIN)/python -m benchmarks.engines
	$(BIN)/python -m benchmarks.bing
	$(BIN)/python -m benchmarks.channels
	$(BIN)/python -m benchmarks.service
	$(BIN)/python -m benchmarks.crawl
	$(BIN)/python -m benchmarks.isolation
	$(BIN)/python -m benchmarks.leases
	$(BIN)/python -m benchmarks.archive
	$(BIN)/python -m benchmarks.machines
	$(BIN)/python -m benchmarks.fleet
	$(BIN)/python -m benchmarks.scaling
	$(BIN)/python -m benchmarks.dashboard
	$(BIN)/python -m benchmarks.soak

# Each stamp stands for what is installed; it is older than the lock file after a change, and make installs again.
# An environment of another, older or half-made Python is made anew.
NEW_ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))
python:
	@$(BIN)/python -c 'import pip; $(NEW_ENOUGH)' 2> /dev/null && exit; \
	if ! $(PYTHON) -c '$(NEW_ENOUGH)' 2> /dev/null; then \
		found=$$($(PYTHON) -V 2>&1) && found="is $$found" || found="cannot be run"; \
		echo "Tidings needs Python 3.11 or later, and $(PYTHON) $$found." >&2; \
		echo "Name another: make $(MAKECMDGOALS) PYTHON=python3.12" >&2; exit 1; \
	fi; \
	installed=$$(ls $(VENV)/.runtime 2> /dev/null); rm -rf $(VENV); \
	$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }; \
	[ -z "$$installed" ] || $(MAKE) --no-print-directory $(VENV)/.runtime

$(VENV)/.runtime: requirements/build.txt requirements/runtime.txt pyproject.toml | python
	@echo "Installing Tidings into $(VENV) ..."
	@$(PIP) install --no-deps --require-hashes -r requirements/build.txt -r requirements/runtime.txt
	@$(PIP) install --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/.test: requirements/test.txt $(VENV)/.runtime
	@$(PIP) install --no-deps --require-hashes -r requirements/test.txt
	@touch $@

$(VENV)/.bench: requirements/bench.txt $(VENV)/.runtime
	@$(PIP) install --no-deps --require-hashes -r requirements/bench.txt
	@touch $@

$(VENV)/.mutants: requirements/mutants.txt $(VENV)/.test
	@$(PIP) install --no-deps --require-hashes -r requirements/mutants.txt
	@touch $@

UV := uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header
lock: ## write the lock files again (needs uv)
	$(UV) requirements/build.in -o requirements/build.txt
	$(UV) pyproject.toml -c requirements/together.in -o requirements/runtime.txt
	$(UV) pyproject.toml --extra xiaohongshu -c requirements/runtime.txt -o requirements/xiaohongshu.txt
	$(UV) pyproject.toml --group test -c requirements/runtime.txt -o requirements/test.txt
	$(UV) pyproject.toml --group bench -c requirements/runtime.txt -o requirements/bench.txt
	$(UV) pyproject.toml --group mutants -c requirements/test.txt -o requirements/mutants.txt

clean: ## remove the environment and caches; your data stays
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
