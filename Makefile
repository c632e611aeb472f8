# Every target creates the environment that it needs. Requirements: Python 3.11 or newer, pip and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
unexport PYTHONDONTWRITEBYTECODE  # the tests start many processes, which would all compile the package again

.DEFAULT_GOAL := help
.PHONY: help demo test test-all doctest lines coverage check bench calibration reproduced gallery figures docs dist fuzz faults pins lowest pythons clean

help:  ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{ printf "%-18s %s\n", $$1, $$2 }'

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

demo: $(VENV)/estimation.stamp  ## verify a false claim, a true claim and the paper's W2-MHE, and write an HTML page
	$(BIN)/dpverify demo
	$(BIN)/python examples/w2mhe.py

# The fast tests compile many small programs, so XLA optimises them less. It ends the process if it does not know a flag;
# these are flags of the release in constraints.txt. `make test-all` optimises as users do.
FAST_COMPILATION := --xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false \
	--xla_cpu_parallel_codegen_split_count=1

# Several tests run at the same time, so threads of BLAS would only wait for each other. Without JAX's notes about the
# lines of code behind each operation, programs are lowered faster.
test: $(VENV)/test.stamp  ## run the fast tests and the examples of the docstrings (some minutes)
	OPENBLAS_NUM_THREADS=1 JAX_TRACEBACK_IN_LOCATIONS_LIMIT=0 XLA_FLAGS="$(FAST_COMPILATION)" \
		$(BIN)/python -m pytest --doctest-modules tests src/dpverify gallery

test-all: $(VENV)/test.stamp $(VENV)/docs.stamp  ## run all tests, including the slow statistical ones (about an hour)
	$(BIN)/python -m pytest -m "" --hypothesis-profile=many --doctest-modules tests src/dpverify gallery

doctest: $(VENV)/test.stamp  ## run the examples of the docstrings only
	$(BIN)/python -m pytest --doctest-modules src/dpverify gallery

lines:  ## count code lines, files and numeric constants beside their budgets
	@$(PYTHON) tests/support/lines.py

# What `make coverage` leaves out: the parts that need JAX, matplotlib or other packages.
OUTSIDE_CORE := $(addprefix tests/,estimation render/test_browser.py adapters reproduction test_site.py) \
	$(addprefix src/dpverify/,estimation render adapters)

coverage: $(VENV)/dev.stamp  ## report which lines and branches of the core are executed by the tests
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest --doctest-modules tests src/dpverify $(addprefix --ignore=,$(OUTSIDE_CORE))
	$(BIN)/coverage combine -q
	$(BIN)/coverage report

check: $(VENV)/dev.stamp  ## check style (ruff) and types (pyright)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

bench: $(VENV)/dev.stamp  ## run the benchmarks (some minutes) and write docs/benchmarks.md
	$(BIN)/python benchmarks/all.py

calibration: $(VENV)/estimation.stamp  ## measure how often statements are false (one hour, resumable); writes docs/calibration.md
	$(BIN)/python benchmarks/calibration.py

fuzz: $(VENV)/test.stamp  ## read 100 000 damaged files of each kind
	PYTHONPATH=tests:tests/support $(BIN)/python -m fuzz

faults: $(VENV)/test.stamp  ## measure failures at every operation, kills, damaged files, threads and memory (three hours)
	$(BIN)/python tests/support/fault_figures.py

pins: $(BIN)/python  ## update constraints.txt to the current versions
	$(BIN)/python environments/pins.py

LOWEST := util events mechanisms stats sampling test_fuzz.py test_settings.py
lowest:  ## run the fast core tests with the lowest versions that pyproject.toml allows
	$(PYTHON) -m venv --clear .venv-lowest
	$(PYTHON) environments/lowest.py > .venv-lowest/versions.txt
	.venv-lowest/bin/python -m pip install -q -r .venv-lowest/versions.txt
	.venv-lowest/bin/python -m pip install -q --no-deps -e .
	.venv-lowest/bin/python -m pytest $(LOWEST:%=tests/%)

pythons:  ## run the tests with each installed Python from 3.11 to 3.13
	@for version in 3.11 3.12 3.13; do \
		if python$$version -c "" 2> /dev/null; then \
			$(MAKE) test PYTHON=python$$version VENV=.venv-$$version || exit 1; \
		else echo "python$$version is not installed: skipped"; fi; \
	done

reproduced: $(VENV)/estimation.stamp  ## repeat the source paper's experiments (under an hour, resumable); QUICK=1: a few minutes
ifdef QUICK
	$(BIN)/python -m reproduction --quick --out build/reproduced-quick
else
	$(BIN)/python -m reproduction --out build/reproduced
	cp build/reproduced/table.md docs/reproduced/README.md
	cp build/reproduced/readings.csv build/reproduced/rows.csv build/reproduced/claims.csv docs/reproduced
	cp build/reproduced/figures/*.png docs/reproduced/figures
endif

gallery: $(VENV)/test.stamp  ## verify the gallery of published mechanisms (half an hour, resumable); writes docs/gallery.md
	$(BIN)/python -m gallery --out build/gallery
	mkdir -p docs/figures/gallery
	cp build/gallery/rows.json gallery/rows.json
	cp build/gallery/gallery.md docs/gallery.md
	cp build/gallery/figures/*.png docs/figures/gallery
	$(BIN)/python -m gallery.bugs --out build/bugs
	mkdir -p docs/figures/bugs
	cp build/bugs/rows.json build/bugs/corpus.csv gallery/bugs
	cp build/bugs/bugs.md docs/bugs.md
	cp build/bugs/figures/*.png docs/figures/bugs

figures: $(VENV)/test.stamp  ## draw the figures of the README and the documentation (a few minutes; Chromium)
	$(BIN)/python docs/make_figures.py
	$(BIN)/python -m gallery --draw --out build/gallery
	cp build/gallery/figures/*.png docs/figures/gallery

docs: $(VENV)/docs.stamp  ## build the documentation into site/, which opens from disk
	$(BIN)/python docs/site/build.py

dist:  ## build wheel and sdist into dist/, install the wheel in an empty environment, and run demo and README there
	rm -rf dist
	$(PYTHON) -m venv --clear .venv-dist
	.venv-dist/bin/python -m pip install -q -c constraints.txt build
	.venv-dist/bin/python -m build --outdir dist .
	$(PYTHON) -m venv --clear .venv-wheel
	.venv-wheel/bin/python -m pip install -q -c constraints.txt "$$(ls dist/dpverify-*.whl)[report]"
	mkdir -p build/wheel && cd build/wheel && ../../.venv-wheel/bin/dpverify demo
	cd build/wheel && ../../.venv-wheel/bin/python ../../tests/support/refresh.py --check ../../README.md

clean:  ## delete environments and everything that was built
	rm -rf $(VENV) .venv-* build dist site src/*.egg-info
