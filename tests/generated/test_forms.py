"""The other forms of every operator: in place, out=, on the meta device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tesserack as ts
from tesserack.testing import cases, samples

RECORDS = samples.records()


def functional_name(record: dict[str, Any]) -> str:
    """The operator that an in-place or out= form varies: "add_" and "add.out" are forms of "add"."""
    base, _, overload = record["name"].partition(".")
    if record["variant"] == "inplace":
        base = base.removesuffix("_")
    else:
        overload = overload.removesuffix("out").removesuffix("_")
    return f"{base}.{overload}" if overload else base


FORMS = {
    kind: {n: functional_name(r) for n, r in RECORDS.items() if r["variant"] == kind} for kind in ("inplace", "out")
}
INPLACE = [(n, f, d) for n, f in FORMS["inplace"].items() for d in ("float32", "int64") if samples.samples(f)]
OUT = [(n, f) for n, f in FORMS["out"].items() if samples.samples(f)]
META = [n for n, r in RECORDS.items() if r["variant"] == "functional" and samples.samples(n)]
# What they return depends on the values of their tensors.
DATA_DEPENDENT = {
    "allclose", "equal", "nonzero", "argwhere", "where", "masked_select", "one_hot", "bincount", "histc",
    "repeat_interleave.Tensor", "repeat_interleave.self_Tensor", "cpu",
}  # fmt: skip


def same(actual: Any, expected: Any, what: str) -> None:
    assert actual.dtype == expected.dtype, what
    tolerance = 1e-12 if actual.dtype == ts.float64 else 1e-5
    np.testing.assert_allclose(cases.values(actual), cases.values(expected), tolerance, tolerance, err_msg=what)


def test_forms_have_an_operator() -> None:
    """Every in-place and out= form belongs to a functional operator."""
    assert [n for forms in FORMS.values() for n, f in forms.items() if f not in RECORDS] == []


@pytest.mark.parametrize(("name", "functional", "dtype"), INPLACE)
def test_inplace(name: str, functional: str, dtype: str, device: ts.device) -> None:
    """x.op_() is x.op() written into x, whatever its layout; impossible writes are refused and leave x alone."""
    for sample in samples.samples(functional):
        if not cases.claims(functional, sample, dtype) or not isinstance(sample.args[0], samples.Input):
            continue
        for layout in cases.LAYOUTS[:1] if RECORDS[functional]["view"] else cases.LAYOUTS:
            args, kwargs = cases.build(sample, getattr(ts, dtype), device, layout)
            this, before, version = args[0], args[0].clone(), args[0]._version
            expected = cases.leaves(cases.call(functional, [before.clone(), *args[1:]], kwargs))[0]
            reshapes = expected.shape != this.shape and not RECORDS[functional]["view"]
            if reshapes or not ts.can_cast(expected.dtype, this.dtype):
                with pytest.raises(RuntimeError):
                    getattr(this, name.split(".")[0])(*args[1:], **kwargs)
                same(this, before, f"{name}({sample}) was refused")
                continue
            assert getattr(this, name.split(".")[0])(*args[1:], **kwargs) is this
            assert this._version > version
            same(this, expected.to(this.dtype), f"{name}({sample}) of {dtype}, {layout}")


@pytest.mark.parametrize(("name", "functional"), OUT)
def test_out(name: str, functional: str, device: ts.device) -> None:
    """out= receives the result: resized when empty, as it lies when it fits, converted when that loses nothing."""
    for sample in samples.samples(functional):
        dtype = "float32" if cases.claims(functional, sample, "float32") else "int64"
        args, kwargs = cases.build(sample, getattr(ts, dtype), device)
        expected = cases.call(functional, args, kwargs)
        wanted = cases.leaves(expected)
        for make in (empty_like, stepped_like, wider_like):
            outs = [make(w) for w in wanted]
            memory = [o.data_ptr() for o in outs]
            result = cases.call(
                functional, args, {**kwargs, "out": tuple(outs) if isinstance(expected, tuple) else outs[0]}
            )
            for r, o, w, m in zip(cases.leaves(result), outs, wanted, memory, strict=True):
                assert r is o
                assert m == o.data_ptr() or make is empty_like
                assert r.shape == w.shape
                same(r.to(w.dtype), w, f"{name}({sample}), {make.__name__}")
        if dtype == "float32" and all(w.is_floating_point() for w in wanted):
            outs = [ts.zeros(w.shape, dtype=ts.int64, device=device) for w in wanted]
            with pytest.raises(RuntimeError):
                cases.call(functional, args, {**kwargs, "out": tuple(outs) if isinstance(expected, tuple) else outs[0]})


def empty_like(tensor: ts.Tensor) -> ts.Tensor:
    """Resized by the operator."""
    return ts.empty(0, dtype=tensor.dtype, device=tensor.device)


def stepped_like(tensor: ts.Tensor) -> ts.Tensor:
    """Written through, every other element of a larger tensor."""
    if not tensor.ndim:
        return ts.empty_like(tensor)
    return ts.zeros(*tensor.shape[:-1], tensor.shape[-1] * 2, dtype=tensor.dtype, device=tensor.device)[..., ::2]


def wider_like(tensor: ts.Tensor) -> ts.Tensor:
    """The result is converted into it."""
    return ts.empty_like(tensor, dtype=ts.float64 if tensor.is_floating_point() else tensor.dtype)


@pytest.mark.parametrize("name", META)
def test_meta(name: str, device: ts.device) -> None:
    """Tensors without storage get the shapes, strides and dtypes that real ones get."""
    for sample in samples.samples(name):
        if not any(True for _ in sample.inputs()):
            continue
        dtype = ts.float32 if cases.claims(name, sample, "float32") else ts.int64
        for layout in ("contiguous", "transposed"):
            if layout == "transposed" and name in ("view", "view_as", "as_strided", "as_strided_"):
                continue
            args, kwargs = cases.build(sample, dtype, device, layout)
            expected = cases.leaves(cases.call(name, args, kwargs))
            meta_args, meta_kwargs = sample.map(lambda item: as_meta(cases.tensor(item, dtype, device, layout)))  # noqa: B023
            try:
                results = cases.leaves(cases.call(name, meta_args, meta_kwargs))
            except (RuntimeError, NotImplementedError):
                if name in DATA_DEPENDENT:
                    continue
                raise
            if name == "equal":
                continue
            for r, e in zip(results, expected, strict=True):
                assert r.is_meta
                described = [(t.shape, t.stride(), t.dtype) for t in (r, e)]
                assert described[0] == described[1], f"{name}({sample}), {layout}"


def as_meta(tensor: ts.Tensor) -> ts.Tensor:
    return (
        ts.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")
        if positive(tensor)
        else tensor.to("meta")
    )


def positive(tensor: ts.Tensor) -> bool:
    return all(s >= 0 for s in tensor.stride())
