"""Results that a program gives with ``out=`` are steps of its graph, whoever writes the graph down."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tesserack as ts
from tesserack.fx.experimental.proxy_tensor import make_fx
from tesserack.testing import cases, samples
from tesserack.utils import _pytree as pytree

RECORDS = samples.records()
OUT = {cases.functional_name(r) for r in RECORDS.values() if r["variant"] == "out"}
RANDOM = {name for name, r in RECORDS.items() if r["effects"]["random"] or r["effects"]["data_dependent"]}
NAMES = [name for name in RECORDS if name in OUT - RANDOM and samples.samples(name)]


def program(name: str, sample: samples.Sample, device: str) -> tuple[Any, list[ts.Tensor]]:
    """The call as a function of its tensors, and these."""
    args, kwargs = cases.build(sample, ts.float32, device)
    leaves, spec = pytree.tree_flatten((args, kwargs))
    given = [leaf for leaf in leaves if isinstance(leaf, ts.Tensor)]
    like = cases.call(name, args, kwargs)

    def run(*tensors: ts.Tensor) -> tuple[ts.Tensor, ...]:
        rest = iter(tensors)
        now, named = pytree.tree_unflatten([next(rest) if isinstance(x, ts.Tensor) else x for x in leaves], spec)
        outs = tuple(ts.full(e.shape, 7, dtype=e.dtype, device=e.device) for e in cases.leaves(like))
        cases.call(name, now, {**named, "out": outs if isinstance(like, tuple) else outs[0]})
        return tuple(out.clone() for out in outs)

    return run, given


def same(found: tuple[ts.Tensor, ...], expected: tuple[ts.Tensor, ...]) -> bool:
    return all(
        np.array_equal(cases.values(a), cases.values(b), equal_nan=True) for a, b in zip(found, expected, strict=True)
    )


def traced(run: Any) -> Any:
    return lambda *given: ts.jit.trace(run, given, check_trace=False)


@pytest.mark.filterwarnings("ignore:.*jit.trace")
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("write", [make_fx, traced])
def test_graphs_have_what_out_takes(name: str, write: Any, device: str) -> None:
    tried = 0
    for sample in samples.samples(name)[:3]:
        if not cases.claims(name, sample, "float32"):
            continue
        run, given = program(name, sample, device)
        if not given:
            continue
        graph = write(run)(*given)
        others = [x * 0.75 if x.is_floating_point() else x for x in given]
        assert same(graph(*others), run(*others)), f"{name}({sample})"
        tried += 1
    if not tried:
        pytest.skip("no sample in float32 with tensors")
