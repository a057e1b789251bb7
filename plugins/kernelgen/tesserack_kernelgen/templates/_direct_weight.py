"""Gradients of the weights of convolutions of stride 1, from images that lie in local memory; see ``_images``."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tesserack.backends import Launch, LaunchPlan

from tesserack_kernelgen.dtypes import ITEMSIZE, STORAGE
from tesserack_kernelgen.kernel import Kernel
from tesserack_kernelgen.layout import coordinates
from tesserack_kernelgen.templates import _dots, _images, _panel
from tesserack_kernelgen.templates._images import Copied, Images, Line, Space
from tesserack_kernelgen.templates._product import Product, combine, halves_of, lanes_of
from tesserack_kernelgen.templates.pointwise import Elementwise

if TYPE_CHECKING:
    from tesserack_kernelgen.call import Call

__all__ = ["Lattice", "plan"]

_FILTERS, _COLUMNS = 64, 576  # of a tile, at most
_POSITIONS = 2048
_FEW = 1 << 25  # products of a unit, below which it is not worth a second launch that images are shared out


@dataclass(frozen=True)
class Lattice:
    """Where (channel, tap) are in the output, for taps that are some of a window's: the first, sizes and strides."""

    start: int
    sizes: tuple[int, int, int]
    strides: tuple[int, int, int]


@dataclass(frozen=True)
class _Tile:
    filters: int
    channels: int
    line: Line
    splits: int


