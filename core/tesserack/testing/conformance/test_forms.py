"""Forms of tensors that kernels take for simpler ones: far strides, dims that do not merge, far offsets, duplicates."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tesserack as ts
from tesserack.testing.conformance.card import Card, Record
from tesserack.testing.conformance.exactly import expect, made, real, rounded, there

# --- far strides ------------------------------------------------------------------------------------------------------

Op = tuple[Callable[[Any], Any], Callable[[Any], Any]]


def _columns(x: Any) -> Any:
    """Small numbers, to multiply with."""
    return x % 5


# On a matrix of small whole numbers, and the same on an array.
ON_MATRIX: dict[str, Op] = {
    "copy_cast": (lambda x: x.contiguous(), lambda a: a),
    "pointwise": (lambda x: x * 2 + x.flip(0), lambda a: a * 2 + a[::-1]),
    "reduce, sum of rows": (lambda x: x.sum(1), lambda a: a.sum(1)),
    "reduce, sum of columns": (lambda x: x.sum(0), lambda a: a.sum(0)),
    "reduce, argmax": (lambda x: x.argmax(1), lambda a: a.argmax(1)),
    "scan": (lambda x: x.cumsum(1), lambda a: a.cumsum(1)),
    "scan, columns": (lambda x: x.cumsum(0), lambda a: a.cumsum(0)),
    "gather": (lambda x: x[:, ts.arange(x.shape[1] - 1, -1, -1, device=x.device)], lambda a: a[:, ::-1]),
    "scatter": (
        lambda x: ts.zeros_like(x).scatter(1, ts.arange(x.shape[1], device=x.device).expand(x.shape).flip(1), x),
        lambda a: a[:, ::-1],
    ),
    "sort": (lambda x: x.sort(1, stable=True).values, lambda a: np.sort(a, 1)),
    "matmul": (lambda x: _columns(x) @ _columns(x).t(), lambda a: _columns(a) @ _columns(a).T),
}
STRIDES = (64, 65, 128, 1000)
COUNTS = (1, 3, 17, 33, 129)


@pytest.mark.parametrize("dtype", ("float32", "uint8"))
@pytest.mark.parametrize("name", ON_MATRIX)
def test_far_strides(name: str, dtype: str, card: Card, record: Record) -> None:
    """64 elements apart and more, an odd number of them: no stride is small enough to be a block's."""
    record.case(op=name, dtype=dtype, direction="forms")
    card.needs(dtype)
    call, wanted = ON_MATRIX[name]
    for stride in STRIDES:
        for count in COUNTS:
            if count * stride > 40_000 or (dtype == "uint8" and name == "matmul"):
                continue
            base = (np.arange(3 * count * stride) * 7919 % 101).astype(dtype).reshape(3, -1)
            array, x = base[:, ::stride], made(base, dtype, card)[:, ::stride]
            what = f"3 x {count}, {stride} elements apart"
            _judge(call(x), wanted(array), f"{name} of {dtype}", what, card)
            _judge(call(x.t()), wanted(array.T), f"{name} of {dtype}", f"{what}, transposed", card)


def _judge(found: Any, wanted: Any, subject: str, what: str, card: Card) -> None:
    """Integers as the dtype of the result holds them."""
    wanted = np.asarray(wanted)
    expect(
        found, wanted if found.dtype.is_floating_point else wanted.astype(str(found.dtype)[10:]), subject, what, card
    )


@pytest.mark.parametrize("dtype", ("float32", "uint8"))
@pytest.mark.parametrize("stride", STRIDES)
def test_written_far_apart(stride: int, dtype: str, card: Card, record: Record) -> None:
    """Outputs so far apart, and what lies between stays."""
    record.case(op="pointwise", dtype=dtype, direction="forms")
    card.needs(dtype)
    for count in COUNTS[1:4]:
        base = (np.arange(count * stride) % 7).astype(dtype)
        values = (np.arange(count) * 31 % 11).astype(dtype)
        what = f"{count} elements, {stride} apart"
        for name, write in (("copy_cast", "copy_"), ("pointwise", "add_"), ("fill", "fill_")):
            target, array = made(base, dtype, card), base.copy()
            getattr(target[::stride], write)(9 if name == "fill" else made(values, dtype, card))
            if name == "pointwise":
                array[::stride] += values
            else:
                array[::stride] = 9 if name == "fill" else values
            expect(target, array, f"{name} of {dtype}", f"into {what}", card)


# --- dims that do not merge -------------------------------------------------------------------------------------------

_ORDER = (3, 0, 4, 2, 1)


def _like(x: Any, order: tuple[int, ...]) -> Any:
    return x.transpose(order) if isinstance(x, np.ndarray) else x.permute(*order)


