"""Every operator's samples on both libraries: values, dtypes, shapes, strides and gradients."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tesserack as ts
import torch
from tesserack.testing import cases, samples
from torch.nn._reduction import get_enum

TOLERANCE = {"float64": 1e-9, "float32": 3e-5, "float16": 8e-3, "bfloat16": 6e-2}
RECORDS = samples.records()
LAYOUTS = ("contiguous", "transposed", "stepped")
# Positions among equal elements are not determined; a norm's gradient at ties neither.
TIED = {"sort", "argsort", "topk", "kthvalue", "median.dim", "nanmedian.dim", "mode"}
# Strides are PyTorch's for views and for whatever keeps its input's layout.
KEEPS_LAYOUT = {n for n, r in RECORDS.items() if r["view"] or r["pointwise"]} - {"masked_fill", "log_sigmoid"}


def _by_number(function: Callable[..., Any]) -> Callable[..., Any]:
    """A loss of PyTorch's whose reduction is a number."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **{k: get_enum(v) if k == "reduction" else v for k, v in kwargs.items()})

    return call


def theirs(name: str) -> Callable[..., Any] | None:
    """PyTorch's function, or method, of the same name."""
    record = RECORDS[name]
    base, python_name = record["base"], record["python_name"]
    places = [torch, torch.nn.functional, torch.special]
    if "reduction='none'" in record["schema"]:  # as torch has it; nn.functional's takes the mean
        return _by_number(getattr(torch, python_name))
    if "nn.functional" in record["namespaces"]:
        places = [torch.nn.functional]
    if "linalg" in record["namespaces"]:
        return getattr(torch.linalg, python_name.removeprefix("linalg_"))
    if record["function"] or record["namespaces"]:
        for place in places:
            if callable(getattr(place, python_name, None)):
                return getattr(place, python_name)
    return getattr(torch.Tensor, base, None)


def read_differences() -> dict[str, str]:
    """Known differences, one for each dtype that a line names."""
    lines = (Path(__file__).parent / "samples_differences.txt").read_text().splitlines()
    pairs = [line.split(": ", 1) for line in lines if line.strip() and not line.startswith("#")]
    return {
        "/".join([*key.split("/")[:2], *dtype]): reason
        for key, reason in pairs
        for dtype in ([[d] for d in key.split("/")[2].split(",")] if key.count("/") == 2 else [[]])
    }


DIFFERENCES = read_differences()
NAMES = [n for n, r in RECORDS.items() if r["variant"] == "functional" and samples.samples(n) and theirs(n)]


def parameters(check: str, *others: str) -> list[Any]:
    """Cases of a check, those of known differences expected to fail."""
    found = []
    for name in NAMES:
        for other in others or ("",):
            key = f"{name}/{check}" + (f"/{other}" if other else "")
            reason = DIFFERENCES.get(key) or DIFFERENCES.get(f"{name}/{check}")
            marks = [pytest.mark.xfail(reason=reason, strict=True)] if reason else []
            found.append(pytest.param(*((name, other) if other else (name,)), marks=marks))
    return found


def as_torch(item: samples.Input, dtype: str, device: Any, layout: str) -> Any:
    """The same numbers in the same layout."""
    array = cases.values(cases.tensor(item, getattr(ts, dtype), device))
    kind = getattr(torch, dtype) if item.varies else torch.bool if array.dtype == bool else torch.int64
    if not array.ndim or layout == "contiguous":
        return torch.tensor(array, dtype=kind)
    if layout == "transposed":
        return torch.tensor(np.ascontiguousarray(array.T), dtype=kind).permute(*reversed(range(array.ndim)))
    return torch.tensor(np.repeat(array, 2, axis=-1), dtype=kind)[..., 1::2]


def outcome(call: Callable[[], Any]) -> Any:
    """The leaves of a result, or the exception."""
    try:
        return cases.leaves(call())
    except Exception as error:
        return error


