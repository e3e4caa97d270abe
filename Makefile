# The verbs of this repository. A verb installs what it needs into .venv on first use and after a lock file changed.
#
#   make up [ARGS="--port 8051 --data-dir DIR"]     run everything on this machine; then open http://127.0.0.1:8050
#   make test                                       the checks, and beside them all tests but the long ones
#   make test-quick                                 short tests without PostgreSQL, browser or JVM, for each change
#   make test AREA=runtime                          all tests of one area (tests/areas.py)
#   make test-long                                  the long tests: more seeds, longer runs; about 25 minutes on two cores
#   make check                                      format, lint, types, import floors, declared dependencies, prose
#   make bench                                      benchmarks: ratios to a peer or a floor in the same run
#   make sim JOB=backpressured [ARGS="--seed 7"]    run a job on the reference runtime, as fast as possible
#   make sim SEEDS=10000 [ARGS="--protocol aligned"] many runs with induced faults; checks every invariant
#   make experiments [NAME=flip-76] [SEEDS=20]      an experiment on the runtime; `barrierscope experiment --list` names them
#   make rescale-matrix [SEEDS=1]                   all changes of parallelism x partitioners x kinds of checkpoint
#   make soak [RECORDS=1000000]                     a long run of the runtime with faults and bounded memory
#   make model-check                                all interleavings of a small job, with the real input handlers
#   make culprits [ARGS="--seeds 10"]               jobs with drawn causes: does the verdict name them? a table of confusions
#   make mutants [ARGS="--only task --count 50"]    change the product at drawn places: do the tests notice? each is printed
#   make early-warning [ARGS="--seeds 6"]           the early warning of timeouts on drawn jobs: lead, recall, false pages, coverage
#   make eval [ARGS="--jobs 200"]                   regret of advisor and twin on drawn jobs, beside an exhaustive grid
#   make wheel-test                                 the quick tests against the installed wheel, from another folder
#   make test-flink [SEQUENCES=100000]              the protocols against Flink's own code (fetches its jars; needs javac)
#   make flink-options [FLINK="1.20 2.3"]           the table of Flink's options, from the jars of each version (needs javac)
#   make test-versions [FLINK="1.15 2.2"]           real Flink clusters from 1.13 to 2.3 with SQL and other jobs; needs a JDK
#   make test-flink-tls                             a real Flink 2.3 that requires a client certificate; needs a JDK
#   make test-spark-versions [SPARK="3.5 4.1"]      real queries on Spark 3.4 to 4.3: both listeners, value by value
#   make test-spark-channels [SPARK="3.5 4.3"]      the same queries through listeners, event logs, driver and folders
#   make spark-jar                                  build the jar of the Spark listener again, the same bytes (needs javac)
#   make twin [ARGS="--only TEXT"]                  the twin's predictions compared with changed runs on Flink and on the runtime
#   make recovery-fit DATA="FILE ..."               the formula of recovery times, fitted to published recoveries
#   make fidelity [RECORDINGS=FOLDER]               the runtime compared with Flink and with plain formulas (docs/evidence/runtime-against-flink.md)
#   make compare-pictures                           compare every page with its kept picture, on a quiet machine
#   make plotly-bundle                              build the part of plotly.js that the charts use, with npm
#   make driver-bundle                              fetch driver.js, with which the tour shows its steps, with npm
#   make regenerator-bundle                         fetch the part of the scripts for old browsers that Dash needs, with npm
#   make screenshots [ARGS="fleet job"]             take the screenshots of README and docs again (3 min)
#   make protocol-pictures [ARGS="timeout"]         take the diagrams of docs/protocols.md again
#   make pictures [ARGS="fleet job"]                take the pictures again with which a test compares every page
#   make release [ARGS=--trial]                     wheel, sdist, chart, SBOM, notes and checksums of a tagged commit, in build/release
#   make try-dockerfile [ARGS="--base FOLDER"]      run the Dockerfile's lines without a container engine, as root

