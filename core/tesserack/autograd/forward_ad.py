"""Dual numbers, with the names of ``torch.autograd.forward_ad``: tangents that go forward with values.

Inside a :func:`dual_level`, tensors made by :func:`make_dual` carry a tangent, and :func:`unpack_dual` gives that of
whatever was computed from them. The tangents are taken when asked for, by differentiating a backward pass of the
recorded operations: they cost about two of them, and what ran under ``no_grad`` has none. Duals, and what is made of
them, require gradients.

>>> import tesserack as ts
>>> from tesserack.autograd import forward_ad
>>> with forward_ad.dual_level():
...     x = forward_ad.make_dual(ts.tensor(3.0), ts.tensor(1.0))
...     forward_ad.unpack_dual(x * x).tangent
tensor(6.)
"""

from __future__ import annotations

import threading
from typing import Any, NamedTuple

import tesserack as ts
from tesserack import Tensor
from tesserack._native import enable_grad
from tesserack.autograd._products import depth, push_forward
from tesserack.autograd._run import grad

__all__ = ["UnpackedDualTensor", "dual_level", "enter_dual_level", "exit_dual_level", "make_dual", "unpack_dual"]


class UnpackedDualTensor(NamedTuple):
    """A value and its tangent, None if it has none."""

    primal: Tensor
    tangent: Tensor | None


class _Level:
    """The duals that were made, their tangents, and whether an outer computation records gradients of them."""

    def __init__(self) -> None:
        self.duals: list[Tensor] = []
        self.tangents: list[Tensor] = []
        self.recorded = False


class _State(threading.local):
    level: _Level | None = None


_state = _State()


def enter_dual_level() -> int:
    """Begin the level, whose number is 0. ``RuntimeError`` inside another: levels do not nest."""
    if _state.level is not None:
        raise RuntimeError("enter_dual_level: Nested forward mode AD is not supported at the moment")
    _state.level = _Level()
    return 0


def exit_dual_level(*, level: int | None = None) -> None:
    """End the level and forget its tangents. ``RuntimeError`` if there is none, or for another number than 0."""
    if _state.level is None or level not in (None, 0):
        raise RuntimeError(f"exit_dual_level: expected the level that was entered, got {level}")
    _state.level = None


class dual_level:
    """A context for dual tensors; their tangents are gone at its end."""

    def __enter__(self) -> int:
        return enter_dual_level()

    def __exit__(self, *exc: object) -> None:
        exit_dual_level()


def _floating(what: str, x: Any) -> None:
    if not isinstance(x, Tensor):
        raise TypeError(f"make_dual: expected {what} to be a Tensor, got {type(x).__name__}")
    if not (x.is_floating_point() or x.is_complex()):
        raise ValueError(f"make_dual: Expected {what} to be floating point or complex, but got: {x.dtype}")


def make_dual(tensor: Tensor, tangent: Tensor, *, level: int | None = None) -> Tensor:
    """A tensor of the values of ``tensor`` that carries ``tangent``, of its shape.

    ``RuntimeError`` outside of a level, for another shape or device, and for a tensor that carries a tangent already;
    ``ValueError`` unless both are floating or complex.
    """
    current = _state.level
    if current is None:
        raise RuntimeError("make_dual: Trying to create a dual Tensor for forward AD but no level exists, make sure to "
                           "enter_dual_level() first.")  # fmt: skip
    _floating("primal", tensor)
    _floating("tangent", tangent)
    if tangent.shape != tensor.shape:
        raise RuntimeError("make_dual: Trying to set a forward gradient that has a different size than that of the "
                           f"original Tensor, this is not supported. Tensor is of size {list(tensor.shape)} while the "
                           f"given forward gradient is of size {list(tangent.shape)}.")  # fmt: skip
    if tangent.device != tensor.device:
        raise RuntimeError(f"make_dual: expected a tangent on device {tensor.device}, got {tangent.device}")
    if any(dual is tensor for dual in current.duals):
        raise RuntimeError("make_dual: Making a dual Tensor based on a Tensor that already has a forward gradient at "
                           "the same level 0 is not supported.")  # fmt: skip
    current.recorded |= tensor.requires_grad or tangent.requires_grad or depth() > 0
    with enable_grad():
        dual = tensor.view_as(tensor) if tensor.requires_grad else tensor.detach().requires_grad_()
    current.duals.append(dual)
    current.tangents.append(tangent.to(tensor.dtype))
    return dual


def unpack_dual(tensor: Tensor, *, level: int | None = None) -> UnpackedDualTensor:
    """The value of a tensor and its tangent, None if it was not computed from duals of this level.

    The tangent is recorded, for gradients of it, where a dual's value or tangent is part of a recorded computation.
    """
    if not isinstance(tensor, Tensor):
        raise TypeError(f"unpack_dual: expected a Tensor, got {type(tensor).__name__}")
    if level not in (None, 0):
        raise RuntimeError(f"unpack_dual: expected level 0, got {level}")
    current = _state.level
    if current is None or not tensor.requires_grad or not _depends(tensor, current):
        return UnpackedDualTensor(tensor, None)
    with enable_grad():
        (tangent,) = push_forward([tensor], current.duals, current.tangents)
    if current.recorded:
        return UnpackedDualTensor(tensor.view_as(tensor), tangent)
    return UnpackedDualTensor(tensor.detach(), tangent.detach())


def _depends(tensor: Tensor, level: _Level) -> bool:
    if not level.duals:
        return False
    found = grad(tensor, level.duals, ts.zeros_like(tensor), retain_graph=True, allow_unused=True, create_graph=False)
    return any(g is not None for g in found)
