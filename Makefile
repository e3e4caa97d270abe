# The verbs. Each calls the tools; what they need is installed on first use into .venv, and again when a lock changes.
#
#   make up [ARGS="--port 8051 --data-dir DIR"]     everything on this machine, then open http://127.0.0.1:8050
#   make test                                       checks, then every test but the long ones
#   make test-quick                                 what needs no PostgreSQL, browser or JVM and is short: for each change
#   make test AREA=runtime                          the tests of one area, of every kind (tests/areas.py)
#   make test-long                                  those: more seeds, longer runs; a minute or two
#   make check                                      format, lint, types, import floors, declared dependencies, prose
#   make bench                                      ratios to a peer or a floor measured in the same run
#   make sim JOB=backpressured [ARGS="--seed 7"]    the reference runtime as fast as it goes
#   make sim SEEDS=10000 [ARGS="--protocol aligned"] so many runs of it under induced faults, every invariant checked
#   make experiments [SEEDS=20]                     the FLIP-76 test plan: times, throughput, progress under failures, cost
#   make rescale-matrix [SEEDS=1]                   every change of parallelism x partitioner x kind of checkpoint
#   make soak [RECORDS=1000000]                     a long run of it under faults, its memory bounded
#   make model-check                                every interleaving of a small job, over the real input handlers
#   make wheel-test                                 the quick tests against the installed wheel, from another folder
#   make test-flink [SEQUENCES=100000]              the protocols against Flink's own code (fetches its jars; needs javac)
#   make fidelity [RECORDINGS=FOLDER]               the runtime beside a running Flink and the plain formulas (docs/fidelity.md)
#   make screenshots [ARGS="fleet job"]             the pictures of README and docs anew, from a running product (3 min)
#   make try-dockerfile [ARGS="--base FOLDER"]      the Dockerfile's lines in an empty root folder, as root, no engine

.DEFAULT_GOAL := help
.PHONY: help up test test-quick test-long test-flink check bench fidelity sim experiments rescale-matrix soak model-check screenshots wheel wheel-test try-dockerfile install install-spark install-dev
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input
# What is used is compiled when it is first used: compiling all of it takes as long as installing it.
INSTALL := $(PIP) install --no-compile
# Without bytecode files each process compiles all that it imports, which takes longer than most tests.
unexport PYTHONDONTWRITEBYTECODE
ARGS ?=
JOB ?= backpressured
WHEEL_DIR := build/wheel

help:
	@sed -n 's/^#  //p' Makefile

up: install-spark
	@exec $(BIN)/barrierscope up $(ARGS)

ifdef SEEDS
sim: install-dev
	@exec $(BIN)/python -m tests.simulators.storms --seeds $(SEEDS) $(ARGS)
else
sim: install
	@exec $(BIN)/barrierscope simulate $(JOB) $(ARGS)
endif

experiments: install-dev
	@exec $(BIN)/python -m tests.simulators.experiments --seeds $(or $(SEEDS),20) $(ARGS)

rescale-matrix: install-dev
	RESCALE_SEEDS=$(or $(SEEDS),1) $(BIN)/python -m pytest -ra -n 2 tests/simulation/test_rescaling.py \
		-k another_parallelism $(ARGS)

RECORDS ?= 1000000

soak: install-dev
	@exec $(BIN)/python -m tests.simulators.soak --records $(RECORDS) $(ARGS)

check: install-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/deptry --no-ansi backend collectors dashboard migrations
	$(BIN)/deptry --no-ansi --ignore DEP002,DEP004 tests benchmarks
	$(BIN)/python -m tests.prose

# tests/conftest.py decides which tests stay together in one of the processes.
PYTEST := $(BIN)/python -m pytest -ra --dist loadfile --no-loadscope-reorder

ifdef AREA
test: install-dev
	@files=$$($(BIN)/python -m tests.areas $(AREA)) || exit 2; \
		exec $(PYTEST) -m "not slow" -n 2 $$files $(ARGS)
else
test: check
	$(PYTEST) -m "not slow" -n 3 $(ARGS)
endif

test-quick: install-dev
	$(BIN)/ruff check .
	@exec $(PYTEST) -q -m "not slow and not browser" -n 2 $$($(BIN)/python -m tests.areas quick) $(ARGS)

test-long: install-dev
	$(BIN)/python -m pytest -ra -m slow -n 2 $(ARGS)

FLINK_JARS := build/flink
SEQUENCES ?= 100000

test-flink: install-dev
	$(BIN)/python -m tests.simulators.flink_code $(FLINK_JARS)
	BARRIERSCOPE_FLINK_JARS=$(FLINK_JARS) BARRIERSCOPE_FLINK_SEQUENCES=$(SEQUENCES) \
		$(BIN)/python -m pytest -ra -m flink tests/conformance $(ARGS)

bench: install-dev
	@for case in benchmarks/*_bench.py; do echo "== $$case"; PYTHONPATH=. $(BIN)/python "$$case" $(ARGS) || exit 1; done

fidelity: install-dev
	@exec $(BIN)/python benchmarks/fidelity_bench.py $(if $(RECORDINGS),--recordings $(RECORDINGS)) $(ARGS)

model-check: install-dev
	@exec $(BIN)/python -m tests.simulators.model_check $(ARGS)

screenshots: install-dev
	@exec $(BIN)/python -m tests.simulators.screenshots $(ARGS)

wheel: install-dev
	@rm -rf $(WHEEL_DIR)
	$(PIP) wheel --quiet --no-deps --no-build-isolation --no-index --wheel-dir $(WHEEL_DIR) .

# What the editable install hides: modules missing from the wheel, files found only in a checkout.
wheel-test: wheel
	$(BIN)/python -m tests.packaging.run_against_wheel $(WHEEL_DIR)

try-dockerfile: install-dev
	$(BIN)/python -m tests.packaging.try_dockerfile $(ARGS)

install: $(VENV)/.installed
install-spark: $(VENV)/.installed-spark
install-dev: $(VENV)/.installed-dev

# The first Python that will do: the one called python3 if it is in range, else the newest in range by name.
$(VENV)/.created:
	@for python in $(PYTHON) python3 python3.13 python3.12 python3.11; do \
		command -v "$$python" >/dev/null 2>&1 || continue; \
		"$$python" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' || continue; \
		"$$python" -c 'import venv, ensurepip' 2>/dev/null || { \
			echo "make: $$python has no venv; on Debian or Ubuntu: apt-get install python3-venv" >&2; exit 1; }; \
		echo "creating $(VENV) with $$($$python --version)"; \
		"$$python" -m venv $(VENV) && touch $@ && exit 0; exit 1; \
	done; echo "make: Python 3.11 to 3.13 is needed, and none is on the path; say which with PYTHON=/path/to/python3.12" >&2; exit 1

$(VENV)/.installed: $(VENV)/.created requirements.txt pyproject.toml
	@echo "installing what Barrierscope needs into $(VENV) (once; a minute or two)"
	@$(INSTALL) --require-hashes -r requirements.txt
	@$(INSTALL) --quiet --no-deps --no-build-isolation --no-index -e .
	@touch $@

# PySpark comes as source only; it is built with the setuptools that is locked and installed already.
$(VENV)/.installed-spark: $(VENV)/.installed requirements-spark.txt
	@echo "installing Spark and a Java runtime into $(VENV) (once; a minute or two)"
	@$(INSTALL) --no-build-isolation --require-hashes -r requirements-spark.txt
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed-spark requirements-dev.txt
	@echo "installing what the tests need into $(VENV) (once)"
	@$(INSTALL) --require-hashes -r requirements-dev.txt
	@touch $@
