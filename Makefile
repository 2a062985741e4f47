# Everything a developer does here. `make help` lists it.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/installed
KAFKA_STAMP := $(VENV)/installed-kafka
DOCS_STAMP := $(VENV)/installed-docs
RELEASE_STAMP := $(VENV)/installed-release
SPARK ?= 4.1
HBASE ?= 2.5

.DEFAULT_GOAL := help

.PHONY: help
help:  ## list the commands
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## */  make \1\t/' | expand -t 20

# Set-up happens once, and again when the requirements have changed. Spark looks for data sources in
# the folders of Python's path, and an editable install adds none.
$(STAMP): setup.cfg pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "Python 3.10 or later is needed")'
	@echo 'Installing into $(VENV), which takes some minutes.'
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/pip uninstall --quiet --yes hqueue  # On the index that is another project, with the same package.
	@$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@rm -rf *.egg-info  # Python in this folder would load its entry points instead of the installed ones.
	@echo '$(CURDIR)/spark' > "$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/hqueue-spark.pth"
	@touch $@

.PHONY: setup
setup: $(STAMP)  ## install everything, including the server's jars
	@$(BIN)/python -c "from hqueue.local.jars import ensure_jars; ensure_jars(progress=print)"

.PHONY: demo
demo: setup  ## send real input through a real HBase and read it back (INPUT=file, or - for a pipe)
	@$(BIN)/hqueue demo $(INPUT)

# tests/run.py says what runs in which command.
.PHONY: check
check: $(STAMP)  ## style, types, layers, and all tests that need no server and no Java; 4 to 6 minutes
	$(BIN)/python -m tests.run check

.PHONY: test
test: setup  ## the essential tests, on real servers (or TESTS='path -k …')
	$(BIN)/python -m $(if $(TESTS),pytest $(TESTS),tests.run test)

.PHONY: test-all
test-all: setup  ## all tests, except those that have a command of their own below
	$(BIN)/python -m tests.run all

.PHONY: test-repeated
test-repeated: setup  ## repeat on HBase the tests that test-all runs in memory only; takes some 15 minutes
	$(BIN)/python -m pytest -m repeated

.PHONY: test-secured
test-secured: setup  ## run the demo and all examples on a secured server; takes some 5 minutes
	$(BIN)/python -m pytest -m secured

.PHONY: test-faults
test-faults: setup  ## harm a cluster under load and check every message (FAULTS='--seed 1 --duration 600')
	$(BIN)/python -m tests.faults $(FAULTS)

# The last release, in an environment of its own; tests/faults/versions.py names its commit. The tests'
# support needs pytest.
.venv-older/installed: tests/faults/versions.py | $(STAMP)
	$(PYTHON) -m venv --clear $(@D)
	$(BIN)/python -m tests.faults.versions $(@D)/source
	$(@D)/bin/pip install --quiet --constraint $(@D)/source/constraints.txt '$(@D)/source[local,worker]' pytest
	touch $@

# --no-apart and --no-power: an upgrade needs neither networks nor disks of its own.
.PHONY: test-upgrades
test-upgrades: setup .venv-older/installed  ## upgrade processes from the last release under load, and go back, one by one (FAULTS='--seed 1')
	$(BIN)/python -m pytest -m upgrades tests/faults
	$(BIN)/python -m tests.faults --no-apart --no-power --faults upgrade $(FAULTS)

.PHONY: test-harmed
test-harmed: setup  ## harm a local server's clock, disks and files; takes root, libfaketime and some 10 minutes
	$(BIN)/python -m pytest -m harmed tests/harmed

.PHONY: explore
explore: $(STAMP)  ## explore larger state spaces of the models of groups, share groups, owners, push and moves; takes some 15 minutes
	$(BIN)/python -m pytest -m larger --numprocesses auto --dist worksteal --quiet tests/model

.PHONY: test-drivers
test-drivers: setup  ## kill Spark drivers and tasks at every point of a write; takes some 30 minutes
	$(BIN)/python -m pytest -m drivers tests/spark

# Chromium is the system's: tests/support/chromium.py looks for it.
.PHONY: test-console
test-console: setup  ## test the console in Chromium, in memory and over real servers; needs Debian's package chromium; some 5 minutes
	$(BIN)/python -m pytest -m browser tests/integration/console

.PHONY: screenshots
screenshots: $(STAMP)  ## write the pictures of docs/console.md, which the tests of test-console take
	HQUEUE_SCREENSHOTS=docs $(BIN)/python -m pytest -m browser -k pictures tests/integration/console/test_in_browser.py

.PHONY: mutants
mutants: $(STAMP)  ## plant small faults and check that the tests without servers catch them; takes some 40 minutes (MUTANTS='--seed 1 --count 30')
	$(BIN)/python -m tests.mutants $(MUTANTS)

.PHONY: fuzz
fuzz: $(STAMP)  ## give bad input to everything that takes input (FUZZ='--seed 1 --duration 600')
	$(BIN)/python -m tests.fuzz $(FUZZ)

.PHONY: lint
lint: $(STAMP)  ## check style, types, layers and prose
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m tests.prose

.PHONY: bench
bench: setup $(KAFKA_STAMP)  ## measure speed, relative to what the servers can do; takes some minutes
	$(BIN)/python -m tests.bench $(BENCH)

.PHONY: bench-metadata
bench-metadata: setup  ## measure topics' metadata: a million topics on HBase, growing numbers on ZooKeeper; takes some 20 minutes
	$(BIN)/python -m tests.bench.metadata $(BENCH)

