"""Tangents of forward mode for the operators of torch's own sample database, beside torch's.

A part of the operators is run, another one with every seed; FULL=1 runs all. ``forward_mode_differences.txt`` lists
what differs, with a reason.
"""

from __future__ import annotations

from typing import Any

import pytest
import tesserack as ts
from op_samples import (
    RANDOM,
    Sample,
    Standin,
    Unsupported,
    check,
    database,
    differences,
    flat,
    judge,
    mapped,
    ours_of,
    title,
    torch,
)  # fmt: skip
from tesserack.autograd import forward_ad as ours_ad
from tesserack.testing.seeds import turn
from torch.autograd import forward_ad as theirs_ad

SHARE = 6
SAMPLES = 3
KNOWN = differences("forward_mode_differences.txt")


def tangents(ad: Any, results: Any) -> list[Any]:
    found = [item.tensor if isinstance(item, Standin) else item for item in flat(results)]
    found = [ad.unpack_dual(t).tangent for t in found if isinstance(t, (torch.Tensor, ts.Tensor))]
    return [None if tangent is None else tangent.detach().clone() for tangent in found]


def theirs(op: Any, sample: Sample, given: list[Any]) -> list[Any]:
    with theirs_ad.dual_level():
        duals = {
            id(leaf): theirs_ad.make_dual(leaf.detach(), t) for (leaf, _), t in zip(sample.leaves, given, strict=True)
        }
        args, kwargs = mapped(sample.theirs, lambda value: duals.get(id(value), value))
        return tangents(theirs_ad, sample.finish(op.op(*args, **kwargs)))


def ours(op: Any, sample: Sample, given: list[Any]) -> list[Any]:
    with ours_ad.dual_level():
        pairs = zip(sample.leaves, given, strict=True)
        duals = {id(leaf): ours_ad.make_dual(leaf.detach(), ts.tensor(t.numpy())) for (_, leaf), t in pairs}

        def dual(value: Any) -> Any:
            return Standin(duals.get(id(value.tensor), value.tensor)) if isinstance(value, Standin) else value

        sample.ours = mapped(sample.ours, dual)
        return tangents(ours_ad, sample.finish(ours_of(op, sample)))


def run(op: Any) -> None:
    torch.manual_seed(0)
    for count, given in enumerate(op.sample_inputs("cpu", torch.float64, requires_grad=True)):
        if count == SAMPLES:
            break
        try:
            sample = Sample(given, "cpu")
            directions = [torch.randn_like(leaf) for leaf, _ in sample.leaves]
            wanted = theirs(op, sample, directions)
            got = ours(op, sample, directions)
        except (Unsupported, NotImplementedError):
            continue
        assert len(got) == len(wanted)
        for mine, expected in zip(got, wanted, strict=True):
            if mine is None or expected is None:  # no tangent is one of zeros
                assert expected is None or not expected.any(), "torch has a tangent, ours has none"
            else:
                check(mine, expected, "tangent", torch.float64)


OPERATORS = [
    op
    for op in database.op_db
    if op.supports_forward_ad
    and torch.float64 in op.supported_dtypes("cpu")
    and not op.name.startswith("jiterator")
    and not any(word in op.name for word in (*RANDOM, "dropout", "scaled_dot_product"))
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("op", [pytest.param(op, id=title(op)) for op in turn(OPERATORS, SHARE)])
def test_tangents(op: Any) -> None:
    judge(KNOWN, title(op), op.name, lambda: run(op))


def test_every_line_names_a_case() -> None:
    assert not KNOWN.keys() - {name for op in OPERATORS for name in (title(op), op.name)}
