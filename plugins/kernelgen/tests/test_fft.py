"""Generated Fourier transforms against NumPy's in float64: as loops, rows side by side, in groups, and in passes."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import tesserack as ts
from tesserack.ops.fft import _device
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
    ("rfft", 19, 48, "float32"),  # an even number of real ones: as half as many complex ones
    ("ihfft", 3, 26, "float64"),
    ("irfft", 19, 2, "float32"),
    ("rfft", 1, 16384, "float64"),
    ("irfft", 1, 16384, "float32"),
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
    if name in ("rfft", "ihfft") and n % 2 == 0:
        assert not found.imag[:, :: n // 2].any()  # to the bit


def test_lengths_without_a_step_for_a_factor_are_declined() -> None:
    assert radices(17 * 8) is None
    assert radices(2 * 3 * 5 * 7 * 11 * 13) == [2, 3, 5, 7, 11, 13]


@pytest.mark.parametrize(
    ("n", "kind", "launches"),
    [(64, 0, 1), (1024, 0, 1), (8192, 0, 5), (64, 1, 1), (16384, 1, 6), (16384, 2, 5)],
)
def test_rows_that_do_not_fit_local_memory_go_step_by_step(n: int, kind: int, launches: int) -> None:
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

    x, roots = Operand({0: (3, n, 2), 1: (3, n), 2: (3, n // 2 + 1, 2)}[kind]), Operand((n, 2))
    plan = TEMPLATES["fft_rows"](Call(card, GPU, "fft_rows", None, None, (x,), (x, roots), (kind, False, 1.0), None))
    assert len(plan.launches) == launches


@pytest.mark.parametrize("dtype", ["uint8", "int64", "bool"])
def test_integers_are_transformed_as_real_numbers(dtype: str) -> None:
    x = ts.tensor([[3, 0, 1, 1, 5], [0, 0, 2, 1, 1]]).to(getattr(ts, dtype))
    before = ts.backends.fallbacks()
    found = ts.fft.rfft(x.to("opencl"))
    assert ts.backends.fallbacks() == before
    assert found.dtype == ts.complex64
    assert np.abs(found.cpu().numpy() - np.fft.rfft(x.numpy())).max() < 1e-5


@pytest.mark.parametrize("dtype", [ts.float16, ts.bfloat16])
def test_half_types_are_refused_in_words(dtype: Any) -> None:
    with pytest.raises(RuntimeError, match=r"fft: Unsupported dtype .*float16; expected float32.*try \.float\(\)"):
        ts.fft.fft(ts.ones(8, dtype=dtype, device="opencl"))


def test_only_what_the_kernel_declines_goes_to_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing else that is not implemented is taken for that."""

    def lacking(*args: Any) -> Any:
        raise NotImplementedError("something else")

    x = ts.rand(2, 8).to("opencl")
    mode = ts.backends.get_fallback()
    with monkeypatch.context() as within:
        ts.backends.set_fallback("allow")
        within.setattr(_device, "operators", lambda: {"_fft_rows": lacking})
        before = ts.backends.fallbacks().get("fft", 0)
        assert np.abs(ts.fft.fft(x).cpu().numpy() - np.fft.fft(x.cpu().numpy())).max() < 1e-5
        ts.backends.set_fallback(mode)
        assert ts.backends.fallbacks()["fft"] == before + 1
    monkeypatch.setattr(_device, "_along", lacking)
    with pytest.raises(NotImplementedError, match="something else"):
        ts.fft.fft(x)


def test_tables_are_kept_up_to_so_many_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    _device._tables.forget()
    monkeypatch.setattr(_device, "_MOST_BYTES", 1000)
    for n in (16, 32, 64, 128, 16):
        x = ts.rand(2, n)
        assert np.abs(ts.fft.fft(x.to("opencl")).cpu().numpy() - np.fft.fft(x.numpy())).max() < 1e-4
        assert sum(t.nbytes for held in _device._tables._kept.values() for t in held) <= 1000
    assert len(_device._tables._kept) == 1


RECOVERED = """
import numpy as np, tesserack as ts
x = ts.rand(2, 34)
for turn in range(2):
    found = ts.fft.rfft(x.to("opencl")).cpu().numpy()
    assert np.abs(found - np.fft.rfft(x.numpy())).max() < 1e-4
    ts.backends.recover("opencl")
"""


def test_a_recovered_card_gets_new_tables() -> None:
    """In a process of its own, where nothing else is on the card."""
    done = subprocess.run([sys.executable, "-c", RECOVERED], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
