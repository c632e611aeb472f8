# Every target makes its own environment: Python 3.11 or newer, pip and make are all it takes.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test test-all coverage check bench calibration reproduced docs fuzz pins lowest pythons clean

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/core.stamp: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install -q -c constraints.txt -e .
	touch $@

$(VENV)/estimation.stamp: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install -q -c constraints.txt -e ".[estimation,report]"
	touch $@ $(VENV)/core.stamp

$(VENV)/test.stamp: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install -q -c constraints.txt -e ".[test]"
	touch $@ $(VENV)/estimation.stamp $(VENV)/core.stamp

$(VENV)/dev.stamp: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install -q -c constraints.txt -e ".[dev]"
	touch $@ $(VENV)/test.stamp $(VENV)/docs.stamp $(VENV)/estimation.stamp $(VENV)/core.stamp

$(VENV)/docs.stamp: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install -q -c constraints.txt -e ".[docs]"
	touch $@ $(VENV)/estimation.stamp $(VENV)/core.stamp

demo: $(VENV)/estimation.stamp  ## a false claim, a true one, and the paper's W2-MHE; a page of each
	$(BIN)/dpverify demo
	$(BIN)/python -m dpverify.paper.demo

test: $(VENV)/test.stamp  ## everything that takes minutes
	$(BIN)/python -m pytest

test-all: $(VENV)/test.stamp $(VENV)/docs.stamp  ## the long statistical checks too
	$(BIN)/python -m pytest -m "" --hypothesis-profile=many

coverage: $(VENV)/dev.stamp  ## lines and branches of the core that its own tests reach
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest $(addprefix --ignore=tests/,estimation render adapters paper test_site.py)
	$(BIN)/coverage combine -q
	$(BIN)/coverage report

check: $(VENV)/dev.stamp  ## style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

bench: $(VENV)/dev.stamp  ## run on purpose, some minutes: ratios within one run; writes docs/benchmarks.md
	$(BIN)/python benchmarks/all.py

calibration: $(VENV)/estimation.stamp  ## false alarms and misses of every statement, an hour; goes on; docs/calibration.md
	$(BIN)/python benchmarks/calibration.py

fuzz: $(VENV)/test.stamp  ## run on purpose, a quarter of an hour: a million damaged inputs for everything that reads
	PYTHONPATH=tests:tests/support $(BIN)/python -m fuzz

pins: $(BIN)/python  ## constraints.txt anew: the versions of today, names and numbers alone
	$(BIN)/python environments/pins.py

LOWEST := util events mechanisms stats sampling test_fuzz.py test_settings.py
lowest:  ## the fast tests of the core on the lowest versions that pyproject.toml allows
	$(PYTHON) -m venv --clear .venv-lowest
	$(PYTHON) environments/lowest.py > .venv-lowest/versions.txt
	.venv-lowest/bin/python -m pip install -q -r .venv-lowest/versions.txt
	.venv-lowest/bin/python -m pip install -q --no-deps -e .
	.venv-lowest/bin/python -m pytest $(LOWEST:%=tests/%)

pythons:  ## the tests on every Python from 3.11 that is here
	@for version in 3.11 3.12 3.13; do \
		if python$$version -c "" 2> /dev/null; then \
			$(MAKE) test PYTHON=python$$version VENV=.venv-$$version || exit 1; \
		else echo "python$$version is not on this machine: skipped"; fi; \
	done

reproduced: $(VENV)/estimation.stamp  ## the source paper run again, under an hour; goes on; docs/reproduced
	$(BIN)/dpverify reproduce --out build/reproduced
	cp build/reproduced/table.md docs/reproduced/README.md
	cp build/reproduced/figures/beside-0.png build/reproduced/figures/map-1.png docs/reproduced/figures

docs: $(VENV)/docs.stamp  ## the documentation, into site/; opens from disk
	$(BIN)/python docs/site/build.py

clean:
	rm -rf $(VENV) .venv-* build dist site src/*.egg-info
