"""The two engines of Fourier transforms agree: oneMKL's and pocketfft's."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import tesserack as ts
from tesserack.fft import _mkl

if not _mkl.is_available():
    pytest.skip("oneMKL is not installed: pip install mkl", allow_module_level=True)

SHAPES = [(1,), (7,), (8,), (3, 5), (4, 6, 10), (2, 3, 4, 5), (5, 0), (1, 9)]
ONE = ["fft", "ifft", "rfft", "irfft", "hfft", "ihfft"]
MANY = ["fftn", "ifftn", "rfftn", "irfftn", "hfftn", "ihfftn"]


def results(name: str, x: ts.Tensor, monkeypatch: pytest.MonkeyPatch, **options: object) -> list[np.ndarray | str]:
    found: list[np.ndarray | str] = []
    for there in (True, False):
        monkeypatch.setattr(_mkl, "is_available", lambda there=there: there)
        leaf = x.detach().requires_grad_()
        try:
            y = getattr(ts.fft, name)(leaf, **options)
        except RuntimeError as error:
            return [str(error)] * 2
        (grad,) = ts.autograd.grad((y.abs() ** 2).sum() if y.is_complex() else (y**2).sum(), leaf)
        found.append(np.concatenate([y.detach().numpy().ravel(), grad.resolve_conj().numpy().ravel()]))
    return found


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", ONE + MANY)
def test_engines(name: str, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    real = rng.standard_normal(shape)
    for x, turned, norm in itertools.product((real, real + 1j * rng.standard_normal(shape)), (0, 1), (None, "ortho")):
        if np.iscomplexobj(x) and name in ("rfft", "ihfft", "rfftn", "ihfftn"):
            continue
        tensor = ts.tensor(x).transpose(0, -1) if turned else ts.tensor(x)
        for option in ({}, {"n": 5}, {"dim": 0}) if name in ONE else ({}, {"dim": (-1, 0)} if len(shape) > 1 else {}):
            ours, theirs = results(name, tensor, monkeypatch, norm=norm, **option)
            if isinstance(ours, str):
                assert ours == theirs
            else:
                np.testing.assert_allclose(ours, theirs, 1e-10, 1e-10)


def test_single_precision_and_many_transforms() -> None:
    x = ts.randn(300, 1000, dtype=ts.complex64)
    np.testing.assert_allclose(ts.fft.fft(x).numpy(), np.fft.fft(x.numpy().astype("complex128")), 1e-4, 1e-3)


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("dims", [(0,), (2,), (0, 2), (2, 0), (1, 0, 2), (2, 1)])
def test_second_half_of_a_spectrum(dims: tuple[int, ...], dtype: str) -> None:
    """The kernel, and what it is made of where the memory is not dense."""
    for shape in ((4, 3, 6), (5, 1, 7), (1, 8, 3), (2, 2, 2)):
        signal = ts.randn(shape, dtype=ts.float64)
        whole = ts.tensor(np.fft.fftn(signal.numpy(), axes=dims)).to(getattr(ts, dtype))
        half = shape[dims[-1]] // 2 + 1
        for conjugate in (True, False):
            places = [slice(None)] * 3
            places[dims[-1]] = slice(half, None)
            expected = whole.clone()
            if not conjugate:
                expected[tuple(places)] = expected[tuple(places)].conj()
            for layout in (whole.clone(), whole.transpose(0, 2).contiguous().transpose(0, 2)):
                layout[tuple(places)] = 7
                _mkl._mirror_spectrum_(layout, dims, conjugate)
                np.testing.assert_allclose(layout.numpy(), expected.numpy(), 1e-4, 1e-4)
