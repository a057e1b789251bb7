"""Pictures for event files: arranging, PNG and GIF, boxes, figures."""

from __future__ import annotations

import io
import struct
import zlib
from typing import Any

__all__ = ["arranged", "figure_array", "gif", "grid", "png", "to_array", "with_boxes"]


def to_array(value: Any) -> Any:
    """A tensor, array or number as a numpy.ndarray."""
    import numpy as np

    if hasattr(value, "detach"):
        value = value.detach().cpu()
        if value.dtype.is_floating_point and value.dtype.itemsize < 4:
            value = value.float()  # NumPy has no bfloat16, and float16 is as exact in it
        value = value.numpy()
    return np.asarray(value)


def arranged(array: Any, dataformats: str) -> Any:
    """Height, width and channels, of bytes; several images become a grid."""
    import numpy as np

    letters = dataformats.upper()
    if len(letters) != array.ndim or set(letters) - set("NHWC"):
        raise ValueError(f"add_image: expected an image of {dataformats!r}, got shape {array.shape}")
    if "C" not in letters:
        array, letters = array[..., None], letters + "C"
    if "N" in letters:
        array, letters = grid(np.transpose(array, [letters.index(c) for c in "NHWC"])), "HWC"
    array = np.transpose(array, [letters.index(c) for c in "HWC"])
    if array.dtype != np.uint8:
        array = np.clip(array.astype(np.float64) * 255, 0, 255).astype(np.uint8)
    if array.shape[2] == 2 or array.shape[2] > 4:
        raise ValueError(f"add_image: expected 1, 3 or 4 channels, got {array.shape[2]}")
    return array


def grid(images: Any, columns: int = 8) -> Any:
    """Images (number, height, width, channels) as one, in rows of ``columns``; what is left over stays black."""
    import numpy as np

    count, height, width, channels = images.shape
    columns = min(columns, count)
    rows = -(-count // columns)
    whole = np.zeros((rows * columns, height, width, channels), images.dtype)
    whole[:count] = images
    by_row = whole.reshape(rows, columns, height, width, channels).transpose(0, 2, 1, 3, 4)
    return by_row.reshape(rows * height, columns * width, channels)


def png(pixels: Any) -> bytes:
    """Bytes of height, width and channels as a PNG file."""
    height, width, channels = pixels.shape
    kind = {1: 0, 3: 2, 4: 6}[channels]
    rows = b"".join(b"\0" + pixels[row].tobytes() for row in range(height))

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    head = struct.pack(">IIBBBBB", width, height, 8, kind, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def with_boxes(pixels: Any, boxes: Any, labels: Any) -> Any:
    """A copy of height, width and channels with red frames (left, top, right, bottom) and labels. Needs Pillow."""
    import numpy as np
    from PIL import Image, ImageDraw

    picture = Image.fromarray(np.repeat(pixels, 3, 2) if pixels.shape[2] == 1 else pixels).convert("RGB")
    pen = ImageDraw.Draw(picture)
    for k, (left, top, right, bottom) in enumerate(boxes.reshape(-1, 4).tolist()):
        pen.rectangle((left, top, right, bottom), outline="red", width=2)
        if labels is not None and labels[k]:
            frame = pen.textbbox((left, bottom), labels[k], anchor="lb")
            pen.rectangle(frame, fill="red")
            pen.text((left, bottom), labels[k], fill="black", anchor="lb")
    return np.asarray(picture)


def resized(pixels: Any, factor: float) -> Any:
    """Height, width and channels, larger or smaller. Needs Pillow unless the factor is 1."""
    if factor == 1:
        return pixels
    import numpy as np
    from PIL import Image

    height, width, channels = pixels.shape
    picture = Image.fromarray(pixels[..., 0] if channels == 1 else pixels)
    picture = picture.resize((int(width * factor), int(height * factor)), Image.Resampling.LANCZOS)
    return np.asarray(picture).reshape(picture.height, picture.width, channels)


def gif(frames: Any, fps: float) -> bytes:
    """Frames (number, height, width, channels), of bytes, as an animated GIF. Needs Pillow."""
    from PIL import Image

    pictures = [Image.fromarray(frame[..., 0] if frame.shape[2] == 1 else frame) for frame in frames]
    file = io.BytesIO()
    shown = round(1000 / fps)
    pictures[0].save(file, "GIF", save_all=True, append_images=pictures[1:], duration=shown, loop=0)
    return file.getvalue()


def figure_array(figure: Any) -> Any:
    """A matplotlib figure as pixels of height, width and 4 channels."""
    import numpy as np
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())
