"""vmap over the operators of torch's own sample database: what calls one by one give, whichever tensors are mapped.

A part of the operators is run, another one with every seed; FULL=1 runs all.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import tesserack as ts
from op_samples import (
    RANDOM,
    Sample,
    Standin,
    Unsupported,
    bare,
    database,
    flat,
    mapped,
    numpy_of,
    ours_of,
    title,
    torch,
)  # fmt: skip
from tesserack.testing.seeds import turn

SHARE = 16
SAMPLES = 5
ENTRIES = 3
TESTED = [torch.float64, torch.complex128, torch.int64]


def tensors_of(sample: Sample) -> list[Any]:
    return [item.tensor for item in flat(sample.ours) if isinstance(item, Standin)]


def call(op: Any, sample: Sample, tensors: Any) -> tuple[Any, ...]:
    """The tensors that an operator gives where these stand for those of the sample."""
    given = iter(tensors)
    before = sample.ours
    try:
        sample.ours = mapped(before, lambda item: Standin(next(given)) if isinstance(item, Standin) else item)
        found = bare(sample.finish(ours_of(op, sample)))
    finally:
        sample.ours = before
    return tuple(item for item in flat(found) if isinstance(item, ts.Tensor))


def others(tensor: Any) -> list[Any]:
    """Another tensor for each entry; integers may be places, and stay."""
    if not (tensor.is_floating_point() or tensor.is_complex()):
        return [tensor.detach()] * ENTRIES
    return [tensor.detach() * (1 - 0.05 * k) for k in range(ENTRIES)]


def choices(count: int) -> Any:
    """Which tensors are mapped: all of them, and each alone."""
    yield [True] * count
    yield from ([k == place for k in range(count)] for place in range(count) if count > 1)


def compare(op: Any, sample: Sample, tensors: list[Any], mapping: list[bool], dim: int) -> None:
    rows: list[list[Any]] = [[] for _ in range(ENTRIES)]
    given, dims = [], []
    for tensor, along in zip(tensors, mapping, strict=True):
        values = others(tensor) if along else [tensor.detach()] * ENTRIES
        for row, value in zip(rows, values, strict=True):
            row.append(value)
        given.append(ts.stack(values, dim) if along else tensor.detach())
        dims.append(dim if along else None)
    try:
        single = [call(op, sample, row) for row in rows]
    except Unsupported:
        raise
    except Exception:
        return  # refused for some entry
    if not single[0] or any([x.shape for x in one] != [x.shape for x in single[0]] for one in single):
        return
    found = ts.func.vmap(lambda *args: call(op, sample, args), in_dims=tuple(dims))(*given)
    assert len(found) == len(single[0])
    for got, parts in zip(found, zip(*single, strict=True), strict=True):
        wanted = ts.stack(list(parts))
        assert got.shape == wanted.shape and got.dtype is wanted.dtype, f"mapped {mapping} along {dim}"
        np.testing.assert_allclose(numpy_of(got), numpy_of(wanted), 1e-7, 1e-9, err_msg=f"mapped {mapping} along {dim}")


def run(op: Any, dtype: Any, device: Any) -> None:
    torch.manual_seed(0)
    for given in itertools.islice(op.sample_inputs("cpu", dtype), SAMPLES):
        if given.kwargs.get("dropout_p") or given.kwargs.get("dropout"):
            continue
        try:
            sample = Sample(given, device)
            tensors = tensors_of(sample)
            for mapping in choices(len(tensors)) if tensors else ():
                for dim in (0, -1):
                    compare(op, sample, tensors, mapping, dim)
        except Unsupported:
            continue


# Where another answer is right: samples that lie elsewhere in memory, draws, and what all entries share.
SKIPPED = {
    "as_strided": "samples that begin elsewhere in memory",
    "as_strided_copy": "samples that begin elsewhere in memory",
    "as_strided_scatter": "samples that begin elsewhere in memory",
    "svd_lowrank": "draws",
    "pca_lowrank": "draws",
    "nn.functional.multi_head_attention_forward": "drops out",
    "native_batch_norm": "writes statistics that entries share: refused",
    "nn.functional.batch_norm": "writes statistics that entries share: refused",
    "nn.functional.instance_norm": "writes statistics that entries share: refused",
    "view_as_complex": "pairs that are no longer side by side",
    "view_as": "views that do not exist",
    "view": "views that do not exist",
}
BACKWARDS = ("__rpow__", "__rsub__", "__rmatmul__", "__rmod__", "__rdiv__")  # torch's wrappers refuse stand-ins


def cases() -> list[Any]:
    skipped = ("jiterator", "sparse", "to_sparse", *BACKWARDS)
    chosen = [
        op
        for op in database.op_db
        if not op.name.startswith(skipped) and op.name not in SKIPPED and not any(word in op.name for word in RANDOM)
    ]
    every = [(op, dtype) for op in chosen for dtype in TESTED if dtype in op.supported_dtypes("cpu")]
    return [pytest.param(op, dtype, id=f"{title(op)}-{str(dtype)[6:]}") for op, dtype in turn(every, SHARE)]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("op", "dtype"), cases())
def test_operator(op: Any, dtype: Any, device: Any) -> None:
    run(op, dtype, device)
