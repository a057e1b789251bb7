"""Every operator of torch's database given tensors whose conjugation or negation is pending: values and gradients
are torch's. An operator, or a function in Python, that reads such memory as it is fails here.

A part of the operators is run, another one with every seed; FULL=1 runs all.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from op_samples import PendingSample, database, differences, judge, title, torch
from tesserack.testing.seeds import turn
from test_operators import run

SHARE = 5  # one operator in five a run
TESTED = [torch.complex128, torch.float64]
# torch looks at strides or memory of these samples, which are others here.
BY_MEMORY = {"view_as_real", "as_strided", "as_strided_copy", "as_strided.partial_views", "as_strided_scatter"}
BY_MEMORY |= {"is_set_to", "new_empty_strided"}


def cases() -> list[Any]:
    """Operators and dtypes."""
    skipped = ("jiterator", "sparse", "to_sparse")
    operators = [op for op in database.op_db if not op.name.startswith(skipped) and op.name not in BY_MEMORY]
    every = [(op, dtype) for op in operators for dtype in TESTED if dtype in op.supported_dtypes("cpu")]
    return [pytest.param(op, dtype, id=f"{title(op)}-{str(dtype)[6:]}") for op, dtype in turn(every, SHARE)]


KNOWN = {
    case: dataclasses.replace(difference, always=False)
    for case, difference in differences("operators_differences.txt").items()
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("op", "dtype"), cases())
def test_operator(op: Any, dtype: Any, device: Any) -> None:
    judge(KNOWN, f"{title(op)}-{str(dtype)[6:]}", title(op), lambda: run(op, dtype, device, PendingSample))
