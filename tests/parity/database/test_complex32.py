"""Every operator of torch's own sample database with complex32: computed here where torch's cpu computes it, and refused
where it refuses.

A part of the operators is run, another one with every seed; FULL=1 runs all. ``complex32_differences.txt`` lists what
differs, with a reason.
"""

# ruff: noqa: E501
from __future__ import annotations

import itertools
import types
from typing import Any

import pytest
from op_samples import (
    RANDOM,
    Sample,
    Unsupported,
    check,
    database,
    differences,
    judge,
    mapped,
    ours_of,
    title,
    torch,
)  # fmt: skip
from tesserack.testing.seeds import turn

SHARE = 5
SAMPLES = 3
REFUSALS = (RuntimeError, TypeError, NotImplementedError, ValueError)


def narrowed(value: Any) -> Any:
    """Complex and floating tensors as complex32."""
    if isinstance(value, torch.Tensor) and (value.is_complex() or value.is_floating_point()):
        return value.detach().to(torch.complex32)
    return value


def samples(op: Any) -> Any:
    for dtype in (torch.complex32, torch.complex64, torch.float32):
        if dtype in op.supported_dtypes("cpu"):
            torch.manual_seed(0)
            drawn = list(itertools.islice(op.sample_inputs("cpu", dtype), SAMPLES))
            for given in drawn:
                whole = mapped((given.input, *given.args), narrowed)
                kwargs = mapped(given.kwargs, narrowed)
                finish = given.output_process_fn_grad
                yield types.SimpleNamespace(
                    input=whole[0], args=tuple(whole[1:]), kwargs=kwargs, output_process_fn_grad=finish
                )
            return


def run(op: Any, device: Any) -> None:
    drawn = any(word in op.name for word in RANDOM)
    for given in samples(op):
        try:
            sample = Sample(given, device)
            here, here_kwargs = mapped(sample.theirs, lambda x: x.clone() if isinstance(x, torch.Tensor) else x)
            try:
                theirs = op.op(*here, **here_kwargs)
            except REFUSALS:
                theirs = None
            refused = theirs is None
            try:
                ours = ours_of(op, sample)
            except REFUSALS as error:
                assert refused, f"refused, torch computes it: {error}"
                continue
            assert not refused, "computed, torch refuses it"
            if not drawn:
                ours, theirs = sample.finish(ours), sample.finish(theirs)
            check(ours, theirs, "value", torch.complex32, values=not drawn)
        except Unsupported:
            continue


OPERATORS = [op for op in database.op_db if not op.name.startswith(("jiterator", "torch._scaled"))]
KNOWN = differences("complex32_differences.txt")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("op", [pytest.param(op, id=title(op)) for op in turn(OPERATORS, SHARE)])
def test_operator(op: Any, device: Any) -> None:
    judge(KNOWN, title(op), title(op), lambda: run(op, device))


def test_every_line_names_a_case() -> None:
    assert not KNOWN.keys() - {title(op) for op in OPERATORS}
