"""complex32 is said to be experimental, once in a process."""

import subprocess
import sys

PROGRAM = """
import warnings
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    import tesserack as ts
    ts.ones(2, dtype=ts.complex64)
    assert not told, told
    for _ in range(2):
        ts.zeros(2, dtype=ts.complex32)
        ts.ones(2, dtype=ts.complex64).to(ts.chalf)
    assert [str(w.message) for w in told] == [
        "ComplexHalf support is experimental and many operators don't support it yet."], told
    ts.set_warn_always(True)
    ts.empty(1, dtype=ts.complex32)
    assert len(told) == 2
"""


def test_the_first_tensor_of_halves_warns() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
