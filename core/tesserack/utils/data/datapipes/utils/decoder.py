"""From the bytes of a file to what its name says it holds."""

from __future__ import annotations

import io
import json
import os.path
from collections.abc import Callable
from typing import Any

import tesserack as ts

__all__ = [
    "Decoder",
    "ImageHandler",
    "MatHandler",
    "audiohandler",
    "basichandlers",
    "extension_extract_fn",
    "handle_extension",
    "imagehandler",
    "mathandler",
    "videohandler",
]

_Handler = Callable[[str, Any], Any]


def basichandlers(extension: str, data: Any) -> Any:
    """Text, JSON and numbers: what they hold; None for other extensions. Pickles are refused: reading one may run
    anything."""
    if extension in ("txt", "text", "transcript"):
        return data.decode("utf-8")
    if extension in ("cls", "cls2", "class", "count", "index", "inx", "id"):
        return int(data)
    if extension in ("json", "jsn"):
        return json.loads(data)
    if extension in ("pyd", "pickle"):
        raise ValueError(
            "basichandlers: a pickle may run any code when it is read; convert it, or add your own handler"
        )
    if extension == "pt":
        return ts.load(io.BytesIO(data))
    return None


def handle_extension(extensions: str, f: Callable[[Any], Any]) -> _Handler:
    """A handler that calls ``f(data)`` for the extensions named in ``extensions``, separated by spaces."""
    wanted = [e.lower().split(".") for e in extensions.lower().split()]

    def handle(extension: str, data: Any) -> Any:
        parts = extension.lower().split(".")
        if any(parts[len(parts) - len(target) :] == target for target in wanted if len(target) <= len(parts)):
            return f(data)
        return None

    return handle


# What an image is to become: its kind, the type of its elements, its mode.
_IMAGES = {
    "l8": ("numpy", "uint8", "l"),
    "rgb8": ("numpy", "uint8", "rgb"),
    "rgba8": ("numpy", "uint8", "rgba"),
    "l": ("numpy", "float", "l"),
    "rgb": ("numpy", "float", "rgb"),
    "rgba": ("numpy", "float", "rgba"),
    "torchl8": ("torch", "uint8", "l"),
    "torchrgb8": ("torch", "uint8", "rgb"),
    "torchrgba8": ("torch", "uint8", "rgba"),
    "torchl": ("torch", "float", "l"),
    "torchrgb": ("torch", "float", "rgb"),
    "torch": ("torch", "float", "rgb"),
    "torchrgba": ("torch", "float", "rgba"),
    "pill": ("pil", None, "l"),
    "pil": ("pil", None, "rgb"),
    "pilrgb": ("pil", None, "rgb"),
    "pilrgba": ("pil", None, "rgba"),
}


class ImageHandler:
    """Decodes images by Pillow into what ``imagespec`` says: "pil", NumPy arrays ("rgb8", "l", ...) or tensors of
    channels first ("torchrgb", ...). Names without 8 have floats in [0, 1]. ``AssertionError`` for another word."""

    def __init__(self, imagespec: str) -> None:
        if imagespec not in _IMAGES:
            raise AssertionError(f"unknown image specification: {imagespec}; expected one of {', '.join(_IMAGES)}")
        self.imagespec = imagespec.lower()

    def __call__(self, extension: str, data: Any) -> Any:
        """The image, or None where the extension is no image's."""
        if extension.lower() not in ("jpg", "jpeg", "png", "ppm", "pgm", "pbm", "pnm"):
            return None
        import numpy
        import PIL.Image

        kind, elements, mode = _IMAGES[self.imagespec]
        with io.BytesIO(data) as stream:
            opened = PIL.Image.open(stream)
            opened.load()
            image = opened.convert(mode.upper())
        if kind == "pil":
            return image
        array = numpy.array(image)
        if elements == "float":
            array = array.astype("float32") / 255
        if kind == "numpy":
            return array
        found = ts.tensor(array)
        return found.permute(2, 0, 1) if found.ndim == 3 else found


def imagehandler(imagespec: str) -> ImageHandler:
    """:class:`ImageHandler`."""
    return ImageHandler(imagespec)


def videohandler(extension: str, data: Any) -> Any:
    """Refuses videos, since no library for them is a dependency: write a handler with one; None for other files."""
    if extension in ("mp4", "ogv", "mjpeg", "avi", "mov", "h264", "mpg", "webm", "wmv"):
        raise ModuleNotFoundError("videohandler: no video decoder comes with the library; add a handler of your own")
    return None


def audiohandler(extension: str, data: Any) -> Any:
    """Samples and rate of a file in WAVE format, by SciPy; None for other files."""
    if extension not in ("flac", "mp3", "sox", "wav", "m4a", "ogg", "wma"):
        return None
    if extension != "wav":
        raise ModuleNotFoundError(f"audiohandler: no decoder for {extension} files; add a handler of your own")
    from scipy.io import wavfile

    rate, samples = wavfile.read(io.BytesIO(data))
    return ts.tensor(samples), rate


class MatHandler:
    """Reads MATLAB files by SciPy, whose ``loadmat`` takes the options."""

    def __init__(self, **loadmat_kwargs: Any) -> None:
        self.loadmat_kwargs = loadmat_kwargs

    def __call__(self, extension: str, data: Any) -> Any:
        """A dict of arrays, or None where the extension is not "mat"."""
        if extension != "mat":
            return None
        from scipy.io import loadmat

        with io.BytesIO(data) as stream:
            return loadmat(stream, **self.loadmat_kwargs)


def mathandler(**loadmat_kwargs: Any) -> MatHandler:
    """:class:`MatHandler`."""
    return MatHandler(**loadmat_kwargs)


def extension_extract_fn(pathname: str) -> str:
    """What follows the last dot of a file's name.

    >>> extension_extract_fn("/data/a.tar.gz")
    'gz'
    """
    return os.path.splitext(pathname)[1].removeprefix(".")


class Decoder:
    """Decodes pairs of a path and bytes: the first handler that knows the extension is used."""

    def __init__(self, *handler: _Handler, key_fn: Callable[[str], str] = extension_extract_fn) -> None:
        self.handlers = list(handler)
        self.key_fn = key_fn

    def add_handler(self, *handler: _Handler) -> None:
        """Ask these after the others."""
        self.handlers.extend(handler)

    def decode1(self, key: str, data: Any) -> Any:
        """One file's content; unchanged if no handler knows it."""
        if not data:
            return data
        for handle in self.handlers:
            found = handle(key, data)
            if found is not None:
                return found
        return data

    def decode(self, data: Any) -> dict[str, Any]:
        """All pairs of one sample, as a dict."""
        result = {}
        for path, stream in [data] if isinstance(data, tuple) else data:
            key = self.key_fn(path)
            content = stream.read() if hasattr(stream, "read") else stream
            if hasattr(stream, "close"):
                stream.close()
            result[path] = self.decode1(key, content) if key else content
        return result

    def __call__(self, data: Any) -> dict[str, Any]:
        """:meth:`decode`."""
        return self.decode(data)
