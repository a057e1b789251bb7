"""Corners where PyTorch's meaning is not the first one thinks of: no dims, ties, written views, empty writes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tesserack as ts

Program = Callable[[Any], Any]
Run = Callable[[Program], None]
NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize("name", ["any", "all"])
@pytest.mark.parametrize("dim", [[], (), [0], (0, -1), None])
@pytest.mark.parametrize("keepdim", [False, True])
def test_truth_along_no_dims(compare_program: Run, name: str, dim: Any, keepdim: bool) -> None:
    def program(m: Any) -> Any:
        x = m.tensor([[1.0, 0.0], [1.0, 2.0]])
        few = getattr(m, name)(x.to(m.uint8), dim=dim, keepdim=keepdim)
        one = getattr(m, name)(m.tensor(1.0), dim=[] if dim == (0, -1) else dim)
        return getattr(m, name)(x, dim=dim, keepdim=keepdim), few, one

    compare_program(program)


@pytest.mark.parametrize("name", ["fmax", "fmin", "maximum", "minimum"])
def test_gradients_at_ties_and_nan(compare_program: Run, name: str) -> None:
    def program(m: Any) -> Any:
        a = m.tensor([1.0, 2, NAN, NAN, INF, 3], requires_grad=True)
        b = m.tensor([1.0, 3, 1, NAN, INF, NAN], requires_grad=True)
        y = getattr(m, name)(a, b)
        return y, m.autograd.grad(y.sum(), [a, b])

    compare_program(program)


@pytest.mark.parametrize(
    ("shapes", "dims"),
    [(((2, 1), (3, 4)), 1), (((2, 3), (1, 4)), 1), (((2, 3, 1), (1, 4, 2)), ([1, 2], [0, 1])), (((3, 1), (1, 3)), 2)],
)
def test_contracted_dims_of_size_one_broadcast(compare_program: Run, shapes: Any, dims: Any) -> None:
    def program(m: Any) -> Any:
        a, b = (m.arange(float(np.prod(s))).reshape(s).requires_grad_() for s in shapes)
        y = m.tensordot(a, b, dims=dims)
        return y, m.autograd.grad((y * y).sum(), [a, b])

    compare_program(program)


def test_positions_may_count_from_the_end(compare_program: Run) -> None:
    compare_program(lambda m: m.take_along_dim(m.arange(6.0).reshape(2, 3), m.tensor([[-1, 0, -2]]), dim=1))


def test_positions_beyond_the_end_are_refused() -> None:
    x = ts.arange(6.0).reshape(2, 3)
    for bad in (-4, 3):
        with pytest.raises(IndexError):
            ts.take_along_dim(x, ts.tensor([[bad]]), dim=1)
    assert ts.take_along_dim(x, ts.tensor([-1, 0])).tolist() == [5.0, 0.0]


def test_a_number_may_be_copied_in(compare_program: Run) -> None:
    compare_program(lambda m: [m.zeros(3).copy_(2.5), m.zeros(2, dtype=m.int32).copy_(2), m.zeros(2).copy_(True)])


@pytest.mark.parametrize("given", [[1, 3], [], [0], [5, 2], [-1], [3, 10], 3, 4])
def test_a_tensor_says_where_to_split(compare_program: Run, given: Any) -> None:
    def program(m: Any) -> Any:
        where = m.tensor(given, dtype=m.int64)
        wide = m.arange(12).reshape(2, 6)
        return m.tensor_split(m.arange(6), where), wide.tensor_split(where, dim=1)

    compare_program(program)


def test_a_tensor_that_says_nothing_about_splitting(compare_errors: Callable[..., None]) -> None:
    compare_errors(lambda m: m.tensor_split(m.arange(6), m.tensor([1.0])))
    compare_errors(lambda m: m.tensor_split(m.arange(6), m.tensor([[1]])))
    compare_errors(lambda m: m.tensor_split(m.arange(6), m.tensor(0)))


@pytest.mark.filterwarnings("ignore:.*resized")
def test_an_output_that_fits_into_its_memory_stays_there(compare_program: Run) -> None:
    def program(m: Any) -> Any:
        x, y = m.zeros(10), m.zeros(2, 6)
        part, turned = x[2:5], y.t()
        m.add(m.ones(2), m.ones(2), out=part)
        m.sum(m.ones(2, 3), 0, out=turned)
        return x, part, part.storage_offset(), y, turned

    compare_program(program)


@pytest.mark.filterwarnings("ignore:.*resized")
def test_an_output_of_another_shape_may_be_an_operand() -> None:
    grown = ts.arange(4.0)
    ts.add(grown, ts.ones(3, 4), out=grown)
    assert grown.tolist() == [[1.0, 2.0, 3.0, 4.0]] * 3


def test_an_output_of_a_wider_dtype_holds_the_results_own_numbers(compare_program: Run) -> None:
    def program(m: Any) -> Any:
        truth, small = m.tensor([True, True]), m.tensor([200, 100], dtype=m.uint8)
        half = m.tensor([2049.0, 1 / 3], dtype=m.float16)
        return [
            m.add(truth, truth, out=m.zeros(2, dtype=m.int8)),
            m.add(truth, True, out=m.zeros(2)),
            m.add(small, small, out=m.zeros(2, dtype=m.int32)),
            m.mul(small, 2, out=m.zeros(2)),
            m.sub(small[1:], small[:1], out=m.zeros(1, dtype=m.int64)),
            m.addcmul(small, small, small, out=m.zeros(2).double()),
            m.exp(half.neg(), out=m.zeros(2)),
            m.add(half, half, out=m.zeros(2, 2)[:, 0].double()),
            m.gt(small, 150, out=m.zeros(2)),
        ]

    compare_program(program)


def test_views_may_be_resized_within_their_memory(compare_program: Run) -> None:
    def program(m: Any) -> Any:
        x = m.arange(10.0)
        part = x[2:5].resize_(2, 2)
        turned = m.arange(10.0).reshape(2, 5).t().resize_(3, 2)
        part[0, 0] = 7
        return x, part, part.storage_offset(), turned, turned.stride()

    compare_program(program)


def test_views_do_not_grow_out_of_their_memory() -> None:
    with pytest.raises(RuntimeError, match="more than the tensor has of which this is a view"):
        ts.arange(10.0)[2:5].resize_(20)


def test_what_is_selected_along_a_dim_is_contiguous(compare_program: Run) -> None:
    def program(m: Any) -> Any:
        x = m.arange(24.0).reshape(2, 3, 4)
        found = [(d, k, x.kthvalue(2, d, k), x.median(d, k), x.mode(d, k)) for d in range(3) for k in (False, True)]
        return [[t.is_contiguous() for t in pair] for _, _, *pairs in found for pair in pairs]

    compare_program(program)


@pytest.mark.parametrize("dtype", ["float32", "float16", "int64", "int32", "int8", "uint8", "bool"])
def test_the_median_of_nothing(compare_program: Run, dtype: str) -> None:
    compare_program(lambda m: [getattr(m.zeros(0, dtype=getattr(m, dtype)), f)() for f in ("median", "nanmedian")])


def test_parts_of_unique_that_are_not_asked_for() -> None:
    values, inverse, counts = ts.ops._unique2(ts.tensor([3, 1, 3]))
    assert values.tolist() == [1, 3] and inverse.numel() == counts.numel() == 0


WRITES: dict[str, Callable[[Any, Any, Any], Any]] = {
    "index_put": lambda m, x, v: x.index_put((m.tensor([], dtype=m.int64),), v),
    "index_add": lambda m, x, v: x.index_add(0, m.tensor([], dtype=m.int64), v),
    "index_copy": lambda m, x, v: x.index_copy(0, m.tensor([], dtype=m.int64), v),
    "scatter": lambda m, x, v: x.scatter(0, m.zeros((0, 2), dtype=m.int64), v),
    "masked_scatter": lambda m, x, v: x.masked_scatter(m.zeros(4, 2, dtype=m.bool), v),
}


@pytest.mark.parametrize("name", WRITES)
def test_gradients_of_writing_nothing(compare_program: Run, name: str) -> None:
    def program(m: Any) -> Any:
        x, v = m.ones(4, 2, requires_grad=True), m.ones(0, 2, requires_grad=True)
        return m.autograd.grad(WRITES[name](m, x, v).sum(), [x, v])

    compare_program(program)


@pytest.mark.parametrize("dtype", [ts.int8, ts.uint8, ts.int16])
def test_integrals_of_small_integers_do_not_wrap(dtype: ts.dtype) -> None:
    y, x = [100, 120, 90], [0, 50, 120]
    small, at = ts.tensor(y, dtype=dtype), ts.tensor(x, dtype=dtype)
    assert ts.trapezoid(small).item() == 215.0 and ts.trapezoid(small, dx=2).item() == 430.0
    assert ts.trapezoid(small, at).item() == 12850.0
    assert ts.cumulative_trapezoid(small).tolist() == [110.0, 215.0]
    assert ts.cumulative_trapezoid(small, at).tolist() == [5500.0, 12850.0]


# The special cases of the Array API standard: operands and results, NaN where it says so.
SPECIAL = {
    "atan2": [
        (INF, INF, np.pi / 4), (INF, -INF, 3 * np.pi / 4), (-INF, INF, -np.pi / 4), (-INF, -INF, -3 * np.pi / 4),
        (INF, 1.0, np.pi / 2), (1.0, -INF, np.pi), (-1.0, -INF, -np.pi), (1.0, INF, 0.0), (-1.0, INF, -0.0),
        (0.0, -0.0, np.pi), (-0.0, -0.0, -np.pi), (NAN, 1.0, NAN), (0.0, 0.0, 0.0), (-0.0, 1.0, -0.0),
    ],
    "floor_divide": [
        (INF, INF, NAN), (0.0, 0.0, NAN), (INF, 2.0, (INF, NAN)), (-INF, 2.0, (-INF, NAN)), (1.0, INF, 0.0),
        (-1.0, INF, -1.0), (1.0, -INF, -1.0), (-1.0, -INF, 0.0), (NAN, 1.0, NAN), (1.0, NAN, NAN), (7.0, -2.0, -4.0),
    ],
    "remainder": [
        (INF, INF, NAN), (INF, 2.0, NAN), (-INF, 2.0, NAN), (1.0, INF, 1.0), (1.0, -INF, -INF), (-1.0, INF, INF),
        (-1.0, -INF, -1.0), (1.0, 0.0, NAN), (0.0, 2.0, 0.0), (-0.0, 2.0, 0.0), (0.0, -2.0, -0.0), (NAN, 1.0, NAN),
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", SPECIAL)
@pytest.mark.parametrize("dtype", [ts.float32, ts.float64])
def test_special_values_of_the_array_api_standard(name: str, dtype: ts.dtype) -> None:
    for a, b, wanted in SPECIAL[name]:
        for length in (1, 40):  # vectors and what is left of them
            left, right = (ts.full((length,), v, dtype=dtype) for v in (a, b))
            found = getattr(ts, name)(left, right)[-1].item()
            allowed = wanted if isinstance(wanted, tuple) else (wanted,)
            good = any((found != found and w != w) or np.isclose(found, w, rtol=1e-6, atol=0) for w in allowed)
            assert good, (name, a, b, found)
            if wanted == 0.0 and INF in (abs(a), abs(b)):
                assert np.signbit(found) == np.signbit(wanted), (name, a, b, found)
