"""Errors of what cannot be exported, with the program's line and the way out."""

from __future__ import annotations

from typing import Any

from tesserack.jit._compile.errors import TorchDynamoException

__all__ = ["ExportError", "InputError", "ShapesError", "UserError", "ways_out"]


class UserError(TorchDynamoException):
    """A program asks for what cannot be, under the name that programs for PyTorch catch it by."""


class ExportError(UserError):
    """A program that cannot be exported as it is."""


class ShapesError(UserError, ValueError):
    """What is said of sizes does not fit the inputs."""


class InputError(AssertionError, RuntimeError):
    """Inputs that an exported program was not made for."""


_WAYS = {
    "number": (
        "a value of a tensor decides what the program does, or becomes a number of Python's, as by if, while, bool(), "
        "int(), .item() or .tolist(). For a branch use tesserack.cond, for a loop tesserack.while_loop, or "
        "tesserack._higher_order_ops.scan and map; keep numbers as tensors; what has to be Python goes into an "
        "operator by tesserack.library.custom_op with register_fake"
    ),
    "sizes": (
        "sizes of a result follow from values, as by nonzero, unique, or a mask as index. Use where, masked_fill or "
        "sort, which keep sizes, or an operator by tesserack.library.custom_op with register_fake"
    ),
    "python": (
        "what runs outside of operators cannot be seen: NumPy, raw memory, other libraries. Use tesserack's functions, "
        "or an operator by tesserack.library.custom_op with register_fake"
    ),
}


def ways_out(kind: str, error: BaseException | str, place: str) -> ExportError:
    """The error to raise, with the reason, the line and what to do instead."""
    first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    lines = f"\n{place.rstrip()}" if place else ""
    return ExportError(f"export: {first}{lines}\n{_WAYS[kind]}")


def place_of(node: Any) -> str:
    """The program's line that a node is from."""
    if node is None:
        return ""
    lines = str(node.meta.get("stack_trace", "")).rstrip().split("\n")
    return "\n".join(lines[-2:])
