"""Generated Fourier transforms against NumPy's in float64: as loops, rows side by side, in groups, and in passes."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import tesserack as ts
from tesserack_kernelgen.butterfly import radices
from tesserack_kernelgen.cuda import CUDA
from tesserack_kernelgen.record import GPU, Recorder

#: Of the largest element of the result.
TOLERANCE = {"float32": 2e-6, "float64": 4e-15}
#: Name, rows, points. 19 rows go side by side, 8,192 points of one row step by step.
CASES = [
    ("fft", 3, 7, "float64"),
    ("ifft", 19, 48, "float32"),
    ("rfft", 2, 22, "float32"),
    ("irfft", 19, 15, "float64"),
    ("hfft", 3, 8, "float32"),
    ("ifft", 1, 8192, "float32"),
    ("fft", 2, 34, "float32"),  # 17 is no step: by a convolution
    ("irfft", 1, 23, "float64"),
    ("irfft", 1, 38, "float32"),
]
HALF = "irfft", "hfft"


def given(name: str, rows: int, n: int, dtype: str) -> Any:
    draws = np.random.default_rng(5)
    x = draws.standard_normal((rows, n)).astype(dtype)
    if name in ("rfft", "ihfft"):
        return x
    x = x + 1j * draws.standard_normal((rows, n)).astype(dtype)
    return np.ascontiguousarray(x[:, : n // 2 + 1]) if name in HALF else x


@pytest.mark.parametrize(("name", "rows", "n", "dtype"), CASES)
def test_rows(name: str, rows: int, n: int, dtype: str, schedule: str) -> None:
    x = given(name, rows, n, dtype)
    options = {"n": n} if name in HALF else {}
    before = ts.backends.fallbacks()
    found = getattr(ts.fft, name)(ts.from_numpy(x).to("opencl"), **options)
    assert ts.backends.fallbacks() == before
    expected = getattr(np.fft, name)(x.astype("complex128" if x.dtype.kind == "c" else "float64"), **options)
    assert found.shape == expected.shape
    assert str(found.dtype.to_real()) == f"tesserack.{dtype}"
    assert np.abs(found.cpu().numpy() - expected).max() <= TOLERANCE[dtype] * np.abs(expected).max()


def test_lengths_without_a_step_for_a_factor_are_declined() -> None:
    assert radices(17 * 8) is None
    assert radices(2 * 3 * 5 * 7 * 11 * 13) == [2, 3, 5, 7, 11, 13]


@pytest.mark.parametrize(("n", "launches"), [(64, 1), (1024, 1), (2 * 4096, 5)])
def test_rows_that_do_not_fit_local_memory_go_step_by_step(n: int, launches: int) -> None:
    from tesserack_kernelgen.call import Call
    from tesserack_kernelgen.templates import TEMPLATES

    card = Recorder(CUDA)

    @dataclasses.dataclass
    class Operand:
        shape: tuple[int, ...]
        byte_offset: int = 0
        dtype: Any = ts.float32

        @property
        def numel(self) -> int:
            return int(np.prod(self.shape))

    x, roots = Operand((3, n, 2)), Operand((n, 2))
    plan = TEMPLATES["fft_rows"](Call(card, GPU, "fft_rows", None, None, (x,), (x, roots), (0, False, 1.0), None))
    assert len(plan.launches) == launches
