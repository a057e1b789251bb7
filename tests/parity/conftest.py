"""One call on both libraries: values, shapes, dtypes, gradients and second gradients must agree.

Everything in this folder imports torch plainly: without it no file here is imported, and all are told as skipped.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tesserack as ts

sys.path[:0] = [str(Path(__file__).parent / name) for name in ("", "database", "dtypes")]  # which share modules

MISSING = importlib.util.find_spec("torch") is None


class WithoutTorch(pytest.Module):
    """A file of this folder where torch is missing."""

    def collect(self) -> list[pytest.Item]:
        pytest.skip("compares with torch, which is not installed: make test PARITY=1", allow_module_level=True)


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    """The one place that asks for torch."""
    return WithoutTorch.from_parent(parent, path=module_path) if MISSING else None


TOLERANCE = {"float64": 1e-9, "float32": 2e-4, "float16": 4e-3, "bfloat16": 3e-2}


def _leaves(result: Any) -> Iterator[Any]:
    if isinstance(result, (tuple, list, dict)):
        for item in result.items() if isinstance(result, dict) else result:
            yield from _leaves(item)
    else:
        yield result


def _dtype_name(tensor: Any) -> str:
    return str(tensor.dtype).rsplit(".", 1)[-1]


def _numpy(tensor: Any) -> np.ndarray:
    tensor = tensor.detach()
    if _dtype_name(tensor) == "bfloat16":
        tensor = tensor.float()
    return np.asarray(tensor.cpu().tolist(), dtype=None).reshape(tuple(tensor.shape))


def assert_same(ours: Any, theirs: Any, what: str) -> None:
    """Compare results leaf by leaf."""
    left, right = list(_leaves(ours)), list(_leaves(theirs))
    assert len(left) == len(right), what
    for a, b in zip(left, right, strict=True):
        if not hasattr(b, "shape"):
            assert a == b, what
            continue
        assert tuple(a.shape) == tuple(b.shape), f"{what}: shape {tuple(a.shape)} for {tuple(b.shape)}"
        assert _dtype_name(a) == _dtype_name(b), f"{what}: dtype {a.dtype} for {b.dtype}"
        tolerance = TOLERANCE.get(_dtype_name(b), 0.0)
        np.testing.assert_allclose(_numpy(a), _numpy(b), rtol=tolerance, atol=tolerance, err_msg=what)


def _leaf(module: Any, array: np.ndarray, dtype: str, device: Any, grad: bool) -> Any:
    made = module.tensor(array.tolist(), dtype=getattr(module, dtype), device=device).reshape(array.shape)
    return made.requires_grad_() if grad else made


def _weights(module: Any, tensor: Any, like: str) -> Any:
    values = np.cos(np.arange(1, tensor.numel() + 1)).reshape(tuple(tensor.shape))
    return module.tensor(values.tolist(), dtype=tensor.dtype, device=like).reshape(tuple(tensor.shape))


def _gradients(
    module: Any, call: Callable[..., Any], arrays: list[np.ndarray], dtype: str, device: Any, order: int
) -> list[Any]:
    leaves = [
        _leaf(module, a, dtype if a.dtype.kind == "f" else a.dtype.name, device, a.dtype.kind == "f") for a in arrays
    ]
    wanted = [leaf for leaf in leaves if leaf.requires_grad]
    results = [r for r in _leaves(call(module, *leaves)) if r.requires_grad]
    found: list[Any] = []
    for level in range(order):
        total = sum((r * _weights(module, r, device)).sum() for r in results)
        grads = module.autograd.grad(total, wanted, create_graph=level + 1 < order, allow_unused=True)
        found += [module.zeros_like(w) if g is None else g for g, w in zip(grads, wanted, strict=True)]
        results = [g for g in grads if g is not None and g.requires_grad]
        if not results:
            break
    return found


@pytest.fixture
def compare(device: Any) -> Callable[..., None]:
    """``compare(call, *arrays)``: ``call(module, *tensors)`` with tesserack and with torch must agree."""

    import torch

    def run(call: Callable[..., Any], *arrays: np.ndarray, dtype: str = "float64", order: int = 2) -> None:
        typed = [dtype if a.dtype.kind == "f" else a.dtype.name for a in arrays]
        ours = call(ts, *[_leaf(ts, a, t, device, False) for a, t in zip(arrays, typed, strict=True)])
        theirs = call(torch, *[_leaf(torch, a, t, "cpu", False) for a, t in zip(arrays, typed, strict=True)])
        assert_same(ours, theirs, "values")
        if order and dtype == "float64" and any(a.dtype.kind == "f" for a in arrays):
            left = _gradients(ts, call, list(arrays), dtype, device, order)
            right = _gradients(torch, call, list(arrays), dtype, "cpu", order)
            # Where one library sees that a higher derivative vanishes, the other may compute the zeros.
            common = min(len(left), len(right))
            assert_same(left[:common], right[:common], "gradients")
            for rest in (*left[common:], *right[common:]):
                assert not _numpy(rest).any()

    return run


@pytest.fixture
def compare_errors(device: Any) -> Callable[..., None]:
    """``compare_errors(call, *arrays)``: both libraries must refuse, with the same kind of exception."""

    import torch

    def run(call: Callable[..., Any], *arrays: np.ndarray) -> None:
        typed = ["float64" if a.dtype.kind == "f" else a.dtype.name for a in arrays]
        with pytest.raises(Exception) as theirs:
            call(torch, *[_leaf(torch, a, t, "cpu", False) for a, t in zip(arrays, typed, strict=True)])
        with pytest.raises(theirs.type):
            call(ts, *[_leaf(ts, a, t, device, False) for a, t in zip(arrays, typed, strict=True)])

    return run


@pytest.fixture
def compare_program(device: Any) -> Iterator[Callable[..., None]]:
    """``compare_program(program)``: ``program(module)`` must return the same with both libraries. Programs name no
    device: what they make is on the one under test."""

    import torch

    before = ts.get_default_device()

    def run(program: Callable[..., Any]) -> None:
        ts.set_default_device(device)
        ours = program(ts)
        assert_same(ours, program(torch), program.__name__)

    yield run
    ts.set_default_device(before)


class Beside:
    """Our tensors, modules and optimizers beside torch's, on one device of ours."""

    def __init__(self, device: Any) -> None:
        self.device = device

    def ours(self, value: Any) -> Any:
        """A torch tensor as one of ours; tensors in lists, tuples and dicts as well, everything else as it is."""
        if isinstance(value, (list, tuple)):
            return type(value)(self.ours(item) for item in value)
        if isinstance(value, dict):
            return {key: self.ours(item) for key, item in value.items()}
        if not hasattr(value, "untyped_storage"):
            return value
        made = ts.tensor(value.detach().tolist(), dtype=getattr(ts, _dtype_name(value)), device=self.device)
        return made.reshape(tuple(value.shape)).requires_grad_(value.requires_grad)

    def pair(self, ours: Any, theirs: Any) -> tuple[Any, Any]:
        """Two modules in float64, ours with the values of theirs; names and text must agree."""
        ours, theirs = ours.double().to(self.device), theirs.double()
        assert repr(ours) == repr(theirs)
        assert list(ours.state_dict()) == list(theirs.state_dict())
        ours.load_state_dict(self.ours(dict(theirs.state_dict())))
        return ours, theirs

    def close(self, ours: Any, theirs: Any, what: str = "", tolerance: float = 1e-8) -> None:
        """Tensors, None and numbers, in nested tuples or lists or not."""
        if isinstance(theirs, (tuple, list)):
            assert len(ours) == len(theirs), what
            for a, b in zip(ours, theirs, strict=True):
                self.close(a, b, what, tolerance)
        elif theirs is None:
            assert ours is None, what
        elif not hasattr(theirs, "shape"):
            assert ours == pytest.approx(theirs, rel=tolerance, abs=tolerance * 1e-2), what
        else:
            assert tuple(ours.shape) == tuple(theirs.shape), what
            left, right = _numpy(ours), _numpy(theirs)
            np.testing.assert_allclose(left, right, rtol=tolerance, atol=tolerance * 1e-2, err_msg=what)

    def gradients(self, ours: Any, theirs: Any, what: str = "", tolerance: float = 1e-8) -> None:
        """Those of all parameters of two modules."""
        for (name, p), q in zip(ours.named_parameters(), theirs.parameters(), strict=True):
            self.close(p.grad, q.grad, f"{what} {name}", tolerance)


@pytest.fixture
def beside(device: Any) -> Beside:
    """Comparing with torch, see :class:`Beside`."""
    return Beside(device)
