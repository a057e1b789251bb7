"""Types that ``torch._C._jit_try_infer_type`` gives to values, and calls that are put in order by them."""

from __future__ import annotations

import pytest
import tesserack as ts
import torch
from tesserack.compat.shims._C import _jit_try_infer_type
from tesserack.fx import operator_schemas as ours
from torch.fx import operator_schemas as theirs

VALUES = [
    1, True, 2.5, "a", None, [1, 2], [True], [1.5], ["a"], (1, 2.0), (), [[1], [2]], {"a": 1}, {1: [2.0]}, ([1], "b"),
    [1, 2.0], [], {}, 1j,
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_types_of_values(value):
    a, b = _jit_try_infer_type(value), torch._C._jit_try_infer_type(value)
    if repr(value) in ("[]", "{}", "[1, 2.0]"):  # PyTorch guesses, of what holds nothing or several types
        assert not a.success() and "Cannot infer" in a.reason()
        return
    assert a.success() == b.success()
    assert a.type().annotation_str == b.type().annotation_str
    assert ours._torchscript_type_to_python_type(a.type()) == theirs._torchscript_type_to_python_type(b.type())


@pytest.mark.parametrize("name", ["zeros(2)", "float32", "device('cpu')", "strided", "contiguous_format"])
def test_types_of_tensors_and_their_facts(name):
    a, b = _jit_try_infer_type(eval(f"ts.{name}")), torch._C._jit_try_infer_type(eval(f"torch.{name}"))
    assert a.success() == b.success()
    if a.success():
        assert a.type().annotation_str == b.type().annotation_str


def test_what_has_no_type():
    found = _jit_try_infer_type(object())
    assert not found.success()
    with pytest.raises(RuntimeError, match="object"):
        found.type()


CALLS = [
    ("add", lambda m: (m.ones(2), 2), {}),
    ("sum", lambda m: (m.ones(2, 3), (0, 1)), {"keepdim": True}),
    ("mean", lambda m: (m.ones(2, 3),), {"dim": 1}),
    ("split", lambda m: (m.ones(4), [1, 3]), {}),
    ("tile", lambda m: (m.ones(2), ()), {}),
    ("clamp", lambda m: (m.ones(2), 0.5), {"max": 2.0}),
]


@pytest.mark.parametrize(("name", "args", "kwargs"), CALLS, ids=[name for name, *_ in CALLS])
def test_calls_in_order_by_types(name, args, kwargs):
    def call(m, infer, schemas):
        given = args(m)
        kinds = tuple(schemas._torchscript_type_to_python_type(infer(v).type()) for v in given)
        named = {k: schemas._torchscript_type_to_python_type(infer(v).type()) for k, v in kwargs.items()}
        found = schemas.normalize_function(getattr(m, name), given, dict(kwargs), kinds, named)
        result = getattr(m, name)(*found.args, **found.kwargs)
        return [t.tolist() for t in (result if isinstance(result, (tuple, list)) else [result])]

    assert call(ts, _jit_try_infer_type, ours) == call(torch, torch._C._jit_try_infer_type, theirs)