def _index(x: Any) -> Any:
    return ts.arange(2, device=x.device).reshape(1, 1, 2, 1, 1).expand(3, 2, 2, 3, 2)


# On a tensor of five dims, 3 x 2 x 4 x 3 x 2, each with gaps.
ON_FIVE: dict[str, Op] = {
    "copy_cast": (lambda x: x.contiguous(), lambda a: a),
    "copy_cast, permuted": (lambda x: _like(x, _ORDER).contiguous(), lambda a: _like(a, _ORDER)),
    "pointwise": (lambda x: x * 2 + x.flip(2), lambda a: a * 2 + a[:, :, ::-1]),
    "pointwise, broadcast": (lambda x: x + x[:, :1, :, 1:2, :], lambda a: a + a[:, :1, :, 1:2, :]),
    "pointwise, permuted": (
        lambda x: _like(x, _ORDER) * 3 + _like(x, _ORDER).contiguous(),
        lambda a: _like(a, _ORDER) * 4,
    ),
    "reduce, outer dims": (lambda x: x.sum((0, 2)), lambda a: a.sum((0, 2))),
    "reduce, every other dim": (lambda x: x.sum((1, 3)), lambda a: a.sum((1, 3))),
    "reduce, three dims": (lambda x: x.amax((0, 2, 4)), lambda a: a.max((0, 2, 4))),
    "reduce, argmax": (lambda x: x.argmax(2), lambda a: a.argmax(2)),
    "scan": (lambda x: x.cumsum(1), lambda a: a.cumsum(1)),
    "gather": (lambda x: x.gather(2, _index(x)), lambda a: a[:, :, :2]),
    "scatter": (
        lambda x: ts.zeros_like(x).scatter(2, _index(x), x),
        lambda a: np.concatenate((a[:, :, :2], 0 * a[:, :, :2]), 2),
    ),
    "sort": (lambda x: x.sort(3).values, lambda a: np.sort(a, 3)),
    "matmul": (lambda x: _columns(x) @ _columns(x).transpose(3, 4), lambda a: _columns(a) @ _columns(a).swapaxes(3, 4)),
}


@pytest.mark.parametrize("dtype", ("float32", "int64"))
@pytest.mark.parametrize("name", ON_FIVE)
def test_five_dims_that_do_not_merge(name: str, dtype: str, card: Card, record: Record) -> None:
    """More than kernels of three or four have room for, if the device says that it takes five."""
    record.case(op=name, dtype=dtype, direction="forms")
    card.needs(dtype)
    base = (np.arange(6 * 4 * 8 * 6 * 4) * 7919 % 13).astype(dtype).reshape(6, 4, 8, 6, 4)
    call, wanted = ON_FIVE[name]
    gaps = (slice(None, None, 2),) * 5
    _judge(call(made(base, dtype, card)[gaps]), wanted(base[gaps]), f"{name} of {dtype}", "five dims with gaps", card)


# --- several operands -------------------------------------------------------------------------------------------------

Lay = Callable[[Any], Any]
# The same numbers, as they may lie.
LAID: dict[str, Lay] = {
    "contiguous": lambda x: x,
    "transposed": lambda x: x.t().contiguous().t(),
    "stepped": lambda x: ts.stack((x, x.flip(0)), 2)[..., 0],
    "flipped": lambda x: x.flip(1).contiguous().flip(1),
    "offset": lambda x: ts.cat((x[:1], x))[1:],
}


@pytest.mark.parametrize("dtype", ("float32", "int64", "uint8"))
def test_operands_that_lie_differently(dtype: str, card: Card, record: Record) -> None:
    """Each of three operands of the same sizes has strides and an offset of its own."""
    record.case(op="pointwise", dtype=dtype, direction="forms")
    card.needs(dtype)
    a, b, c = ((np.arange(77) * k % 13).astype(dtype).reshape(7, 11) for k in (7, 5, 3))
    x, y, z = (made(v, dtype, card) for v in (a, b, c))
    for first, second, third in itertools.permutations(LAID, 3):
        what = f"7 x 11, {first}, {second} and {third}"
        found = ts.where(LAID[first](x % 2 == 1), LAID[second](y), LAID[third](z))
        expect(found, np.where(a % 2 == 1, b, c), f"pointwise, select of {dtype}", what, card)
        found = ts.addcmul(LAID[first](x), LAID[second](y), LAID[third](z))
        expect(found, a + b * c, f"pointwise, addcmul of {dtype}", what, card)


