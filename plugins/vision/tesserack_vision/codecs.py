"""Pictures from files and to them, by Pillow: ``torch.ops.image``."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import tesserack as ts
from PIL import Image, ImageOps, UnidentifiedImageError
from tesserack import Tensor

__all__ = ["OPERATORS"]

# ImageReadMode: unchanged, grey, grey and alpha, colours, colours and alpha.
_MODES = {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}


def _opened(op: str, data: Tensor) -> Image.Image:
    if data.dtype != ts.uint8 or data.ndim != 1 or not data.numel():
        raise RuntimeError(f"{op}: expected the bytes of a file, uint8 in one dim, got {data.dtype}{list(data.shape)}")
    try:
        return Image.open(io.BytesIO(data.cpu().contiguous().numpy().tobytes()))
    except UnidentifiedImageError as error:
        raise RuntimeError(f"{op}: expected an image file, got bytes that are none: {error}") from None


def _planes(picture: Image.Image, mode: int, exif: bool) -> Tensor:
    """(C, H, W) of uint8, uint16 for such files."""
    if exif:
        picture = ImageOps.exif_transpose(picture)
    wide = picture.mode.startswith("I;16") or picture.mode == "I"
    if wide and mode in (0, 1):
        values = ts.frombuffer(bytearray(picture.convert("I").tobytes()), dtype=ts.int32)
        return values.view(1, picture.height, picture.width).to(ts.uint16)
    if mode in _MODES:
        picture = picture.convert(_MODES[mode])
    elif picture.mode not in _MODES.values():
        picture = picture.convert("RGBA" if "transparency" in picture.info else "L" if picture.mode == "1" else "RGB")
    channels = len(picture.getbands())
    values = ts.frombuffer(bytearray(picture.tobytes()), dtype=ts.uint8)
    return values.view(picture.height, picture.width, channels).permute(2, 0, 1).contiguous()


def _decoder(op: str, *kinds: str) -> Any:
    def decode(data: Tensor, mode: int = 0, apply_exif_orientation: bool = False) -> Tensor:
        picture = _opened(op, data)
        if kinds and picture.format not in kinds:
            raise RuntimeError(f"{op}: expected {' or '.join(kinds)}, got {picture.format}; try decode_image")
        try:
            return _planes(picture, mode, apply_exif_orientation)
        except (OSError, SyntaxError, ValueError) as error:
            raise RuntimeError(f"{op}: the file is damaged: {error}") from None

    return decode


def decode_gif(data: Tensor) -> Tensor:
    """(C, H, W), or (frames, C, H, W) of an animation."""
    picture = _opened("decode_gif", data)
    if picture.format != "GIF":
        raise RuntimeError(f"decode_gif: expected GIF, got {picture.format}; try decode_image")
    frames = []
    for number in range(getattr(picture, "n_frames", 1)):
        picture.seek(number)
        frames.append(_planes(picture, 3, False))
    return frames[0] if len(frames) == 1 else ts.stack(frames)


def decode_image(data: Tensor, mode: int = 0, apply_exif_orientation: bool = False) -> Tensor:
    """A picture of any kind."""
    picture = _opened("decode_image", data)
    return decode_gif(data) if picture.format == "GIF" else _planes(picture, mode, apply_exif_orientation)


def _picture(op: str, planes: Tensor) -> Image.Image:
    if planes.dtype != ts.uint8 or planes.ndim != 3 or planes.shape[0] not in (1, 3):
        raise RuntimeError(f"{op}: expected uint8 of shape (1 or 3, H, W), got {planes.dtype}{list(planes.shape)}")
    values = planes.cpu().permute(1, 2, 0).contiguous().numpy()
    return Image.fromarray(values[:, :, 0] if planes.shape[0] == 1 else values)


def _encoded(picture: Image.Image, kind: str, **options: Any) -> Tensor:
    file = io.BytesIO()
    picture.save(file, kind, **options)
    return ts.frombuffer(bytearray(file.getvalue()), dtype=ts.uint8)


def encode_png(data: Tensor, compression_level: int = 6) -> Tensor:
    """The bytes of a PNG file."""
    if not 0 <= compression_level <= 9:
        raise RuntimeError(f"encode_png: Compression level should be between 0 and 9, got {compression_level}")
    return _encoded(_picture("encode_png", data), "PNG", compress_level=compression_level)


def encode_jpeg(data: Tensor, quality: int = 75) -> Tensor:
    """The bytes of a JPEG file."""
    if not 1 <= quality <= 100:
        raise RuntimeError(f"encode_jpeg: Image quality should be a positive number between 1 and 100, got {quality}")
    return _encoded(_picture("encode_jpeg", data), "JPEG", quality=quality)


def read_file(filename: str) -> Tensor:
    """A file's bytes."""
    try:
        content = Path(filename).read_bytes()
    except OSError as error:
        raise RuntimeError(f"[Errno {error.errno}] {error.strerror}: '{filename}'") from None
    if not content:
        raise RuntimeError(f"Expected a non empty file: '{filename}'")
    return ts.frombuffer(bytearray(content), dtype=ts.uint8)


def write_file(filename: str, data: Tensor) -> None:
    """Bytes to a file."""
    if data.dtype != ts.uint8 or data.ndim != 1:
        raise RuntimeError(
            f"write_file: Input tensor dtype should be uint8 and of one dim, got {data.dtype}{list(data.shape)}"
        )
    Path(filename).write_bytes(data.cpu().contiguous().numpy().tobytes())


_DECODE = "(Tensor data, int mode, bool apply_exif_orientation=False) -> Tensor"
OPERATORS: dict[str, Any] = {
    f"decode_png{_DECODE}": _decoder("decode_png", "PNG"),
    f"decode_jpeg{_DECODE}": _decoder("decode_jpeg", "JPEG", "MPO"),
    "decode_webp(Tensor data, int mode) -> Tensor": _decoder("decode_webp", "WEBP"),
    f"decode_image{_DECODE}": decode_image,
    "decode_gif(Tensor data) -> Tensor": decode_gif,
    "encode_png(Tensor data, int compression_level) -> Tensor": encode_png,
    "encode_jpeg(Tensor data, int quality) -> Tensor": encode_jpeg,
    "read_file(str filename) -> Tensor": read_file,
    "write_file(str filename, Tensor data) -> ()": write_file,
}
