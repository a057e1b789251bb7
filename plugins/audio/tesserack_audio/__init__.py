"""torchaudio's operators for Tesserack. The entry points call these when torchaudio opens its libraries."""

from __future__ import annotations

from typing import Any

__all__ = ["register_build", "register_operators"]

_libraries: list[Any] = []  # operators live as long as their library


def register_build() -> None:
    """Define what torchaudio asks of its build."""
    _define("_torchaudio", {"is_align_available() -> bool": lambda: True, "cuda_version() -> int?": lambda: None})


def register_operators() -> None:
    """Define ``torchaudio::_lfilter_core_loop`` and the others."""
    from tesserack_audio import align, filters, transducer

    _define("torchaudio", {**filters.OPERATORS, **align.OPERATORS, **transducer.OPERATORS})


def _define(namespace: str, operators: dict[str, Any]) -> None:
    from tesserack.library.definitions import Library

    library = Library(namespace, "DEF")
    library.define_all(operators)
    _libraries.append(library)