.DEFAULT_GOAL := help
.PHONY: help up test checked tested compiled test-quick test-long test-flink flink-options test-versions test-flink-tls test-spark-versions test-spark-channels spark-jar check bench fidelity twin recovery-fit sim experiments rescale-matrix soak model-check screenshots protocol-pictures pictures compare-pictures plotly-bundle driver-bundle regenerator-bundle wheel wheel-test release try-dockerfile install install-spark install-dev culprits mutants early-warning eval
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input
# Python compiles modules at their first use. Compiling all of them takes as long as installing them.
INSTALL := $(PIP) install --no-compile
# Without bytecode files, each process compiles everything it imports, which takes longer than most tests.
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
	@exec $(BIN)/barrierscope experiment $(or $(NAME),flip-76) --seeds $(or $(SEEDS),20) \
		--out build/experiments/$(or $(NAME),flip-76) $(ARGS)

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
	$(BIN)/mypy benchmarks
	$(BIN)/lint-imports
	$(BIN)/deptry --no-ansi backend collectors dashboard migrations
	$(BIN)/deptry --no-ansi --ignore DEP002,DEP004 tests benchmarks
	$(BIN)/python -m tests.prose

# tests/conftest.py decides which tests run in the same process.
PYTEST := $(BIN)/python -m pytest -ra --durations=20 --dist loadfile --no-loadscope-reorder

ifdef AREA
test: install-dev
	@files=$$($(BIN)/python -m tests.areas $(AREA)) || exit 2; \
		exec $(PYTEST) -m "not slow" -n 2 $$files $(ARGS)
else
# The tests often wait, and the checks use that time. What the checks say is printed when they end, and again after the
# tests if they failed. If they fail before the tests start, the tests do not start.
CHECKED := build/check.txt
test: install-dev
	@mkdir -p build && rm -f $(CHECKED)
	@$(MAKE) -j 2 checked tested || { test ! -f $(CHECKED) || cat $(CHECKED); exit 1; }

checked:
	@if $(MAKE) check >$(CHECKED) 2>&1; then rm $(CHECKED); echo "make check: passed"; \
		else cat $(CHECKED); echo "make check: failed"; exit 1; fi

# Each process of the tests needs the bytecode. If they started at once, all of them would compile it.
tested: compiled
	$(PYTEST) -m "not slow" -n 3 $(ARGS)
endif

# The collection compiles every test and every module that the tests import. The tests themselves report its errors. It
# takes as long as starting the tests, so it is left out if at most 50 modules changed since the last one.
COMPILED := build/compiled
compiled: install-dev
	@mkdir -p build && if [ ! -f $(COMPILED) ] || [ $(VENV)/.installed-dev -nt $(COMPILED) ] \
		|| [ $$(find backend collectors dashboard tests -name '*.py' -newer $(COMPILED) | wc -l) -gt 50 ]; then \
		$(BIN)/python -m pytest -qq --collect-only >/dev/null 2>&1 && touch $(COMPILED); fi

test-quick: install-dev
	$(BIN)/ruff check .
	@files=$$($(BIN)/python -m tests.areas quick) || exit 2; \
		exec $(PYTEST) -q -m "not slow and not browser" -n 2 $$files $(ARGS)

test-long: install-dev
	$(BIN)/python -m pytest -ra --durations=20 -m slow -n 2 $(ARGS)

FLINK_JARS := build/flink
SEQUENCES ?= 100000

test-flink: install-dev
	$(BIN)/python -m tests.simulators.flink_code $(FLINK_JARS)
	BARRIERSCOPE_FLINK_JARS=$(FLINK_JARS) BARRIERSCOPE_FLINK_SEQUENCES=$(SEQUENCES) \
		$(BIN)/python -m pytest -ra -m flink tests/conformance $(ARGS)

