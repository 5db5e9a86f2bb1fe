# make demo and make test need nothing but python3 >= 3.11 on PATH: they install what they need into .venv first.
# PYTHON=/path/to/python uses an environment of yours instead, as it is.

VENV ?= .venv
TORCH ?= torch==2.13.0
RUN ?= runs/demo
WORKERS ?= 2
RESUME = $(if $(wildcard $(RUN)/config.json),--resume)

ifeq ($(origin PYTHON),undefined)
PYTHON := $(VENV)/bin/python
READY := $(VENV)/installed
endif

.DEFAULT_GOAL := help
.PHONY: help install demo test slow check format docs validation bench coverage clean

help: ## list the targets
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

install: $(READY) ## make .venv with Musher and everything that its tests need

# torch by itself and first, so that no other package picks a build of it.
$(VENV)/installed: pyproject.toml setup.py
	test -x $(VENV)/bin/python || python3 -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet --upgrade pip
	$(VENV)/bin/python -m pip install --quiet "$(TORCH)"
	$(VENV)/bin/python -m pip install --quiet --editable ".[dev]"
	touch $@

demo: $(READY) ## train a scheduler for a few minutes, then compare it with published ones
	$(PYTHON) train.py --scenario rigid --trace synthetic-philly --algo maskable-ppo --steps 20000 --seed 0 --out $(RUN) $(RESUME)
	$(PYTHON) evaluate.py --policies fifo sjf srtf tiresias $(RUN) --scenario rigid --trace synthetic-philly \
		--windows 5 --split test --out $(RUN)/evaluation

test: $(READY) ## all tests but the slow ones
	$(PYTHON) -m pytest --numprocesses $(WORKERS) --dist loadfile

slow: $(READY) ## the tests that take minutes each
	$(PYTHON) -m pytest -m slow

check: $(READY) ## formatting, lint, types, spelling and freshness of the docs
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m ruff check .
	$(PYTHON) -m mypy
	$(PYTHON) -m codespell_lib
	$(PYTHON) -m docs.generate --check

format: $(READY) ## put every file into its standard form
	$(PYTHON) -m ruff format .
	$(PYTHON) -m ruff check --fix .

docs: $(READY) ## write the tables in README.md and docs/ again from the code
	$(PYTHON) -m docs.generate

validation: $(READY) ## compare with published simulators (an hour; goes on where it was interrupted): docs/validation.md
	$(PYTHON) -m docs.validation

bench: $(READY) ## print speed tables of the environment and of whole traces
	$(PYTHON) -m benchmarks.env_speed
	$(PYTHON) -m benchmarks.replay_speed

coverage: $(READY) ## tests with line coverage (compiled functions do not show)
	$(PYTHON) -m coverage run -m pytest
	$(PYTHON) -m coverage report

clean: ## remove builds and caches; keeps .venv and runs
	rm -rf build dist *.egg-info .cache .coverage .hypothesis .mypy_cache .pytest_cache .ruff_cache
