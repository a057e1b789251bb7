"""The transforms where SciPy is not installed: NumPy's, with the same results."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import sys
sys.modules["scipy.fft"] = None
import numpy as np
import tesserack as ts

x = np.random.default_rng(0).standard_normal((6, 5))
for norm in (None, "ortho", "forward"):
    for name, options in (("fft", {}), ("ifft", {}), ("rfft", {}), ("irfft", {"n": 7}), ("hfft", {}), ("fftn", {}),
                          ("rfftn", {}), ("irfftn", {})):
        ours = getattr(ts.fft, name)(ts.from_numpy(x), norm=norm, **options)
        theirs = getattr(np.fft, name)(x, norm=norm, **options)
        np.testing.assert_allclose(ours.numpy(), theirs, atol=1e-12, err_msg=f"{name} {norm}")
assert ts.fft.rfft(ts.ones(4)).dtype is ts.complex64
assert ts.fft.fft(ts.ones(4, dtype=ts.complex64)).dtype is ts.complex64
"""


def test_same_results() -> None:
    pytest.importorskip("numpy")
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
