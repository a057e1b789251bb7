"""Pictures from files and to them, by Pillow: ``torch.ops.image``."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import tesserack as ts
from PIL import Image, ImageOps, UnidentifiedImageError, features
from tesserack import Tensor

from tesserack_vision import png

__all__ = ["OPERATORS"]

_DAMAGE = (OSError, SyntaxError, ValueError)  # what Pillow raises over a file's contents
# What torchvision says of bytes that are of no kind of picture.
_NOT_ITS_KIND = {
    "jpeg": "Not a JPEG file",
    "png": "Content is not png",
    "gif": "DGifOpenFileName() failed - 103",
    "webp": "WebPGetFeatures failed.",
}
# ImageReadMode: unchanged, grey, grey and alpha, colours, colours and alpha.
_MODES = {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}


def _bytes(op: str, data: Tensor) -> bytes:
    if data.dtype != ts.uint8:
        expected = "Expected a torch.uint8 tensor: Input tensor must have uint8 data type"
        raise RuntimeError(f"{op}: {expected}, got {data.dtype}")
    if data.ndim != 1 or not data.numel():
        expected = "Expected a non empty 1-dimensional tensor: Input tensor must be 1-dimensional"
        raise RuntimeError(f"{op}: {expected}, got the shape {list(data.shape)}")
    if not data.is_contiguous():
        raise RuntimeError(f"{op}: Input tensor must be contiguous, got the stride {data.stride()}; call .contiguous()")
    content: bytes = data.cpu().numpy().tobytes()
    return content


def _opened(op: str, content: bytes) -> Image.Image:
    try:
        return Image.open(io.BytesIO(content))
    except UnidentifiedImageError as error:
        kind = op.removeprefix("decode_")
        other = _NOT_ITS_KIND.get(kind, "expected an image file")
        if kind == "png" and len(content) < 8:
            other = "Content is too small for png"
        raise RuntimeError(f"{op}: {other}, got bytes that are none: {error}") from None
    except _DAMAGE as error:
        raise RuntimeError(_damaged(op, error)) from None


def _damaged(op: str, error: Exception) -> str:
    if "runcated" in str(error):
        cut = "Image is incomplete or truncated" + (", Out of bound read in decode_png" if op == "decode_png" else "")
    else:  # Pillow does not say of which kind
        cut = "the file is damaged" + (", Unsupported marker type or the like" if op == "decode_jpeg" else "")
    return f"{op}: {cut}: {error}"


def _tensor(values: Any) -> Tensor:
    """(C, H, W) of values (H, W, C), whose order in memory stays, as in torchvision."""
    return ts.from_numpy(np.array(values, order="C")).permute(2, 0, 1)  # a picture's own memory is read only


def _jpeg(op: str, picture: Image.Image, mode: int, exif: bool) -> Tensor:
    if mode not in (0, 1, 3):
        raise RuntimeError(f"{op}: The provided mode is not supported for JPEG files, which have no alpha: {mode}")
    if mode == 1:
        picture.draft("L", None)  # the file's own luminance
    if picture.mode == "CMYK" and not mode:
        values = 255 - np.asarray(ImageOps.exif_transpose(picture) if exif else picture)  # stored inverted
        return _tensor(values)
    return _planes(picture, mode, exif)


def _planes(picture: Image.Image, mode: int, exif: bool) -> Tensor:
    """(C, H, W) of uint8."""
    if exif:
        picture = ImageOps.exif_transpose(picture)
    if mode in _MODES:
        picture = picture.convert(_MODES[mode])
    elif picture.mode not in _MODES.values():
        picture = picture.convert("RGBA" if "transparency" in picture.info else "L" if picture.mode == "1" else "RGB")
    values = np.asarray(picture)
    return _tensor(values if values.ndim == 3 else values[..., None])


def _decoded(op: str, content: bytes, picture: Image.Image, mode: int, exif: bool) -> Tensor:
    try:
        if picture.format == "PNG":
            return _tensor(png.planes(lambda: Image.open(io.BytesIO(content)), mode, exif))
        if picture.format == "WEBP" and mode in (1, 2):
            mode = 0  # libwebp has no grey: torchvision leaves colours as they are
        return _jpeg(op, picture, mode, exif) if picture.format in ("JPEG", "MPO") else _planes(picture, mode, exif)
    except _DAMAGE as error:
        raise RuntimeError(_damaged(op, error)) from None


def _decoder(op: str, *kinds: str) -> Any:
    def decode(data: Tensor, mode: int = 0, apply_exif_orientation: bool = False) -> Tensor:
        content = _bytes(op, data)
        picture = _opened(op, content)
        if picture.format not in kinds:
            other = _NOT_ITS_KIND.get(op.removeprefix("decode_"), f"Not {kinds[0]}")
            raise RuntimeError(f"{op}: {other}: got {picture.format}; try decode_image")
        return _decoded(op, content, picture, mode, apply_exif_orientation)

    return decode


def decode_gif(data: Tensor) -> Tensor:
    """(C, H, W), or (frames, C, H, W) of an animation."""
    picture = _opened("decode_gif", _bytes("decode_gif", data))
    if picture.format != "GIF":
        raise RuntimeError(f"decode_gif: expected GIF, got {picture.format}; try decode_image")
    frames = []
    try:
        for number in range(getattr(picture, "n_frames", 1)):
            picture.seek(number)
            frames.append(_planes(picture, 3, False))
    except _DAMAGE as error:
        raise RuntimeError(_damaged("decode_gif", error)) from None
    if len(frames) == 1:
        return frames[0]
    return ts.stack([frame.permute(1, 2, 0) for frame in frames]).permute(0, 3, 1, 2)


def decode_image(data: Tensor, mode: int = 0, apply_exif_orientation: bool = False) -> Tensor:
    """A picture of any kind."""
    content = _bytes("decode_image", data)
    picture = _opened("decode_image", content)
    if picture.format == "GIF":
        return decode_gif(data)
    return _decoded("decode_image", content, picture, mode, apply_exif_orientation)


def _picture(op: str, planes: Tensor) -> Image.Image:
    if planes.dtype != ts.uint8:
        raise RuntimeError(f"{op}: Input tensor dtype should be uint8, got {planes.dtype}")
    if planes.ndim != 3:
        raise RuntimeError(f"{op}: Input data should be a 3-dimensional tensor, (C, H, W), got {list(planes.shape)}")
    if planes.shape[0] not in (1, 3):
        raise RuntimeError(f"{op}: The number of channels should be 1 or 3, got: {planes.shape[0]}")
    if not planes.numel():
        raise RuntimeError(f"{op}: expected a picture with pixels, got {list(planes.shape)}")
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


def decode_jpegs_cuda(encoded_images: list[Tensor], mode: int, device: Any) -> list[Tensor]:
    """Pictures for a device: decoded on the host, as all are here."""
    return [_decode_jpeg(data, mode).to(device) for data in encoded_images]


def encode_jpegs_cuda(decoded_images: list[Tensor], quality: int) -> list[Tensor]:
    """The bytes of a file for each picture, where the pictures are."""
    return [encode_jpeg(planes, quality).to(planes.device) for planes in decoded_images]


def jpeg_version() -> int:
    """The version of libjpeg's interface as libjpeg-turbo has it: 62 for 6.2."""
    return int((features.version("jpg") or "0").replace(".", ""))


