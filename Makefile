# One door. `make run` and `make test` are all a newcomer needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
KERNELS := kernels and not gpu and not slow and not perf
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.PHONY: setup run test test-browser test-kernels test-slow lint docs wheel-test perf clean

$(BIN)/simgpu: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("simgpu needs Python 3.11 or newer; set PYTHON=") if sys.version_info < (3, 11) else None'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) -e .
	touch $@

$(VENV)/.test: $(BIN)/simgpu
	$(PIP) -e '.[test]'
	touch $@

$(VENV)/.lint: $(BIN)/simgpu
	$(PIP) -e '.[lint]'
	touch $@

# the driver alone: the browser is the system's chromium
$(VENV)/.browser: $(VENV)/.test
	$(PIP) -e '.[test,browser]'
	touch $@

$(VENV)/.docs: $(BIN)/simgpu
	$(PIP) -e '.[docs]'
	touch $@

# torch by its exact name: newer ones may be a CUDA build of several GB
$(VENV)/.kernels: $(VENV)/.test
	$(PIP) 'torch==2.13.0'
	$(PIP) -e '.[test,kernels]' 'triton==3.6.0'
	touch $@

setup: $(BIN)/simgpu

run: setup
	$(BIN)/simgpu run fa2 --gpu h200 --batch 4 --heads 32 --seqlen 4096 --head-dim 128

# BLAS threads of tests that run side by side only wait for each other
test: export OPENBLAS_NUM_THREADS = 1
test: $(VENV)/.test
	$(BIN)/python -m pytest -n auto -m "not gpu and not kernels and not slow and not perf and not browser" tests

test-browser: $(VENV)/.browser
	$(BIN)/python -m pytest -m browser tests/browser

# The first process interprets kernels, the second compiles them, each file's in one place.
test-kernels test-slow: export OMP_NUM_THREADS = 1
test-kernels: $(VENV)/.kernels
	$(BIN)/python -m pytest -n auto -m "$(KERNELS)" tests/kernels
	$(BIN)/python -m pytest -n auto --dist loadfile -m "$(KERNELS)" --ignore tests/kernels tests

test-slow: $(VENV)/.kernels
	$(BIN)/python -m pytest -n auto --dist loadfile -m "slow and not gpu" tests

lint: $(VENV)/.lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

docs: $(VENV)/.docs
	$(BIN)/python -m sphinx -b html -W --keep-going -q -j 2 docs docs/_build/html
	@echo docs/_build/html/index.html

wheel-test: $(VENV)/.test
	$(BIN)/python tests/wheel_test.py

perf: $(VENV)/.test
	$(BIN)/python -m pytest -m perf tests

clean:
	rm -rf $(VENV) build dist docs/_build *.egg-info