@pytest.mark.parametrize("dtype", ("float32", "int64"))
def test_operands_that_repeat(dtype: str, card: Card, record: Record) -> None:
    """Each of two operands is repeated along each choice of dims: their strides there are zero, the others' are not."""
    record.case(op="pointwise", dtype=dtype, direction="forms")
    card.needs(dtype)
    sizes = (3, 5, 7)
    whole = (np.arange(105) % 17).astype(dtype).reshape(sizes)
    x = made(whole, dtype, card)
    for dims in (dims for count in (1, 2) for dims in itertools.combinations(range(3), count)):
        few = tuple(1 if d in dims else n for d, n in enumerate(sizes))
        part = (np.arange(np.prod(few)) * 3 % 11).astype(dtype).reshape(few)
        y = made(part, dtype, card)
        for side, found, wanted in (("right", x - y, whole - part), ("left", y - x, part - whole)):
            expect(
                found, wanted, f"pointwise, sub of {dtype}", f"3 x 5 x 7, the {side} one repeated along {dims}", card
            )


@pytest.mark.parametrize("dtype", ("float32", "float16"))
def test_square_products(dtype: str, card: Card, record: Record) -> None:
    """Whose sizes do not tell a matrix from its transpose: the strides do."""
    record.case(op="matmul", dtype=dtype, direction="forms")
    card.needs(dtype)
    for n in (2, 5, 32, 33):
        a, b = (np.arange(n * n).reshape(n, n) * k % 5 - 2.0 for k in (7, 3))
        x, y = (there(v, dtype, card) for v in (a, b))
        for left, right in itertools.product(("contiguous", "transposed"), repeat=2):
            what = f"{n} x {n} @ {n} x {n}, {left} @ {right}"
            expect(LAID[left](x) @ LAID[right](y), a @ b, f"matmul of {dtype}", what, card)
            both = LAID[left](x).expand(2, n, n), LAID[right](y).expand(2, n, n)
            expect(ts.bmm(*both), np.stack((a @ b,) * 2), f"matmul of {dtype}", f"two of {what}", card)


def test_outputs_that_are_operands(card: Card, record: Record) -> None:
    """A program of several outputs that are its operands, too: all is read before anything is written."""
    record.case(op="pointwise", dtype=card.real, direction="forms")
    values, slope = (np.arange(77) * k % 13 - 6.0 for k in (7, 5))
    x = ts.nn.Parameter(real(values, card))
    steps, moment = ts.optim.SGD([x], lr=0.25, momentum=0.5, weight_decay=0.5), np.zeros(77)
    for turn in range(2):
        x.grad = real(slope + turn, card)
        steps.step()
        moment = 0.5 * moment + slope + turn + 0.5 * values
        values = values - 0.25 * moment
        what = f"step {turn} of SGD with momentum, 77 elements, contiguous"
        expect(x.detach(), rounded(values, card.real), f"pointwise of {card.real}", what, card, ulp=2)


# --- indices ----------------------------------------------------------------------------------------------------------

ON_INDEX: dict[str, Op] = {
    "index_select": (lambda p: p[0].index_select(0, p[1]), lambda p: p[0][p[1]]),
    "index_select, dim 1": (lambda p: p[0].t().index_select(1, p[1]), lambda p: p[0].T[:, p[1]]),
    "embedding": (lambda p: ts.nn.functional.embedding(p[1], p[0]), lambda p: p[0][p[1]]),
    "index_add": (lambda p: ts.zeros_like(p[0]).index_add(0, p[1], p[0][: len(p[1])]), lambda p: _added(*p)),
}


def _added(rows: Any, index: Any) -> Any:
    total = np.zeros_like(rows)
    np.add.at(total, index, rows[: len(index)])
    return total


@pytest.mark.parametrize("kind", ("int32", "int64"))
@pytest.mark.parametrize("name", ON_INDEX)
def test_indices_of_either_size(name: str, kind: str, card: Card, record: Record) -> None:
    """Positions come as int64 or as int32, whose bytes are not those of int64."""
    record.case(op=name, dtype=kind, direction="forms")
    card.needs(kind)
    rows = (np.arange(40 * 3) * 7 % 19).astype(np.float32).reshape(40, 3)
    index = (np.arange(31) * 17 % 40).astype(kind)
    call, wanted = ON_INDEX[name]
    for step in (1, 3):
        given = real(rows, card), made(index, kind, card)[::step]
        expect(call(given), wanted((rows, index[::step])), f"{name} with {kind} positions", f"{step} apart", card)


