"""Reading and writing by index against NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tesserack as ts
from tesserack.autograd import gradcheck, gradgradcheck

X = np.arange(60.0).reshape(3, 4, 5) / 4
ROWS = np.array([[0, 2], [1, -2]])  # with J: four places, none twice
J = np.array([1, 3])
MASK = X[:, :, 0] % 2.5 == 0

# Keys as NumPy takes them; arrays become tensors.
KEYS: dict[str, Any] = {
    "one": J - 1,
    "matrix": np.array([[0, -1, 1]]),
    "negative": np.array([-1, -3]),
    "scalar": np.array(2),
    "second": np.s_[:, J],
    "last": np.s_[..., J],
    "two": (np.array([0, 2]), J),
    "broadcast": (ROWS, J),
    "adjacent_inner": np.s_[:, J, np.array([0, 4])],
    "apart": np.s_[np.array([0, 2]), :, J],
    "apart_none": np.s_[np.array([0, 2]), None, :, J],
    "all_three": (np.array([0, 1]), J, np.array([4, 4])),
    "with_slice": np.s_[1:, ::2, J],
    "with_integer_first": np.s_[np.array([0, 1]), 2],
    "ellipsis": np.s_[J - 1, ..., 2],
    "mask": X % 0.75 == 0,
    "mask_rows": np.array([True, False, True]),
    "mask_two_dims": MASK,
    "mask_inner": np.s_[:, np.array([True, False, False, True])],
    "mask_and_index": np.s_[np.array([True, False, True]), J],
    "mask_none_true": np.zeros((3, 4), bool),
    "empty": np.zeros(0, np.int64),
    "empty_2d": np.zeros((2, 0), np.int64),
    "repeated": np.array([1, 1, 1, 0]),
}
STRIDED: dict[str, tuple[Callable[[Any], Any], Callable[[np.ndarray], np.ndarray]]] = {
    "contiguous": (lambda t: t, lambda a: a),
    "permuted": (lambda t: t.permute(2, 0, 1).contiguous().permute(1, 2, 0), lambda a: a),
    "flipped": (lambda t: t[:, ::-1], lambda a: a[:, ::-1]),
    "stepped": (lambda t: ts.cat((t, t), 2)[:, :, ::2], lambda a: np.concatenate((a, a), 2)[:, :, ::2]),
}


def as_key(key: Any, device: str) -> Any:
    if isinstance(key, tuple):
        return tuple(as_key(k, device) for k in key)
    return ts.tensor(key, device=device) if isinstance(key, np.ndarray) else key


@pytest.mark.parametrize("layout", STRIDED)
@pytest.mark.parametrize("key", KEYS)
def test_read(device: str, key: str, layout: str) -> None:
    make, same = STRIDED[layout]
    x, a = make(ts.tensor(X, device=device)), same(X)
    got = x[as_key(KEYS[key], device)]
    want = a[KEYS[key]]
    assert tuple(got.shape) == want.shape
    np.testing.assert_array_equal(got.cpu().numpy(), want)


@pytest.mark.parametrize("layout", STRIDED)
@pytest.mark.parametrize("key", [k for k in KEYS if k != "repeated"])
def test_write(device: str, key: str, layout: str) -> None:
    make, same = STRIDED[layout]
    x, a = make(ts.tensor(X, device=device)), same(X).copy()
    values = -1 - np.arange(float(a[KEYS[key]].size)).reshape(a[KEYS[key]].shape)
    x[as_key(KEYS[key], device)] = ts.tensor(values, device=device)
    a[KEYS[key]] = values
    np.testing.assert_array_equal(x.cpu().numpy(), a)
    x[as_key(KEYS[key], device)] = 7
    a[KEYS[key]] = 7
    np.testing.assert_array_equal(x.cpu().numpy(), a)


@pytest.mark.parametrize(
    "key",
    [k for k in KEYS if k not in {"with_slice", "with_integer_first", "apart_none", "ellipsis", "last", "second"}],
)
def test_accumulate(device: str, key: str) -> None:
    k = KEYS[key] if isinstance(KEYS[key], tuple) else (KEYS[key],)
    if any(isinstance(part, slice) for part in k):
        k = tuple(np.arange(n) if isinstance(part, slice) else part for part, n in zip(k, X.shape, strict=False))
        k = (
            np.ix_(*(np.flatnonzero(part) if part.dtype == bool else part for part in k))
            if all(part.ndim == 1 for part in k)
            else k
        )
    want = X.copy()
    np.add.at(want, k, 2.0)
    x = ts.tensor(X, device=device)
    x.index_put_(
        tuple(ts.tensor(part, device=device) for part in k),
        ts.tensor(2.0, dtype=ts.float64, device=device),
        accumulate=True,
    )
    np.testing.assert_array_equal(x.cpu().numpy(), want)


@pytest.mark.parametrize("key", KEYS)
def test_gradients(device: str, key: str) -> None:
    k = as_key(KEYS[key], device)
    x = ts.tensor(X, device=device, requires_grad=True)
    assert gradcheck(lambda t: t[k] ** 2, (x,))
    if key == "repeated":
        return
    shape = X[KEYS[key]].shape
    v = ts.tensor(np.ones(shape[-1:]), device=device, requires_grad=True)

    def put(t: Any, u: Any) -> Any:
        y = t * t
        y[k] = u * u
        return y * y

    assert gradcheck(put, (x, v))


def test_second_gradients(device: str) -> None:
    x = ts.tensor(X[:, :2, :2].copy(), device=device, requires_grad=True)
    k = (ts.tensor([0, 0, 2], device=device), ts.tensor([1, 1, 0], device=device))
    assert gradgradcheck(lambda t: t[k] ** 3, (x,))


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 2, 1, 0), (1, 0, 3, 2)])
@pytest.mark.parametrize("dims", [1, 2, 3, 4])
def test_masks_of_leading_dims(device: str, dims: int, order: tuple[int, ...]) -> None:
    """Read and written in every layout, those whose dims a view can merge and those where none can."""
    base = np.arange(3.0 * 4 * 5 * 6).reshape(3, 4, 5, 6)
    numpy, ours = base.transpose(order).copy(), ts.tensor(base, device=device).permute(*order).clone()
    mask = np.random.default_rng(0).random(numpy.shape[:dims]) > 0.4
    at = ts.tensor(mask, device=device)
    np.testing.assert_array_equal(ours[at].cpu().numpy(), numpy[mask])
    np.testing.assert_array_equal(at.nonzero().cpu().numpy(), np.argwhere(mask))
    values = -numpy[mask]
    numpy[mask] = values
    ours[at] = ts.tensor(values, device=device)
    np.testing.assert_array_equal(ours.cpu().numpy(), numpy)


def test_zero_dim_mask_adds_a_dimension(device: str) -> None:
    x = ts.tensor(X, device=device)
    assert x[ts.tensor(True, device=device)].shape == (1, 3, 4, 5)
    assert x[ts.tensor(False, device=device)].shape == (0, 3, 4, 5)
    assert x[ts.tensor(1, dtype=ts.uint8, device=device)].shape == (1, 3, 4, 5)


D1 = np.array([[0, 1, 1], [1, 0, 0]])
S1 = np.arange(1.0, 7.0).reshape(2, 3)
S2 = np.arange(12.0).reshape(3, 4) - 5


def test_gather_and_take(device: str) -> None:
    x, at = ts.tensor(S2, device=device), np.array([[0, 2], [1, 1]])
    index = ts.tensor(at, device=device)
    np.testing.assert_array_equal(x.gather(0, index).cpu().numpy(), np.take_along_axis(S2[:, :2], at, 0))
    np.testing.assert_array_equal(x.gather(1, index.int()).cpu().numpy(), np.take_along_axis(S2[:2], at, 1))
    np.testing.assert_array_equal(ts.take(x, index - 3).cpu().numpy(), np.take(S2, at - 3))
    np.testing.assert_array_equal(
        ts.take_along_dim(x, index[:1, :1], 1).cpu().numpy(), np.take_along_axis(S2, np.zeros((3, 1), int), 1)
    )
    np.testing.assert_array_equal(x.index_select(1, index[0]).cpu().numpy(), S2[:, [0, 2]])
    np.testing.assert_array_equal(x.t().index_select(0, index[0]).cpu().numpy(), S2.T[[0, 2]])
    assert ts.tensor(3.0, device=device).gather(0, ts.tensor([0, 0], device=device)).shape == (2,)
    assert ts.tensor(3.0, device=device).index_select(0, ts.tensor([0], device=device)).shape == ()


def scattered(
    base: np.ndarray, dim: int, index: np.ndarray, src: np.ndarray, combine: Callable[[float, float], float]
) -> np.ndarray:
    out = base.copy()
    for place in np.ndindex(index.shape):
        to = list(place)
        to[dim] = index[place]
        out[tuple(to)] = combine(out[tuple(to)], src[place])
    return out


@pytest.mark.parametrize("dim", [0, 1])
def test_scatter_add(device: str, dim: int) -> None:
    x, index, src = (ts.tensor(a, device=device) for a in (S2, D1, S1))
    want = scattered(S2, dim, D1, S1, lambda a, b: a + b)
    np.testing.assert_array_equal(x.scatter_add(dim, index, src).cpu().numpy(), want)
    y = x.t().contiguous().t()
    assert y.scatter_add_(dim, index, src) is y
    np.testing.assert_array_equal(y.cpu().numpy(), want)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "int32"])
@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("reduce", ["sum", "prod", "amax", "amin", "mean"])
def test_scatter_reduce(device: str, reduce: str, include_self: bool, dtype: str) -> None:
    base, src = S2.astype(dtype), np.array([[-3, 2, 5], [4, -6, 1]]).astype(dtype)
    got = ts.tensor(base, device=device).scatter_reduce(
        0, ts.tensor(D1, device=device), ts.tensor(src, device=device), reduce, include_self=include_self
    )
    groups: dict[tuple[int, int], list[float]] = {}
    for (r, c), to in np.ndenumerate(D1):
        groups.setdefault((to, c), [base[to, c]] if include_self else []).append(src[r, c])
    fn = {"sum": np.sum, "prod": np.prod, "amax": np.max, "amin": np.min, "mean": np.mean}[reduce]
    want = base.copy()
    for place, values in groups.items():
        want[place] = np.floor(fn(values)) if "int" in dtype else fn(values)
    np.testing.assert_allclose(got.cpu().numpy(), want, rtol=1e-6)


def test_scatter_and_index_writes(device: str) -> None:
    x, row = ts.tensor(S2, device=device), ts.tensor([2, 0], device=device)
    np.testing.assert_array_equal(
        x.scatter(1, ts.tensor([[3], [0], [1]], device=device), 9.0).cpu().numpy(),
        scattered(S2, 1, np.array([[3], [0], [1]]), np.full((3, 1), 9.0), lambda a, b: b),
    )
    want = S2.copy()
    want[[2, 0]] += 2 * S2[:2]
    np.testing.assert_array_equal(x.index_add(0, row, x[:2], alpha=2).cpu().numpy(), want)
    want = S2.copy()
    want[:, [2, 0]] = S2[:, :2]
    np.testing.assert_array_equal(x.index_copy(1, row, x[:, :2]).cpu().numpy(), want)
    want = S2.copy()
    want[:, [2, -1]] = 5
    np.testing.assert_array_equal(x.index_fill(1, ts.tensor([2, -1], device=device), 5).cpu().numpy(), want)
    y = x.clone()
    writes: list[Callable[[], Any]] = [  # from the very memory that is written
        lambda: y.index_add_(0, row, y[:2]),
        lambda: y.index_copy_(0, row, y[:2]),
        lambda: y.scatter_(0, row.view(2, 1), y),
        lambda: y.scatter_add_(0, row.view(2, 1), y),
        lambda: y.index_put_((row,), y[:2]),
        lambda: row.index_fill_(0, row, 0),
        lambda: y[1:].copy_(y[:-1]),
    ]
    for write in writes:
        with pytest.raises(RuntimeError, match="single memory location"):
            write()


def test_filling_what_is_expanded(device: str) -> None:
    at, mask = ts.tensor([2], device=device), ts.tensor([True, False, True], device=device)
    for name, fill in (
        ("index_fill_", lambda t: t.index_fill_(0, at, 5.0)),
        ("index_put_", lambda t: t.index_put_((at,), ts.full((1,), 5.0, device=device))),
        ("masked_fill_", lambda t: t.masked_fill_(mask, 5.0)),
    ):
        t = ts.ones(1, device=device)
        with pytest.warns(UserWarning, match=f"{name} on expanded tensors"):
            fill(t.expand(3))
        assert t.item() == 5
    t = ts.tensor([[1.0], [2.0]], device=device)
    with pytest.warns(UserWarning, match="expanded"):
        t.expand(2, 3).masked_fill_(ts.tensor([[False] * 3, [False, True, False]], device=device), 7.0)
    assert t.tolist() == [[1.0], [7.0]]


def test_indices_that_have_to_be_int64(device: str) -> None:
    x, at = ts.zeros(3, 4, device=device), ts.tensor([0, 1], dtype=ts.int32, device=device)
    calls: list[tuple[type[Exception], Callable[[], Any]]] = [
        (RuntimeError, lambda: x.index_copy(1, at, ts.ones(3, 2, device=device))),
        (IndexError, lambda: x.index_fill(1, at, 2.0)),
        (RuntimeError, lambda: x.take(at)),
        (RuntimeError, lambda: x.put(at, ts.ones(2, device=device))),
        (RuntimeError, lambda: x.take_along_dim(at.view(1, 2), 1)),
    ]
    for error, call in calls:
        with pytest.raises(error, match=r"(?i)long|int64"):
            call()
    assert x.index_select(1, at).shape == x[:, at].shape == (3, 2)


def test_gradients_of_gather_and_scatter(device: str) -> None:
    x = ts.tensor(S2, device=device, requires_grad=True)
    s = ts.tensor(S1 * 1.1, device=device, requires_grad=True)
    index = ts.tensor(D1, device=device)
    unique = ts.tensor(np.array([[0, 1, 2], [1, 0, 0]]), device=device)
    row = ts.tensor([2, 0], device=device)
    calls: list[Callable[[Any, Any], Any]] = [
        lambda a, b: a.gather(0, index) * b,
        lambda a, b: a.index_select(0, row) ** 2,
        lambda a, b: a.scatter(0, unique, b) ** 2,
        lambda a, b: a.scatter(0, unique, 2.0) ** 2,
        lambda a, b: a.scatter_add(0, index[:1], b) ** 2,  # src larger than index
        lambda a, b: a.scatter_reduce(0, index, b, "prod") ** 2,
        lambda a, b: a.scatter_reduce(0, index, b, "mean", include_self=False) ** 2,
        lambda a, b: a.scatter_reduce(0, index, b, "amax") ** 2,
        lambda a, b: a.index_add(0, row, a[:2], alpha=3) ** 2,
        lambda a, b: a.index_copy(1, row, a[:, :2]) ** 2,
        lambda a, b: a.index_fill(1, row, 4.0) ** 2,
        lambda a, b: ts.take(a, index) ** 2,
        lambda a, b: a.masked_select(a.detach() > 0.5) ** 2,
        lambda a, b: a.masked_scatter(a.detach() > 0.5, b) ** 2,
    ]
    for call in calls:
        assert gradcheck(call, (x, s))
        assert gradgradcheck(call, (x, s))


@pytest.mark.parametrize("shape", [(0,), (5,), (3, 4), (2, 3, 2), ()])
@pytest.mark.parametrize("density", [0.0, 0.4, 1.0])
def test_nonzero(device: str, shape: tuple[int, ...], density: float) -> None:
    a = (np.random.default_rng(0).random(shape) < density).astype(np.float32)
    x = ts.tensor(a, device=device)
    np.testing.assert_array_equal(ts.nonzero(x).cpu().numpy(), np.argwhere(a))
    np.testing.assert_array_equal(ts.argwhere(x).cpu().numpy(), np.argwhere(a))
    np.testing.assert_array_equal(x.masked_select(x != 0).cpu().numpy(), a[a != 0].reshape(-1))
    for got, want in zip(ts.where(x != 0), np.atleast_1d(a).nonzero(), strict=True):
        np.testing.assert_array_equal(got.cpu().numpy(), want)


def test_masked_scatter(device: str) -> None:
    x, source = ts.tensor(S2, device=device), ts.tensor(np.arange(100.0, 112.0), device=device)
    want = S2.copy()
    want[S2 > 0] = np.arange(100.0, 100.0 + (S2 > 0).sum())
    np.testing.assert_array_equal(x.masked_scatter(x > 0, source).cpu().numpy(), want)
    with pytest.raises(RuntimeError, match="Number of elements of source"):
        x.masked_scatter(x > 0, source[:2])


ERRORS: dict[str, tuple[Callable[[Any, Any], Any], type[Exception], str]] = {
    "read": (lambda x, at: x[at + 2], IndexError, "out of bounds for dimension 0 with size 3"),
    "read_negative": (lambda x, at: x[at - 4], IndexError, "out of bounds"),
    "read_second": (lambda x, at: x[at, at + 3], IndexError, "index 4 is out of bounds for dimension 1 with size 4"),
    "too_many": (lambda x, at: x[at, at, at], IndexError, "too many indices"),
    "dtype": (lambda x, at: x[at.float()], IndexError, "must be (long|integer)"),
    "broadcast": (
        lambda x, at: x[at, ts.zeros(3, dtype=ts.int64, device=x.device)],
        IndexError,
        "could not be broadcast",
    ),
    "mask_shape": (lambda x, at: x[ts.ones(2, dtype=ts.bool, device=x.device)], IndexError, "does not match the shape"),
    "write_shape": (
        lambda x, at: x.index_put_((at,), ts.zeros(3, dtype=ts.float64, device=x.device)),
        RuntimeError,
        "shape mismatch",
    ),
    "write_dtype": (lambda x, at: x.index_put_((at,), ts.zeros(4, device=x.device)), RuntimeError, "dtypes match"),
    "write_expanded": (lambda x, at: x[:1].expand(3, 4).index_add_(0, at, x), RuntimeError, "more than one element"),
    "gather_bounds": (lambda x, at: x.gather(0, at.view(1, 2) + 2), IndexError, "out of bounds"),
    "gather_negative": (lambda x, at: x.gather(0, at.view(1, 2) - 1), IndexError, "out of bounds"),
    "gather_dims": (lambda x, at: x.gather(0, at), RuntimeError, "same number of dimensions"),
    "gather_sizes": (
        lambda x, at: x.gather(0, ts.zeros(1, 5, dtype=ts.int64, device=x.device)),
        RuntimeError,
        "no larger",
    ),
    "gather_dtype": (lambda x, at: x.gather(0, at.view(1, 2).float()), RuntimeError, "dtype int32 or int64"),
    "scatter_bounds": (lambda x, at: x.scatter(0, at.view(1, 2) + 2, 1.0), IndexError, "out of bounds"),
    "scatter_src": (lambda x, at: x.scatter(0, at.view(1, 2), x[:1, :1]), RuntimeError, "no larger"),
    "scatter_dtype": (lambda x, at: x.scatter(0, at.view(1, 2), x.float()), RuntimeError, "same dtype"),
    "scatter_reduce": (lambda x, at: x.scatter_reduce(0, at.view(1, 2), x, "median"), RuntimeError, "reduce argument"),
    "index_select": (lambda x, at: x.index_select(0, at + 2), IndexError, "out of bounds"),
    "index_select_of_nothing": (lambda x, at: x[:, :0].index_select(0, at + 2), IndexError, "out of bounds"),
    "index_select_2d": (lambda x, at: x.index_select(0, at.view(1, 2)), IndexError, "vector"),
    "index_add": (lambda x, at: x.index_add(0, at, x), RuntimeError, "Number of indices"),
    "take": (lambda x, at: ts.take(x, at + 12), IndexError, "out of bounds"),
    "empty_dim": (lambda x, at: x[:0][at], IndexError, "out of bounds|size 0"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(device: str, name: str) -> None:
    call, kind, text = ERRORS[name]
    with pytest.raises(kind, match=text):
        call(ts.tensor(S2, device=device), ts.tensor([0, 1], device=device))


def test_put(device: str) -> None:
    x, at, values = (
        ts.tensor(S2, device=device),
        ts.tensor([[0, -1], [5, 0]], device=device),
        ts.ones(2, 2, dtype=ts.float64, device=device),
    )
    want = S2.copy()
    np.add.at(want.reshape(-1), [0, -1, 5, 0], 1.0)
    np.testing.assert_array_equal(x.put(at, values, accumulate=True).cpu().numpy(), want)
    y = x.t().contiguous().t()
    np.testing.assert_array_equal(y.put_(at, values, accumulate=True).cpu().numpy(), want)


def test_nonzero_as_tuple(device: str) -> None:
    for got, want in zip(ts.nonzero(ts.tensor(S2, device=device), as_tuple=True), S2.nonzero(), strict=True):
        np.testing.assert_array_equal(got.cpu().numpy(), want)


def test_an_index_that_is_wrong_is_told_once(device: str) -> None:
    """A kernel that names its operator is not named again on the way out."""
    x, far = ts.ones(3, 2, device=device), ts.tensor([7], device=device)
    with pytest.raises(IndexError) as error:
        x.index_select(0, far).sum().item()
    assert "index_select: index_select" not in str(error.value) and "index 7" in str(error.value)