flink-options: install-dev
	$(BIN)/python -m tests.simulators.flink_options $(FLINK)

test-versions: install-dev
	@exec $(BIN)/python -m tests.simulators.versions $(FLINK) $(ARGS)

FLINK_VERSIONS := build/flink-versions

test-flink-tls: install-dev
	$(BIN)/python -m tests.simulators.versions.jars $(FLINK_VERSIONS) 2.3
	BARRIERSCOPE_FLINK_VERSIONS=$(FLINK_VERSIONS) \
		$(BIN)/python -m pytest -ra -m slow tests/conformance/test_running_flink_with_mutual_tls.py $(ARGS)

test-spark-versions: install-dev
	@exec $(BIN)/python -m tests.simulators.spark_versions $(SPARK) $(ARGS)

test-spark-channels: install-dev
	@exec $(BIN)/python -m tests.simulators.spark_channels $(SPARK) $(ARGS)

spark-jar: install-dev
	$(BIN)/python -m tests.simulators.spark_jar

bench: install-dev
	@for case in benchmarks/*_bench.py; do echo "== $$case"; PYTHONPATH=. $(BIN)/python "$$case" $(ARGS) || exit 1; done

fidelity: install-dev
	@exec $(BIN)/python benchmarks/fidelity_bench.py $(if $(RECORDINGS),--recordings $(RECORDINGS)) $(ARGS)

twin: install-dev
	@exec $(BIN)/python -m tests.simulators.twin_proof $(ARGS)

recovery-fit: install-dev
	@exec $(BIN)/python -m tests.simulators.recovery_fit $(DATA) $(ARGS)

model-check: install-dev
	@exec $(BIN)/python -m tests.simulators.model_check $(ARGS)

early-warning: install-dev
	@exec $(BIN)/python -m tests.simulators.early_warning $(ARGS)

eval: install-dev
	@exec $(BIN)/python -m tests.simulators.regret $(ARGS)

culprits: install-dev
	@exec $(BIN)/python -m tests.simulators.culprits $(ARGS)

mutants: $(VENV)/.installed-mutants
	@exec $(BIN)/python -m tests.simulators.mutants $(ARGS)

# Needs Node.js. The result is part of the repository, so this is needed only for another version or trace type.
PLOTLY := 4.1.1
DRIVER := 1.8.0
REGENERATOR := 0.13.11
plotly-bundle:
	@rm -rf build/plotly && mkdir -p build/plotly && cp dashboard/vendor/bundle.cjs build/plotly
	cd build/plotly && npm install --no-save --ignore-scripts --no-audit --no-fund plotly.js@$(PLOTLY) esbuild@0.28.1 \
		esbuild-plugin-environment@0.5.0 esbuild-plugin-glsl@1.4.2 esbuild-plugin-inline-css@0.0.1
	cd build/plotly && node bundle.cjs $(CURDIR)/dashboard/vendor/plotly-$(PLOTLY).min.js

driver-bundle:
	@rm -rf build/driver && mkdir -p build/driver
	cd build/driver && npm install --no-save --ignore-scripts --no-audit --no-fund driver.js@$(DRIVER)
	@for end in js css; do from=build/driver/node_modules/driver.js/dist/driver.$$end; \
		test $$end = css || from=build/driver/node_modules/driver.js/dist/driver.js.iife.js; \
		{ echo "/*! driver.js $(DRIVER)"; cat build/driver/node_modules/driver.js/license; echo "*/"; cat $$from; } \
			> dashboard/vendor/driver-$(DRIVER).$$end; done

regenerator-bundle:
	@rm -rf build/regenerator && mkdir -p build/regenerator
	cd build/regenerator && npm install --no-save --ignore-scripts --no-audit --no-fund regenerator-runtime@$(REGENERATOR)
	@cd build/regenerator/node_modules/regenerator-runtime && \
		{ echo "/*! regenerator-runtime $(REGENERATOR)"; cat LICENSE; echo "*/"; cat runtime.js; } \
			> $(CURDIR)/dashboard/vendor/regenerator-runtime-$(REGENERATOR).js

