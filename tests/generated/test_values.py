"""Every operator at every dtype it takes and in every memory layout, against NumPy in float64."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import tesserack as ts
from tesserack.testing import cases, samples
from tesserack.testing.references import REFERENCES

TOLERANCE = {"float64": 1e-9, "float32": 3e-5, "float16": 4e-3, "bfloat16": 3e-2}
# They need, or read, one layout.
CONTIGUOUS_ONLY = {"view", "view_as", "as_strided", "as_strided_"}

RECORDS = samples.records()
NAMES = [name for name, record in RECORDS.items() if record["variant"] == "functional" and samples.samples(name)]
CASES = [(n, d) for n in NAMES for d in cases.DTYPES if any(cases.claims(n, s, d) for s in samples.samples(n))]
SPECIAL = [(n, d) for n in NAMES for d in ("float64", "float32") if n in REFERENCES and samples.special_values(n)]
SPECIAL = [(n, d) for n, d in SPECIAL if samples.dtypes(n) != "integral"]


def dtype_name(tensor: Any) -> str:
    return str(tensor.dtype).rsplit(".", 1)[-1]


def fit(expected: Any, dtype: str) -> Any:
    """The exact result as a dtype holds it: integers wrap around, floats overflow to infinity."""
    if dtype == "bool":
        return np.asarray(expected).astype(bool)
    if cases.is_floating(dtype):
        wide = np.asarray(expected, dtype=np.float64)
        with np.errstate(over="ignore"):
            return wide.astype({"bfloat16": "float32"}.get(dtype, dtype)).astype(np.float64)
    return np.asarray(expected).astype(np.int64).astype(dtype).astype(np.int64)


def compare(actual: Any, expected: Any, what: str, slack: float = 1.0) -> None:
    if not isinstance(actual, ts.Tensor):
        assert actual == expected, what
        return
    dtype = dtype_name(actual)
    expected = fit(expected, dtype)
    assert tuple(actual.shape) == expected.shape, f"{what}: shape {tuple(actual.shape)}, expected {expected.shape}"
    if cases.is_floating(dtype):
        tolerance = TOLERANCE[dtype] * slack
        finite = np.abs(expected[np.isfinite(expected)])
        atol = tolerance * max(1.0, finite.max(initial=0.0)) if slack > 1 else tolerance
        np.testing.assert_allclose(cases.values(actual), expected, rtol=tolerance, atol=atol, err_msg=what)
    else:
        np.testing.assert_array_equal(cases.values(actual), expected, err_msg=what)


# Their result depends on the dtype they are called with, by definition.
DTYPE_BOUND = {"type_as", "float", "double", "half", "bfloat16"}
# Operators whose positions are not determined among equal elements, of which bool tensors are full.
TIED = {"sort", "argsort", "topk", "kthvalue", "median.dim", "nanmedian.dim"}


def expectation(name: str, sample: samples.Sample, dtype: str, device: Any) -> list[Any] | None:
    """What the call should give: from the reference, or else from the operator itself in float64."""
    reference = REFERENCES.get(samples.ALIASES.get(name, name))
    if reference:
        args, kwargs = sample.map(lambda item: reference_input(item, name, dtype, device))
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return cases.leaves(reference(*args, **kwargs))
    if not cases.is_floating(dtype) or name in DTYPE_BOUND:
        return None
    args, kwargs = sample.map(lambda item: widen(cases.tensor(item, getattr(ts, dtype), device)))
    return [
        leaf if isinstance(leaf, bool) else cases.values(leaf) for leaf in cases.leaves(cases.call(name, args, kwargs))
    ]


def reference_input(item: samples.Input, name: str, dtype: str, device: Any) -> Any:
    """The numbers the operator sees; truth values as 0 and 1 where it computes with them."""
    array = cases.values(cases.tensor(item, getattr(ts, dtype), device))
    return array.astype(np.int64) if item.varies and dtype == "bool" and samples.dtypes(name) != "integral" else array


def widen(tensor: ts.Tensor) -> ts.Tensor:
    return tensor.double() if tensor.is_floating_point() else tensor


@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_values(name: str, dtype: str, device: ts.device) -> None:
    """Shape and values of every sample, in every layout; the layouts agree where nothing else is known."""
    slack = 1.0 if RECORDS[name]["pointwise"] else 4.0
    for sample in samples.samples(name):
        if not cases.claims(name, sample, dtype):
            continue
        expected = expectation(name, sample, dtype, device)
        for layout in cases.LAYOUTS[:1] if name in CONTIGUOUS_ONLY else cases.LAYOUTS:
            args, kwargs = cases.build(sample, getattr(ts, dtype), device, layout)
            results = cases.leaves(cases.call(name, args, kwargs))
            if expected is None:
                expected = [cases.values(r) for r in results]
            assert len(results) == len(expected)
            if dtype == "bool" and name in TIED:
                results = results[: 0 if name == "argsort" else 1]
            for result, wanted in zip(results, expected, strict=False):
                compare(result, wanted, f"{name}({sample}) of {dtype}, {layout}", slack)


@pytest.mark.parametrize(("name", "dtype"), SPECIAL)
def test_special_values(name: str, dtype: str, device: ts.device) -> None:
    """Infinities, NaN, zeros, tiny and huge numbers come out as in NumPy."""
    sample = samples.special_values(name)
    assert sample
    args, _ = cases.build(sample, getattr(ts, dtype), device)
    expected = expectation(name, sample, dtype, device)
    assert expected
    compare(cases.call(name, args, {}), expected[0], f"{name} of special values, {dtype}")
