"""Images in local memory, for convolutions of stride 1 on devices that run loops: each element lies there once, with
borders, and every tap of the window reads it from another place. Patches, copied tap by tap, cost more than a product.

Rows of several images lie side by side, one border between two of them: so the positions of a tile are one line, and
vectors go along it whatever the width of an image. Positions between images are computed too and not stored.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tesserack_kernelgen.dtypes import ITEMSIZE, STORAGE
from tesserack_kernelgen.kernel import Kernel, Tensor

if TYPE_CHECKING:
    from tesserack_kernelgen.call import Call

__all__ = [
    "Copied",
    "Images",
    "Line",
    "Space",
    "capacity",
    "clear",
    "copy_images",
    "copy_parts",
    "line_of",
    "offsets",
    "pieces",
    "room",
    "slack",
]


@dataclass(frozen=True)
class Images:
    """Images (N, C, height, width) in memory, C of one group: an input or an output of the call.

    ``strides`` are those of the four dims, ``group`` that of the group; ``start`` is where the first element is.
    """

    operand: int
    shape: tuple[int, int, int, int]
    strides: tuple[int, int, int, int]
    group: int
    start: int = 0


@dataclass(frozen=True)
class Space:
    """How windows lie: by dim (height, width) the taps, the distance from the first to the last, how far the first tap
    is from where the window begins, the step to the next tap, and the border before an image.

    Where windows are a ``stride`` apart, an image lies there as several, of the elements whose places leave the same
    rest; ``halo`` is then of these, which have their part of the border as elements.
    """

    taps: tuple[int, int]
    halo: tuple[int, int]
    first: tuple[int, int]
    step: tuple[int, int]
    border: tuple[int, int]
    stride: tuple[int, int] = (1, 1)

    @property
    def parts(self) -> int:
        """As how many an image lies there."""
        return self.stride[0] * self.stride[1]

    @property
    def count(self) -> int:
        """Elements of the window."""
        return self.taps[0] * self.taps[1]


@dataclass(frozen=True)
class Line:
    """The tile that a group takes: images side by side, rows of each, and the distance between neighbours."""

    images: int
    rows: int
    spacing: int

    @property
    def positions(self) -> int:
        """Of the results."""
        return self.images * self.rows * self.spacing

    def plane(self, halo: int) -> int:
        """Elements of one channel, borders included."""
        return self.images * self.spacing * (self.rows + halo)


def slack(space: Space) -> int:
    """Elements after the last plane, 0, which the vectors of the last positions read."""
    return 64 + space.halo[1] + space.border[1]


def pieces(size: int, most: int) -> int:
    """The size of a piece where ``size`` is cut into as few pieces as ``most`` allows, all about as large."""
    return -(-size // max(1, -(-size // most)))


def capacity(call: Call, accumulate: str) -> int:
    """How many elements of local memory a group may take; the rest of the second cache is for what flows through."""
    return min(call.device.local_bytes, 512 << 10) // ITEMSIZE[accumulate]


def room(elements: int, c: str, name: str, vector: str, lanes: int) -> str:
    """The declaration of local memory, as vectors, so that it is aligned for them."""
    return f"LOCAL_ARRAY({vector}, {name}_, {-(-elements // lanes)}); LOCAL {c}* const {name} = (LOCAL {c}*){name}_;"


def line_of(given: Images, found: tuple[int, int], space: Space, most: int, units: int) -> Line | None:
    """The tile of at most ``most`` positions, smaller where not every unit had one; None where a row is longer.

    ``found`` are height and width of the results.
    """
    height, width = found
    if space.parts > 1:
        spacing = width + space.halo[1]
    else:
        reached = width + space.halo[1] - space.border[1]  # by the windows, to the right of an image's start
        spacing = max(given.shape[3] + space.border[1], width, reached)
    if spacing > most:
        return None
    if height * spacing > most:
        rows = pieces(height, most // spacing)
        return Line(1, rows, spacing)
    images = min(given.shape[0], most // (height * spacing))
    parts = -(-given.shape[0] // images)
    parts = min(given.shape[0], -(-parts // units) * units)  # the same number for every unit
    return Line(-(-given.shape[0] // parts), height, spacing)


def offsets(space: Space, table: str, pitch: str, plane: str, k: Kernel) -> str:
    """Statements that fill ``table`` with where tap ``k`` of (channel, tap) reads, for ``channels`` channels."""
    (ky, kx), (fy, fx), (sy, sx) = ([k.own_index(v) for v in pair] for pair in (space.taps, space.first, space.step))
    if space.parts > 1:
        dy, dx = (k.own_index(v) for v in space.stride)
        return f"""for (i32 c = 0, at = 0; c < channels; c++)
    for (idx y = 0; y < {ky} * {sy}; y += {sy}) for (idx x = 0; x < {kx} * {sx}; x += {sx})
      {table}[at++] = (i32)(((c * {dy} + y % {dy}) * {dx} + x % {dx}) * {plane} + y / {dy} * {pitch} + x / {dx});"""
    return f"""for (i32 c = 0, at = 0; c < channels; c++) for (i32 y = 0; y < {ky}; y++) for (i32 x = 0; x < {kx}; x++)
      {table}[at++] = c * {plane} + ({fy} + y * {sy}) * {pitch} + {fx} + x * {sx};"""


def clear(name: str, elements: str) -> str:
    """A statement that makes local memory 0: borders stay so."""
    return f"for (i32 e = 0; e < {elements}; e++) {name}[e] = 0;"


class Copied:
    """What the statements of :func:`copy_images` read of images: their numbers as fields of the kernel."""

    def __init__(self, k: Kernel, images: Images, tensor: Tensor):
        self.kernel, self.tensor = k, tensor
        self.height, self.width = k.own_index(images.shape[2]), k.own_index(images.shape[3])
        self.n, self.c, self.y, self.x = (k.own_index(s) for s in images.strides)


def copy_images(images: Copied, base: str, to: str, rows: str, border: tuple[str, str], c: str) -> str:
    """Statements that copy rows of ``images_here`` images from ``i0`` on, of ``channels`` channels from ``c0`` on, to
    the planes at ``to``; what is outside of an image becomes 0. ``pitch``, ``plane`` and ``spacing`` tell where.
    """
    t = images.tensor
    whole = ""
    if STORAGE[t.dtype] == c:
        source = f"(GLOBAL const {c}*)({t.pointer}) + from + x"
        whole = (
            f"if ({images.x} == 1) for (; x + 8 <= {images.width}; x += 8) vstore8(vload8(0, {source}), 0, line + x);"
        )
    return f"""for (i32 c = 0; c < channels; c++) for (i32 r = 0; r < {rows}; r++)
    for (i32 i = 0; i < images_here; i++) {{
      LOCAL {c}* const line = {to} + c * plane + r * pitch + i * spacing + {border[1]};
      const idx y = y0 + r - {border[0]};
      idx x = 0;
      if (y >= 0 && y < {images.height}) {{
        const idx from = {base} + (i0 + i) * {images.n} + (c0 + c) * {images.c} + y * {images.y};
        {whole}
        for (; x < {images.width}; x++) line[x] = {t.load(f"from + x * {images.x}", c)};
      }} else for (; x < {images.width}; x++) line[x] = 0;
    }}"""


def copy_parts(images: Copied, base: str, to: str, rows: str, space: Space, c: str) -> str:
    """As :func:`copy_images`, of windows that are a stride apart."""
    k, t = images.kernel, images.tensor
    (dy, dx), (py, px) = ([k.own_index(v) for v in pair] for pair in (space.stride, space.border))
    return f"""for (i32 c = 0; c < channels; c++) for (idx ry = 0; ry < {dy}; ry++)
    for (i32 r = 0; r < {rows}; r++) for (i32 i = 0; i < images_here; i++) {{
      const idx y = (y0 + r) * {dy} + ry - {py};
      for (idx rx = 0; rx < {dx}; rx++) {{
        LOCAL {c}* const line = {to} + ((c * {dy} + ry) * {dx} + rx) * plane + r * pitch + i * spacing;
        const idx ahead = rx - {px}, over = {images.width} - ahead;
        idx low = ahead < 0 ? ({dx} - 1 - ahead) / {dx} : 0, high = over > 0 ? (over + {dx} - 1) / {dx} : 0;
        if (high > spacing) high = spacing;
        if (y < 0 || y >= {images.height}) high = 0;
        if (low > high) low = high;
        const idx from = {base} + (i0 + i) * {images.n} + (c0 + c) * {images.c} + y * {images.y} + ahead * {images.x};
        const idx by = {dx} * {images.x};
        for (idx x = 0; x < low; x++) line[x] = 0;
        for (idx x = low; x < high; x++) line[x] = {t.load("from + x * by", c)};
        for (idx x = high; x < spacing; x++) line[x] = 0;
      }}
    }}"""
