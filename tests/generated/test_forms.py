"""The other forms of every operator, and all of them on the meta device."""

from __future__ import annotations

import pytest
import tesserack as ts
from tesserack.testing import cases, samples

RECORDS = samples.records()
FORMS = {n: cases.functional_name(r) for n, r in RECORDS.items() if r["variant"] in ("inplace", "out")}
META = [n for n, r in RECORDS.items() if r["variant"] == "functional" and samples.samples(n)]
# What they return depends on the values of their tensors.
DATA_DEPENDENT = {
    "allclose", "equal", "nonzero", "argwhere", "where", "masked_select", "one_hot", "bincount", "histc",
    "repeat_interleave.Tensor", "repeat_interleave.self_Tensor", "cpu",
}  # fmt: skip


def test_forms_have_an_operator() -> None:
    """Every in-place and out= form belongs to a functional operator."""
    assert [n for n, f in FORMS.items() if f not in RECORDS] == []


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
            if isinstance(expected[0], bool):  # an answer to the host: equal, is_conj
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
