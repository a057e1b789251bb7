"""Summary messages: scalars, histograms, images, texts."""

from __future__ import annotations

import struct
import zlib
from typing import Any

from tesserack.utils.tensorboard._records import (
    field_bytes,
    field_double,
    field_float,
    field_int,
    packed_doubles,
)

__all__ = ["figure_array", "histogram", "image", "scalar", "text", "to_array"]


def to_array(value: Any) -> Any:
    """A tensor, array or number as a numpy.ndarray."""
    import numpy as np

    return np.asarray(value.detach().cpu().numpy() if hasattr(value, "detach") else value)


def _metadata(plugin: str) -> bytes:
    return field_bytes(9, field_bytes(1, field_bytes(1, plugin)))


def scalar(tag: str, value: Any) -> bytes:
    """One number."""
    number = float(to_array(value).reshape(-1)[0]) if not isinstance(value, (int, float)) else float(value)
    return field_bytes(1, field_bytes(1, tag) + field_float(2, number))


def histogram(tag: str, values: Any, bins: int) -> bytes:
    """How values are distributed, in ``bins`` equal parts. ``ValueError`` for none."""
    import numpy as np

    data = to_array(values).astype(np.float64).reshape(-1)
    if data.size == 0:
        raise ValueError("add_histogram: expected at least one value, got none")
    counts, limits = np.histogram(data, bins=bins)
    message = (
        field_double(1, float(data.min()))
        + field_double(2, float(data.max()))
        + field_double(3, float(data.size))
        + field_double(4, float(data.sum()))
        + field_double(5, float(data @ data))
        + packed_doubles(6, limits[1:])
        + packed_doubles(7, counts.astype(np.float64))
    )
    return field_bytes(1, field_bytes(1, tag) + field_bytes(5, message))


def text(tag: str, value: str) -> bytes:
    """Text, which TensorBoard shows as Markdown."""
    shape = field_bytes(2, field_int(1, 1))
    tensor = field_int(1, 7) + field_bytes(2, shape) + field_bytes(8, value)  # 7: DT_STRING
    return field_bytes(1, field_bytes(1, f"{tag}/text_summary") + _metadata("text") + field_bytes(8, tensor))


def image(tag: str, values: Any, dataformats: str) -> bytes:
    """One image, as PNG. Floats are from 0 to 1."""
    pixels = _arranged(to_array(values), dataformats)
    height, width, channels = pixels.shape
    message = field_int(1, height) + field_int(2, width) + field_int(3, channels) + field_bytes(4, png(pixels))
    return field_bytes(1, field_bytes(1, tag) + field_bytes(4, message))


def _arranged(array: Any, dataformats: str) -> Any:
    """Height, width and channels, of bytes."""
    import numpy as np

    letters = dataformats.upper()
    if len(letters) != array.ndim or set(letters) - set("NHWC"):
        raise ValueError(f"add_image: expected an image of {dataformats!r}, got shape {array.shape}")
    if "N" in letters:
        array = np.concatenate([*np.moveaxis(array, letters.index("N"), 0)], axis=letters.replace("N", "").index("W"))
        letters = letters.replace("N", "")
    if "C" not in letters:
        array, letters = array[..., None], letters + "C"
    array = np.transpose(array, [letters.index(c) for c in "HWC"])
    if array.dtype != np.uint8:
        array = np.clip(array.astype(np.float64) * 255, 0, 255).astype(np.uint8)
    if array.shape[2] == 2 or array.shape[2] > 4:
        raise ValueError(f"add_image: expected 1, 3 or 4 channels, got {array.shape[2]}")
    return array


def png(pixels: Any) -> bytes:
    """Bytes of height, width and channels as a PNG file."""
    height, width, channels = pixels.shape
    kind = {1: 0, 3: 2, 4: 6}[channels]
    rows = b"".join(b"\0" + pixels[row].tobytes() for row in range(height))

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    head = struct.pack(">IIBBBBB", width, height, 8, kind, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def figure_array(figure: Any) -> Any:
    """A matplotlib figure as pixels of height, width and 4 channels."""
    import numpy as np
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())


def hparams(values: dict[str, Any], metrics: dict[str, Any]) -> str:
    """Hyperparameters and metrics as a Markdown table."""
    rows = [f"| {name} | {value} |" for name, value in {**values, **metrics}.items()]
    return "\n".join(["| name | value |", "|---|---|", *rows])
