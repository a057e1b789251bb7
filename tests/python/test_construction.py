"""tensor() and its kin: shapes, inferred dtypes, refusals."""

from __future__ import annotations

import collections

import numpy as np
import pytest
import tesserack as ts


@pytest.mark.parametrize(
    ("data", "dtype", "shape"),
    [
        (1, ts.int64, ()),
        (1.5, ts.float32, ()),
        (True, ts.bool, ()),
        ([], ts.float32, (0,)),
        ([[], []], ts.float32, (2, 0)),
        ([1, 2.5, True], ts.float32, (3,)),
        ([True, 2], ts.int64, (2,)),
        (range(3), ts.int64, (3,)),
        (((1, 2), (3, 4)), ts.int64, (2, 2)),
        (np.float32(3), ts.float32, ()),
        ([np.float64(3)], ts.float64, (1,)),
        (np.ones((2, 2), np.int8), ts.int8, (2, 2)),
        ([np.ones(2), np.zeros(2)], ts.float64, (2, 2)),
        ([ts.tensor(1), ts.tensor(2.5)], ts.float32, (2,)),
        ([ts.ones(2, dtype=ts.float64), [1, 2]], ts.float64, (2, 2)),
        ([[np.ones((1,) * 7), np.ones((1,) * 7)]], ts.float64, (1, 2, 1, 1, 1, 1, 1, 1, 1)),
        (collections.deque([1, 2]), ts.int64, (2,)),
        (1 + 2j, ts.complex64, ()),
    ],
    ids=repr,
)
def test_inference(data: object, dtype: ts.dtype, shape: tuple[int, ...]) -> None:
    x = ts.tensor(data)
    assert x.dtype is dtype and x.shape == shape


def test_values(dtype: ts.dtype, device: ts.device) -> None:
    x = ts.tensor([[0, 1], [1, 0]], dtype=dtype, device=device)
    assert x.dtype is dtype and x.device == device and x.tolist() == [[0, 1], [1, 0]]


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_half_rounding_agrees_with_a_cast(name: str) -> None:
    values = np.concatenate(
        [
            np.random.default_rng(0).standard_normal(200) * 10.0 ** np.random.default_rng(1).integers(-9, 6, 200),
            [0, -0.0, np.inf, np.nan, 65519, 65520, 6e-8, 2.9e-8],
        ]
    )
    made = ts.tensor(values.astype(np.float32).tolist(), dtype=getattr(ts, name))
    cast = ts.tensor(values.astype(np.float32)).to(getattr(ts, name))
    np.testing.assert_array_equal(made.float().numpy(), cast.float().numpy())


def recursive() -> list[object]:
    data: list[object] = []
    data.append(data)
    return data


class Shrinking:
    """Empties the list it stands in while it is read."""

    def __init__(self, owner: list[object]) -> None:
        self.owner = owner

    def __repr__(self) -> str:  # without an address: workers that share the tests must name them alike
        return "Shrinking()"

    def __len__(self) -> int:
        self.owner.clear()
        return 1

    def __getitem__(self, index: int) -> int:
        if index:
            raise IndexError
        return 1


