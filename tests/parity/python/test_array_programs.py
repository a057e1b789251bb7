"""What SciPy and array-api-compat ask of torch: NumPy's spellings and numbers, and words of messages."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tesserack as ts
import torch

FOURIER = ["fft", "ifft", "rfft", "irfft", "hfft", "ihfft", "fftn", "ifftn", "rfftn", "irfftn", "fftshift", "ifftshift"]


@pytest.mark.parametrize("name", FOURIER)
def test_axis_of_transforms(name: str, device: Any) -> None:
    ours, theirs = ts.arange(12.0, device=device).view(4, 3), torch.arange(12.0).view(4, 3)
    axis = (0,) if name.endswith("n") else 0
    found = getattr(ts.fft, name)(x=ours, axis=axis)
    wanted = getattr(torch.fft, name)(x=theirs, axis=axis)
    assert str(found.dtype).split(".")[1] == str(wanted.dtype)[6:]
    torch.testing.assert_close(torch.tensor(found.tolist()), wanted)
    with pytest.raises(TypeError):
        getattr(ts.fft, name)(ours, dim=axis, axis=axis)
    with pytest.raises(TypeError):
        getattr(ts.fft, name)(ours, x=ours)


def test_names_of_operands(device: Any) -> None:
    x, y = ts.tensor([1.0, 2.0], device=device), ts.tensor([2.0, 0.0], device=device)
    assert ts.nextafter(x1=x, x2=y).equal(ts.nextafter(x, y))
    assert ts.frexp(x=x).exponent.tolist() == torch.frexp(x=torch.tensor([1.0, 2.0])).exponent.tolist()
    assert ts.gradient(x.view(1, 2), axis=1)[0].tolist() == [[1.0, 1.0]]


def test_roll_without_dims(device: Any) -> None:
    x = ts.arange(6, device=device).view(2, 3)
    wanted = torch.arange(6).view(2, 3).roll(1, dims=None).tolist()
    assert ts.roll(x, 1, None).tolist() == ts.roll(x, (1,), dims=None).tolist() == x.roll(1).tolist() == wanted


@pytest.mark.parametrize("package", [ts, torch])
def test_names_of_devices_in_the_message(package: Any) -> None:
    """array-api-compat reads them there."""
    with pytest.raises(
        RuntimeError, match=r"Expected one of .* device type at start of device string: nosuch"
    ) as found:
        package.device("nosuch")
    names = str(found.value).split("Expected one of ")[1].split(" device type")[0].split(", ")
    assert {"cpu", "meta"} <= {*names}


@pytest.mark.parametrize("package", [ts, torch])
def test_message_of_shapes_that_do_not_broadcast(package: Any) -> None:
    with pytest.raises(RuntimeError, match="Attempting to broadcast a dimension of length 3 at -1"):
        package.broadcast_shapes((2,), (1, 3))


@pytest.mark.parametrize("make", ["tensor", "asarray", "as_tensor"])
@pytest.mark.parametrize("kind", [np.complex64, np.complex128])
def test_complex_numbers_of_numpy(make: str, kind: Any) -> None:
    """complex64 is no Python number."""
    for value in (kind(1 + 2j), [kind(1 + 2j), kind(3)], [[kind(2j)], [1.5]]):
        ours, theirs = getattr(ts, make)(value), getattr(torch, make)(value)
        assert str(ours.dtype).split(".")[1] == str(theirs.dtype)[6:] and ours.tolist() == theirs.tolist()
        assert getattr(ts, make)(value, dtype=ts.complex128).tolist() == theirs.tolist()


@pytest.mark.parametrize("dtype", [ts.float32, ts.float64])
def test_error_functions_at_zero(dtype: Any, device: Any) -> None:
    """Statistics take twice the tail at 0 for 1, exactly."""
    zeros = ts.tensor([0.0, -0.0] * 40, dtype=dtype, device=device)
    assert {*ts.erfc(zeros).tolist()} == {1.0} and {*ts.special.ndtr(zeros).tolist()} == {0.5}
