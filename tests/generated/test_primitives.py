"""Rules, computations and effects: what declarations say against what calls do."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import tesserack as ts
from tesserack import _native
from tesserack.testing import cases, samples
from tesserack.testing.conformance.gradients import DIFFERENTIABLE, differentiable, function

ALL = {r["name"]: r for r in _native._operators()}
FUNCTIONAL = [n for n, r in samples.records().items() if r["variant"] == "functional" and samples.samples(n)]
OUT = {
    n: cases.functional_name(r)
    for n, r in samples.records().items()
    if r["variant"] == "out" and ALL[cases.functional_name(r)]["computes"]
}
# What these read on the host has not been looked at yet.
UNSEEN = ("det", "slogdet", "logdet", "matrix_exp", "linalg_det", "linalg_slogdet", "linalg_matrix_exp",
          "linalg_matrix_rank", "linalg_pinv", "linalg_svdvals")  # fmt: skip


def calls(name: str, device: Any, layout: str = "contiguous") -> Iterator[tuple[str, Any, Any]]:
    for sample in samples.samples(name):
        dtype = next((d for d in ("float32", "int64", "bool") if cases.claims(name, sample, d)), None)
        if dtype:
            args, kwargs = cases.build(sample, getattr(ts, dtype), device, layout)
            yield str(sample), args, kwargs


def test_every_operator_is_of_a_kind_and_keeps_its_promises() -> None:
    """What has a body is made of other operators, shows memory in another way, or answers the host: no primitive."""
    for name, r in ALL.items():
        if r["origin"] != "tesserack" or r["variant"] != "functional":
            continue
        kind, results = r["kind"], r["schema"].rpartition("-> ")[2]
        assert r["computes"] == (kind == "primitive"), name
        assert r["pointwise"] == (kind == "pointwise"), name
        assert r["rule"] or kind not in ("primitive", "data-dependent"), name
        assert kind != "view" or results.startswith("Tensor(a)") or name == "_unsafe_view", name
        assert kind != "view" or not any(r["effects"].values()), name
        assert ("Tensor" not in results) or kind != "answer", name
        assert r["effects"]["data_dependent"] or kind != "data-dependent", name


def allocations(device: Any, call: Callable[[], Any]) -> tuple[Any, int]:
    before = ts.memory_stats(device)["allocations"]
    result = call()
    return result, ts.memory_stats(device)["allocations"] - before


@pytest.mark.parametrize("name", OUT)
def test_out_is_written_in_place(name: str, device: ts.device) -> None:
    """A tensor laid out as the result is computed into: no copy, and one allocation less for each result."""
    for shown, args, kwargs in calls(OUT[name], device):
        kwargs = {**kwargs, "device": device} if "Device" in ALL[name]["schema"] and "device" not in kwargs else kwargs
        if name in ("var.correction_out", "std.correction_out"):
            kwargs = {"correction": None, **kwargs}  # else it is a call of those by `unbiased`, which are made of these
        ts.manual_seed(0)
        fresh, spent = allocations(device, lambda a=args, k=kwargs: cases.call(OUT[name], a, k))
        results = cases.leaves(fresh)
        targets = [ts.empty_strided(r.shape, r.stride(), dtype=r.dtype, device=device) for r in results]
        places = [t.data_ptr() for t in targets]
        ts.manual_seed(0)
        out = targets[0] if len(targets) == 1 else tuple(targets)
        _, into = allocations(device, lambda a=args, k=kwargs, o=out: cases.call(name, a, {**k, "out": o}))
        assert into <= spent - sum(t.numel() > 0 for t in targets), shown  # memory of no bytes is not counted
        for target, result, place in zip(targets, results, places, strict=True):
            assert target.data_ptr() == place
            assert target.stride() == result.stride()
            assert ts.allclose(target, result, equal_nan=True), shown


def observe(device: Any, call: Callable[[], Any]) -> dict[str, bool]:
    """Which effects a call had."""
    generator = ts.random.default_generator(device)
    before = generator._position()
    try:
        with ts.transfer_guard("error", ["synchronize"]):
            call()
        waits = False
    except RuntimeError as error:
        if "transfer guard" not in str(error) and "transfer_guard" not in str(error):
            raise
        waits = True
    return {"random": generator._position() != before, "reads_host": waits}


@pytest.mark.parametrize("name", [n for n in FUNCTIONAL if n.partition(".")[0] not in UNSEEN])
def test_effects(name: str, device: ts.device) -> None:
    """Whatever a call is seen to do is declared."""
    effects = ALL[name]["effects"]
    for shown, args, kwargs in calls(name, device):
        seen = observe(device, lambda a=args, k=kwargs: cases.call(name, a, k))
        undeclared = [effect for effect, happened in seen.items() if happened and not effects[effect]]
        assert undeclared == [], shown


class Recorder:
    """Sees every operator that a call comes to, parts of composites and computations included."""

    def __init__(self) -> None:
        self.key = ts.dispatch.register_key("PrimitivesTest", before="Autograd")
        self.key.fallback(self.see)
        self.wrong: list[str] = []
        self.seen: set[str] = set()

    def see(self, call: ts.dispatch.Call, *args: Any) -> Any:
        if call.op not in ALL:  # derivatives become operators when they are first needed
            ALL.update({r["name"]: r for r in _native._operators()})
        record = ALL[call.op]
        outlines = call.outline(*args)
        versions = [getattr(a, "_version", None) for a in args]
        results = call.redispatch(*args)
        inside = record["schema"].rpartition(") ->")[0].partition("(")[2]
        texts = re.split(r", (?![^\[]*\])", inside)  # a default may be a list
        names = [text.split()[-1].split("=")[0] for text in texts if text not in ("", "*")]
        for name, arg, version in zip(names, args, versions, strict=True):
            if version is not None and arg._version != version and name not in record["effects"]["mutates"]:
                self.wrong.append(f"{call.op} writes {name}")
        if outlines:
            self.seen.add(call.op)
            self.compare(call.op, record, outlines, results)
        return results

    def compare(self, op: str, record: Any, outlines: Any, results: Any) -> None:
        made = [t for t in (results if isinstance(results, (tuple, list)) else [results]) if t is not None]
        real = [(tuple(t.shape), t.stride(), t.dtype, t.device) for t in made]
        if record["kind"] != "data-dependent":
            if real != outlines:
                self.wrong.append(f"{op}: the rule says {outlines}, the call made {real}")
            return
        assert len(outlines) == len(real), op
        for o, r in zip(outlines, real, strict=True):
            if o[2:] != r[2:] or len(o[0]) != len(r[0]) or any(a > b for a, b in zip(o[0], r[0], strict=True)):
                self.wrong.append(f"{op}: the rule says {o} or more, the call made {r}")


@pytest.fixture(scope="module")
def recorder() -> Recorder:
    return Recorder()


@pytest.mark.parametrize("layout", ["contiguous", "transposed", "stepped"])
@pytest.mark.parametrize("name", FUNCTIONAL)
def test_rules_agree_with_runs(name: str, layout: str, device: ts.device, recorder: Recorder) -> None:
    """Sizes, strides, dtype and device of results follow from the rule; nothing is written that the schema hides."""
    recorder.wrong.clear()
    if layout != "contiguous" and name in ("view", "view_as", "as_strided", "as_strided_"):
        pytest.skip("asks for strides that it does not get in this layout")
    for shown, args, kwargs in calls(name, device, layout):
        with recorder.key.enabled():
            cases.call(name, args, kwargs)
        assert recorder.wrong == [], shown


def gradients(device: Any) -> Iterator[Callable[[], Any]]:
    for name in DIFFERENTIABLE:
        for sample in filter(differentiable, samples.samples(name)):
            call, leaves = function(name, sample, ts.float32, device)
            yield lambda call=call, leaves=leaves: ts.autograd.grad(
                [o.sum() for o in call(*leaves) if o.requires_grad], leaves, allow_unused=True
            )


def test_rules_agree_with_runs_of_gradients(device: ts.device, recorder: Recorder) -> None:
    """The same of what backward passes call, hidden operators mostly."""
    recorder.wrong.clear()
    for run in gradients(device):
        with recorder.key.enabled():
            run()
    assert recorder.wrong == []


def test_mutations_follow_from_schemas() -> None:
    for name, record in ALL.items():
        written = [a.split()[-1].split("=")[0] for a in record["schema"].split(") ->")[0].split(", ") if "!" in a]
        assert record["effects"]["mutates"] == written, name
