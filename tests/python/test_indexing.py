"""Reading and writing through indices, compared with NumPy."""

from __future__ import annotations

import numpy as np
import pytest
import tesserack as ts
from hypothesis import given, settings
from hypothesis import strategies as st

BASIC = [
    np.s_[3],
    np.s_[-1],
    np.s_[2:5],
    np.s_[::2],
    np.s_[::-1],
    np.s_[5:1:-2],
    np.s_[10:20],
    np.s_[:, 2],
    np.s_[1, 2, 3],
    np.s_[1:3, None, ::2],
    np.s_[None],
    np.s_[...],
    np.s_[..., 1],
    np.s_[0, ..., None],
    np.s_[None, 1, :, None, -1],
    np.s_[()],
    np.s_[:, ::-1, ::3],
    np.s_[2:2],
]


@pytest.fixture
def array() -> np.ndarray:
    return np.arange(6 * 5 * 4, dtype=np.float64).reshape(6, 5, 4)


@pytest.mark.parametrize("key", BASIC, ids=repr)
def test_basic_reads_are_views(array: np.ndarray, key: object, device: ts.device) -> None:
    x = ts.tensor(array, device=device)
    got = x[key]
    assert got.tolist() == array[key].tolist()
    assert got.shape == array[key].shape
    if got.numel():
        got.fill_(-1)
        array[key] = -1
        assert x.tolist() == array.tolist()


@pytest.mark.parametrize("key", BASIC, ids=repr)
def test_basic_writes(array: np.ndarray, key: object, device: ts.device) -> None:
    x = ts.tensor(array, device=device)
    values = np.random.default_rng(0).standard_normal(array[key].shape)
    x[key] = ts.tensor(values, device=device)
    array[key] = values
    assert x.tolist() == array.tolist()
    x[key] = 5
    array[key] = 5
    assert x.tolist() == array.tolist()


@pytest.mark.parametrize("key", BASIC, ids=repr)
def test_gradient_of_basic_reads(array: np.ndarray, key: object, device: ts.device) -> None:
    x = ts.tensor(array, device=device, requires_grad=True)
    (x[key] * 3).sum().backward()
    expected = np.zeros_like(array)
    expected[key] = 3
    assert x.grad.tolist() == expected.tolist()


slices = st.builds(
    slice, *[st.one_of(st.none(), st.integers(-8, 8))] * 2, st.one_of(st.none(), st.integers(-3, 3).filter(bool))
)
items = st.one_of(slices, st.integers(-4, 3), st.none())


@settings(max_examples=200, deadline=None)
@given(st.lists(items, max_size=5), st.booleans())
def test_random_keys_agree_with_numpy(key: list[object], ellipsis: bool) -> None:
    array = np.arange(4 * 4 * 4).reshape(4, 4, 4)
    full = tuple([*key, ...] if ellipsis else key)
    try:
        expected = array[full]
    except IndexError:
        with pytest.raises(IndexError):
            ts.tensor(array)[full]
        return
    assert ts.tensor(array)[full].tolist() == expected.tolist()


ADVANCED = [
    np.s_[[0, 2, 5]],
    np.s_[np.array([[0, 1], [2, 3]])],
    np.s_[[0, 1], [1, 2]],
    np.s_[:, [0, 2]],
    np.s_[[0, -1], :, 1:3],
    np.s_[..., [1, 1, 0]],
    np.s_[[0, 1], :, [1, 2]],
    np.s_[None, [0, 1]],
    np.s_[1:4, [[0], [2]], [1, 3]],
    np.s_[[]],
]


@pytest.mark.parametrize("key", ADVANCED, ids=repr)
def test_advanced_reads_and_writes(array: np.ndarray, key: object) -> None:
    x = ts.tensor(array)
    assert x[key].tolist() == array[key].tolist()
    values = np.random.default_rng(0).standard_normal(array[key].shape)
    x[key] = ts.tensor(values)
    array[key] = values
    assert x.tolist() == array.tolist()
    x[key] = 0.5
    array[key] = 0.5
    assert x.tolist() == array.tolist()


def test_masks(array: np.ndarray) -> None:
    x = ts.tensor(array)
    for mask in (array > 50, array[:, :, 0] > 50, array[:, 0, 0] > 50):
        assert x[ts.tensor(mask)].tolist() == array[mask].tolist()
        assert x[mask].tolist() == array[mask].tolist()
        x[mask], array[mask] = 1.5, 1.5
        assert x.tolist() == array.tolist()