def dtype_name(tensor: Any) -> str:
    return str(tensor.dtype).rsplit(".", 1)[-1]


def numbers(tensor: Any) -> Any:
    tensor = tensor.detach()
    return tensor.to(torch.float64).numpy(force=True) if tensor.dtype.is_floating_point else tensor.numpy()


def same(ours: Any, other: Any, what: str) -> None:
    if not isinstance(other, torch.Tensor):
        assert ours == other, what
        return
    assert tuple(ours.shape) == tuple(other.shape), what
    assert dtype_name(ours) == dtype_name(other), f"{what}: {ours.dtype}, not {other.dtype}"
    tolerance = TOLERANCE.get(dtype_name(other), 0.0)
    scale = np.abs(np.nan_to_num(numbers(other), posinf=0, neginf=0)).max(initial=1.0) if tolerance else 1.0
    np.testing.assert_allclose(cases.values(ours), numbers(other), tolerance, tolerance * scale, err_msg=what)


@pytest.mark.parametrize(("name", "dtype"), parameters("values", *cases.DTYPES))
def test_values(name: str, dtype: str, device: ts.device) -> None:
    """Whatever PyTorch computes, Tesserack computes too, at every dtype and layout, into the same dtype and strides."""
    function = theirs(name)
    assert function
    for sample in [s for s in samples.samples(name) if cases.suits(s, dtype)]:
        empty = any(not item.array.size for item in sample.inputs())
        for layout in LAYOUTS[:1] if name in ("view", "view_as", "as_strided", "as_strided_") else LAYOUTS:
            args, kwargs = sample.map(lambda i: as_torch(i, dtype, device, layout))  # noqa: B023
            expected = outcome(lambda: function(*args, **kwargs))  # noqa: B023
            if isinstance(expected, Exception):
                continue
            args, kwargs = cases.build(sample, getattr(ts, dtype), device, layout)
            found = outcome(lambda: cases.call(name, args, kwargs))  # noqa: B023
            what = f"{name}({sample}) of {dtype}, {layout}"
            if empty and isinstance(
                found, RuntimeError
            ):  # PyTorch does not look at the dtype when there is nothing to do
                continue
            assert not isinstance(found, Exception), f"{what}: {found!r}"
            assert len(found) == len(expected), what
            count = len(found) if name not in TIED or dtype != "bool" else 0 if name == "argsort" else 1
            for f, e in zip(found[:count], expected, strict=False):
                same(f, e, what)
                if name in KEEPS_LAYOUT and f.numel():
                    assert f.stride() == e.stride(), f"{what}: strides"


@pytest.mark.parametrize("name", parameters("gradient"))
def test_gradient(name: str, device: ts.device) -> None:
    """Gradients of every sample, those at ties and kinks included."""
    function = theirs(name)
    assert function
    for sample in samples.samples(name):
        inputs = [i for i in sample.inputs() if i.varies and i.grad]
        if "(Tensor(a!)" in RECORDS[name]["schema"] or not inputs:
            continue
        result = outcome(lambda: torch_gradients(function, sample, device))  # noqa: B023
        if isinstance(result, Exception) or not result:
            continue
        found = our_gradients(name, sample, device)
        for f, e in zip(found, result, strict=True):
            if e is None:
                assert f is None or not cases.values(f).any(), f"{name}({sample})"
            else:
                assert f is not None, f"{name}({sample})"
                same(f, e, f"{name}({sample})")


def torch_gradients(function: Any, sample: samples.Sample, device: Any) -> Any:
    leaves: list[Any] = []

    def make(item: samples.Input) -> Any:
        tensor = as_torch(item, "float64", device, "contiguous")
        if item.varies and item.grad:
            leaves.append(tensor.requires_grad_())
        return tensor

    args, kwargs = sample.map(make)
    outputs = [o for o in cases.leaves(function(*args, **kwargs)) if isinstance(o, torch.Tensor) and o.requires_grad]
    weights = [torch.arange(1.0, o.numel() + 1, dtype=torch.float64).cos().reshape(o.shape) for o in outputs]
    return torch.autograd.grad(
        outputs, leaves, [w.to(o.dtype) for w, o in zip(weights, outputs, strict=True)], allow_unused=True
    )