.PHONY: bench-topics
bench-topics: setup  ## measure what growing numbers of topics cost hubs, on both metadata stores; takes some 40 minutes
	$(BIN)/python -m tests.bench.topics $(BENCH)

# The client libraries of Kafka and other rivals, which only benchmarks need. The benchmarks fetch
# the rivals' servers when they start them.
$(KAFKA_STAMP): $(STAMP)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev,bench]'
	touch $@

# Older versions of Spark, each in an environment of its own.
.venv-spark-%/installed: setup.cfg constraints.txt
	$(PYTHON) -m venv --clear $(@D)
	grep -v '^pyspark' constraints.txt > $(@D)/constraints.txt
	$(@D)/bin/pip install --quiet --constraint $(@D)/constraints.txt --editable '.[dev]' 'pyspark==$*.*'
	echo '$(CURDIR)/spark' > "$$($(@D)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/hqueue-spark.pth"
	touch $@

# Other versions of Python, each in an environment of its own with what the library itself needs, and
# the tests' support. The tests make those that they can: `python -m tests.support.pythons` lists them.
.venv-python-%/installed: setup.cfg constraints.txt Makefile
	"$$($(BIN)/python -m tests.support.pythons $*)" -m venv --clear $(@D)
	$(@D)/bin/pip install --quiet --constraint constraints.txt --editable '.[local]'
	rm -rf *.egg-info
	touch $@

.PHONY: test-spark
test-spark: setup .venv-spark-$(SPARK)/installed  ## test the data source on an older PySpark (SPARK=4.0); takes some 10 minutes
	.venv-spark-$(SPARK)/bin/python -m pytest $(foreach part,batch stream sink jobs located carried,tests/spark/test_$(part).py)

# The table formats are available up to Spark 4.1; tests/spark/tables/pom.xml has their versions.
.PHONY: test-tables
test-tables: setup .venv-spark-4.1/installed  ## test archives in tables of Delta Lake and Iceberg; takes some 10 minutes
	.venv-spark-4.1/bin/python -m pytest -m tables tests/spark/tables

# Kafka's source is available up to Spark 4.0.
.PHONY: bench-kafka
bench-kafka: setup $(KAFKA_STAMP) .venv-spark-4.0/installed  ## measure HQueue and a Kafka broker on the same machine; takes some 20 minutes
	$(BIN)/python -m tests.bench.kafka $(BENCH)

.PHONY: bench-megabyte
bench-megabyte: setup $(KAFKA_STAMP)  ## measure what a megabyte costs HBase, Kafka and their clients; takes some 5 minutes
	$(BIN)/python -m tests.bench.kafka.megabyte $(BENCH)

.PHONY: test-kafka
test-kafka: $(KAFKA_STAMP)  ## test the code that measures Kafka and other rivals
	$(BIN)/python -m pytest -m kafka tests/bench

.PHONY: test-hbase
test-hbase: setup  ## test the native protocol on an HBase of another version (HBASE=2.5); takes some minutes
	HQUEUE_LOCAL_HBASE=$(HBASE) $(BIN)/python -m pytest -m 'not cluster' -k '(native or registries) and not secured' \
		$(foreach part,cluster_id fields locations registries rows tables,tests/conformance/test_$(part).py) \
		$(foreach part,native native_everywhere,tests/integration/test_$(part).py)

# The packages that build the site, which nothing else needs.
$(DOCS_STAMP): $(STAMP)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev,docs]'
	touch $@

.PHONY: monitoring
monitoring: $(STAMP)  ## write the pages, the dashboard and the alerts that follow from the list of metrics
	$(BIN)/python -m tests.monitoring

.PHONY: test-monitoring
test-monitoring: $(STAMP)  ## test the alerts with promtool, and the dashboard on a Prometheus that scrapes real roles; a minute or two
	$(BIN)/python -m pytest -m "prometheus and not servers" tests/monitoring

.PHONY: docs
docs: $(DOCS_STAMP)  ## build the documentation into site/; a dead link or name fails
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

.PHONY: docs-serve
docs-serve: $(DOCS_STAMP)  ## serve the documentation on http://127.0.0.1:8000, and rebuild it as it changes
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve

# What builds and describes a release.
$(RELEASE_STAMP): $(STAMP)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev,release]'
	rm -rf *.egg-info
	touch $@

.PHONY: release
release: $(RELEASE_STAMP)  ## build sdist, wheel and SBOM of this commit into dist/, twice, and compare (RELEASE='--folder x')
	$(BIN)/python -m release $(RELEASE)

.PHONY: test-release
test-release: setup $(RELEASE_STAMP)  ## build a release, install it in an environment of its own, and run it on a real HBase
	$(BIN)/python -m pytest -m release tests/acceptance/test_release.py tests/acceptance/test_containers.py

# Helm is a program in Go; Kubernetes' schemas are a package in Python.
.tools/helm:
	GOBIN='$(CURDIR)/.tools' go install helm.sh/helm/v3/cmd/helm@v3.22.0

CHART_STAMP := $(VENV)/installed-chart
$(CHART_STAMP): $(STAMP)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev,chart]'
	rm -rf *.egg-info
	touch $@

.PHONY: test-chart
test-chart: .tools/helm $(CHART_STAMP)  ## render the Helm chart and check it; building Helm takes some minutes, once
	$(BIN)/python -m pytest -m chart tests/acceptance/test_chart.py tests/acceptance/test_containers.py

.PHONY: format
format: $(STAMP)  ## format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

.PHONY: clean
clean:  ## remove what was built and installed here; the shared jars and the server's data stay
	rm -rf $(VENV) .tools .venv-spark-* .venv-python-* .venv-older build dist site *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
