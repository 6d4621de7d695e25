# Two commands from a bare machine (Python 3.10+ and make): `make train` and `make test`.
PYTHON ?= python3
VENV := .venv
INSTALLED := $(VENV)/.installed
QUICKSTART := configs/recommender/quickstart.yaml
# On small models a second thread costs more than it brings, and far more where others use the cores too.
ONE_THREAD := OMP_NUM_THREADS=1
# Hundreds of processes are started: compiled once, the sources cost each of them a second less.
PYTEST = PYTHONDONTWRITEBYTECODE= $(ONE_THREAD) $(VENV)/bin/python -m pytest
# Processes that wait for each other leave the cores idle: three files at a time, in the order of tests/conftest.py.
SEVERAL = --numprocesses 3 --dist loadfile --no-loadscope-reorder

.DEFAULT_GOAL := help
.PHONY: help install train test lint bench clean

help: ## what there is
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

install: $(INSTALLED) ## make .venv and install what the project needs, once

$(INSTALLED): setup.cfg pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	  { echo "Lockstep needs Python 3.10 or newer; $(PYTHON) is $$($(PYTHON) -V 2>&1). Use: make PYTHON=python3.11 ..."; exit 1; }
	@test -x $(VENV)/bin/pip || $(PYTHON) -m venv $(VENV) || \
	  { rm -rf $(VENV); echo "could not make a virtual environment (on Debian and Ubuntu: apt-get install python3-venv)"; exit 1; }
	$(VENV)/bin/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $@

train: $(INSTALLED) ## train the quickstart and test it (embedded data, under 3 minutes on 2 cores)
	$(ONE_THREAD) $(VENV)/bin/python train.py fit --config $(QUICKSTART)
	$(ONE_THREAD) $(VENV)/bin/python train.py test --config $(QUICKSTART)

test: $(INSTALLED) ## run all tests: those of one process side by side, then those that start several
	@sh tests/system_packages.sh
	@status=0; \
	$(PYTEST) -m "not distributed" --numprocesses auto --maxprocesses 4 --dist worksteal || status=1; \
	$(PYTEST) -m distributed $(SEVERAL) || status=1; \
	exit $$status

lint: $(INSTALLED) ## style
	$(VENV)/bin/python -m flake8

bench: $(INSTALLED) ## the benchmarks that take minutes: `python -m benchmarks` lists them, and those that take longer
	$(ONE_THREAD) $(VENV)/bin/python -m benchmarks all

clean: ## remove the environment and caches; runs/ and data/ stay
	rm -rf $(VENV) *.egg-info build .pytest_cache .hypothesis .benchmarks
