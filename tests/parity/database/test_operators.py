"""Every operator of torch's own sample database: values and gradients beside torch's, for each sample and dtype.

A part of the operators is run, another one with every seed; FULL=1 runs all. ``operators_differences.txt`` lists what
differs, with a reason.
"""

from __future__ import annotations

from typing import Any

import pytest
from op_samples import (
    RANDOM,
    Sample,
    Unsupported,
    check,
    check_gradients,
    database,
    differences,
    judge,
    ours_of,
    title,
    torch,
)  # fmt: skip
from tesserack.testing.seeds import full, turn

SHARE = 5  # one operator in five a run
SAMPLES = 8
TESTED = [torch.float64, torch.complex128, torch.int64, torch.uint8, torch.bool]
TESTED += [torch.float32] * full()  # whose last digits depend on the processor


def run(op: Any, dtype: Any, device: Any, made: Any = Sample) -> int:
    """How many samples were compared."""
    count = 0
    random = any(word in op.name for word in RANDOM)
    with_grad = op.supports_autograd and (dtype.is_floating_point or dtype.is_complex)
    torch.manual_seed(0)
    for given in op.sample_inputs("cpu", dtype, requires_grad=with_grad):
        if count == SAMPLES:
            break
        try:
            sample = made(given, device)
        except Unsupported:
            continue
        drawn = random or any(given.kwargs.get(name) for name in ("dropout_p", "dropout"))
        try:
            theirs = op.op(*sample.theirs[0], **sample.theirs[1])
        except (RuntimeError, TypeError, ValueError, NotImplementedError):
            continue
        try:
            ours = ours_of(op, sample)
        except Unsupported:
            continue
        if not drawn:
            ours, theirs = sample.finish(ours), sample.finish(theirs)
        check(ours, theirs, "value", dtype, values=not drawn)
        if with_grad and sample.leaves and not drawn:
            check_gradients(sample, ours, theirs, dtype)
        count += 1
    return count


OPERATORS = [op for op in database.op_db if not op.name.startswith("jiterator")]  # which is for CUDA alone


def cases() -> list[Any]:
    """Operators and dtypes."""
    every = [(op, dtype) for op in OPERATORS for dtype in TESTED if dtype in op.supported_dtypes("cpu")]
    return [pytest.param(op, dtype, id=f"{title(op)}-{str(dtype)[6:]}") for op, dtype in turn(every, SHARE)]


KNOWN = differences("operators_differences.txt")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("op", "dtype"), cases())
def test_operator(op: Any, dtype: Any, device: Any) -> None:
    judge(KNOWN, f"{title(op)}-{str(dtype)[6:]}", title(op), lambda: run(op, dtype, device))


def test_every_line_names_a_case() -> None:
    named = {f"{title(op)}-{str(dtype)[6:]}" for op in OPERATORS for dtype in op.supported_dtypes("cpu")}
    assert not KNOWN.keys() - named - {title(op) for op in OPERATORS}
