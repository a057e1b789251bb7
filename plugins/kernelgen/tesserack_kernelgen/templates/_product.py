"""A generated product of two factors: what it computes, which schedule computes it, and the text both share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tesserack.backends import Launch, LaunchPlan

from tesserack_kernelgen.chunks import launch_chunks
from tesserack_kernelgen.dtypes import STORAGE, name_of
from tesserack_kernelgen.kernel import Kernel, Tensor
from tesserack_kernelgen.layout import contiguous, coordinates
from tesserack_kernelgen.templates import _block, _dots, _panel
from tesserack_kernelgen.templates._factor import Factor, FactorText

if TYPE_CHECKING:
    from tesserack_kernelgen.call import Call

__all__ = ["Addend", "Product", "Text", "addend_of", "combine", "halves_of", "lanes_of", "plan"]

_LARGE = 256  # rows and columns from which the large tile of groups is used
_SPLIT_DEPTH = 512  # the least k a part of a split product has


@dataclass(frozen=True)
class Addend:
    """An input added to every element: its strides along m, n and the batch. A number has none."""

    operand: int
    m: int = 0
    n: int = 0
    batch: Sequence[int] = ()


@dataclass(frozen=True)
class Product:
    """``out[batch, m, n] = sum over k of a[batch, m, k] * b[batch, k, n]``, and an addend.

    Args:
        sizes: m, n and k.
        batch: sizes of the batch; ``out_batch`` are the output's strides.
        out_n: strides of the two digits of n in the output, the inner one of ``out_inner`` values.
        accumulate: the dtype of the sums.
    """

    sizes: tuple[int, int, int]
    a: Factor
    b: Factor
    out_m: int
    out_n: tuple[int, int]
    out_inner: int
    accumulate: str
    batch: Sequence[int] = ()
    out_batch: Sequence[int] = ()
    addend: Addend | None = None


@dataclass(frozen=True)
class Text:
    """What the schedules write into their text: expressions, all of them fields or constants of the kernel."""

    a: FactorText
    b: FactorText
    out: Tensor
    acc: str
    m: str
    n: str
    tile_m: str
    tile_n: str
    out_m: str
    out_n: tuple[str, str]
    out_inner: str
    prologue: str
    addend: Tensor | str | None
    addend_at: tuple[str, str]

    def finish(self, value: str, m: str, n: str) -> str:
        """The expression of what is stored for a sum: with the addend, if there is one."""
        if self.addend is None:
            return value
        if isinstance(self.addend, str):
            return f"{value} + {self.addend}"
        at = f"zd + ({m}) * {self.addend_at[0]} + ({n}) * {self.addend_at[1]}"
        return f"{value} + {self.addend.load(at, self.acc)}"


def plan(call: Call, p: Product) -> Any:
    """The launches of a product; NotImplemented for one of more than 2^31 rows, columns or terms."""
    if max(*p.sizes, math.prod(p.batch)) >= 2**31:
        return NotImplemented
    tiles = _Tiles(call, p)
    if tiles.groups >= 2**31:
        return NotImplemented
    if tiles.splits == 1:
        return LaunchPlan([_launch(call, p, tiles)])
    count = math.prod((*p.batch, *p.sizes[:2]))
    itemsize = 4 if STORAGE[p.accumulate] == "f32" else 8
    return LaunchPlan([_launch(call, p, tiles), combine(call, p, tiles.splits)], tiles.splits * count * itemsize)


class _Tiles:
    """The schedule for a product on a device, the tiles and how many parts k is split into."""

    def __init__(self, call: Call, p: Product):
        m, n, k = p.sizes
        device = call.device
        self.serial = device.serial
        itemsize = 4 if STORAGE[p.accumulate] == "f32" else 8
        if self.serial:
            dots = _dots.choose(itemsize, device.simd_bytes, device.local_bytes) if _along_sum(call, p) else None
            self.panel = dots or _panel.choose(itemsize, device.simd_bytes, device.local_bytes)
            self.m, self.n = self._shrunk(m, n, math.prod(p.batch), device.compute_units)
        else:
            self.block = _block.LARGE if min(m, n) >= _LARGE and itemsize == 4 else _block.SMALL
            self.m = self.n = self.block.tile
        self.down, self.across = -(-m // self.m), -(-n // self.n)
        tiles = self.down * self.across * math.prod(p.batch)
        self.splits = max(1, min(2 * device.compute_units // tiles, k // _SPLIT_DEPTH, 64))
        self.chunk = -(-k // self.splits)
        self.splits = max(1, -(-k // self.chunk)) if self.chunk else 1
        self.groups = tiles * self.splits

    def _shrunk(self, m: int, n: int, batch: int, units: int) -> tuple[int, int]:
        """Tiles no larger than the product, and small enough that every processor has some."""
        p = self.panel
        rows, columns = (-(-size // unit) * unit for size, unit in ((m, p.rows), (n, p.columns)))
        tile_m, tile_n = min(p.tile_m // p.rows * p.rows, rows), min(p.tile_n, columns)
        while -(-m // tile_m) * -(-n // tile_n) * batch < 2 * units:
            if tile_n > p.columns and tile_n >= tile_m:
                tile_n = -(-tile_n // 2 // p.columns) * p.columns
            elif tile_m > 2 * p.rows:
                tile_m = -(-tile_m // 2 // p.rows) * p.rows
            else:
                break
        return tile_m, tile_n


def _launch(call: Call, p: Product, tiles: _Tiles) -> Launch:
    k = Kernel(call, "product")
    a, b = (FactorText(k, f, k.input(f.operand), name) for f, name in ((p.a, "a"), (p.b, "b")))
    acc = STORAGE[p.accumulate]
    m, n, depth = (k.own_index(size) for size in p.sizes)
    split = tiles.splits > 1
    out = k.workspace(0, p.accumulate) if split else k.output(0)
    out_batch, out_m, out_n, inner = p.out_batch, p.out_m, p.out_n, p.out_inner
    if split:  # contiguous (part, batch, m, n)
        out_m, out_n, inner = p.sizes[1], (0, 1), p.sizes[1]
        out_batch = [math.prod((*p.batch[d + 1 :], *p.sizes[:2])) for d in range(len(p.batch))]
    part = math.prod((*p.batch, *p.sizes[:2])) if split else 0
    addend, at, batch_of_addend = addend_of(k, None if split else p.addend, acc)
    bases = {"za": p.a.batch, "zb": p.b.batch, "zc": out_batch} | ({"zd": batch_of_addend} if batch_of_addend else {})
    tile_m, tile_n = k.own_index(tiles.m), k.own_index(tiles.n)
    prologue = _prologue(k, p, tiles, bases, (tile_m, tile_n), depth, part)
    strides = (k.own_index(out_n[0]), k.own_index(out_n[1]))
    t = Text(
        a, b, out, acc, m, n, tile_m, tile_n, k.own_index(out_m), strides, k.own_index(inner), prologue, addend, at
    )
    if tiles.serial:
        vector = call.card.dialect.vector(acc, tiles.panel.vector)
        lanes = lanes_of(call, acc, tiles.panel.vector)
        if isinstance(tiles.panel, _dots.Dots):
            assert lanes is not None  # or it had not been chosen
            body, helpers = _dots.text(t, tiles.panel, lanes, halves_of(call, acc, lanes))
        else:
            body, helpers = _panel.text(t, tiles.panel, vector, lanes)
        return k.launch(body, (tiles.groups,), (1,), helpers)
    body, helpers = _block.text(t, tiles.block)
    return k.launch(body, (tiles.groups,), (tiles.block.items,), helpers)


def _along_sum(call: Call, p: Product) -> bool:
    """Whether both factors lie along k, which is long, as numbers that the dialect has vectors for."""
    operands = [call.inputs[f.operand] for f in (p.a, p.b)]
    return (
        p.sizes[2] >= _dots.LEAST_DEPTH
        and lanes_of(call, STORAGE[p.accumulate], 4) is not None
        and all(name_of(x.dtype) == p.accumulate for x in operands)
        and all(f.run == "inner" and f.side_by_side(x) for f, x in zip((p.a, p.b), operands, strict=True))
    )


def lanes_of(call: Call, acc: str, count: int) -> _panel.Lanes | None:
    """The vectors of a dialect that can be masked; other dialects and integers copy one by one."""
    dialect, numbers = call.card.dialect, {"f32": "i32", "f64": "i64"}.get(acc)
    if not dialect.vector_functions or numbers is None:
        return None
    return _panel.Lanes(dialect.vector(acc, count), dialect.vector(numbers, count), count)


def halves_of(call: Call, acc: str, lanes: _panel.Lanes) -> list[str]:
    """The types of vectors of half as many lanes, and so on, down to two."""
    return [call.card.dialect.vector(acc, lanes.count >> k) for k in range(1, lanes.count.bit_length() - 1)]


def addend_of(k: Kernel, addend: Addend | None, acc: str) -> tuple[Tensor | str | None, tuple[str, str], Sequence[int]]:
    if addend is None:
        return None, ("0", "0"), ()
    if not hasattr(k.call.inputs[addend.operand], "strides"):
        return k.scalar(addend.operand, acc), ("0", "0"), ()
    strides = (k.own_index(addend.m), k.own_index(addend.n))
    return k.input(addend.operand), strides, tuple(addend.batch) or (0,)


def _prologue(
    k: Kernel,
    p: Product,
    tiles: _Tiles,
    bases: dict[str, Sequence[int]],
    tile: tuple[str, str],
    depth: str,
    part: int,
) -> str:
    """Statements that tell from the group's number the first row and column ``m0``, ``n0`` of its tile, its part of k
    from ``begin`` to ``end``, and the offsets of its matrices."""
    across, down, splits, chunk = (k.own_index(v) for v in (tiles.across, tiles.down, tiles.splits, tiles.chunk))
    lines = [
        f"const i32 group = GROUP(0), tile = (i32)(group / {across});",
        f"const i32 n0 = (i32)(group % {across} * {tile[1]}), m0 = (i32)(tile % {down} * {tile[0]});",
        f"const i32 share = (i32)(tile / {down}), split = (i32)(share % {splits});",
        f"const i32 begin = (i32)(split * {chunk});",
        f"const i32 end = (i32)(begin + {chunk} < {depth} ? begin + {chunk} : {depth});",
    ]
    names = [f"g{d}" for d in range(len(p.batch))]
    lines.append(coordinates(f"share / {splits}", [k.own_index(size) for size in p.batch], names))
    for name, strides in bases.items():
        moves = [f"{digit} * {k.own_index(s)}" for digit, s in zip(names, strides, strict=False)]
        if name == "zc" and part:
            moves.append(f"split * {k.own_index(part)}")
        lines.append(f"const idx {name} = {' + '.join(moves) or '0'};")
    return "\n  ".join(lines)


def combine(call: Call, p: Product, splits: int) -> Launch:
    """The parts of a split product, added in order, and the addend."""
    k = Kernel(call, "combine")
    acc = STORAGE[p.accumulate]
    parts, out = k.workspace(0, p.accumulate), k.output(0)
    sizes = (*p.batch, *p.sizes[:2])
    count = math.prod(sizes)
    names = [f"c{d}" for d in range(len(sizes))]
    in_order = p.out_inner == sizes[-1] and contiguous(sizes, (*p.out_batch, p.out_m, p.out_n[1]))
    if in_order and p.addend is None:  # as the parts are: no divisions
        digits, place = "", "i"
    else:
        digits = coordinates("i", [k.own_index(size) for size in sizes], names)
        column, inner = names[-1], k.own_index(p.out_inner)
        moves = [f"{name} * {k.own_index(s)}" for name, s in zip(names, (*p.out_batch, p.out_m), strict=False)]
        moves.append(f"{column} / {inner} * {k.own_index(p.out_n[0])} + {column} % {inner} * {k.own_index(p.out_n[1])}")
        place = " + ".join(moves)
    addend, strides, batch = addend_of(k, p.addend, acc)
    value = "sum"
    if isinstance(addend, str):
        value = f"sum + {addend}"
    elif addend is not None:
        steps = zip(names, (*(k.own_index(s) for s in batch[: len(p.batch)]), *strides), strict=False)
        value = f"sum + {addend.load(' + '.join(f'{name} * {s}' for name, s in steps), acc)}"
    total, number = k.own_index(count), k.own_index(splits)
    element = f"""
    {acc} sum = 0;
    for (idx s = 0; s < {number}; s++) sum += {parts.load(f"s * {total} + i", acc)};
    {digits}
    {out.store(place, value, acc)}
"""
    if call.device.serial:
        return launch_chunks(k, count, f"for (idx i = begin; i < end; ++i) {{{element}  }}")
    group = call.device.group
    body = f"""
  const idx i = (idx)GROUP(0) * {group} + LANE(0);
  if (i < {total}) {{{element}  }}
"""
    return k.launch(body, (-(-count // group),), (group,))
