"""Rules, computations and effects: what declarations say against what calls do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import tesserack as ts
from tesserack import _native
from tesserack.testing import cases, samples

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


def calls(name: str, device: Any) -> Iterator[tuple[str, Any, Any]]:
    for sample in samples.samples(name):
        dtype = next((d for d in ("float32", "int64", "bool") if cases.claims(name, sample, d)), None)
        if dtype:
            args, kwargs = cases.build(sample, getattr(ts, dtype), device)
            yield str(sample), args, kwargs


def test_bodies_that_are_left() -> None:
    """Primitives with a body of their own: the list may only become shorter."""
    left = {
        name
        for name, r in ALL.items()
        if r["variant"] == "functional"
        and r["origin"] == "tesserack"
        and not (r["composite"] or r["computes"] or r["pointwise"] or r["view"])
    }
    listed = (Path(__file__).parent / "bodies.txt").read_text().splitlines()
    assert sorted(left) == [line for line in listed if not line.startswith("#")]


def allocations(device: Any, call: Callable[[], Any]) -> tuple[Any, int]:
    before = ts.memory_stats(device)["allocations"]
    result = call()
    return result, ts.memory_stats(device)["allocations"] - before


@pytest.mark.parametrize("name", OUT)
def test_out_is_written_in_place(name: str, device: ts.device) -> None:
    """A tensor laid out as the result is computed into: no copy, and one allocation less for each result."""
    for shown, args, kwargs in calls(OUT[name], device):
        kwargs = {**kwargs, "device": device} if "Device" in ALL[name]["schema"] and "device" not in kwargs else kwargs
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


def test_mutations_follow_from_schemas() -> None:
    for name, record in ALL.items():
        written = [a.split()[-1].split("=")[0] for a in record["schema"].split(") ->")[0].split(", ") if "!" in a]
        assert record["effects"]["mutates"] == written, name
