"""Operators of the language on classes that answer ``NotImplemented``: the other side is asked, and Python's words."""

import operator

import pytest
import tesserack as ts


class Silent(ts.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return NotImplemented


class Right:
    def __radd__(self, other):
        return "from the right"

    def __rmatmul__(self, other):
        return "from the right"

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return NotImplemented


@pytest.mark.parametrize(
    "op", [operator.add, operator.truediv, operator.pow, operator.matmul, operator.and_, operator.lt], ids=str
)
def test_no_side_knows(op):
    x = ts.ones(2).as_subclass(Silent)
    for other in (ts.ones(2), 2):
        with pytest.raises(TypeError, match=r"unsupported operand type|not supported between"):
            op(x, other)
    with pytest.raises(TypeError):
        operator.iadd(x, other)
    assert (x == 2) is False


def test_the_other_side_is_asked():
    x = ts.ones(2).as_subclass(Silent)
    assert x + Right() == "from the right" and x @ Right() == "from the right"
    with pytest.raises(TypeError, match="no implementation found for 'add'"):
        ts.add(x, 1)
    with pytest.raises(TypeError, match="no implementation"):
        x[0]