@pytest.mark.parametrize("dtype", ("float32", "int64", "int32", "float16"))
def test_duplicates(dtype: str, card: Card, record: Record) -> None:
    """Thousands of elements in a handful of places: none is lost."""
    record.case(op="scatter", dtype=dtype, direction="forms")
    card.needs(dtype)
    count = 1500 if dtype == "float16" else 20_000
    index = np.arange(count) * 7919 % 7
    values = np.arange(count) % 2
    x, at = made(values.astype(dtype), dtype, card), made(index, "int64", card)
    zeros = ts.zeros(7, dtype=x.dtype, device=card.device)
    what = f"{count} elements in 7 places"
    added = np.bincount(index, values, 7)
    expect(zeros.scatter_add(0, at, x), added, f"scatter, add of {dtype}", what, card)
    expect(zeros.index_add(0, at, x), added, f"scatter, add of {dtype} by index_add", what, card)
    order = made((np.arange(count) * 31 % 1009).astype(dtype), dtype, card)
    most = np.array([(np.arange(count) * 31 % 1009)[index == k].max() for k in range(7)])
    expect(zeros.scatter_reduce(0, at, order, "amax"), most, f"scatter, max of {dtype}", what, card)
    signs = made(np.where(np.arange(count) % 11 == 3, -1, 1).astype(dtype), dtype, card)
    product = np.array([np.where(np.arange(count) % 11 == 3, -1, 1)[index == k].prod() for k in range(7)])
    expect((zeros + 1).scatter_reduce(0, at, signs, "prod"), product, f"scatter, prod of {dtype}", what, card)
    wide = made(np.stack((values + 2 * index, index), 1).astype(dtype), dtype, card)
    found = ts.zeros(7, 2, dtype=x.dtype, device=card.device).scatter(0, at[:, None].expand(count, 2), wide).cpu()
    rows = found.double().numpy()
    for k in range(7):
        whole = rows[k, 1] == k and rows[k, 0] in (2 * k, 2 * k + 1)
        assert whole, f"scatter of {dtype} on {card.name}: {what}: place {k} holds {rows[k].tolist()}, nobody's value"


# --- far offsets ------------------------------------------------------------------------------------------------------

_FAR = (1 << 31) + 4096


@pytest.fixture
def far(card: Card) -> Any:
    """A block of more than 2 GiB, of which only a few pages are ever touched."""
    largest, free = int(card.properties["max_allocation"]), int(card.properties["free_memory"])
    if 0 < largest < _FAR or 0 < free < 2 * _FAR or not card.supports("uint8"):
        pytest.skip("the device has no block of more than 2 GiB")
    try:
        return ts.empty(_FAR, dtype=ts.uint8, device=card.device)
    except ts.OutOfMemoryError:
        pytest.skip("no block of more than 2 GiB to be had")


@pytest.mark.conformance(slow=True)
def test_far_offsets(far: Any, card: Card) -> None:
    """Tensors that begin more than 2^31 bytes from their block's beginning, and such as span as much."""
    begin = (1 << 31) + 64
    data = np.arange(256) * 31 % 251
    part = far[begin : begin + 256]
    part.copy_(ts.from_numpy(data.astype(np.uint8)))
    head = far[64:320]
    head.fill_(7)
    where = "2^31 bytes and more into their block"
    expect(part, data, "copy_from_host of uint8", where, card)
    expect(part.clone(), data, "copy_within of uint8", where, card)
    expect(part[::2].contiguous(), data[::2], "copy_cast of uint8", where, card)
    expect((part[::3] // 2), data[::3] // 2, "pointwise of uint8", where, card)
    expect(head, np.full(256, 7), "a write far away changed the beginning: uint8", "2^31 bytes before", card)
    step = (1 << 30) + 7
    apart = far[::step]
    for k in range(3):
        far[k * step : k * step + 1].fill_(11 * (k + 1))
    span = "3 elements, 2^30 bytes apart"
    expect(apart.contiguous(), np.array([11, 22, 33]), "copy_cast of uint8", span, card)
    expect(apart + 1, np.array([12, 23, 34]), "pointwise of uint8", span, card)
    expect(apart.sum(), np.array(66), "reduce of uint8", span, card)


@pytest.mark.conformance(slow=True)
def test_far_offsets_of_float32(far: Any, card: Card) -> None:
    """Numbers that begin more than 2^31 bytes from their block's beginning."""
    card.needs("float32")
    begin = (1 << 31) + 64
    where = "2^31 bytes and more into their block"
    wide = far[begin : begin + 256].view(ts.float32)
    wide.copy_(ts.arange(64.0))
    expect(wide * 2, np.arange(64) * 2.0, "pointwise of float32", where, card)
    expect(wide.sum(), np.array(2016.0), "reduce of float32", where, card)
    expect(wide.cumsum(0), np.arange(64.0).cumsum(), "scan of float32", where, card)
    expect(wide[ts.arange(63, -1, -1, device=card.device)], np.arange(63.0, -1, -1), "gather of float32", where, card)