screenshots: install-dev
	@exec $(BIN)/python -m tests.simulators.screenshots $(ARGS)

protocol-pictures: install-dev
	@exec $(BIN)/python -m tests.simulators.protocol_pictures $(ARGS)

pictures: install-dev
	@exec $(BIN)/python -m tests.simulators.pictures $(ARGS)

compare-pictures: install-dev
	BARRIERSCOPE_COMPARE_PICTURES=1 $(BIN)/python -m pytest -ra tests/e2e/test_pictures.py $(ARGS)

wheel: install-dev
	@rm -rf $(WHEEL_DIR)
	$(PIP) wheel --quiet --no-deps --no-build-isolation --no-index --wheel-dir $(WHEEL_DIR) .

# Finds what the editable install hides: modules missing from the wheel, and files that only a checkout has.
wheel-test: wheel
	$(BIN)/python -m tests.packaging.run_against_wheel $(WHEEL_DIR)

# The tool that writes the SBOM has an environment of its own, so that nothing of it is locked with the product.
CYCLONEDX := build/cyclonedx-7.5.0
release: install-dev $(CYCLONEDX)/bin/cyclonedx-py
	@exec $(BIN)/python -m tests.packaging.make_release --cyclonedx $(CYCLONEDX)/bin/cyclonedx-py $(ARGS)

$(CYCLONEDX)/bin/cyclonedx-py:
	@$(BIN)/python -m venv $(CYCLONEDX)
	@$(CYCLONEDX)/bin/python -m pip --disable-pip-version-check install --quiet cyclonedx-bom==7.5.0

try-dockerfile: install-dev
	$(BIN)/python -m tests.packaging.try_dockerfile $(ARGS)

install: $(VENV)/.installed
install-spark: $(VENV)/.installed-spark
install-dev: $(VENV)/.installed-dev

# Uses the first suitable Python: PYTHON, then python3, then python3.13, python3.12 and python3.11.
$(VENV)/.created:
	@for python in $(PYTHON) python3 python3.13 python3.12 python3.11; do \
		command -v "$$python" >/dev/null 2>&1 || continue; \
		"$$python" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' || continue; \
		"$$python" -c 'import venv, ensurepip' 2>/dev/null || { \
			echo "make: $$python has no venv; on Debian or Ubuntu: apt-get install python3-venv" >&2; exit 1; }; \
		echo "creating $(VENV) with $$($$python --version)"; \
		"$$python" -m venv $(VENV) && touch $@ && exit 0; exit 1; \
	done; echo "make: Python 3.11 to 3.13 is needed, but none is on the PATH; set PYTHON=/path/to/python3.12" >&2; exit 1

$(VENV)/.installed: $(VENV)/.created requirements.txt pyproject.toml
	@echo "installing what Barrierscope needs into $(VENV) (once; a minute or two)"
	@$(INSTALL) --require-hashes -r requirements.txt
	@$(INSTALL) --quiet --no-deps --no-build-isolation --no-index -e .
	@touch $@

# PySpark is published as source only. The locked setuptools, which is already installed, builds it.
$(VENV)/.installed-spark: $(VENV)/.installed requirements-spark.txt
	@echo "installing Spark and a Java runtime into $(VENV) (once; a minute or two)"
	@$(INSTALL) --no-build-isolation --require-hashes -r requirements-spark.txt
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed-spark requirements-dev.txt
	@echo "installing what the tests need into $(VENV) (once)"
	@$(INSTALL) --require-hashes -r requirements-dev.txt
	@touch $@

$(VENV)/.installed-mutants: $(VENV)/.installed-dev requirements-mutants.txt
	@$(INSTALL) --require-hashes -r requirements-mutants.txt
	@touch $@