def _tile(call: Call, p: Product, results: Images, images: Images, space: Space) -> _Tile | None:
    """The largest tile that fits; None where borders or rows of images leave none."""
    if min(*space.border, min(images.shape) - 1, min(results.shape) - 1) < 0 or space.count > _COLUMNS - 4:
        return None
    elements, units = _images.capacity(call, p.accumulate), call.device.compute_units
    filters = -(-_images.pieces(results.shape[1], _FILTERS) // 4) * 4
    channels = min(images.shape[1], (_COLUMNS - 4) // space.count, (elements // 6 // filters - 4) // space.count)
    if channels < 1:
        return None
    channels = _images.pieces(images.shape[1], channels)
    tiles = -(-results.shape[1] // filters) * -(-images.shape[1] // channels) * math.prod(p.batch)
    most = min(elements // 4 // filters, _POSITIONS) - 64
    line = _images.line_of(images, (results.shape[2], results.shape[3]), space, most, max(1, 2 * units // tiles))
    while line and channels * line.plane(space.halo[0]) + _images.slack(space) > elements // 2:
        if line.images > 1:
            line = Line(-(-line.images // 2), line.rows, line.spacing)
        elif line.rows > 1:
            line = Line(1, -(-line.rows // 2), line.spacing)
        elif channels > 1:
            channels = -(-channels // 2)
        else:
            return None
    if line is None:
        return None
    tiles = -(-results.shape[1] // filters) * -(-images.shape[1] // channels) * math.prod(p.batch)
    splits = max(1, min(2 * units // tiles, -(-images.shape[0] // line.images), 64))
    if splits > 1 and math.prod((*p.batch, *p.sizes)) < _FEW * units:  # the filters are shared out
        filters = min(filters, -(-_images.pieces(results.shape[1], -(-results.shape[1] // units)) // 4) * 4)
        tiles = -(-results.shape[1] // filters) * -(-images.shape[1] // channels) * math.prod(p.batch)
        splits = 1 if tiles >= units else splits
    return _Tile(filters, channels, line, splits)


def plan(
    call: Call, p: Product, results: Images, images: Images, space: Space, lattice: Lattice | None = None
) -> LaunchPlan | None:
    """The launches for the product of ``results``, a gradient, and the windows of ``images``; None where it is not for
    this schedule. ``lattice`` tells where the columns are in the output, if they are not side by side.
    """
    acc = STORAGE[p.accumulate]
    lanes = lanes_of(call, acc, max(2, call.device.simd_bytes // ITEMSIZE[p.accumulate]))
    if not call.device.serial or lanes is None or (tile := _tile(call, p, results, images, space)) is None:
        return None
    k = Kernel(call, "direct_weight")
    split, line, elements = tile.splits > 1 or lattice is not None, tile.line, _images.capacity(call, p.accumulate)
    given, source = (Copied(k, x, k.input(x.operand)) for x in (results, images))
    out = k.workspace(0, p.accumulate) if split else k.output(0)
    down, across = -(-p.sizes[0] // tile.filters), -(-images.shape[1] // tile.channels)
    each = -(-images.shape[0] // tile.splits)
    counts = [k.own_index(v) for v in (across, down, tile.splits)]
    m, n, all_rows = k.own_index(p.sizes[0]), k.own_index(images.shape[0]), k.own_index(results.shape[2])
    tile_m, tile_c, tile_y, tile_n = (k.own_index(v) for v in (tile.filters, tile.channels, line.rows, line.images))
    all_channels, taps, part = k.own_index(images.shape[1]), k.own_index(space.count), k.own_index(each)
    halo, spacing, slack = (k.own_index(v) for v in (space.halo[0], line.spacing, _images.slack(space)))
    border = (k.own_index(space.border[0]), k.own_index(space.border[1]))
    (ky, kx), (sy, sx) = ([k.own_index(v) for v in pair] for pair in (space.taps, space.step))
    matrix = p.sizes[0] * p.sizes[1]
    to_g = k.own_index(matrix if split else p.out_batch[0])
    to_split = k.own_index(matrix * math.prod(p.batch) if split else 0)
    to_m = k.own_index(p.sizes[1] if split else p.out_m)
    moves = [("za", results), ("zb", images)]
    bases = " ".join(f"const idx {name} = g * {k.own_index(x.group)} + {k.own_index(x.start)};" for name, x in moves)
    rows = 1 if p.sizes[0] == 1 else 4  # of depthwise convolutions others would be computed in vain
    dots = _dots.Dots(lanes.count, rows, 4 if call.device.simd_bytes >= 64 else 2, 0, 0, 0)
    room = [
        _images.room(size, acc, name, lanes.type, lanes.count)
        for name, size in (("pa", elements // 4), ("pb", elements // 2), ("sums", elements // 6))
    ]
    loads = _taken(dots, lanes)
    again = _again(acc, given, source, (ky, kx, sy, sx), border)
    body = f"""
  {" ".join(room)}
  LOCAL_ARRAY(i32, taken, {_COLUMNS});
  {coordinates("GROUP(0)", ["1", *reversed(counts)], ["g", "split", "band", "strip"])}
  {bases}
  const idx m0 = band * {tile_m}, c0 = strip * {tile_c};
  const idx begin = split * {part}, end = LEAST(begin + {part}, {n});
  const i32 mm = (i32)LEAST({tile_m}, {m} - m0), channels = (i32)LEAST({tile_c}, {all_channels} - c0);
  const i32 spacing = (i32){spacing}, nn = channels * (i32){taps};
  const i32 stretch = (nn + {dots.columns - 1}) / {dots.columns} * {dots.columns};
  i32 started = 0;
  for (idx i0 = begin; i0 < end; i0 += {tile_n}) for (idx y0 = 0; y0 < {all_rows}; y0 += {tile_y}) {{
    const i32 images_here = (i32)LEAST({tile_n}, end - i0), yy = (i32)LEAST({tile_y}, {all_rows} - y0);
    const i32 pitch = images_here * spacing, whole = (yy * pitch + {lanes.count - 1}) / {lanes.count} * {lanes.count};
    {{
      const i32 plane = whole, channels = mm; const idx c0 = m0;
      {_images.clear("pa", f"(mm + {dots.rows - 1}) / {dots.rows} * {dots.rows} * whole")}
      {_images.copy_images(given, "za", "pa", "yy", ("0", "0"), acc)}
    }}
    const i32 plane = (yy + (i32){halo}) * pitch;
    {_images.clear("pb", f"channels * plane + (i32){slack}")}
    {_images.copy_images(source, "zb", "pb", f"yy + (i32){halo}", border, acc)}
    {_images.offsets(space, "taken", "pitch", "plane", k)}
    for (i32 j = nn; j < stretch; j++) taken[j] = 0;
    for (i32 j = 0; j < stretch; j += {dots.columns}) for (i32 i = 0; i < mm; i += {dots.rows}) {{
      {_dots.registers(acc, dots, lanes.type, "pa + i * whole", "whole", loads, "stretch", "!started")}
    }}
    started = 1;
  }}
  if (!started) for (i32 e = 0; e < mm * stretch; e++) sums[e] = 0;
  for (i32 i = 0; i < mm; i++) for (i32 j = 0; j < nn; j++) {{
    {acc} v = sums[i * stretch + j];
    if (v - v != 0) {{ {again} }}
    const idx at = split * {to_split} + g * {to_g} + (m0 + i) * {to_m} + c0 * {taps} + j;
    {out.store("at", "v", acc)}
  }}
"""
    helpers = f"{_panel.LEAST}\n{_dots.total(acc, lanes.type, halves_of(call, acc, lanes))}"
    groups = down * across * tile.splits * math.prod(p.batch)
    if groups >= 2**31:
        return None
    launch = k.launch(body, (groups,), (1,), helpers)
    if not split:
        return LaunchPlan([launch])
    size = ITEMSIZE[p.accumulate] * tile.splits * math.prod((*p.batch, *p.sizes[:2]))
    added = combine(call, p, tile.splits) if lattice is None else _spread(call, p, tile.splits, lattice)
    return LaunchPlan([launch, added], size)


def _spread(call: Call, p: Product, splits: int, lattice: Lattice) -> Launch:
    """The parts of the sums added in order, and stored where a lattice has them."""
    k = Kernel(call, "spread")
    parts, out, acc = k.workspace(0, p.accumulate), k.output(0), STORAGE[p.accumulate]
    sizes = (*p.batch, p.sizes[0], *lattice.sizes)
    total, number, start = (k.own_index(v) for v in (math.prod(sizes), splits, lattice.start))
    dense = [math.prod(sizes[d + 1 :]) for d in range(len(sizes))]

    def body(at: list[str]) -> str:
        return f"""  {acc} sum = 0;
  for (idx s = 0; s < {number}; s++) sum += {parts.load(f"s * {total} + {at[1]}", acc)};
  {out.store(f"{start} + {at[0]}", "sum", acc)}"""

    strides = [(*p.out_batch, p.out_m, *lattice.strides), dense]
    (launch,) = Elementwise(k, sizes, strides, body, looped=True).plan().launches or ()
    return launch


def _taken(d: _dots.Dots, lanes: _panel.Lanes) -> str:
    """Statements that load vectors of the columns, which begin at any element."""
    return " ".join(
        f"const {lanes.type} y{c} = vload{lanes.count}(0, pb + taken[j + {c}] + k);" for c in range(d.columns)
    )


def _again(acc: str, given: Copied, source: Copied, window: tuple[str, str, str, str], border: tuple[str, str]) -> str:
    """Statements that compute one sum, ``v``, by its definition. Of vectors that went over what lies between images, an
    infinity there had made the sum NaN.
    """
    _, kx, sy, sx = window
    x, g = source, given
    return f"""const idx c = j / {window[0]} / {kx}, ty = j / {kx} % {window[0]}, tx = j % {kx};
      v = 0;
      for (idx n = begin; n < end; n++) for (idx y = 0; y < {g.height}; y++) for (idx x = 0; x < {g.width}; x++) {{
        const idx iy = y + ty * {sy} - {border[0]}, ix = x + tx * {sx} - {border[1]};
        const {acc} left = {g.tensor.load(f"za + n * {g.n} + (m0 + i) * {g.c} + y * {g.y} + x * {g.x}", acc)};
        {acc} right = 0;
        if (iy >= 0 && iy < {x.height} && ix >= 0 && ix < {x.width})
          right = {x.tensor.load(f"zb + n * {x.n} + (c0 + c) * {x.c} + iy * {x.y} + ix * {x.x}", acc)};
        v += left * right;
      }}"""