def test_bools_and_zero_dim_indices() -> None:
    x = ts.arange(3)
    assert x[True].shape == (1, 3) and x[False].shape == (0, 3)
    assert x[range(1, 3)].tolist() == [1, 2]
    assert x[ts.tensor(1)].item() == 1 and x[np.int64(2)].item() == 2
    assert x[ts.tensor(True)].shape == (1, 3)


def test_in_place_operators_through_an_index() -> None:
    x = ts.arange(6.0).reshape(2, 3)
    x[0] += 10
    x[:, 1] *= 2
    x[ts.tensor([1])] -= 1
    assert x.tolist() == [[10.0, 22.0, 12.0], [2.0, 7.0, 4.0]]


def test_gradients_flow_through_writes() -> None:
    x = ts.zeros(3)
    w = ts.tensor(2.0, requires_grad=True)
    x[1] = w * 3
    x[2] = w
    (x * ts.tensor([1.0, 10.0, 100.0])).sum().backward()
    assert w.grad.item() == 130.0


def test_values_broadcast_and_lose_leading_ones() -> None:
    x = ts.zeros(2, 3)
    x[0] = ts.ones(1, 1, 3)
    x[:, 2] = [5, 6]
    x[1, :2] = np.array([7.0, 8.0])
    assert x.tolist() == [[1.0, 1.0, 5.0], [7.0, 8.0, 6.0]]
    x[0, 0] = ts.tensor([[4]])
    assert x[0, 0].item() == 4


@pytest.mark.parametrize(
    ("key", "error", "message"),
    [
        (7, IndexError, "index 7 is out of bounds for dimension 0 with size 3"),
        ((0, 0, 0), IndexError, "too many indices for tensor of dimension 2"),
        ("a", IndexError, "valid indices"),
        (1.5, IndexError, "valid indices"),
        (object, IndexError, "valid indices"),
        (slice(None, None, 0), ValueError, "zero"),
        (ts.tensor([1.5]), IndexError, "integer or bool"),
        (ts.tensor([9]), IndexError, "out of"),
        (ts.tensor([True, False]), IndexError, "mask|shape"),
        (2**70, OverflowError, "64 bits"),
    ],
    ids=repr,
)
def test_bad_keys(key: object, error: type[Exception], message: str) -> None:
    x = ts.zeros(3, 2)
    with pytest.raises(error, match=message):
        x[key]
    with pytest.raises((error, RuntimeError)):
        x[key] = 1


def test_zero_dim_tensors_have_no_items() -> None:
    with pytest.raises(IndexError, match="0-dim tensor"):
        ts.tensor(1)[0]
    assert ts.tensor(1)[...].item() == 1 and ts.tensor(1)[None].shape == (1,)


def test_deleting_items_is_refused() -> None:
    x = ts.zeros(3)
    with pytest.raises(TypeError, match="deleting"):
        del x[0]


def test_an_index_that_changes_the_tensor_is_harmless() -> None:
    x = ts.zeros(8)

    class Shrinks:
        def __index__(self) -> int:
            x.resize_(1)
            return 7

    with pytest.raises(IndexError):
        x[Shrinks() :, Shrinks()]
    x.resize_(8)
    with pytest.raises(IndexError):
        x[Shrinks() :]


@pytest.mark.parametrize("count", [4, 5000])
def test_writes_through_views_of_reversed_memory_are_differentiated(count: int) -> None:
    base = ts.from_numpy(np.arange(float(count))[::-1])
    factor = ts.ones(1, dtype=ts.float64, requires_grad=True)
    base[1:].mul_(factor)
    weights = np.arange(float(count))
    (base * ts.from_numpy(weights)).sum().backward()
    assert factor.grad.item() == (weights[1:] * weights[::-1][1:]).sum()


def test_view_helpers_of_autograd_check_their_geometry() -> None:
    x = ts.ones(2)
    for call in (
        lambda: ts.ops.as_strided_scatter_add(ts.ones(()), [], [2, 5], [], [-2], 2**40),
        lambda: ts.ops.as_strided_scatter_add(x, [4], [1], [2], [1], 3),
        lambda: ts.ops.as_strided_take(x, [1], [2], [1], 1),
        lambda: ts.ops.as_strided_clear(x, [1], [2], [-1], 0),
        lambda: ts.ops.as_strided_clear(x, [1, 1], [2], [1], 0),
    ):
        with pytest.raises(RuntimeError):
            call()
