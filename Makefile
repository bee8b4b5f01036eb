# make help lists the targets. PYTHON chooses the interpreter that .venv is made from.
PYTHON ?= python3
JOBS ?= $(shell nproc)
FUZZ_SECONDS ?= 20
FUZZ_SEED ?= 1
VENV_PYTHON := .venv/bin/python
# The modules whose tests run threads of their own, for ThreadSanitizer.
TSAN_TESTS ?= $(notdir $(wildcard $(addprefix tests/cpp/,threads base plugin runtime)))
# Tests that kill processes of Python by their names, or answer many clients at once.
ALONE = tests/python/serving/test_ray.py tests/python/serving/test_ray_ranks.py tests/python/serving/test_serving.py
ALONE_EXAMPLES = 'tests/python/project/test_docs.py::test_the_code_runs[docs/ray.md]'
# Libraries that stand for a GPU's.
EMULATION = build/dev/tests/emulation
FUZZ_MODELS = $(VENV_PYTHON) tools/model_fuzzer.py --seconds $(FUZZ_SECONDS) --seed $(FUZZ_SEED) --out build/fuzz/models
PRESET = cmake --preset $(1) -DPython_EXECUTABLE=$(CURDIR)/$(VENV_PYTHON)

# Each long step says what it took: bash's `time` prints this.
SHELL := /bin/bash
export TIMEFORMAT := === %0lR
# Tests start thousands of processes of Python. Without kept byte code each compiles all that it imports.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup build test demo docs lint bench clean test-cpp test-python test-workers test-alone test-sanitizers test-asan test-tsan test-fuzz fuzz-scripts fuzz-tactics fuzz-models fuzz-program test-aarch64 wheels dist release site

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## install what the package needs (system packages, .venv), build it, install it into .venv
	@$(PYTHON) tools/setup.py package

setup: ## the same and what the tests need, and build the C++ tests
	@time $(PYTHON) tools/setup.py

demo: build ## the main job: a photograph through a model with a custom operator
	$(VENV_PYTHON) samples/demo/demo.py

test: setup lint test-cpp test-python ## set up, lint, C++ tests, Python tests

test-cpp: setup
	time ctest --test-dir build/dev --output-on-failure --no-tests=error -j $(JOBS)

test-python: test-workers test-alone

test-workers: setup
	time $(VENV_PYTHON) -m pytest -n $(JOBS) --maxprocesses=8 --dist=loadfile --durations=30 $(addprefix --ignore=,$(ALONE)) --deselect=$(ALONE_EXAMPLES)

test-alone: setup
	time $(VENV_PYTHON) -m pytest $(ALONE) $(ALONE_EXAMPLES)

docs: setup ## write the API reference, docs/reference, from the docstrings
	$(VENV_PYTHON) tools/reference.py

lint: setup ## formatting, ruff, mypy, clang-tidy on changed files
	time $(VENV_PYTHON) tools/lint.py

test-sanitizers: test-asan test-tsan ## the C++ tests under ASan+UBSan, the threaded ones under TSan

test-asan: setup
	$(call PRESET,asan) > /dev/null
	time cmake --build --preset asan
	time ctest --preset asan --no-tests=error -j $(JOBS)

test-tsan: setup
	$(call PRESET,tsan) > /dev/null
	time cmake --build --preset tsan --target $(addprefix test_,$(TSAN_TESTS))
	time ctest --preset tsan --no-tests=error -j $(JOBS) -R '^($(subst $(eval ) ,|,$(strip $(TSAN_TESTS))))\.'

# Most of these use one processor, so $(JOBS) of them run at a time.
FUZZERS = $(basename $(notdir $(wildcard tests/fuzz/fuzz_*.cpp))) fuzz-scripts fuzz-tactics fuzz-models fuzz-program

test-fuzz: setup ## build the fuzz targets and run each for FUZZ_SECONDS, random engines without sanitizers, too
	$(call PRESET,asan) > /dev/null
	time cmake --build --preset asan --target fuzz_targets opwright_cli
	time $(MAKE) --no-print-directory --jobs=$(JOBS) --output-sync=target --keep-going $(FUZZERS)
	rm -rf build/kernels && mkdir -p build/kernels/cache
	time OPWRIGHT_EMULATED_SOURCES=$(CURDIR)/build/kernels OPWRIGHT_CACHE_DIR=$(CURDIR)/build/kernels/cache $(VENV_PYTHON) tools/tactic_coverage.py --quick --device cuda --jobs $(JOBS)
	time $(VENV_PYTHON) tools/kernel_cubins.py build/kernels --failed --every 8 --ptx --architectures sm_90a --library build/old-nvrtc/nvidia/cuda_nvrtc/lib/libnvrtc.so.12

fuzz_%:
	@tools/fuzz.sh build/asan/tests/fuzz/$@ $(FUZZ_SECONDS)

fuzz-scripts:
	@mkdir -p build/fuzz/run_scripts
	build/dev/tests/fuzz/run_scripts --seconds $(FUZZ_SECONDS) --seed $(FUZZ_SEED) --out build/fuzz/run_scripts

fuzz-tactics:
	$(VENV_PYTHON) tools/tactic_coverage.py --quick --device cpu --seconds $(FUZZ_SECONDS) --seed $(FUZZ_SEED)

fuzz-models:
	OPWRIGHT_CUDA_DRIVER=$(EMULATION)/libcuda.so.1 OPWRIGHT_NVRTC=$(EMULATION)/libnvrtc.so.13 $(FUZZ_MODELS)/cuda --compositions --device cuda

fuzz-program:
	$(FUZZ_MODELS)/program --program build/asan/cli/opwright

test-aarch64: setup ## build for aarch64 with Debian's cross compiler, and test that under QEMU
	$(VENV_PYTHON) tools/aarch64.py test

wheels: setup ## dist/: the source distribution and manylinux wheels, tried in empty environments
	$(VENV_PYTHON) tools/release.py wheels

dist: setup ## dist/: program, libraries and headers as an archive, and the program as a Debian package; no Python
	$(VENV_PYTHON) tools/release.py dist

release: setup ## dist/: all that a release's page has: wheels, sources, archive, Debian package, checksums, notes
	$(VENV_PYTHON) tools/release.py release

site: setup ## build/site/html: the documentation as a site, with search
	$(VENV_PYTHON) tools/make_site.py

bench: setup ## the benchmarks but the soak, each beside its peer
	@set -e; for program in $(filter-out bench/timing.py bench/gpu.py bench/soak.py bench/operator_models.py,$(wildcard bench/*.py)); do echo "== $$program"; $(VENV_PYTHON) $$program; done

clean: ## remove the build folders (.venv stays)
	rm -rf build dist