def is_compiled_against_turbo() -> bool:
    """Whether Pillow's JPEG is libjpeg-turbo's."""
    return bool(features.check("libjpeg_turbo"))


_decode_jpeg = _decoder("decode_jpeg", "JPEG", "MPO")
_DECODE = "(Tensor data, int mode, bool apply_exif_orientation=False) -> Tensor"
OPERATORS: dict[str, Any] = {
    f"decode_png{_DECODE}": _decoder("decode_png", "PNG"),
    f"decode_jpeg{_DECODE}": _decode_jpeg,
    "decode_webp(Tensor encoded_data, int mode) -> Tensor": _decoder("decode_webp", "WEBP"),
    f"decode_image{_DECODE}": decode_image,
    "decode_gif(Tensor data) -> Tensor": decode_gif,
    "encode_png(Tensor data, int compression_level) -> Tensor": encode_png,
    "encode_jpeg(Tensor data, int quality) -> Tensor": encode_jpeg,
    "read_file(str filename) -> Tensor": read_file,
    "write_file(str filename, Tensor data) -> ()": write_file,
    "decode_jpegs_cuda(Tensor[] encoded_images, int mode, Device device) -> Tensor[]": decode_jpegs_cuda,
    "encode_jpegs_cuda(Tensor[] decoded_images, int quality) -> Tensor[]": encode_jpegs_cuda,
    "_jpeg_version() -> int": jpeg_version,
    "_is_compiled_against_turbo() -> bool": is_compiled_against_turbo,
}
