"""Calling operators: argument forms, keywords, out=, and what is said about wrong calls."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
import tesserack as ts


def test_ways_to_say_the_same() -> None:
    x = ts.arange(6.0).reshape(2, 3)
    expected = [3.0, 12.0]
    for result in (
        x.sum(1),
        x.sum(dim=1),
        x.sum(axis=1),
        x.sum([1]),
        x.sum((1,)),
        x.sum(-1),
        x.sum(np.int64(1)),
        x.sum(ts.tensor(1)),
        ts.sum(x, 1),
        ts.sum(input=x, dim=1),
        ts.Tensor.sum(x, 1),
        x.sum(**{"".join(["d", "im"]): 1}),
        x.sum(1, False),
        x.sum(1, keepdim=False, dtype=None),
    ):
        assert result.tolist() == expected


def test_collected_ints() -> None:
    x = ts.arange(6)
    for result in (
        x.view(2, 3),
        x.view((2, 3)),
        x.view([2, -1]),
        x.view(ts.Size([2, 3])),
        x.view(size=(2, 3)),
        x.view(2, ts.tensor(3)),
    ):
        assert result.shape == (2, 3)
    y = x.view(2, 3)
    assert y.permute(1, 0).shape == y.permute((1, 0)).shape == (3, 2)
    assert y.expand(4, -1, 3).shape == (4, 2, 3) and y.repeat(2, 1).shape == (4, 3)
    assert ts.zeros(2, 3).shape == ts.zeros((2, 3)).shape == ts.zeros(size=(2, 3)).shape == (2, 3)
    assert ts.zeros(()).shape == () and ts.zeros(0).shape == (0,)
    assert x.view(ts.float64).dtype is ts.float64
    assert [t.shape for t in ts.broadcast_tensors(ts.ones(2, 1), ts.ones(3))] == [(2, 3), (2, 3)]


def test_numbers_of_all_kinds() -> None:
    x = ts.ones(2)
    for number in (2, 2.0, np.float32(2), np.int16(2), ts.tensor(2.0), np.array(2.0)[()]):
        assert x.mul(number).tolist() == [2.0, 2.0]
        assert x.add(x, alpha=number).tolist() == [3.0, 3.0]
    assert x.add(True).dtype is ts.float32


def test_out() -> None:
    x, out = ts.ones(3), ts.empty(3)
    assert ts.add(x, 1, out=out) is out and out.tolist() == [2.0, 2.0, 2.0]
    assert ts.add(x, 1, out=None).tolist() == [2.0, 2.0, 2.0]
    assert ts.add(x, 1, **{"".join(["o", "ut"]): out}) is out
    with pytest.raises(TypeError, match="out"):
        ts.add(x, 1, out=5)
    with pytest.raises(TypeError, match="out"):
        x.add(1, out=out)


def test_named_results() -> None:
    result = ts.tensor([[1.0, 5.0], [7.0, 2.0]]).max(1)
    assert result.values.tolist() == [5.0, 7.0] and result.indices.tolist() == [1, 0]
    values, indices = result
    assert values is result.values and indices is result[1]
    assert type(result).__name__ == "max" and type(result).__module__ == "tesserack.return_types"
    assert repr(result) == "tesserack.return_types.max(\nvalues=tensor([5., 7.]),\nindices=tensor([1, 0]))"
    assert type(ts.ones(4).split(2)) is tuple


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: ts.relu(), r'relu\(\) missing 1 required positional arguments: "input"'),
        (lambda x: ts.relu(x, x), r"relu\(\) takes 1 positional argument but 2 were given"),
        (lambda x: ts.relu(1), r"relu\(\): argument 'input' \(position 1\) must be Tensor, not int"),
        (lambda x: ts.relu(x, foo=1), r"relu\(\) got an unexpected keyword argument 'foo'"),
        (lambda x: ts.relu(x, input=x), r"relu\(\) got multiple values for argument 'input'"),
        (lambda x: x.relu(x), r"relu\(\) takes 0 positional arguments but 1 was given"),
        (lambda x: ts.softmax(x, "a"), r"softmax\(\): argument 'dim' \(position 2\) must be int, not str"),
        (lambda x: ts.softmax(x, True), r"must be int, not bool"),
        (lambda x: ts.softmax(x, 1.0), r"must be int, not float"),
        (lambda x: ts.zeros(2, dtype="float32"), r"zeros\(\): argument 'dtype' must be tesserack.dtype, not str"),
        (lambda x: ts.zeros(2.5), r"must be tuple of ints, not float"),
        (lambda x: ts.zeros(2, device=0), r"'device' must be tesserack.device, not int"),
        (lambda x: ts.zeros(2, requires_grad=5), r"requires_grad"),
        (lambda x: x.view(3, 1.5), r"view"),
        (
            lambda x: ts.cat([x, 1]),
            r"argument 'tensors' \(position 1\) must be tuple of Tensors, not list whose element 1 is int",
        ),
        (lambda x: ts.cat(x), r"must be tuple of Tensors, not Tensor"),
        (lambda x: x.sum(0, 1), r"'keepdim' \(position 2\) must be bool, not int"),
        (lambda x: x.sum(1j), r"complex"),
        (lambda x: x.add(x, alpha="a"), r"'alpha' must be Number, not str"),
        (lambda x: ts.sum(x, dim=0, foo=2), r"sum\(\) got an unexpected keyword argument 'foo'"),
        (
            lambda x: ts.max(x, "a", "b", "c"),
            r"max\(\) received an invalid combination of arguments - got \(Tensor, str, str, str\), "
            r"but expected one of:\n \* \(Tensor input",
        ),
    ],
)
def test_what_is_said_about_wrong_calls(call: object, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        call(ts.ones(3))  # type: ignore[operator]


def test_operators_of_the_language_refuse_strangers() -> None:
    x = ts.ones(2)
    for other in ("a", [1, 2], None, object()):
        with pytest.raises(TypeError, match="unsupported operand"):
            x + other
        with pytest.raises(TypeError, match="unsupported operand"):
            other - x
    assert (x == "a") is False and (x != None) is True  # noqa: E711
    with pytest.raises(TypeError, match="not supported between instances"):
        assert x < "a"
    with pytest.raises(TypeError):
        pow(x, 2, 3)
    with pytest.raises(TypeError):
        x @ 2


def test_every_operator_of_the_language() -> None:
    a, b = ts.tensor([7, -7, 5]), ts.tensor([2, 2, -3])
    x, y = np.array([7, -7, 5]), np.array([2, 2, -3])
    pairs = [
        (a + b, x + y),
        (a - b, x - y),
        (a * b, x * y),
        (a / b, x / y),
        (a // b, x // y),
        (a % b, x % y),
        (a**2, x**2),
    ]
    pairs += [
        (a & b, x & y),
        (a | b, x | y),
        (a ^ b, x ^ y),
        (a << 2, x << 2),
        (a >> 1, x >> 1),
        (-a, -x),
        (+a, +x),
        (abs(a), abs(x)),
        (~a, ~x),
    ]
    pairs += [
        (2 - a, 2 - x),
        (2 * a, 2 * x),
        (14 / a, 14 / x),
        (9 // b, 9 // y),
        (9 % b, 9 % y),
        (3 & a, 3 & x),
        (1 << ts.tensor([1, 2]), [2, 4]),
    ]
    pairs += [
        (a < b, x < y),
        (a <= b, x <= y),
        (a > b, x > y),
        (a >= b, x >= y),
        (a == b, x == y),
        (a != b, x != y),
        (2.0**b, 2.0**y),
    ]
    pairs += [(divmod(a, b)[0], x // y), (divmod(a, b)[1], x % y), (a @ b, x @ y)]
    for ours, theirs in pairs:
        np.testing.assert_allclose(ours.numpy() if isinstance(ours, ts.Tensor) else ours, theirs, rtol=1e-6)


def test_in_place_operators_keep_the_object() -> None:
    x = y = ts.tensor([6.0, 8.0])
    x += 2
    x -= 1
    x *= 2
    x /= 2
    x **= 2
    x //= 3
    x %= 10
    assert x is y and x.tolist() == [6.0, 7.0]
    n = m = ts.tensor([6, 3])
    n &= 7
    n |= 8
    n ^= 1
    n <<= 1
    n >>= 1
    assert n is m and n.tolist() == [15, 10]


def test_objects_whose_conversion_fails_pass_their_error_on() -> None:
    class Evil:
        def __index__(self) -> int:
            raise KeyError("evil")

    for call in (
        lambda: ts.zeros(Evil()),
        lambda: ts.ones(3).sum(Evil()),
        lambda: ts.ones(3)[Evil()],
        lambda: ts.ones(3).view([Evil()]),
    ):
        with pytest.raises(KeyError, match="evil"):
            call()


def test_integers_beyond_64_bits() -> None:
    for call in (lambda: ts.ones(2) + 2**70, lambda: ts.zeros(2**64), lambda: ts.ones(2).sum(2**64)):
        with pytest.raises(OverflowError):
            call()


def test_operators_describe_themselves() -> None:
    assert ts.add.__name__ == "add" and ts.add.__module__ == "tesserack" and ts.Tensor.add.__qualname__ == "Tensor.add"
    assert "elementwise" in ts.add.__doc__ and ts.add.__doc__.startswith("add(")
    assert str(inspect.signature(ts.add)) == "(input, other, *, alpha=1)"
    assert str(inspect.signature(ts.Tensor.add)) == "(self, other, *, alpha=1)"
    assert "args" in inspect.signature(ts.sum).parameters
    assert repr(ts.add) == "<operator 'tesserack.add'>"
    assert ts.ones(1).add.__self__.shape == (1,)
    with pytest.raises(TypeError):
        type(ts.add)()


def test_functions_do_not_bind_but_methods_do() -> None:
    class Holder:
        function = ts.relu

    assert Holder().function(ts.tensor([-1.0])).item() == 0.0
    bound = ts.tensor([2.0]).mul
    assert bound(3).item() == 6.0


def test_hidden_operators_are_reached_through_ops() -> None:
    assert ts.ops.basic_index(ts.arange(3), [0, 2, 0, 0]).item() == 2
    assert not hasattr(ts, "basic_index")
    with pytest.raises(AttributeError, match="no operator named 'nosuch'"):
        ts.ops.nosuch
    for items in ([0, 9, 0, 0], [1, 0, 5, 1], [1, 2, 4, -1], [1, 0, 2, 0], [1, 0, 2**62, 2**62], [2, 0]):
        with pytest.raises((IndexError, ValueError)):
            ts.ops.basic_index(ts.arange(3), items)


def test_what_keywords_mean_is_kept_by_their_names_alone() -> None:
    """Calls bind by kept keywords from the second time on: other types, doubles and overloads are told apart still."""
    x = ts.arange(6.0).reshape(2, 3)
    options = {"dim": 1, "keepdim": False}
    for _ in range(3):
        assert x.sum(dim=1, keepdim=True).shape == (2, 1)
        assert x.sum(keepdim=True, dim=(0, 1)).shape == (1, 1)
        assert x.sum(axis=0).tolist() == [3.0, 5.0, 7.0]
        assert x.sum(dtype=ts.float64).dtype == ts.float64
        assert ts.sum(input=x, dim=0, dtype=ts.float64).dtype == ts.float64
        assert x.sum(dim=None, keepdim=True).shape == (1, 1)
        out = ts.empty(2)
        assert ts.sum(x, dim=1, out=out) is out
        assert ts.sum(x, dim=1, out=None).tolist() == [3.0, 12.0]
        assert x.sum(**options).tolist() == [3.0, 12.0]
        for wrong in ({"dim": "x"}, {"dim": 1, "axis": 1}, {"dim": 1, "keepdims": 3}, {"nothing": 1}):
            with pytest.raises(TypeError):
                x.sum(**wrong)
        with pytest.raises(TypeError):
            x.sum(1, dim=1)
        assert ts.max(x, dim=1).indices.tolist() == [2, 2]
        assert ts.zeros(2, dtype=ts.int64, requires_grad=False).dtype == ts.int64
        assert ts.zeros(2, dtype=ts.float64, requires_grad=True).requires_grad
        assert ts.add(input=x, other=x, alpha=2)[1, 2] == 15
