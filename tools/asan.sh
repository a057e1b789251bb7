#!/bin/bash
# Builds the core and the cpu backend with AddressSanitizer and UndefinedBehaviorSanitizer and runs tests under them.
#   tools/asan.sh PYTHON [pytest arguments]; without arguments, the tests that reach the most native code in the time.
set -euo pipefail
cd "$(dirname "$0")/.."
python=$(realpath -s "${1:-.venv/bin/python}")
shift || true
export PATH="$(dirname "$python"):$PATH"
"$python" tools/dev_build.py build/asan --sanitize --tests

# The runtime must come first in the process, and libstdc++ with it so that throwing is intercepted.
preload="$(g++ -print-file-name=libasan.so) $(g++ -print-file-name=libstdc++.so)"
# Leaks are not looked for: the interpreter keeps memory until its end. Fatal signals stay the tests' own.
export ASAN_OPTIONS="detect_leaks=0:abort_on_error=1:allocator_may_return_null=1:detect_stack_use_after_return=0"
export UBSAN_OPTIONS="print_stacktrace=1:halt_on_error=1"
export PYTHONMALLOC=malloc TESSERACK_SANITIZED=1

program=build/asan/core/tesserack_tests
if [ -x $program ]; then $program; fi
# Not the conformance kit, tests/generated, nn and parity: they repeat the same kernels and bindings with more values, and take most of the time.
# Of tests of a dozen cases or more one case in three, others with another commit; FULL=1 runs all.
if [ $# -eq 0 ]; then
  set -- -q -n 2 -p tools.schedule --one-of 3 tests/python tests/plugins tests/ops tests/graph tests/fx/test_staleness.py tests/robustness tests/fuzz tests/serialization backends/cpu/tests
fi
exec env LD_PRELOAD="$preload" build/asan/venv/bin/python -m pytest -p no:cacheprovider "$@"
