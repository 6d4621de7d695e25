# Two commands from a bare machine (Python 3.10+ and make): `make train` and `make test`.
PYTHON ?= python3
VENV := .venv
# Stamps: what the quickstart needs is installed; so is what tests, linters and benchmarks need.
INSTALLED := $(VENV)/.installed
DEVELOPMENT := $(VENV)/.installed-dev
QUICKSTART := configs/recommender/quickstart.yaml
# On small models a second thread costs more than it brings, and far more where others use the cores too.
ONE_THREAD := OMP_NUM_THREADS=1
# Hundreds of processes are started: compiled once, the sources cost each of them a second less.
PYTEST = PYTHONDONTWRITEBYTECODE= $(ONE_THREAD) $(VENV)/bin/python -m pytest
# Processes that wait for each other leave the cores idle, so there are more workers than cores: one more in the fast
# tier, two in the slow one, which waits more. A worker takes a file at a time, in the order of tests/tiers.py, so that
# what a file's cases share is made once.
CORES := $(shell getconf _NPROCESSORS_ONLN)
WORKERS ?= $(shell echo $$(( $(CORES) < 4 ? $(CORES) + 1 : 4 )))
SLOW_WORKERS ?= $(shell echo $$(( $(CORES) < 4 ? $(CORES) + 2 : 5 )))
BY_FILE = --dist loadfile --no-loadscope-reorder --numprocesses

# Tests of a GPU: the Python of .venv if it exists, else of the machine; GPU_REPORT gets the results.
GPU_PYTHON ?= $(firstword $(wildcard $(VENV)/bin/python) $(PYTHON))
GPU_REPORT ?= build/gpu
GPU_MINUTES ?= 9
BENCHMARK_MINUTES ?= 8

# The oldest torch that setup.cfg accepts, in an environment of its own.
OLDEST_VENV := .venv-oldest
OLDEST_TORCH := $(shell sed -n 's/^ *torch>=\([0-9.]*\),.*/\1/p' setup.cfg)

# Another seed gives `make fuzz` other inputs: make fuzz SEED=7
SEED ?= 1

.DEFAULT_GOAL := help
.PHONY: help install train test test-slow test-gpu test-oldest lint soak fuzz bench screenshots clean

help: ## what there is
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

install: $(DEVELOPMENT) ## make .venv with all extras and what tests, linters and benchmarks need, once

$(INSTALLED): setup.cfg pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	  { echo "Lockstep needs Python 3.10 or newer; $(PYTHON) is $$($(PYTHON) -V 2>&1). Use: make PYTHON=python3.11 ..."; exit 1; }
	@test -x $(VENV)/bin/pip || $(PYTHON) -m venv $(VENV) || \
	  { rm -rf $(VENV); echo "could not make a virtual environment (on Debian and Ubuntu: apt-get install python3-venv)"; exit 1; }
	@sh .ci/install $(VENV) .
	@touch $@

$(DEVELOPMENT): $(INSTALLED)
	@sh .ci/install $(VENV) '.[dev]'
	@touch $@

train: $(INSTALLED) ## train the quickstart and test it (embedded data, under 3 minutes on 2 cores)
	$(ONE_THREAD) $(VENV)/bin/python train.py fit --config $(QUICKSTART)
	$(ONE_THREAD) $(VENV)/bin/python train.py test --config $(QUICKSTART)

test: $(DEVELOPMENT) ## run the fast tier of the tests (about 8 minutes on 2 idle cores)
	@sh tests/system_packages.sh
	$(PYTEST) -m "not slow" $(BY_FILE) $(WORKERS)

test-slow: $(DEVELOPMENT) ## run the other tests (about 25 minutes on 2 cores)
	@sh tests/system_packages.sh
	$(PYTEST) -m slow $(BY_FILE) $(SLOW_WORKERS)

test-gpu: ## run the tests of one GPU, then its benchmark (9 and 8 minutes); results in build/gpu
	@$(GPU_PYTHON) -m tests.support.device.gpu_requirements
	@mkdir -p $(GPU_REPORT)
	@status=0; \
	GPU_MINUTES=$(GPU_MINUTES) GPU_REPORT=$(GPU_REPORT) $(ONE_THREAD) \
	  $(GPU_PYTHON) -m pytest -m gpu tests/gpu --junitxml $(GPU_REPORT)/tests.xml || status=1; \
	test $(BENCHMARK_MINUTES) = 0 || $(GPU_PYTHON) -m benchmarks gpu --minutes $(BENCHMARK_MINUTES) \
	  --json $(GPU_REPORT)/benchmark.json --junit $(GPU_REPORT)/benchmark.xml || status=1; \
	exit $$status

test-oldest: ## run the fast tests of engine, callbacks, families and ranks with the oldest torch of setup.cfg
	@test -x $(OLDEST_VENV)/bin/pip || $(PYTHON) -m venv $(OLDEST_VENV)
	@grep -vE '^(torch|triton)==' constraints.txt > $(OLDEST_VENV)/constraints.txt
	@$(OLDEST_VENV)/bin/pip install --quiet --constraint $(OLDEST_VENV)/constraints.txt 'torch==$(OLDEST_TORCH).*' --editable '.[dev]'
	$(PYTEST:$(VENV)/%=$(OLDEST_VENV)/%) -m "not slow" $(BY_FILE) $(WORKERS) \
	  tests/engine tests/callbacks tests/lightning_modules tests/distributed/exactness

fuzz: $(DEVELOPMENT) ## feed 10,000 mutated inputs to each reader of user input (an hour); .fuzz/ has those that fail
	$(ONE_THREAD) $(VENV)/bin/python -m tests.fuzz --inputs 10000 --seed $(SEED)

lint: $(DEVELOPMENT) ## style, format and types; a finding of one does not hide those of the others
	@status=0; \
	$(VENV)/bin/ruff check --quiet . || status=1; \
	$(VENV)/bin/ruff format --check --quiet . || status=1; \
	$(VENV)/bin/mypy || status=1; \
	exit $$status

soak: $(DEVELOPMENT) ## 200 random kills of trainings of all families, each compared with an undisturbed run (about three hours)
	$(ONE_THREAD) $(VENV)/bin/python -m tests.soak --kills 200

bench: $(DEVELOPMENT) ## the benchmarks that take minutes: `python -m benchmarks` lists them, and those that take longer
	$(ONE_THREAD) $(VENV)/bin/python -m benchmarks all

screenshots: $(DEVELOPMENT) ## take the pictures of docs/pictures anew: the quickstart of each family, half an hour
	$(ONE_THREAD) $(VENV)/bin/python -m tests.screenshots

clean: ## remove the environment and caches; runs/ and data/ stay
	rm -rf $(VENV) $(OLDEST_VENV) *.egg-info build dist .pytest_cache .ruff_cache .mypy_cache .hypothesis .benchmarks .fuzz
