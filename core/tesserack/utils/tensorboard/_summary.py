"""Summary messages: scalars, histograms, images, sounds, texts."""

from __future__ import annotations

import io
import wave
from typing import Any

from tesserack.utils.tensorboard import _images
from tesserack.utils.tensorboard._images import to_array
from tesserack.utils.tensorboard._records import (
    field_bytes,
    field_double,
    field_float,
    field_int,
    packed_doubles,
    packed_floats,
    packed_ints,
)

__all__ = ["audio", "histogram", "histogram_raw", "image", "image_boxes", "scalar", "tensor", "text", "value", "video"]

# TensorBoard's numbers of dtypes, and the field of a TensorProto that holds their values.
_DTYPES = {
    "float16": (19, 13),
    "bfloat16": (14, 13),
    "float32": (1, 5),
    "float64": (2, 6),
    "int8": (6, 7),
    "uint8": (4, 7),
    "int16": (5, 7),
    "int32": (3, 7),
    "int64": (9, 10),
    "bool": (10, 11),
    "complex64": (8, 9),
    "complex128": (18, 12),
}
_TEXT = 7


def value(tag: str, content: bytes, plugin: str = "", plugin_content: bytes = b"", about: bytes = b"") -> bytes:
    """A value of a summary: its tag, then what it holds, then which plugin of TensorBoard's shows it."""
    out = field_bytes(1, tag)
    if plugin:
        data = field_bytes(1, plugin) + (field_bytes(2, plugin_content) if plugin_content else b"")
        out += field_bytes(9, field_bytes(1, data) + about)
    return field_bytes(1, out + content)


def array_message(array: Any, kind: str | None = None) -> bytes:
    """A TensorProto of an array of numbers."""
    kind = kind or array.dtype.name
    number, field = _DTYPES[kind]
    flat = array.reshape(-1)
    if field in (9, 12):
        flat = flat.view("float32" if field == 9 else "float64")
    if field == 13:
        packed = packed_ints(field, flat.view("uint16").tolist())
    elif field in (5, 9):
        packed = packed_floats(field, flat.tolist())
    elif field in (6, 12):
        packed = packed_doubles(field, flat.tolist())
    else:
        packed = packed_ints(field, flat.tolist())
    sizes = b"".join(field_bytes(2, field_int(1, size)) for size in array.shape)
    return field_int(1, number) + field_bytes(2, sizes) + packed


def text_message(data: bytes | str, *sizes: int) -> bytes:
    """A TensorProto of one text."""
    shape = b"".join(field_bytes(2, field_int(1, size)) for size in sizes)
    return field_int(1, _TEXT) + field_bytes(2, shape) + field_bytes(8, data)


# --- numbers ---------------------------------------------------------------------------------------------------------


def _only_element(values: Any) -> float:
    import numpy as np

    if not (np.isscalar(values) or isinstance(values, np.ndarray) or hasattr(values, "detach")):
        raise NotImplementedError(f"add_scalar: expected a number, an array or a tensor, got {type(values).__name__}")
    array = to_array(values).squeeze()
    if array.ndim:
        raise AssertionError(f"add_scalar: expected one element, got shape {array.shape}")
    return float(array)


def scalar(tag: str, number: Any, new_style: bool = False, double_precision: bool = False) -> bytes:
    """One number; in the newer style as a tensor, which may be of double precision."""
    import numpy as np

    number = float(number) if isinstance(number, (int, float)) else _only_element(number)
    if not new_style:
        return value(tag, field_float(2, number))
    array = np.asarray(number, np.float64 if double_precision else np.float32)
    return value(tag, field_bytes(8, array_message(array)), "scalars")


def tensor(tag: str, values: Any) -> bytes:
    """A tensor whole. ``ValueError`` for 2 GiB and more, ``TypeError`` for dtypes that event files have not."""
    kind = str(getattr(values, "dtype", "")).rpartition(".")[2]
    if kind == "bfloat16":
        import tesserack

        bits = values.detach().cpu().contiguous().view(tesserack.int16)
        return value(tag, field_bytes(8, array_message(to_array(bits), kind)), "tensor")
    array = to_array(values)
    if array.nbytes >= 1 << 31:
        raise ValueError("add_tensor: the tensor is bigger than protobuf allows, 2 GiB")
    if array.dtype.name not in _DTYPES:
        raise TypeError(f"add_tensor: event files have no {array.dtype.name}; convert it to float32 first")
    return value(tag, field_bytes(8, array_message(array)), "tensor")


