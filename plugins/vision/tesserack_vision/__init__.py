"""torchvision's operators for Tesserack. The entry points call these when torchvision opens its libraries."""

from __future__ import annotations

from typing import Any

__all__ = ["register_codecs", "register_operators"]

_libraries: list[Any] = []  # operators live as long as their library


def register_operators() -> None:
    """Define ``torchvision::nms`` and the others."""
    from tesserack_vision import boxes, deform, gradients, roi, roi_pool

    _define("torchvision", {**boxes.OPERATORS, **roi.OPERATORS, **roi_pool.OPERATORS, **deform.OPERATORS, **_BUILD})
    gradients.register()
    for name, function in (("nms", boxes.nms_of_quantized), ("roi_align", roi.roi_align_of_quantized)):
        _libraries[-1].impl(name, function, "QuantizedCPU")


def register_codecs() -> None:
    """Define ``image::decode_png`` and the others."""
    from tesserack_vision import codecs

    _define("image", codecs.OPERATORS)


def _define(namespace: str, operators: dict[str, Any]) -> None:
    from tesserack.library.definitions import Library

    library = Library(namespace, "DEF")
    library.define_all(operators)
    _libraries.append(library)


_BUILD = {"_cuda_version() -> int": lambda: -1}