def our_gradients(name: str, sample: samples.Sample, device: Any) -> Any:
    leaves: list[Any] = []

    def make(item: samples.Input) -> Any:
        tensor = cases.tensor(item, ts.float64, device)
        if item.varies and item.grad:
            leaves.append(tensor.requires_grad_())
        return tensor

    args, kwargs = sample.map(make)
    outputs = [o for o in cases.leaves(cases.call(name, args, kwargs)) if isinstance(o, ts.Tensor) and o.requires_grad]
    weights = [np.cos(np.arange(1.0, o.numel() + 1)).reshape(tuple(o.shape)) for o in outputs]
    grads = [cases.tensor(samples.Input(w), o.dtype, device) for w, o in zip(weights, outputs, strict=True)]
    return ts.autograd.grad(outputs, leaves, grads, allow_unused=True)


def kinds_of_results(results: Any, args: Any, of_temporaries: bool) -> list[str]:
    """Whether each tensor is an argument itself, a view (of an argument, or also of what else there is), or new."""
    given = [leaf for arg in args for leaf in (arg if isinstance(arg, (list, tuple)) else [arg])]
    bases = [base for g in given if hasattr(g, "_is_view") for base in (g, g._base) if base is not None]

    def kind(t: Any) -> str:
        if any(t is g for g in given):
            return "same"
        return "view" if t._is_view() and (of_temporaries or any(t._base is base for base in bases)) else "new"

    return [kind(t) for t in results if hasattr(t, "_is_view")]


@pytest.mark.parametrize("name", parameters("views"))
def test_views(name: str, device: ts.device) -> None:
    """Which results are views, and which are new tensors, to be detached and written to in place at no extra cost.

    PyTorch has views of tensors that nobody holds (a sum whose dimension was squeezed); here they are new tensors.
    """
    function = theirs(name)
    assert function
    for sample in samples.samples(name):
        for layout in ("contiguous", "transposed"):
            args, kwargs = sample.map(lambda i: as_torch(i, "float64", device, layout))  # noqa: B023
            expected = outcome(lambda: function(*args, **kwargs))  # noqa: B023
            if isinstance(expected, Exception) or "(Tensor(a!)" in RECORDS[name]["schema"]:
                continue
            wanted = [kinds_of_results(expected, args, strict) for strict in (False, True)]
            args, kwargs = cases.build(sample, ts.float64, device, layout)
            found = kinds_of_results(cases.leaves(cases.call(name, args, kwargs)), args, True)
            assert found in wanted, f"{name}({sample}), {layout}"


SPECIAL = [n for n in NAMES if samples.special_values(n) and samples.dtypes(n) != "integral"]


@pytest.mark.parametrize("name", [p for p in parameters("special") if p.values[0] in SPECIAL])
def test_special_values(name: str, device: ts.device) -> None:
    """Infinities, NaN, zeros, tiny and huge numbers in float32 and float64."""
    sample, function = samples.special_values(name), theirs(name)
    assert sample and function
    for dtype in ("float64", "float32"):
        args, kwargs = sample.map(lambda i: as_torch(i, dtype, device, "contiguous"))  # noqa: B023
        expected = function(*args, **kwargs)
        args, kwargs = cases.build(sample, getattr(ts, dtype), device)
        tolerance = TOLERANCE[dtype]
        found = cases.values(cases.call(name, args, kwargs))
        np.testing.assert_allclose(found, numbers(expected), tolerance, tolerance, err_msg=f"{name} of {dtype}")


def test_differences_name_operators() -> None:
    """A difference of an operator that is gone is a leftover."""
    assert [key for key in DIFFERENCES if key.split("/")[0] not in NAMES] == []
