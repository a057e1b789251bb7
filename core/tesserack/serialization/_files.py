"""What every format writes: files that appear whole, and tensors as they are stored."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from typing import Any

import tesserack as ts
from tesserack import Tensor

__all__ = ["Path", "hint_for", "is_special", "kind_of", "replacing", "storable"]

Path = str | os.PathLike[str]


def is_special(path: Path) -> bool:
    """Whether something other than a file or folder is there, such as a device or a pipe."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[str]:
    """A new name beside ``path``, moved over it at the end, or removed if writing fails."""
    target = os.path.realpath(path)
    folder = os.path.dirname(target)
    if not os.path.isdir(folder):
        raise FileNotFoundError(f"save: the folder {folder!r} does not exist")
    temporary = os.path.join(folder, f".{os.urandom(8).hex()}.part")
    try:
        yield temporary
        with open(temporary, "rb+") as written:
            os.fsync(written.fileno())
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


def kind_of(tensor: Tensor) -> str:
    """complex128 and complex32 have no place in the safetensors format: such a tensor is stored as pairs."""
    return "pairs" if tensor.dtype in (ts.complex128, ts.complex32) else "tensor"


def storable(tensor: Tensor) -> Tensor:
    """The values, contiguous, on the cpu."""
    dense = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous()
    return ts.view_as_real(dense) if kind_of(tensor) == "pairs" else dense


def hint_for(value: Any) -> str:
    """What to do about a value that cannot be stored."""
    if hasattr(value, "state_dict"):
        return "save its state_dict()"
    if type(value).__module__ == "numpy":
        return "convert it with tesserack.from_numpy(...)"
    return "expected tensors, dicts, lists, tuples, numbers, strings, bytes or None"
