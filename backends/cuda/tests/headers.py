"""What headers of NVIDIA's packages declare: values of enumerations, and types of functions."""

from __future__ import annotations

import ctypes
import re
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

__all__ = ["declared", "package_file", "plain", "text", "value"]


def package_file(package: str, name: str, extra: str) -> Path:
    """A file of an installed package; the test is skipped where it is not installed."""
    try:
        files = metadata.files(package) or []
    except metadata.PackageNotFoundError:
        pytest.skip(f"{package} is not installed: pip install tesserack-cuda[{extra}]")
    found = [file for file in files if file.name == name]
    return Path(str(found[0].locate()))


def text(*paths: Path) -> str:
    """Headers without comments."""
    joined = "".join(path.read_text(errors="replace") for path in paths)
    return re.sub(r"/\*.*?\*/|//[^\n]*", "", joined, flags=re.DOTALL)


def value(headers: str, name: str) -> int:
    """That of a name in an enumeration."""
    written = re.search(rf"\b{name}(?:\s+\w+_DEPRECATED_ENUM)?\s*=\s*([^,}}]+)[,}}]", headers)
    assert written, f"{name} is not in the header"
    expression = re.sub(r"[A-Z]\w+", lambda m: str(value(headers, m.group())), written.group(1))
    found: int = eval(expression, {"__builtins__": {}})
    return found


_C_TYPES = {"int": ctypes.c_int, "size_t": ctypes.c_size_t, "uint64_t": ctypes.c_uint64, "int64_t": ctypes.c_int64}
_POINTERS = ("Handle_t", "Desc_t", "Layout_t", "Preference_t", "BackendDescriptor_t", "cudaStream_t")


def _type_of(parameter: str) -> Any:
    """The C type of a parameter, pointers all alike; enums are ints."""
    if "*" in parameter or "[" in parameter:
        return ctypes.c_void_p
    kind = parameter.replace("const ", "").split()[0]
    if kind.endswith(_POINTERS):
        return ctypes.c_void_p
    return _C_TYPES.get(kind, ctypes.c_int)


def declared(headers: str, name: str) -> list[Any]:
    """The types of a function's parameters."""
    found = re.search(rf"\b{name}\s*\(([^)]*)\)\s*;", headers)
    assert found, f"{name} is not in the header"
    return [_type_of(parameter.strip()) for parameter in found.group(1).split(",")]


def plain(kind: Any) -> Any:
    """A type of ctypes, pointers all alike."""
    return ctypes.c_void_p if hasattr(kind, "contents") else kind
