"""Nothing outside an output is written: canaries around it, checked after every call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tesserack as ts
from tesserack.testing import cases
from tesserack.testing.conformance.areas import REQUIRED
from tesserack.testing.conformance.card import Card, Record
from tesserack.testing.conformance.exactly import expect
from tesserack.testing.conformance.guarding.canaries import Guarded, Slack, report

# Rows and columns of what the required kernels write: less than a vector, odd, a block and one more.
SHAPES = ((1, 1), (3, 5), (1, 17), (7, 64), (65, 3), (2, 1025), (33, 129))
Target = Callable[..., ts.Tensor]


def matrix(rows: int, columns: int, dtype: ts.dtype, device: Any) -> Any:
    """Small numbers without a pattern."""
    numbers = ts.arange(rows * columns) * 7919 % 5
    return numbers.to(dtype).reshape(rows, columns).to(device)


def _copy(new: Target, rows: int, columns: int, dtype: ts.dtype, device: Any) -> None:
    new(rows, columns).copy_(matrix(columns, rows, dtype, device).t())
    new(rows, columns).copy_(matrix(rows, columns, ts.get_default_dtype(), device))


def _fill(new: Target, rows: int, columns: int, dtype: ts.dtype, device: Any) -> None:
    new(rows, columns).fill_(1)


def _iota(new: Target, rows: int, columns: int, dtype: ts.dtype, device: Any) -> None:
    if dtype != ts.bool:
        ts.arange(rows * columns, out=new(rows * columns))


def _pointwise(new: Target, rows: int, columns: int, dtype: ts.dtype, device: Any) -> None:
    x = matrix(rows, columns, dtype, device)
    ts.mul(x, x, out=new(rows, columns))
    ts.mul(x, x[:, :1], out=new(rows, columns))
    ts.lt(x, x[:, :1], out=new(rows, columns, dtype=ts.bool))  # narrower than what it is made of
    new(rows, columns).copy_(x).mul_(x)


def _reduce(new: Target, rows: int, columns: int, dtype: ts.dtype, device: Any) -> None:
    x = matrix(rows, columns, dtype, device)
    for dim, kept in ((0, columns), (1, rows)):
        ts.amax(x, dim, out=new(kept))
        if dtype != ts.bool:
            ts.argmax(x, dim, out=new(kept, dtype=ts.int64))
        ts.any(x, dim, out=new(kept, dtype=ts.uint8 if dtype == ts.uint8 else ts.bool))
        if dtype.is_floating_point:
            ts.sum(x, dim, out=new(kept))


def _scan(new: Target, rows: int, columns: int, dtype: ts.dtype, device: Any) -> None:
    x = matrix(rows, columns, dtype, device)
    for dim in (0, 1):
        ts.cumsum(x, dim, out=new(rows, columns, dtype=None if dtype.is_floating_point else ts.int64))


def _matmul(new: Target, rows: int, columns: int, dtype: ts.dtype, device: Any) -> None:
    if dtype.is_floating_point:
        a, b = matrix(rows, 9, dtype, device), matrix(9, columns, dtype, device)
        ts.mm(a, b, out=new(rows, columns))
        ts.mm(b.t().contiguous(), a.t(), out=new(columns, rows))
        ts.addmm(b[0], a, b, out=new(rows, columns))
        ts.bmm(a.expand(2, rows, 9), b.expand(2, 9, columns), out=new(2, rows, columns))


def _gather(new: Target, rows: int, columns: int, dtype: ts.dtype, device: Any) -> None:
    x = matrix(rows, columns, dtype, device)
    ts.gather(x, 1, ts.zeros(rows, columns, dtype=ts.int64, device=device), out=new(rows, columns))
    ts.index_select(x, 0, ts.arange(rows, device=device).flip(0), out=new(rows, columns))


def _scatter(new: Target, rows: int, columns: int, dtype: ts.dtype, device: Any) -> None:
    x = matrix(rows, columns, dtype, device)
    index = ts.arange(columns, device=device).expand(rows, columns)
    new(rows, columns).copy_(x).scatter_(1, index, x)
    if dtype != ts.bool:
        new(rows, columns).copy_(x).scatter_add_(1, index, x)


def _sort(new: Target, rows: int, columns: int, dtype: ts.dtype, device: Any) -> None:
    x = matrix(rows, columns, dtype, device)
    ts.sort(x, 1, out=(new(rows, columns), new(rows, columns, dtype=ts.int64)))


def _random_bits(new: Target, rows: int, columns: int, dtype: ts.dtype, device: Any) -> None:
    new(rows, columns).random_()


WRITERS: dict[str, Callable[..., None]] = {
    "copy_cast": _copy,
    "fill": _fill,
    "iota": _iota,
    "pointwise": _pointwise,
    "reduce": _reduce,
    "scan": _scan,
    "matmul": _matmul,
    "gather": _gather,
    "scatter": _scatter,
    "sort": _sort,
    "random_bits": _random_bits,
}
assert WRITERS.keys() == REQUIRED.keys()


@pytest.mark.parametrize("dtype", cases.DTYPES)
@pytest.mark.parametrize("entry", WRITERS)
def test_required_kernel_keeps_to_its_output(entry: str, dtype: str, card: Card, record: Record) -> None:
    """Contiguous outputs and those with gaps, at sizes around vectors and blocks."""
    record.case(op=entry, dtype=dtype, direction="bounds")
    card.needs(dtype)
    here = getattr(ts, dtype)
    for rows, columns in SHAPES:
        for gaps in (False, True):
            made: list[Guarded] = []

            def new(*shape: int, dtype: ts.dtype | None = None, made: list[Guarded] = made, gaps: bool = gaps) -> Any:
                made.append(Guarded(shape, dtype or here, card.device, gaps))
                return made[-1].tensor

            WRITERS[entry](new, rows, columns, here, card.device)
            report(made, f"{entry} of {dtype}", f"{rows} x {columns}{', with gaps' if gaps else ''}", card.name)


# Operands that are only read, what a call writes, and sizes and dtypes of that: x and y of 6 x 10, i: places.
Call = Callable[[dict[str, Any], tuple[Any, ...]], Any]
INTO: dict[str, tuple[Call, tuple[tuple[int, ...], ...]]] = {
    "copy_cast": (lambda v, o: o[0].copy_(v["x"].t()), ((10, 6),)),
    "pointwise": (lambda v, o: ts.mul(v["x"], v["y"], out=o[0]), ((6, 10),)),
    "reduce, sum": (lambda v, o: ts.sum(v["x"], 1, out=o[0]), ((6,),)),
    "reduce, max": (lambda v, o: ts.amax(v["x"], 0, out=o[0]), ((10,),)),
    "scan": (lambda v, o: ts.cumsum(v["x"], 1, out=o[0]), ((6, 10),)),
    "matmul": (lambda v, o: ts.mm(v["x"], v["y"].t(), out=o[0]), ((6, 6),)),
    "matmul, of one row": (lambda v, o: ts.mm(v["x"][:1], v["y"].t(), out=o[0]), ((1, 6),)),
    "matmul, with a third operand": (
        lambda v, o: ts.addmm(v["y"][:, :6], v["x"], v["y"].t(), out=o[0]),
        ((6, 6),),
    ),
    "matmul, batched": (lambda v, o: ts.bmm(v["x"][None], v["y"].t()[None], out=o[0]), ((1, 6, 6),)),
    "gather": (lambda v, o: ts.gather(v["x"], 1, v["i"], out=o[0]), ((6, 10),)),
    "scatter": (lambda v, o: ts.scatter(v["x"], 1, v["i"], v["y"], out=o[0]), ((6, 10),)),
    "sort": (lambda v, o: ts.sort(v["x"], 1, out=(o[0], o[1])), ((6, 10), (6, 10))),
    "sort, descending": (lambda v, o: ts.sort(v["x"], 1, descending=True, out=(o[0], o[1])), ((6, 10), (6, 10))),
}


@pytest.mark.parametrize("name", INTO)
def test_required_kernel_leaves_its_operands(name: str, card: Card, record: Record) -> None:
    """What is only read is as it was, and what an output held before, NaN too, has no part in the result."""
    record.case(op=name, dtype=card.real, direction="bounds")
    call, sizes = INTO[name]
    real = getattr(ts, card.real)

    def run(device: Any) -> tuple[dict[str, Any], tuple[Any, ...]]:
        numbers = ts.arange(60).reshape(6, 10)
        plain = {"x": (numbers * 37 % 61 - 20).to(real), "y": (numbers * 7 % 5).to(real), "i": 9 - numbers % 10}
        given = {key: x.to(device) for key, x in plain.items()}
        outs = tuple(
            ts.full(size, -1 if k else float("nan"), dtype=ts.int64 if k else real, device=device)
            for k, size in enumerate(sizes)
        )
        call(given, outs)
        return given, outs

    (given, outs), (kept, wanted) = run(card.device), run("cpu")
    subject = f"{name} of {card.real}"
    for key, x in given.items():
        expect(x, cases.values(kept[key]), subject, f"6 x 10, contiguous, an operand that is only read ({key})", card)
    for found, exact in zip(outs, wanted, strict=True):
        expect(found, cases.values(exact), subject, "6 x 10, contiguous, into an output that held NaN", card)


_REALS = 80  # bytes of real numbers, whatever their dtype


def _ones(device: Any) -> Any:
    return ts.ones(_REALS // ts.get_default_dtype().itemsize, device=device)


# Kernels whose results the core keeps to itself, or that have several: 80 bytes each, in blocks of 128.
HIDDEN: dict[str, Callable[[Any], Any]] = {
    "random_bits, 32 bits": lambda device: ts.empty(20, dtype=ts.int32, device=device).random_(),
    "random_bits, 64 bits": lambda device: ts.empty(10, dtype=ts.int64, device=device).random_(0, 1 << 40),
    "scan, values": lambda device: ts.cummax(_ones(device), 0),
    "scan, positions": lambda device: ts.cummin(ts.ones(10, dtype=ts.int64, device=device), 0),
    "sort": lambda device: ts.topk(_ones(device), _REALS // ts.get_default_dtype().itemsize),
    "pointwise": lambda device: _ones(device) + 1,
    "matmul": lambda device: (
        _ones(device)[:12].reshape(4, 3) @ _ones(device)[:3, None].expand(3, len(_ones(device)) // 4)
    ),
}


@pytest.mark.parametrize("name", HIDDEN)
def test_temporaries_end_where_they_end(name: str, card: Card) -> None:
    """Results that nobody gave room for, and those on the way to others."""
    for _ in range(5):
        slack = Slack(_REALS, card.device)
        HIDDEN[name](card.device)
        damage = slack.damage()
        assert damage is None, f"{name} on {card.name}: {damage}"


@pytest.mark.parametrize("entry", WRITERS)
def test_kernel_keeps_to_its_workspace(entry: str, card: Card, record: Record) -> None:
    """Scratch memory ends where the kernel said: in checked mode the core looks at what lies behind."""
    record.case(op=entry, dtype="", direction="bounds")

    def new(*shape: int, dtype: ts.dtype | None = None) -> ts.Tensor:
        return ts.empty(shape, dtype=dtype or here, device=card.device)

    was = ts.backends.set_checked(True)
    try:
        for dtype in ("float32", "int64", "float16"):
            here = getattr(ts, dtype)
            for rows, columns in SHAPES if card.supports(dtype) else ():
                WRITERS[entry](new, rows, columns, here, card.device)
    except RuntimeError as error:
        pytest.fail(f"{entry} on {card.name}: {rows} x {columns} of {dtype}: {error}", pytrace=False)
    finally:
        ts.backends.set_checked(was)
