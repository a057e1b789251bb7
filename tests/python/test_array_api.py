"""The Array API standard's namespace beside array_api_strict over NumPy, its reference."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
import tesserack as ts

strict = pytest.importorskip("array_api_strict", reason="the standard's reference is not installed")
xp = ts.array_api
SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 1e30, np.inf, -np.inf, np.nan]
INTS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
UNARY = [
    *("acos", "acosh", "asin", "asinh", "atan", "atanh", "ceil", "cos", "cosh", "exp", "expm1", "floor", "isfinite"),
    *("isinf", "isnan", "log", "log1p", "log2", "log10", "negative", "positive", "reciprocal", "round"),
    *("sign", "signbit"),
    *("sin", "sinh", "sqrt", "square", "tan", "tanh", "trunc", "abs"),
]
BINARY = [
    *("add", "atan2", "copysign", "divide", "equal", "greater", "greater_equal", "hypot", "less", "less_equal"),
    *("logaddexp", "maximum", "minimum", "multiply", "nextafter", "not_equal", "pow", "subtract"),
]


def numpy_of(value):
    return np.array(value.tolist()) if isinstance(value, ts.Tensor) else np.asarray(value._array)


def same(ours, theirs, what="", rtol=1e-5):
    if isinstance(theirs, (tuple, list)):
        assert len(ours) == len(theirs), what
        for a, b in zip(ours, theirs, strict=True):
            same(a, b, what, rtol)
        return
    assert tuple(ours.shape) == tuple(theirs.shape), what
    assert str(ours.dtype).rpartition(".")[2] == str(theirs.dtype).rpartition(".")[2], what
    np.testing.assert_allclose(numpy_of(ours), numpy_of(theirs), rtol=rtol, atol=1e-6, err_msg=what)


def both(values, dtype):
    data = np.asarray(values).astype(dtype)
    return ts.tensor(data.tolist(), dtype=getattr(ts, dtype)).reshape(data.shape), strict.asarray(data)


def test_every_name_is_there():
    missing = [n for n in dir(strict) if not n.startswith("_") and not hasattr(xp, n)]
    own = {"ArrayAPIStrictFlags", "Device", "set_array_api_strict_flags", "get_array_api_strict_flags",
           "reset_array_api_strict_flags", "array_api_strict_flags", "DType", "ModuleType"}  # fmt: skip
    assert set(missing) <= own
    for part in ("linalg", "fft"):
        listed = getattr(strict, part).__all__
        assert not [n for n in listed if not hasattr(getattr(xp, part), n)]
    assert not [n for n in xp.__all__ if not hasattr(xp, n)]


def test_arguments():
    """Names and kinds of arguments, where ours are functions of Python."""
    different = []
    for space, reference in ((xp, strict), (xp.linalg, strict.linalg), (xp.fft, strict.fft)):
        for name in reference.__all__:
            ours, theirs = getattr(space, name, None), getattr(reference, name)
            if not inspect.isfunction(ours) or not inspect.isfunction(theirs):
                continue
            expected = [n for n, p in inspect.signature(theirs).parameters.items() if p.kind is p.KEYWORD_ONLY]
            got = inspect.signature(ours).parameters
            different += [f"{name}({n})" for n in expected if n not in got]
    assert not different


@pytest.mark.parametrize("name", UNARY)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.filterwarnings("ignore")
def test_special_values(name, dtype):
    a, b = both(SPECIAL, dtype)
    same(getattr(xp, name)(a), getattr(strict, name)(b), name)


@pytest.mark.parametrize("name", BINARY)
@pytest.mark.filterwarnings("ignore")
def test_special_pairs(name):
    a, b = both(SPECIAL, "float64")
    same(getattr(xp, name)(a[:, None], a[None, :]), getattr(strict, name)(b[:, None], b[None, :]), name)


@pytest.mark.parametrize(
    "name", ["expm1", "log1p", "sign", "tan", "acosh", "asinh", "reciprocal", "sqrt", "log2", "abs"]
)
def test_complex_numbers(name):
    values = np.array([1 + 2j, -0.5 + 0.1j, 3 - 4j, 1j])
    for dtype in ("complex64", "complex128"):
        a, b = both(values, dtype)
        same(getattr(xp, name)(a), getattr(strict, name)(b), name)


@pytest.mark.parametrize("name", ["floor_divide", "remainder"])
@pytest.mark.filterwarnings("ignore")
def test_division_of_finite_numbers(name):
    a, b = both([1.0, -1.0, 0.5, -2.5, 7.0], "float64")
    same(getattr(xp, name)(a[:, None], a[None, :]), getattr(strict, name)(b[:, None], b[None, :]), name)


@pytest.mark.parametrize("name", ["sum", "prod", "max", "min", "cumulative_sum", "cumulative_prod", "argmax", "sort"])
@pytest.mark.parametrize("dtype", [*INTS, "float32", "float64"])
def test_reductions_keep_the_standards_dtypes(name, dtype):
    a, b = both([[3, 1, 2], [1, 2, 5]], dtype)
    for axis in (0, -1):
        same(getattr(xp, name)(a, axis=axis), getattr(strict, name)(b, axis=axis), name)


CALLS = {
    "mean": lambda m, x: m.mean(x, axis=(0, 1), keepdims=True),
    "std": lambda m, x: m.std(x, axis=1, correction=1),
    "var": lambda m, x: m.var(x),
    "all": lambda m, x: m.all(x > 0, axis=0),
    "any": lambda m, x: m.any(x > 2),
    "count": lambda m, x: m.count_nonzero(x > 1, axis=1),
    "initial": lambda m, x: m.cumulative_sum(x, axis=1, include_initial=True),
    "diff": lambda m, x: m.diff(x, axis=0),
    "concat": lambda m, x: m.concat([x, x], axis=None),
    "expand": lambda m, x: m.expand_dims(x, axis=-2),
    "flip": lambda m, x: m.flip(x),
    "roll": lambda m, x: m.roll(x, (1, 2), axis=(0, 1)),
    "rolled flat": lambda m, x: m.roll(x, 2),
    "permute": lambda m, x: m.permute_dims(x, (1, 0)),
    "move": lambda m, x: m.moveaxis(x, 0, 1),
    "repeat": lambda m, x: m.repeat(x, 2, axis=1),
    "stack": lambda m, x: m.stack([x, x], axis=1),
    "squeeze": lambda m, x: m.squeeze(m.expand_dims(x, axis=0), axis=0),
    "tile": lambda m, x: m.tile(x, (2, 1, 2)),
    "unstack": lambda m, x: m.unstack(x, axis=1),
    "take": lambda m, x: m.take(x, m.asarray([1, 0]), axis=1),
    "along": lambda m, x: m.take_along_axis(x, m.argsort(x, axis=1), axis=1),
    "sorted": lambda m, x: m.sort(x, descending=True),
    "searched": lambda m, x: m.searchsorted(m.sort(x[0, :]), x[1, :], side="right"),
    "nonzero": lambda m, x: m.nonzero(x > 1),
    "unique": lambda m, x: tuple(m.unique_all(x)),
    "clip": lambda m, x: m.clip(x, 1.0, 2.5),
    "where": lambda m, x: m.where(x > 1, x, 0.0),
    "eye": lambda m, x: m.eye(3, 4, k=1),
    "arange": lambda m, x: m.arange(5, 0, -2),
    "none": lambda m, x: m.arange(0, -5),
    "linspace": lambda m, x: m.linspace(0, 1, 5, endpoint=False),
    "meshgrid": lambda m, x: m.meshgrid(x[0, :], x[1, :]),
    "astype": lambda m, x: m.astype(x, m.int64),
    "product": lambda m, x: m.matmul(x, m.matrix_transpose(x)),
    "vecdot": lambda m, x: m.vecdot(x, x),
    "tensordot": lambda m, x: m.tensordot(x, x, axes=((0,), (0,))),
    "norm": lambda m, x: m.linalg.vector_norm(x, axis=1, keepdims=True, ord=3),
    "outer": lambda m, x: m.linalg.outer(x[0, :], x[1, :]),
    "trace": lambda m, x: m.linalg.trace(x, offset=1),
    "matrix norm": lambda m, x: m.linalg.matrix_norm(x),
    "solve": lambda m, x: m.linalg.solve(m.matmul(x, m.matrix_transpose(x)), x),
    "fft": lambda m, x: m.fft.fft(m.astype(x, m.complex64), axis=0),
    "rfftn": lambda m, x: m.fft.irfftn(m.fft.rfftn(x), s=x.shape, axes=(0, 1)),
    "shift": lambda m, x: m.fft.fftshift(m.fft.fftfreq(5)),
}


@pytest.mark.parametrize("name", CALLS)
def test_calls(name):
    a, b = both([[3.0, 1.0, 2.0], [0.5, 4.0, 1.0]], "float32")
    if name in ("eye", "linspace", "shift"):  # of the default dtype, which is float64 there
        same(xp.astype(CALLS[name](xp, a), xp.float64), CALLS[name](strict, strict.astype(b, strict.float64)), name)
        return
    same(CALLS[name](xp, a), CALLS[name](strict, b), name, 1e-4)


def test_inspection_and_promotion():
    info, reference = xp.__array_namespace_info__(), strict.__array_namespace_info__()
    assert set(info.dtypes()) == set(reference.dtypes())
    for kind in ("bool", "signed integer", "unsigned integer", "integral", "real floating", "complex floating"):
        assert set(info.dtypes(kind=kind)) == set(reference.dtypes(kind=kind))
    assert set(info.capabilities()) == set(reference.capabilities()) and set(info.default_dtypes()) == set(
        reference.default_dtypes()
    )
    assert xp.isdtype(ts.int8, "signed integer") and not xp.isdtype(ts.bool, "numeric")
    assert xp.result_type(ts.int8, ts.uint8) is ts.int16 and xp.result_type(ts.ones(1), 1.0) is ts.float32
    assert xp.can_cast(ts.int8, ts.int16) and not xp.can_cast(ts.float32, ts.int64)
    assert info.devices() and info.default_device() in [ts.get_default_device()]


def test_protocol():
    x = ts.ones(2)
    assert x.__array_namespace__() is xp is x.__array_namespace__(api_version="2025.12")
    with pytest.raises(ValueError, match="1999"):
        x.__array_namespace__(api_version="1999.12")
    assert x.to_device(x.device) is x
    assert xp.from_dlpack(np.arange(3.0), copy=True).tolist() == [0, 1, 2]
    for wrong in (
        lambda: xp.add(1, 2),
        lambda: xp.add(ts.ones(1, dtype=ts.int64), 1.5),
        lambda: xp.isdtype(ts.int8, "x"),
    ):
        with pytest.raises((TypeError, ValueError)):
            wrong()


def test_gradients_flow():
    x = ts.tensor([1.0, 2.0], requires_grad=True)
    xp.sum(xp.multiply(x, xp.exp(x))).backward()
    np.testing.assert_allclose(x.grad.numpy(), [2 * np.e, 3 * np.e**2], rtol=1e-6)


def test_limits_of_dtypes_and_arrays() -> None:
    assert xp.finfo(ts.ones(2)).bits == 32 and xp.finfo(ts.complex128).dtype is ts.float64
    assert xp.finfo(ts.float32).dtype is ts.float32 and xp.finfo(ts.float64).smallest_normal == 2.0**-1022
    assert xp.iinfo(ts.ones(2, dtype=ts.int8)).max == 127 and xp.iinfo(ts.uint16).dtype is ts.uint16
    with pytest.raises(TypeError):
        xp.finfo(ts.int8)
    with pytest.raises(TypeError):
        xp.iinfo(ts.float32)


def test_products_are_promoted() -> None:
    small, wide = ts.tensor([1, 2, 3], dtype=ts.int8), ts.tensor([4, 5, 6], dtype=ts.uint8)
    assert xp.matmul(small, wide).dtype is ts.int16 and xp.matmul(small, wide).item() == 32
    assert xp.linalg.cross(small, wide).tolist() == [-3, 6, -3] and xp.linalg.cross(small, wide).dtype is ts.int16
    assert xp.tensordot(small, wide, axes=1).item() == 32 and xp.linalg.outer(small, wide).dtype is ts.int16
    scalar = ts.tensor(2.0, dtype=ts.float64)
    assert xp.matmul(ts.ones(1, 1), scalar.reshape(1, 1)).dtype is ts.float64
    with pytest.raises(ValueError, match="3 elements"):
        xp.linalg.cross(ts.ones(2), ts.ones(2))
    with pytest.raises(TypeError, match="numbers"):
        xp.matmul(ts.ones(2, dtype=ts.bool), ts.ones(2))


def test_grids_and_no_arrays() -> None:
    assert xp.broadcast_arrays() == () and xp.meshgrid() == ()
    rows, columns = xp.meshgrid(ts.tensor([1, 2]), ts.tensor([3, 4, 5]))
    assert rows.tolist() == [[1, 2]] * 3 and columns.tolist() == [[3, 3], [4, 4], [5, 5]]
    first, second = xp.meshgrid(ts.tensor([1, 2]), ts.tensor([0.5]), indexing="ij")
    assert first.tolist() == [[1], [2]] and second.dtype is ts.float32 and second.shape == (2, 1)
    with pytest.raises(ValueError, match="indexing"):
        xp.meshgrid(ts.ones(1), indexing="yx")


def test_repeats_and_places() -> None:
    for dtype in (ts.int8, ts.uint8, ts.int32, ts.uint64):
        assert xp.repeat(ts.tensor([1, 2, 3]), ts.tensor([1, 0, 2], dtype=dtype)).tolist() == [1, 3, 3]
    assert xp.repeat(ts.tensor([[1], [2]]), 2).tolist() == [1, 1, 2, 2]
    with pytest.raises(ValueError, match="0 dimensions"):
        xp.nonzero(ts.tensor(1))


def test_sizes_are_called_shape() -> None:
    for name in ("empty", "ones", "zeros"):
        made = getattr(xp, name)
        assert made(shape=3).shape == (3,) and made((2, 0), dtype=ts.int8).dtype is ts.int8
        with pytest.raises(TypeError):
            made(2, 3)
        with pytest.raises(ValueError, match="negative"):
            made((-1,))


def test_cross_broadcasts() -> None:
    vectors = xp.asarray([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    assert xp.linalg.cross(vectors, xp.asarray([0.0, 0.0, 1.0])).tolist() == [[0.0, -1.0, 0.0], [1.0, 0.0, 0.0]]


def test_numbers_decide_the_kind_of_a_result() -> None:
    assert xp.result_type(xp.asarray([1.0], dtype=xp.float32), 1j) == xp.complex64
    assert xp.result_type(xp.float64, 1j) == xp.complex128
    assert xp.result_type(xp.asarray([1], dtype=xp.int8), 200) == xp.int8
    assert xp.result_type(xp.float32, 2.0, True) == xp.float32
