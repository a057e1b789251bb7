"""Kernels as data: what declarations say of them against what kernels are given, and against decompositions."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Any

import pytest
import tesserack as ts
from tesserack import _native
from tesserack.testing import cases, samples
from tesserack.testing.conformance.gradients import DIFFERENTIABLE, differentiable, function

ALL = {r["name"]: r for r in _native._operators() if r["origin"] == "tesserack"}
DECLARED = {n: r for n, r in ALL.items() if r["kernel"] and r["variant"] == "functional"}


def calls(name: str, device: Any) -> Iterator[tuple[str, Any, Any]]:
    for sample in samples.samples(name):
        dtype = next((d for d in ("float32", "int64", "bool") if cases.claims(name, sample, d)), None)
        if dtype:
            args, kwargs = cases.build(sample, getattr(ts, dtype), device)
            yield str(sample), args, kwargs


def test_every_primitive_names_a_kernel_or_parts_or_says_why_it_is_code() -> None:
    for name, r in ALL.items():
        if r["kind"] != "primitive":
            assert not r["kernel"] and not r["code"], name
            continue
        ways = bool(r["kernel"] or r["decomposes"]) + bool(r["code"])
        assert ways == 1, f"{name}: expected a kernel or a decomposition, or the reason why it is code"
        assert not r["code"] or len(r["code"].split()) >= 3, f"{name}: {r['code']!r} is no reason"


def test_kernels_speak_of_arguments() -> None:
    for name, r in DECLARED.items():
        names = {p.split()[-1].split("=")[0] for p in r["schema"].partition("(")[2].rpartition(") ->")[0].split(", ")}
        spec = r["kernel"]
        for argument, how in (*spec["operands"], *spec["parameters"]):
            assert argument in names or argument.isdigit(), f"{name}: {argument}"
            assert how, name
        lists = sum(bool(re.search(rf"\[\] {argument}\b", r["schema"])) for argument, _ in spec["operands"])
        assert _native._kernel_signature(spec["name"])["parameters"][lists:] == [n for n, _ in spec["parameters"]], name
        assert all(lists <= k < lists + len(spec["parameters"]) for k in spec["changing"]), name


@contextlib.contextmanager
def withheld() -> Iterator[None]:
    """Declared kernels that have a decomposition count as missing."""
    before = _native._withhold_kernels(True)
    try:
        yield
    finally:
        _native._withhold_kernels(before)


@pytest.mark.parametrize("name", [n for n, r in DECLARED.items() if r["decomposes"] and samples.samples(n)])
def test_decompositions_give_what_kernels_give(name: str, device: ts.device) -> None:
    for shown, args, kwargs in calls(name, device):
        ts.manual_seed(0)
        by_kernel = [cases.values(t) for t in cases.leaves(cases.call(name, args, kwargs))]
        ts.manual_seed(0)
        with withheld():
            made = cases.leaves(cases.call(name, args, kwargs))
        for t, expected in zip(made, by_kernel, strict=True):
            assert ts.allclose(t, ts.tensor(expected, device=device).to(t.dtype), 1e-4, 1e-5, equal_nan=True), shown


def test_decompositions_run_on_the_meta_device() -> None:
    """So that a tracer can take them instead of a kernel: results are of the shapes and dtypes that the rule tells."""
    meta, met = ts.device("meta"), 0
    for name, r in DECLARED.items():
        if not r["decomposes"] or r["effects"]["reads_host"]:
            continue
        for shown, args, kwargs in calls(name, meta):
            plain = cases.leaves(cases.call(name, args, kwargs))
            with ts.dispatch.decompositions(name) as parts:
                made = cases.leaves(cases.call(name, args, kwargs))
            assert [(t.shape, t.dtype) for t in made] == [(t.shape, t.dtype) for t in plain], (name, shown)
            met += bool(parts)
    assert met > 10


def test_lowering_is_told() -> None:
    told = ts.dispatch.lowering("softmax")
    assert told["kernel"]["name"] == "softmax"
    assert told["kernel"]["operands"] == [("self", "contiguous result")]
    assert told["kernel"]["parameters"] == [("dim", "dim wrapped self")]
    assert told["decomposes"]
    assert told["code"] is None
    step = ts.dispatch.lowering("adam_step_")["kernel"]
    assert [step["parameters"][k - 5][0] for k in step["changing"]] == ["step", "lr"]
    with pytest.raises(RuntimeError, match="no operator named"):
        ts.dispatch.lowering("no_such")


# Made of declared kernels whose operators are hidden: the same of their values and gradients.
THROUGH = (
    *("softmax", "log_softmax", "layer_norm", "group_norm", "batch_norm", "nll_loss", "cross_entropy", "embedding"),
    *("conv1d", "conv2d", "conv3d", "conv_transpose2d", "max_pool2d", "avg_pool2d", "scaled_dot_product_attention"),
    *("cat", "tril", "triu"),
)


@pytest.mark.parametrize("name", [n for n in THROUGH if n in DIFFERENTIABLE])
def test_gradients_by_decompositions(name: str, device: ts.device) -> None:
    for sample in filter(differentiable, samples.samples(name)):
        call, leaves = function(name, sample, ts.float32, device)

        def derived(call: Any = call, leaves: Any = leaves) -> list[Any]:
            results = [o for o in call(*leaves) if o.requires_grad]
            return [*results, *ts.autograd.grad([o.sum() for o in results], leaves, allow_unused=True)]

        by_kernel = derived()
        with withheld():
            made = derived()
        for t, expected in zip(made, by_kernel, strict=True):
            assert (t is None) == (expected is None), sample
            assert t is None or ts.allclose(t, expected, 1e-3, 1e-4, equal_nan=True), sample
