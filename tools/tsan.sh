#!/bin/bash
# Builds the core with ThreadSanitizer and runs under it what has threads: the native tests, and the cards of the tests
# whose work is under way in another thread.
#   tools/tsan.sh PYTHON [pytest arguments]
set -euo pipefail
cd "$(dirname "$0")/.."
python=$(realpath -s "${1:-.venv/bin/python}")
shift || true
export PATH="$(dirname "$python"):$PATH"
"$python" tools/dev_build.py build/tsan --sanitize-threads --tests --installed-cpu

# The interpreter and what it loads are not built for it: their locks count, their accesses do not. Neither is the cpu
# backend, whose OpenMP library would report every loop; one thread of it is enough to compare with.
export TSAN_OPTIONS="ignore_noninstrumented_modules=1:exitcode=66:second_deadlock_stack=1"
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 TESSERACK_SANITIZED=1
# pytest would keep what the sanitizer prints.
rm -f build/tsan/report.*
export TSAN_OPTIONS="$TSAN_OPTIONS:log_path=$PWD/build/tsan/report"
trap 'cat build/tsan/report.* 2>/dev/null || true' EXIT
# The addresses that the sanitizer keeps for itself must be free.
fixed="setarch $(uname -m) --addr-no-randomize"
$fixed build/tsan/core/tesserack_tests
if [ $# -eq 0 ]; then
  set -- -q -p no:xdist tests/plugins/alone_cards_learn.py tests/plugins/alone_late_device.py tests/plugins/test_streams.py
fi
$fixed env LD_PRELOAD="$(g++ -print-file-name=libtsan.so)" build/tsan/venv/bin/python -m pytest -p no:cacheprovider "$@"
