"""Convolutions of stride 1 and the gradients of their images, from images that lie in local memory; see ``_images``."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tesserack.backends import LaunchPlan

from tesserack_kernelgen.dtypes import ITEMSIZE, STORAGE
from tesserack_kernelgen.kernel import Kernel
from tesserack_kernelgen.layout import coordinates
from tesserack_kernelgen.templates import _images, _panel
from tesserack_kernelgen.templates._factor import FactorText
from tesserack_kernelgen.templates._images import Copied, Images, Line, Space
from tesserack_kernelgen.templates._product import Product, addend_of, lanes_of

if TYPE_CHECKING:
    from tesserack_kernelgen.call import Call

__all__ = ["plan"]

_DEPTH = 320  # terms of a sum whose weights and images are in local memory at a time
_FILTERS = 64  # of a tile, at most
_POSITIONS = 2048


@dataclass(frozen=True)
class _Tile:
    filters: int
    channels: int
    line: Line


def _tile(call: Call, p: Product, images: Images, out: Images, space: Space) -> _Tile | None:
    """The largest tile that fits; None where the borders or rows of images leave none."""
    if min(*space.border, min(images.shape) - 1, min(out.shape) - 1) < 0 or space.count > _DEPTH:
        return None
    elements = _images.capacity(call, p.accumulate)
    planes, sums = elements // 2, elements // 4
    most = min(_FILTERS, elements // 5 // _DEPTH // 8 * 8)
    if not most:
        return None
    filters = -(-_images.pieces(p.sizes[0], most) // 8) * 8
    line = _images.line_of(
        images, (out.shape[2], out.shape[3]), space, min(sums // filters, _POSITIONS) - 64, call.device.compute_units
    )
    if line is None:
        return None
    slack = _images.slack(space)
    channels = min((planes - slack) // (line.plane(space.halo[0]) * space.parts), _DEPTH // space.count)
    return _Tile(filters, _images.pieces(images.shape[1], channels), line) if channels else None


def plan(call: Call, p: Product, images: Images, out: Images, space: Space) -> LaunchPlan | None:
    """The launch for a product whose right factor is the windows of ``images``; None where it is not for this schedule.

    ``p`` tells the weights, the sizes, the addend and the batch; ``out`` has the strides of the output.
    """
    acc = STORAGE[p.accumulate]
    lanes = lanes_of(call, acc, max(2, call.device.simd_bytes // ITEMSIZE[p.accumulate]))
    if not call.device.serial or lanes is None or (tile := _tile(call, p, images, out, space)) is None:
        return None
    k = Kernel(call, "direct")
    weights = FactorText(k, p.a, k.input(p.a.operand), "a")
    source, target = Copied(k, images, k.input(images.operand)), k.output(0)
    addend, at, _ = addend_of(k, p.addend, acc)
    panel = _registers(call, p.sizes[0], lanes.count)
    beside = _panel.Rows(panel.rows, _DEPTH)
    line, elements = tile.line, _images.capacity(call, p.accumulate)
    down, tall = -(-p.sizes[0] // tile.filters), -(-out.shape[2] // line.rows)
    wide = -(-images.shape[0] // line.images)
    m, n, rows = k.own_index(p.sizes[0]), k.own_index(images.shape[0]), k.own_index(out.shape[2])
    counts = [k.own_index(v) for v in (down, tall, wide)]
    tile_m, tile_c, tile_y, tile_n = (k.own_index(v) for v in (tile.filters, tile.channels, line.rows, line.images))
    depth, taps = k.own_index(p.sizes[2]), k.own_index(space.count)
    halo, spacing = k.own_index(space.halo[0]), k.own_index(line.spacing)
    border = (k.own_index(space.border[0]), k.own_index(space.border[1]))
    to_n, to_m, to_y, to_x = (k.own_index(s) for s in out.strides)
    width = k.own_index(out.shape[3])
    moves = [
        ("za", p.a.batch[0], 0),
        ("zb", images.group, images.start),
        ("zc", out.group, out.start),
        ("zd", (*(p.addend.batch if p.addend else ()), 0)[0], 0),
    ]
    bases = " ".join(f"const idx {name} = g * {k.own_index(by)} + {k.own_index(at)};" for name, by, at in moves)
    slack = k.own_index(_images.slack(space))
    parts = "" if space.parts == 1 else f" * (i32){k.own_index(space.parts)}"
    copied = (
        _images.copy_images(source, "zb", "pb", f"yy + (i32){halo}", border, acc)
        if space.parts == 1
        else _images.copy_parts(source, "zb", "pb", f"yy + (i32){halo}", space, acc)
    )
    room = [
        _images.room(size, acc, name, lanes.type, lanes.count)
        for name, size in (("pa", elements // 5), ("pb", elements // 2), ("sums", elements // 4))
    ]
    value = "from[x]"
    if addend is not None:
        value += " + more"
    more = addend if isinstance(addend, str) else addend and addend.load(f"zd + (m0 + i) * {at[0]}", acc)
    vectors = ""
    if STORAGE[target.dtype] == acc:
        v = call.card.dialect.vector(acc, 8)
        added = f" + ({v})(more)" if more else ""
        vectors = (
            f"if ({to_x} == 1) for (; x + 8 <= {width}; x += 8) "
            f"vstore8(vload8(0, from + x){added}, 0, (GLOBAL {acc}*)({target.pointer}) + at + x);"
        )
    body = f"""
  {" ".join(room)}
  LOCAL_ARRAY(idx, moves, {_DEPTH}); LOCAL_ARRAY(i32, taken, {_DEPTH});
  {coordinates("GROUP(0)", ["1", *reversed(counts)], ["g", "part", "strip", "band"])}
  {bases}
  const idx m0 = band * {tile_m}, i0 = part * {tile_n}, y0 = strip * {tile_y};
  const i32 mm = (i32)LEAST({tile_m}, {m} - m0), images_here = (i32)LEAST({tile_n}, {n} - i0);
  const i32 yy = (i32)LEAST({tile_y}, {rows} - y0), spacing = (i32){spacing}, pitch = images_here * spacing;
  const i32 plane = (yy + (i32){halo}) * pitch, positions = yy * pitch;
  const i32 stretch = (positions + {panel.columns - 1}) / {panel.columns} * {panel.columns};
  const i32 tall = (mm + {panel.rows - 1}) / {panel.rows} * {panel.rows};
  {_images.clear("pb", f"(i32){tile_c} * plane{parts}")}
  for (idx c0 = 0; c0 * {taps} < {depth}; c0 += {tile_c}) {{
    const idx k0 = c0 * {taps};
    const i32 kk = (i32)LEAST({tile_c} * {taps}, {depth} - k0), channels = kk / (i32){taps};
    {copied}
    {_images.clear(f"(pb + channels * plane{parts})", slack)}
    {_images.offsets(space, "taken", "pitch", "plane", k)}
    {{
      const i32 count = mm; const idx first = m0;
      {_panel.copy(weights, acc, beside, "za", _DEPTH)}
      for (i32 e = mm; e < tall; e++) for (i32 s = 0; s < kk; s++) pa[{beside.place("e", "s")}] = 0;
    }}
    for (i32 j = 0; j < stretch; j += {panel.columns}) for (i32 i = 0; i < mm; i += {panel.rows}) {{
      LOCAL const {acc}* const qb = pb + j;
      {_panel.registers(acc, panel, lanes.type, _taken(panel, acc, lanes.type), "stretch", "c0 == 0")}
    }}
  }}
  for (i32 i = 0; i < mm; i++) {{
    {f"const {acc} more = {more};" if more else ""}
    for (i32 y = 0; y < yy; y++) for (i32 n = 0; n < images_here; n++) {{
      LOCAL const {acc}* const from = sums + i * stretch + y * pitch + n * spacing;
      const idx at = zc + (m0 + i) * {to_m} + (i0 + n) * {to_n} + (y0 + y) * {to_y};
      idx x = 0;
      {vectors}
      for (; x < {width}; x++) {{ {target.store(f"at + x * {to_x}", value, acc)} }}
    }}
  }}
"""
    groups = down * tall * wide * math.prod(p.batch)
    return LaunchPlan([k.launch(body, (groups,), (1,), _panel.LEAST)]) if groups < 2**31 else None


def _registers(call: Call, filters: int, lanes: int) -> _panel.Panel:
    """The tile in registers; of one filter, as depthwise, other rows would be computed in vain."""
    rows, vectors = (1, 4) if filters == 1 else (8 if call.device.simd_bytes >= 64 else 4, 2)
    return _panel.Panel(lanes, rows, vectors, 0, 0, _DEPTH)


def _taken(p: _panel.Panel, acc: str, vector_type: str) -> str:
    """Statements that load the vectors of term ``k``, which begin at any element."""
    loads = (f"const {vector_type} y{v} = vload{p.vector}(0, q + {v * p.vector});" for v in range(p.vectors))
    return f"LOCAL const {acc}* const q = qb + taken[k]; {' '.join(loads)}"