def shrinking() -> list[object]:
    data: list[object] = []
    data += [Shrinking(data), [1], [1]]
    return data


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        ([[1, 2], [3]], ValueError, r"expected sequence of length 2 at dim 1 \(got 1\)"),
        ([[1], 2], TypeError, "length 1 at dim 1, got int"),
        ([1, "a"], TypeError, "invalid data type 'str'"),
        (["a"], ValueError, "too many dimensions 'str'"),
        ([[""]], TypeError, "invalid data type 'str'"),
        ([b"a"], TypeError, "invalid data type 'bytes'"),
        ("a", TypeError, "invalid data type 'str'"),
        (None, RuntimeError, "Could not infer dtype of NoneType"),
        ({1: 2}, RuntimeError, "Could not infer dtype of dict"),
        ([1, None], RuntimeError, "NoneType"),
        (2**63, OverflowError, "64 bits"),
        (recursive(), TypeError, "self-referential"),
        ([0, recursive()], TypeError, "self-referential"),
        ([np.ones(2), np.ones(3)], ValueError, "block of shape"),
        (shrinking(), (ValueError, RuntimeError, TypeError), "expected|changed"),
    ],
    ids=str,
)
def test_refusals(data: object, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        ts.tensor(data)


@pytest.mark.parametrize(
    ("value", "dtype"),
    [(300, ts.uint8), (float("nan"), ts.int64), (1e30, ts.int32), (-129, ts.int8), (float("inf"), ts.int16)],
)
def test_values_that_do_not_fit(value: float, dtype: ts.dtype) -> None:
    with pytest.raises(RuntimeError, match="without overflow"):
        ts.tensor([value], dtype=dtype)


def test_integers_wrap_or_truncate_as_in_pytorch() -> None:
    assert ts.tensor([-1], dtype=ts.uint8).item() == 255
    assert ts.tensor(1.9, dtype=ts.int32).item() == 1
    assert ts.tensor([2, 0], dtype=ts.bool).tolist() == [True, False]
    assert ts.tensor([2**63, 0, -(2**70)], dtype=ts.bool).tolist() == [True, False, True]
    assert ts.tensor([2**64, -(2**70)], dtype=ts.complex128).tolist() == [2.0**64, -(2.0**70)]
    top = ts.tensor(2**64 - 1, dtype=ts.uint64)
    assert top.item() == top.tolist() == int(top) == range(2**65)[top] == 2**64 - 1
    assert float(top) == 2.0**64
    assert bool(top)


def test_depth_is_limited_by_dimensions_not_by_the_stack() -> None:
    data: object = 1
    for _ in range(100_000):
        data = [data]
    with pytest.raises(ValueError, match="too many dimensions"):
        ts.tensor(data)
    # Freed level by level: the interpreter itself does not recurse on lists.


def test_tensor_of_a_tensor_warns_and_copies() -> None:
    x = ts.ones(2)
    with pytest.warns(UserWarning, match="clone"):
        y = ts.tensor(x)
    y.fill_(5)
    assert x.tolist() == [1.0, 1.0]


def test_as_tensor_shares() -> None:
    x = ts.ones(2, requires_grad=True)
    assert ts.as_tensor(x) is x
    assert ts.as_tensor(x, dtype=ts.float64).grad_fn is not None
    array = np.ones(2)
    ts.as_tensor(array).fill_(4)
    assert array.tolist() == [4.0, 4.0]


def test_default_dtype() -> None:
    ts.set_default_dtype(ts.float64)
    assert ts.tensor(1.0).dtype is ts.ones(1).dtype is ts.float64
    with pytest.raises((TypeError, ValueError)):
        ts.set_default_dtype(ts.int64)


def test_requires_grad_of_factories() -> None:
    assert ts.tensor([1.0], requires_grad=True).requires_grad
    assert ts.ones(2, requires_grad=True).is_leaf and ts.rand(2, requires_grad=True).requires_grad
    with pytest.raises(RuntimeError, match="floating"):
        ts.ones(2, dtype=ts.int64, requires_grad=True)
    assert ts.zeros(2, layout=ts.strided, pin_memory=False).shape == (2,)


def test_sizes_too_large_for_memory_or_for_64_bits() -> None:
    with pytest.raises(ts.OutOfMemoryError, match="memory"):
        ts.empty(2**45)
    with pytest.raises(RuntimeError):
        ts.empty(2**40, 2**40)
    with pytest.raises(RuntimeError):
        ts.zeros(-1)


def test_new_tensor_and_type() -> None:
    x = ts.ones(2, dtype=ts.float64)
    assert x.new_tensor([1]).dtype is ts.float64
    assert x.type() == "tesserack.DoubleTensor" and x.type(ts.int32).dtype is ts.int32
    assert x.type("tesserack.FloatTensor").dtype is ts.float32


def test_a_bytearray_is_a_list_of_numbers() -> None:
    assert ts.tensor(bytearray(b"ab")).tolist() == [97, 98] and ts.tensor(bytearray(b"ab")).dtype is ts.int64
    assert ts.tensor([bytearray(b"ab"), bytearray(b"cd")], dtype=ts.uint8).tolist() == [[97, 98], [99, 100]]
    assert ts.tensor(bytearray()).shape == (0,)


def test_complex_numbers_are_true_unless_zero():
    assert ts.tensor([1j, 0j, 1 + 2j], dtype=ts.bool).tolist() == [True, False, True]
    with pytest.raises(TypeError, match="complex"):
        ts.tensor([1j], dtype=ts.float32)
