"""Names of files, opened files, and which parts of a sample a function is for."""

from __future__ import annotations

import fnmatch
import inspect
import io
import os
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

__all__ = [
    "StreamWrapper",
    "get_file_binaries_from_pathnames",
    "get_file_pathnames_from_root",
    "match_masks",
    "validate_input_col",
    "validate_pathname_binary_tuple",
]


def validate_input_col(fn: Callable[..., Any], input_col: int | tuple[Any, ...] | list[Any] | None) -> None:
    """``ValueError`` unless ``fn`` can be called with as many arguments as ``input_col`` names parts of a sample."""
    try:
        parameters = inspect.signature(fn).parameters.values()
    except (TypeError, ValueError):  # functions in C may not tell
        return
    count = len(input_col) if isinstance(input_col, (list, tuple)) else 1
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    needed = [p for p in positional if p.default is p.empty]
    named = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY and p.default is p.empty]
    name = getattr(fn, "__name__", repr(fn))
    if named:
        raise ValueError(
            f"The function {name} takes {len(named)} keyword-only parameters, which is not allowed: {named}"
        )
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        positional_most: float = float("inf")
    else:
        positional_most = len(positional)
    if not len(needed) <= count <= positional_most:
        raise ValueError(
            f"The function {name} takes {len(needed)} to {positional_most} parameters, but {count} are required"
        )


def match_masks(name: str, masks: str | list[str]) -> bool:
    """Whether a file's name matches a shell pattern, or any of several; no pattern matches everything.

    >>> match_masks("a.txt", ["*.txt", "*.md"]), match_masks("a.py", "*.txt")
    (True, False)
    """
    patterns = [masks] if isinstance(masks, str) else masks
    return not masks or any(fnmatch.fnmatch(name, pattern) for pattern in patterns)


def get_file_pathnames_from_root(
    root: str, masks: str | list[str], recursive: bool = False, abspath: bool = False, non_deterministic: bool = False
) -> Iterator[str]:
    """Paths of the files below a folder that match ``masks``, sorted unless ``non_deterministic``."""

    def failed(error: OSError) -> None:
        warnings.warn(f"{error.filename} : {error}", stacklevel=2)
        raise error

    if os.path.isfile(root):
        path = os.path.abspath(root) if abspath else root
        if match_masks(os.path.basename(path), masks):
            yield path
        return
    for folder, folders, files in os.walk(root, onerror=failed):
        place = os.path.abspath(folder) if abspath else folder
        if not non_deterministic:
            files.sort()
            folders.sort()
        yield from (os.path.join(place, name) for name in files if match_masks(name, masks))
        if not recursive:
            return


def get_file_binaries_from_pathnames(
    pathnames: Any, mode: str, encoding: str | None = None
) -> Iterator[tuple[str, StreamWrapper]]:
    """Pairs of a path and the file there, opened; a mode without "b" or "t" reads bytes."""
    if not isinstance(pathnames, Iterable):
        pathnames = [pathnames]
    if mode in ("b", "t"):
        mode = "r" + mode
    for path in pathnames:
        if not isinstance(path, str):
            raise TypeError(f"Expected string type for pathname, but got {type(path)}")
        yield path, StreamWrapper(open(path, mode, encoding=encoding), name=path)  # noqa: SIM115


def validate_pathname_binary_tuple(data: Any) -> None:
    """``TypeError`` or ``ValueError`` unless ``data`` is a pair of a path and an opened file."""
    if not isinstance(data, tuple):
        raise TypeError(f"pathname binary data should be tuple type, but it is type {type(data)}")
    if len(data) != 2:
        raise TypeError(f"pathname binary stream tuple length should be 2, but got {len(data)}")
    if not isinstance(data[0], str):
        raise TypeError(f"pathname within the tuple should have string type pathname, but it is type {type(data[0])}")
    if not isinstance(data[1], io.IOBase) and not isinstance(data[1], StreamWrapper):
        raise TypeError(
            "binary stream within the tuple should have IOBase or its subclasses as type, but it is type "
            f"{type(data[1])}"
        )


class StreamWrapper:
    """An opened file, or another stream, that closes when nobody refers to it; attributes are the stream's."""

    def __init__(self, file_obj: Any, parent_stream: StreamWrapper | None = None, name: str | None = None) -> None:
        if parent_stream is not None and not isinstance(parent_stream, StreamWrapper):
            raise RuntimeError(f"Parent stream should be StreamWrapper, {type(parent_stream)} was given")
        self.file_obj = file_obj
        self.parent_stream = parent_stream
        self.name = name
        self.closed = False

    def close(self, *args: Any, **kwargs: Any) -> None:
        """Close the stream; once more does nothing."""
        if not self.closed:
            self.closed = True
            self.file_obj.close(*args, **kwargs)

    def autoclose(self) -> None:
        """Close the stream."""
        self.close()

    @classmethod
    def close_streams(cls, value: Any) -> None:
        """Close every stream inside lists, tuples and dicts."""
        if isinstance(value, StreamWrapper):
            value.close()
        elif isinstance(value, dict):
            for item in value.values():
                cls.close_streams(item)
        elif isinstance(value, (list, tuple)):
            for item in value:
                cls.close_streams(item)

    def __getattr__(self, name: str) -> Any:
        if name == "file_obj":  # of an object that was never initialised
            raise AttributeError(name)
        return getattr(self.file_obj, name)

    def __enter__(self) -> StreamWrapper:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[Any]:
        yield from self.file_obj

    def __next__(self) -> Any:
        return next(self.file_obj)

    def __del__(self) -> None:
        if not self.__dict__.get("closed", True):
            self.close()

    def __repr__(self) -> str:
        return (
            f"StreamWrapper<{self.file_obj!r}>"
            if self.name is None
            else f"StreamWrapper<{self.name},{self.file_obj!r}>"
        )

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *dir(self.file_obj)]

    def __getstate__(self) -> Any:
        return {"file_obj": self.file_obj}

    def __setstate__(self, state: Any) -> None:
        self.file_obj, self.parent_stream, self.name, self.closed = state["file_obj"], None, None, False
