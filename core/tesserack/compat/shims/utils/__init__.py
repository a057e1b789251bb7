"""Parts of ``torch.utils`` that mean nothing in Tesserack's."""

from __future__ import annotations

from typing import Any

from tesserack import Tensor

__all__ = ["cmake_prefix_path", "set_module", "swap_tensors"]


def set_module(obj: Any, mod: str) -> None:
    """Say that a class or function is defined in another module. ``TypeError`` unless that is a name."""
    if not isinstance(mod, str):
        raise TypeError("The mod argument should be a string")
    obj.__module__ = mod


def swap_tensors(t1: Tensor, t2: Tensor) -> None:
    """Let two tensors change places: values, whether they ask for gradients, gradients and attributes.

    ``RuntimeError`` for tensors that were computed with gradients: their graph would no longer fit.
    """
    if t1.grad_fn is not None or t2.grad_fn is not None:
        raise RuntimeError("swap_tensors: expected leaves, got a tensor that was computed with gradients; detach it")
    first, second = (t.detach().clone() if t1.data_ptr() == t2.data_ptr() else t.data for t in (t1, t2))
    gradients, asked, attributes = (t1.grad, t2.grad), (t1.requires_grad, t2.requires_grad), (dict(vars(t1)), vars(t2))
    t1.grad = t2.grad = None
    t1.data, t2.data = second, first
    for tensor, other in ((t1, 1), (t2, 0)):
        tensor.requires_grad_(asked[other])
        tensor.grad = gradients[other]
    vars(t1).clear()
    vars(t1).update(attributes[1])
    vars(t2).clear()
    vars(t2).update(attributes[0])


def __getattr__(name: str) -> Any:
    if name == "cmake_prefix_path":
        import tesserack

        return tesserack.cmake_dir()
    raise AttributeError(f"module 'torch.utils' has no attribute {name!r}")
