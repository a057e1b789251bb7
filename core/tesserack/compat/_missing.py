"""What stands for a name of PyTorch's that Tesserack does not have: it can be imported, and fails when it is used."""

from __future__ import annotations

import abc
import sys
import types
from typing import Any

from tesserack.aten.missing import MissingNameError
from tesserack.compat._guards import is_guarded

__all__ = ["MissingNameError", "caller", "missing", "reads_plainly"]

# Frames in these are the import system's and our own, not the program's.
_MACHINERY = ("<frozen importlib", __file__.rpartition("compat")[0] + "compat")


def caller() -> tuple[str, int, types.FrameType | None]:
    """File and line of the program that is asking, and its frame."""
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_MACHINERY):
        frame = frame.f_back
    if frame is None:
        return "?", 0, None
    return frame.f_code.co_filename, frame.f_lineno, frame


def reads_plainly(frame: types.FrameType | None) -> bool:
    """Whether a frame is at ``module.name`` or ``from module import name``; not at ``hasattr`` or ``getattr``."""
    if frame is None or frame.f_lasti < 0:
        return False
    import dis

    opcode = frame.f_code.co_code[frame.f_lasti]
    return dis.opname[opcode] in ("LOAD_ATTR", "LOAD_METHOD", "IMPORT_FROM")


class _MissingMeta(abc.ABCMeta):
    """Classes, so that they serve as bases, in annotations and with ``isinstance``."""

    _torch_name: str
    _torch_place: str

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        raise MissingNameError(_message(cls, "called"))

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        frame = caller()[2]
        if not reads_plainly(frame) or is_guarded(frame):  # a question, which is answered
            raise MissingNameError(_message(cls, f"asked for {name!r}"))
        # A default of a function, a member of an enumeration: what is made of it fails, if it is used.
        return missing(f"{cls._torch_name}.{name}")

    def __bool__(cls) -> bool:
        raise MissingNameError(_message(cls, "tested for truth"))

    def __getitem__(cls, item: Any) -> Any:
        return cls  # an annotation: Missing[int]

    # Without these, Python would ask for [0], [1], [2] and so on for ever.
    def __iter__(cls) -> Any:
        raise MissingNameError(_message(cls, "iterated over"))

    def __contains__(cls, item: Any) -> bool:
        raise MissingNameError(_message(cls, "searched"))

    def __len__(cls) -> int:
        raise MissingNameError(_message(cls, "asked for its length"))

    def __reversed__(cls) -> Any:
        raise MissingNameError(_message(cls, "iterated over"))

    def __repr__(cls) -> str:
        return f"<missing {cls._torch_name}>"


def _message(cls: _MissingMeta, how: str) -> str:
    file, line, _ = caller()
    return (
        f"{cls._torch_name}: Tesserack does not have it; it was taken at {cls._torch_place} and {how} at "
        f"{file}:{line}; tesserack run --report lists everything that a program misses"
    )


def missing(name: str) -> Any:
    """The stand-in for a name, such as ``"torch.sparse.spdiags"``."""
    file, line, _ = caller()
    short = name.rpartition(".")[2]
    body = {"_torch_name": name, "_torch_place": f"{file}:{line}", "__module__": name.rpartition(".")[0]}
    return _MissingMeta(short, (), body)
