"""Planes of PNG files as libpng gives them: 16 bits a channel kept, grey of colours by its weights."""

from __future__ import annotations

from typing import Any

import numpy as np
from PIL import Image, ImageOps

__all__ = ["planes"]

_RED, _GREEN = 9794, 19234  # of 2**15: 0.2989 and 0.587; the rest is blue's
_CHANNELS = {1: (1, False), 2: (1, True), 3: (3, False), 4: (3, True)}  # ImageReadMode: colours, and alpha?

# How Pillow unpacks 16 bits a channel: to the high bytes, and what it calls the other order, to the low ones.
_WIDE = {"RGB;16B": "RGB;16L", "RGBA;16B": "RGBA;16L"}


def _turned(picture: Image.Image, exif: bool) -> Any:
    return np.asarray(ImageOps.exif_transpose(picture) if exif else picture)


def _unpacked(picture: Image.Image, mode: str, arguments: str) -> Image.Image:
    """The picture, of which no pixel is read yet, to be unpacked in another way."""
    picture._mode = mode
    picture.tile = [tile._replace(args=arguments) for tile in picture.tile]
    return picture


def _wide(opened: Any, arguments: str, exif: bool) -> Any:
    """(H, W, C) of uint16, from pictures that ``opened()`` gives afresh, by two reads of 8 bits, as Pillow has them."""
    if arguments == "LA;16B":  # four bytes a pixel, as RGBA's are: grey's two, then alpha's
        halves = _turned(_unpacked(opened(), "RGBA", "RGBA"), exif)
        return halves.astype(np.uint16)[..., ::2] << 8 | halves[..., 1::2]
    high = _turned(opened(), exif)
    low = _turned(_unpacked(opened(), arguments.partition(";")[0], _WIDE[arguments]), exif)
    return high.astype(np.uint16) << 8 | low


def _native(opened: Any, mode: int, exif: bool) -> Any:
    picture = opened()
    arguments = picture.tile[0].args if picture.tile else None
    if arguments in _WIDE or arguments == "LA;16B":
        return _wide(opened, arguments, exif)
    if picture.mode in ("I;16", "I"):
        return _turned(picture, exif).astype(np.uint16)[..., None]
    if picture.mode == "1":
        picture = picture.convert("L")
    if mode and "transparency" in picture.info:
        picture = picture.convert("LA" if picture.mode == "L" else "RGBA")
    elif mode and picture.mode == "P":
        picture = picture.convert("RGB")
    values = _turned(picture, exif)
    return values if values.ndim == 3 else values[..., None]


def _grey(colours: Any, gamma: float | None) -> Any:
    """Of (H, W, 3): weighted, where the file gives a gamma in linear light."""
    top = np.iinfo(colours.dtype).max
    half = 1 << 14 if gamma or top > 255 else 0  # without a gamma libpng cuts 8 bits off
    wide = colours.astype(np.int64)
    if gamma:
        wide = np.floor((wide / top) ** (1 / gamma) * top + 0.5).astype(np.int64)
    red, green, blue = wide[..., :1], wide[..., 1:2], wide[..., 2:]
    grey = (_RED * red + _GREEN * green + ((1 << 15) - _RED - _GREEN) * blue + half) >> 15
    if gamma:
        grey = np.floor((grey / top) ** gamma * top + 0.5).astype(np.int64)
    plain = (colours == colours[..., :1]).all(-1, keepdims=True)
    return np.where(plain, colours[..., :1], grey).astype(colours.dtype)


def _gamma(information: dict[Any, Any]) -> float | None:
    gamma = 0.45455 if "srgb" in information else information.get("gamma")
    return gamma if gamma and abs(gamma - 1) > 0.05 else None


def planes(opened: Any, mode: int, exif: bool) -> Any:
    """(H, W, C) of uint8 or uint16, of pictures that ``opened()`` gives afresh, as ImageReadMode ``mode`` asks."""
    values = _native(opened, mode, exif)
    if mode not in _CHANNELS:
        return values
    count, alpha = _CHANNELS[mode]
    has = values.shape[-1] in (2, 4)
    colours = values[..., : values.shape[-1] - has]
    if count == 1 and colours.shape[-1] == 3:
        colours = _grey(colours, _gamma(opened().info))
    elif count > colours.shape[-1]:
        colours = np.repeat(colours, 3, -1)
    if not alpha:
        return colours
    full = np.full_like(values[..., :1], np.iinfo(values.dtype).max)
    return np.concatenate([colours, values[..., -1:] if has else full], -1)
