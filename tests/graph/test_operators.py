"""Each operator's samples: traced, printed, parsed, run by level and optimised: equal in bits to eager."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import tesserack as ts
from programs import record, run, same_bits
from tesserack import _native
from tesserack.testing import cases, samples, seeds

NAMES = seeds.turn(
    [
        n
        for n, r in samples.records().items()
        if r["variant"] in ("functional", "inplace") and samples.samples(n) and r["origin"] == "tesserack"
    ],
    4,
)


def tensors(value: Any) -> list[ts.Tensor]:
    if isinstance(value, ts.Tensor):
        return [value]
    return [t for part in value for t in tensors(part)] if isinstance(value, (list, tuple)) else []


def build(sample: Any, dtype: str, device: Any, layout: str) -> tuple[Any, Any, list[ts.Tensor]]:
    args, kwargs = cases.build(sample, getattr(ts, dtype), device, layout)
    ts.manual_seed(0)
    return args, kwargs, tensors(list(args) + list(kwargs.values()))


def results_of(name: str, args: Any, kwargs: Any) -> list[ts.Tensor]:
    return [t for t in cases.leaves(cases.call(name, args, kwargs)) if isinstance(t, ts.Tensor)]


@pytest.mark.parametrize("name", NAMES)
def test_a_recorded_call_gives_the_bits_of_eager(name: str, device: ts.device) -> None:
    for sample in samples.samples(name):
        dtype = next((d for d in ("float32", "int64", "bool") if cases.claims(name, sample, d)), None)
        if dtype is None:
            continue
        for layout in ("contiguous", "stepped"):
            args, kwargs, _ = build(sample, dtype, device, layout)
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    expected = results_of(name, args, kwargs)
            except (RuntimeError, NotImplementedError, TypeError):
                continue  # not of this dtype, or not on this device: others test what it raises
            args, kwargs, given = build(sample, dtype, device, layout)
            recorded, traced = record(lambda *_, a=args, k=kwargs: results_of(name, a, k), *given)
            said = f"{sample} {layout}\n{recorded}"
            assert all(map(same_bits, traced, expected)), said
            text = str(recorded)
            if "generator(" not in text:
                again = _native._Graph.parse(text, recorded.captured)
                assert str(again) == text, said
                recorded = again
            leaf = recorded.leaf_level()
            for level in (recorded.outer_level(), leaf, leaf.specialised().optimised(True)):
                _, _, fresh = build(sample, dtype, device, layout)
                with ts.no_grad():
                    got = run(level, *fresh)
                assert all(map(same_bits, got, expected)), f"{said}\n{level}"
