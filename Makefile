# Each target makes .venv first when it is missing or older than what it is built from.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready

.PHONY: setup demo test test-all fuzz test-numerics test-oldest bounds records docs lint type coverage wheel test-wheel check-hashes hashes licences bench league-batches robots-env clean

setup: $(STAMP)

$(STAMP): pyproject.toml papers/pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt "pip>=25.1"
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch --editable . --editable papers --group dev --group docs
	touch $(STAMP)

demo: $(STAMP)
	$(BIN)/pindown demo

BROWSERS := chromium chromium-browser google-chrome

PYTEST := $(BIN)/python -m pytest --numprocesses auto --dist worksteal

# What every change must pass, in a few minutes.
test: lint type
	@[ -n "$$(which $(BROWSERS) 2> /dev/null)" ] || \
		echo "No browser found ($(BROWSERS)): the tests of pages are SKIPPED."
	$(PYTEST) -m "not slow"

# All tests, for a release.
test-all: lint type
	$(PYTEST) -m ""

# Mutated and hostile files for `pindown.load`; tests/test_saving_safety.py tries 2,000 of them on every change.
fuzz: $(STAMP)
	$(BIN)/python tests/fuzzing.py 100000

# With the kernels of other processors, and with two threads; benchmarks/results records what was run, and when.
test-numerics: $(STAMP)
	$(BIN)/python benchmarks/numerics.py

# With the lowest versions that pyproject.toml allows, in an environment of its own.
OLDEST ?= .venv-oldest
test-oldest: $(OLDEST)/.ready
	$(OLDEST)/bin/python benchmarks/numerics.py default

$(OLDEST)/.ready: pyproject.toml constraints-oldest.txt
	$(PYTHON) -m venv $(OLDEST)
	$(OLDEST)/bin/python -m pip install --quiet --disable-pip-version-check "pip>=25.1"
	$(OLDEST)/bin/python -m pip install --quiet --constraint constraints-oldest.txt torch --editable . --editable papers --group dev --group docs
	touch $@

# The margin of each bound in the tests, over seeds and numerics; an hour or two on two cores.
bounds: $(STAMP)
	$(BIN)/python benchmarks/bounds.py

# Two seeds of each quick table on record, run again and compared; an hour and a half on one core.
records: $(STAMP)
	$(BIN)/python benchmarks/records.py

# Sphinx does not notice changes of the library: what it wrote next to its sources is deleted first.
docs: $(STAMP)
	$(PYTEST) -m "" README.md docs/*.md docs/*/*.md docs/own_method tests/test_docs.py
	rm -rf docs/_build docs/reference/api docs/auto_examples
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --quiet docs docs/_build/html
	@echo "The site: docs/_build/html/index.html"

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-cache

type: $(STAMP)
	$(BIN)/mypy

# The same tests, with the lines that none of them runs; the lowest coverage allowed is in pyproject.toml.
coverage: $(STAMP)
	$(PYTEST) --cov

wheel: $(STAMP)
	rm -rf dist
	$(BIN)/python -m build --wheel --no-isolation
	@ls -l dist

# Install the wheel in an empty environment, and use it from outside the repository.
test-wheel: wheel
	.ci/test-wheel dist/*.whl

# Compare the SHA-256 of every package that `make setup` would download with the record; `make hashes` replaces it.
check-hashes: $(STAMP)
	$(BIN)/python .ci/hashes

hashes: $(STAMP)
	$(BIN)/python .ci/hashes --write

# The licence of every package that pindown requires; fails if one is not permissive.
licences: $(STAMP)
	$(BIN)/python .ci/licences

bench: $(STAMP)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[bench]"
	$(BIN)/python benchmarks/startup.py
	$(BIN)/python benchmarks/infonce.py
	$(BIN)/python benchmarks/against_cebra.py
	$(BIN)/python benchmarks/penalties.py
	$(BIN)/python benchmarks/commandline.py
	$(BIN)/python benchmarks/sources.py

# Batch correction compared on real studies and simulations; resumes. The peers get environments of their own.
league-batches: $(STAMP)
	$(BIN)/python benchmarks/league_batches.py

# Simulated robot arms, to record with benchmarks/robots/record.py; robosuite needs other versions.
ROBOTS ?= .venv-robots
robots-env: $(ROBOTS)/.ready

$(ROBOTS)/.ready: benchmarks/robots/requirements.txt
	$(PYTHON) -m venv $(ROBOTS)
	$(ROBOTS)/bin/python -m pip install --quiet --disable-pip-version-check --requirement $<
	touch $@

clean:
	rm -rf $(VENV) $(OLDEST) $(ROBOTS) .venv-league-*