def _growing_limits() -> list[float]:
    """Limits that grow by a tenth each, to both sides of zero: those TensorFlow began with."""
    limits, limit = [], 1e-12
    while limit < 1e20:
        limits.append(limit)
        limit *= 1.1
    return [*(-x for x in reversed(limits)), 0.0, *limits]


def histogram(tag: str, values: Any, bins: Any = "tensorflow", max_bins: int | None = None) -> bytes:
    """How values are distributed, in ``bins`` as numpy.histogram takes them. ``ValueError`` for no values."""
    import numpy as np

    data = to_array(values).astype(np.float64).reshape(-1)
    if data.size == 0:
        raise ValueError("add_histogram: expected at least one value, got none")
    counts, limits = np.histogram(data, bins=_growing_limits() if bins == "tensorflow" else bins)
    if max_bins is not None and len(counts) > max_bins:
        together = len(counts) // max_bins
        counts = np.pad(counts, (0, -len(counts) % together)).reshape(-1, together).sum(1)
        limits = np.append(limits[:-1][::together], limits[-1])
    # An empty bin stands before the first that is not, as the reader takes the limits for upper ones.
    first, last = np.flatnonzero(counts)[[0, -1]]
    filled = counts[first : last + 1]
    ends = limits[first : last + 2]
    return histogram_raw(
        *(tag, float(data.min()), float(data.max()), data.size, float(data.sum()), float(data @ data)),
        *(ends.tolist(), [0, *filled.tolist()]),
    )


def histogram_raw(tag: str, *data: Any) -> bytes:
    """A histogram by its min, max, number, sum, sum of squares, upper limits and counts."""
    *numbers, limits, counts = data
    message = b"".join(field_double(k, float(number)) for k, number in enumerate(numbers, 1))
    message += packed_doubles(6, map(float, limits)) + packed_doubles(7, map(float, counts))
    return value(tag, field_bytes(5, message))


# --- texts, pictures, sounds -----------------------------------------------------------------------------------------


def text(tag: str, words: str) -> bytes:
    """Text, which TensorBoard shows as Markdown."""
    return value(f"{tag}/text_summary", field_bytes(8, text_message(words, 1)), "text")


def _image(tag: str, size: tuple[int, ...], encoded: bytes) -> bytes:
    height, width, channels = size
    message = field_int(1, height) + field_int(2, width) + field_int(3, channels) + field_bytes(4, encoded)
    return value(tag, field_bytes(4, message))


def image(tag: str, values: Any, dataformats: str) -> bytes:
    """One image, or several as a grid, as PNG. Floats are from 0 to 1."""
    pixels = _images.arranged(to_array(values), dataformats)
    return _image(tag, pixels.shape, _images.png(pixels))


def image_boxes(tag: str, values: Any, boxes: Any, rescale: float, dataformats: str, labels: Any) -> bytes:
    """One image with frames, as PNG."""
    pixels = _images.with_boxes(_images.arranged(to_array(values), dataformats), to_array(boxes), labels)
    pixels = _images.resized(pixels, rescale)
    return _image(tag, pixels.shape, _images.png(pixels))


def video(tag: str, values: Any, fps: float) -> bytes:
    """Films (number, time, channels, height, width) side by side, as an animated GIF. Floats are from 0 to 1."""
    import numpy as np

    films = to_array(values)
    if films.ndim != 5:
        raise ValueError(f"add_video: expected shape (number, time, channels, height, width), got {films.shape}")
    if films.dtype != np.uint8:
        films = np.clip(films.astype(np.float64) * 255, 0, 255).astype(np.uint8)
    columns = 1 << max(0, (len(films) - 1).bit_length() + 1) // 2
    frames = np.stack([_images.grid(moment.transpose(0, 2, 3, 1), columns) for moment in films.swapaxes(0, 1)])
    return _image(tag, frames.shape[1:], _images.gif(frames, fps))


def audio(tag: str, values: Any, sample_rate: int) -> bytes:
    """One channel of sound from -1 to 1, as WAV of 16 bits. ``ValueError`` for more than one dim."""
    import numpy as np

    sound = to_array(values).squeeze()
    if sound.ndim != 1:
        raise ValueError(f"add_audio: expected one dim of samples, got shape {to_array(values).shape}")
    samples = (np.clip(sound, -1, 1) * np.iinfo(np.int16).max).astype("<i2")
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(sample_rate)
        out.writeframes(samples.tobytes())
    message = field_float(1, float(sample_rate)) + field_int(2, 1) + field_int(3, len(samples))
    message += field_bytes(4, file.getvalue()) + field_bytes(5, "audio/wav")
    return value(tag, field_bytes(6, message))
