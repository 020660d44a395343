# Every target sets up what it needs by itself, below this directory: virtual environments of its own (.venv*) and
# build/. A second run does only what changed. `make` alone lists the targets.
#
#     .venv            the release build, installed editable: edits of .py files are seen at once
#     .venv-debug      LOGCORE_DEBUG=1     borrows every other package from .venv
#     .venv-sanitize   LOGCORE_SANITIZE=1  likewise; run its python through tools/sanitize.sh
#     .venv-coverage   LOGCORE_COVERAGE=1  likewise; for the coverage-guided fuzzer
#     .venv-lowest     the release build with the lowest versions that pyproject.toml allows

PYTHON ?= python3
PYTEST_ARGS ?=
# The suites on every core; a worker that has nothing left takes tests from the others.
PARALLEL := --numprocesses auto --dist worksteal

comma := ,
BIN := .venv/bin
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check
# Without isolation pip compiles with the setuptools and Cython of .venv, and starts at once.
INSTALL := $(PIP) install --no-build-isolation
BUILD_REQUIRES = $(shell sed -n 's/^requires = \[\([^]]*\)\].*/\1/p' pyproject.toml | tr ',' ' ')

COMPILED := $(wildcard src/logcore/*.pyx src/logcore/*.pxd src/logcore/*.pyi src/logcore/*.h) setup.py pyproject.toml
MODULES := $(shell find python spark src -name '*.py')
SUITES := $(wildcard tests/unit tests/property)
HOSTILE := $(wildcard tests/fuzz)

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:  # The builds share build/ and the egg-info.
MAKEFLAGS += --no-print-directory

.PHONY: help
help:  ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1|\2/p' Makefile | while IFS='|' read -r name text; do \
	    printf '  make %-14s %s\n' "$$name" "$$text"; done

# --- the jobs -----------------------------------------------------------------------------------------------------

.PHONY: demo
demo: .venv/.demo  ## set up and run the tour: encode, read back, query, damage, compare (about a minute)
	$(BIN)/python tools/demo.py

.PHONY: test
test: lint test-release test-debug test-sanitize  ## set up and pass the tests: lint, then all three builds, seeded

.PHONY: test-all
test-all: lint  ## the full counts, Kafka itself, the lowest dependencies, sdist and wheel (an hour)
	LOGCORE_FULL=1 $(MAKE) test-release test-debug
	LOGCORE_FULL=1 $(MAKE) fuzz
	$(MAKE) test-peers test-lowest

.PHONY: test-release
test-release: .venv/.test .venv/.spark
	$(BIN)/python -m pytest $(PARALLEL) $(PYTEST_ARGS)

.PHONY: test-debug
test-debug: .venv-debug/.installed
	LOGCORE_SHORT=1 .venv-debug/bin/python -m pytest $(PARALLEL) $(PYTEST_ARGS) $(SUITES)

.PHONY: test-sanitize
test-sanitize: .venv-sanitize/.installed
	LOGCORE_SHORT=1 tools/sanitize.sh .venv-sanitize/bin/python -m pytest $(PARALLEL) $(PYTEST_ARGS) $(SUITES) $(HOSTILE)

.PHONY: fuzz
fuzz: .venv-sanitize/.installed  ## hostile bytes into the sanitize build; LOGCORE_FULL=1 for the million
	tools/sanitize.sh .venv-sanitize/bin/python -m pytest $(PYTEST_ARGS) $(HOSTILE)

.PHONY: fuzz-coverage
fuzz-coverage: .venv-coverage/.installed  ## ten minutes of coverage-guided fuzzing; shows how coverage grows
	tools/sanitize.sh .venv-coverage/bin/python -m tests.fuzz.coverage --seconds 600

.PHONY: test-peers
test-peers: .venv/.test build/kafka-jars/.fetched  ## Kafka's own reader, tools and broker on what we write (needs a JDK and Maven)
	LOGCORE_KAFKA_JARS=$(CURDIR)/build/kafka-jars $(BIN)/python -m pytest -m peers $(PYTEST_ARGS)

.PHONY: test-lowest
test-lowest: .venv-lowest/.installed  ## the tests with the lowest dependency versions allowed
	.venv-lowest/bin/python -m pytest $(PARALLEL) $(PYTEST_ARGS)

.PHONY: bench
bench: .venv/.bench  ## the benchmarks of bench/, then the codec against its peers
	$(BIN)/python -m pytest $(PYTEST_ARGS) bench
	$(BIN)/logcore bench codec --peers

.PHONY: lint
lint: .venv/.test .venv/.spark  ## ruff, mypy --strict, and the stubs against the compiled modules
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python -m mypy
	$(BIN)/python -m mypy.stubtest --concise --ignore-missing-stub --mypy-config-file pyproject.toml --allowlist tests/typing/stubtest-allowlist.txt \
	    --ignore-unused-allowlist logcore

.PHONY: format
format: .venv/.test  ## let ruff sort imports and format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

.PHONY: wheel
wheel: .venv/.test  ## dist/: the sdist, and the wheel made from it
	$(BIN)/python -m build --no-isolation --outdir dist .

.PHONY: clean
clean:  ## remove everything that make made, the virtual environments too
	rm -rf build dist .venv .venv-debug .venv-sanitize .venv-coverage .venv-lowest
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis .benchmarks
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# --- the environments: each stamp is the time of the last successful set-up -----------------------------------------

.venv/.created:
	@tools/check-machine.sh $(PYTHON)
	@echo "setting up .venv with $$($(PYTHON) --version)"
	@rm -rf .venv
	@$(PYTHON) -m venv .venv
	@$(PIP) install --upgrade pip $(BUILD_REQUIRES)
	@touch $@

# Changes only when a file comes or goes. An editable install is a directory of links: an edit of a .py is seen through
# it, a new or deleted file asks for a new one.
build/files: FORCE
	@mkdir -p build
	@echo '$(sort $(COMPILED) $(MODULES))' | cmp -s - $@ || echo '$(sort $(COMPILED) $(MODULES))' > $@
.PHONY: FORCE
FORCE:

.venv/.installed: .venv/.created $(COMPILED) build/files
	@echo "building and installing logcore"
	@$(INSTALL) --editable .
	@touch $@

define add_extra
@echo "installing what '$(1)' needs"
@$(INSTALL) --editable '.[$(1)]'
@touch $@
endef

# pip builds the project again when it adds an extra; nothing is compiled twice, and .installed stays as it is.
.venv/.test: pyproject.toml | .venv/.installed
	$(call add_extra,test)

.venv/.spark: pyproject.toml tools/java-for-spark.sh | .venv/.installed
	$(call add_extra,spark)
	@tools/java-for-spark.sh $(BIN)/python $(CURDIR)/build/java

.venv/.bench: pyproject.toml | .venv/.installed
	$(call add_extra,bench)

.venv/.demo: pyproject.toml | .venv/.installed
	$(call add_extra,bench$(comma)demo)

# $(1): the environment, $(2): the variable that chooses the build.
define borrowing_environment
@echo "building and installing logcore in $(1)"
@rm -rf $(1)
@.venv/bin/python -m venv --without-pip $(1)
@.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
    > $$($(1)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/borrowed.pth
@$(2)=1 $(PIP) --python $(1)/bin/python install --no-build-isolation --no-deps .
@touch $@
endef

.venv-debug/.installed: $(COMPILED) $(MODULES) build/files | .venv/.test
	$(call borrowing_environment,.venv-debug,LOGCORE_DEBUG)

.venv-sanitize/.installed: $(COMPILED) $(MODULES) build/files | .venv/.test
	$(call borrowing_environment,.venv-sanitize,LOGCORE_SANITIZE)

.venv-coverage/.installed: $(COMPILED) $(MODULES) build/files | .venv/.test
	$(call borrowing_environment,.venv-coverage,LOGCORE_COVERAGE)

.venv-lowest/.installed: $(COMPILED) $(MODULES) build/files tests/lowest-requirements.txt
	@tools/check-machine.sh $(PYTHON)
	@echo "setting up .venv-lowest"
	@rm -rf .venv-lowest
	@$(PYTHON) -m venv .venv-lowest
	@.venv-lowest/bin/python -m pip --quiet install --upgrade pip
	@.venv-lowest/bin/python -m pip --quiet install --constraint tests/lowest-requirements.txt '.[test]'
	@touch $@

build/kafka-jars/.fetched: tests/interop/pom.xml
	@for tool in mvn javac; do command -v $$tool >/dev/null || \
	    { echo "logcore: no $$tool on PATH (Debian: apt install maven default-jdk-headless)" >&2; exit 1; }; done
	@echo "fetching Kafka's jars"
	@rm -rf build/kafka-jars
	@mvn --batch-mode --quiet --file tests/interop/pom.xml dependency:copy-dependencies \
	    -DoutputDirectory=$(CURDIR)/build/kafka-jars
	@touch $@
