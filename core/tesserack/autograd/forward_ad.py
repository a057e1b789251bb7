"""Dual numbers, with the names of ``torch.autograd.forward_ad``: tangents that go forward with values.

Inside a :func:`dual_level`, tensors made by :func:`make_dual` carry a tangent, and :func:`unpack_dual` gives that of
whatever was computed from them. The tangents are taken when asked for, by differentiating a backward pass of the
recorded operations: they cost about two of them. What is written to a dual in place is written to its own tangent as
soon as any tangent is asked for, or at the end of the level. Duals, and what is made of them, require gradients, under
``no_grad`` too; where the values of duals are part of a recorded computation, what runs under ``no_grad`` is constant
for its gradients, and has tangents.

>>> import tesserack as ts
>>> from tesserack.autograd import forward_ad
>>> with forward_ad.dual_level():
...     x = forward_ad.make_dual(ts.tensor(3.0), ts.tensor(1.0))
...     forward_ad.unpack_dual(x * x).tangent
tensor(6.)
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import tesserack as ts
from tesserack import Tensor, _native
from tesserack._native import enable_grad
from tesserack._tensor.subclass import has_no_memory
from tesserack.autograd._run import grad
from tesserack.autograd.function import Function, use_jvp_rule
from tesserack.func._gradients import depth, push_forward, pushing

__all__ = ["UnpackedDualTensor", "dual_level", "enter_dual_level", "exit_dual_level", "make_dual", "unpack_dual"]


class UnpackedDualTensor(NamedTuple):
    """A value and its tangent, None if it has none."""

    primal: Tensor
    tangent: Tensor | None


def _nothing() -> None:
    return None


class _Made:
    """A dual: what stands before it, which a program never sees or writes to, its tangent, itself and its node."""

    def __init__(self, before: Tensor, dual: Tensor, tangent: Tensor) -> None:
        self.before, self.tangent = before, tangent
        self.dual: Callable[[], Tensor | None] = weakref.ref(dual)
        self.node: Callable[[], Any] = _nothing if dual.grad_fn is None else weakref.ref(dual.grad_fn)

    def is_written(self, dual: Tensor | None) -> bool:
        """Whether an operation has written to the dual since it was made, and kept its tangent."""
        return dual is not None and dual.requires_grad and dual.grad_fn is not self.node()


class _Level:
    """Which duals there are, and whether an outer computation records gradients of them.

    A dual's node keeps what it was made of, so that it goes with the last thing that was computed of it.
    """

    def __init__(self) -> None:
        self.nodes: list[weakref.ref[Any]] = []
        self.kept: list[_Made] = []  # of duals made in inference mode, which have no node
        self.recorded = False
        self.outer = _native._forward_level(2 if depth() > 0 else 1)

    def note(self, before: Tensor, dual: Tensor, tangent: Tensor) -> None:
        for made in self.made():
            if made.dual() is dual:  # it has another history now
                made.dual = _nothing
        node: Any = dual.grad_fn
        made_now = _Made(before, dual, tangent)
        if node is None:
            self.kept.append(made_now)
            return
        node._made = made_now
        self.nodes.append(weakref.ref(node))

    def made(self) -> list[_Made]:
        """What is still of use."""
        nodes = [node() for node in self.nodes]
        if None in nodes:
            self.nodes = [weakref.ref(node) for node in nodes if node is not None]
        return [*self.kept, *(node._made for node in nodes if node is not None)]

    def tangent_of_dual(self, tensor: Tensor) -> Tensor | None:
        """The tangent that a dual was made with, while no operation on the dual has written to it."""
        node = tensor.grad_fn
        return next((m.tangent for m in self.made() if m.dual() is tensor and m.node() is node), None)

    def push_forward(self, tensor: Tensor) -> Tensor:
        made = self.made()
        with enable_grad():
            (tangent,) = push_forward([tensor], [m.before for m in made], [m.tangent for m in made])
        return tangent

    def settle(self) -> None:
        """Have what was written to duals written to their tangents too."""
        for made in self.made():
            dual = made.dual()
            if made.is_written(dual) and not (made.tangent.requires_grad and made.tangent.is_leaf):
                self._settle(made, dual)  # type: ignore[arg-type]

    def _settle(self, made: _Made, dual: Tensor) -> None:
        tangent = self.push_forward(dual)
        given, made.tangent = made.tangent, made.tangent.clone()  # what was computed before the write has the old one
        with enable_grad() if self.recorded else unrecorded():
            given.copy_(tangent)
        with enable_grad():
            before = dual.detach().requires_grad_()
            self.note(before, _Replaced.apply(dual, before), given)


@contextlib.contextmanager
def unrecorded() -> Iterator[None]:
    """Without gradients or tangents."""
    before = _native._forward_level(0)
    try:
        with _native.no_grad():
            yield
    finally:
        _native._forward_level(before)


class _Dual(Function):
    """The identity, with the same memory: a result, and so may be written to."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.detach()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad


class _Replaced(Function):
    """A tensor that a custom function wrote to, with another history: that of what stands before it now."""

    @staticmethod
    def forward(ctx: Any, written: Tensor, before: Tensor) -> Tensor:
        ctx.mark_dirty(written)
        return written

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return None, grad


class _State(threading.local):
    level: _Level | None = None


_state = _State()


def __getattr__(name: str) -> Any:
    if name == "_current_level":  # of this thread: -1 outside of a level
        return -1 if _state.level is None else 0
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def enter_dual_level() -> int:
    """Begin the level, whose number is 0. ``RuntimeError`` inside another: levels do not nest."""
    if _state.level is not None:
        raise RuntimeError("enter_dual_level: Nested forward mode AD is not supported at the moment")
    _state.level = _Level()
    _native._push_keeping_hooks()
    return 0


def exit_dual_level(*, level: int | None = None) -> None:
    """End the level and forget its tangents. ``RuntimeError`` if there is none, or for another number than 0."""
    if _state.level is None or level not in (None, 0):
        raise RuntimeError(f"exit_dual_level: expected the level that was entered, got {level}")
    _state.level.settle()
    _native._forward_level(_state.level.outer)
    _state.level = None
    _native._pop_keeping_hooks()


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
    if any(made.dual() is tensor for made in current.made()):
        raise RuntimeError("make_dual: Making a dual Tensor based on a Tensor that already has a forward gradient at "
                           "the same level 0 is not supported.")  # fmt: skip
    if current.tangent_of_dual(tangent) is not None:
        raise RuntimeError("make_dual: Setting a forward grad that itself has a forward gradient at the same level 0 "
                           "is not supported.")  # fmt: skip
    current.recorded |= tensor.requires_grad or tangent.requires_grad or depth() > 0
    if current.recorded:
        _native._forward_level(2)
    with enable_grad():
        before = tensor.view_as(tensor) if tensor.requires_grad else tensor.detach().requires_grad_()
        dual = _Dual.apply(before)
    _note_dual(current, before, dual, _laid_out_as(tangent, tensor))
    return dual  # type: ignore[no-any-return]


def _laid_out_as(tangent: Tensor, primal: Tensor) -> Tensor:
    """The tangent where it lies as its primal does, bits that are pending included; otherwise a copy that does, so that
    a view of the one is a view of the other."""
    if any(t.layout is not ts.strided or t.is_meta or has_no_memory(t) for t in (primal, tangent)):
        return tangent
    if _place(tangent) == _place(primal):
        return tangent
    with enable_grad():
        room = tangent.new_zeros(primal.untyped_storage().nbytes() // primal.element_size())
        copy = room.as_strided(primal.shape, primal.stride(), primal.storage_offset())
        copy = copy._neg_view() if primal.is_neg() else copy
        copy = copy.conj() if primal.is_conj() and copy.is_complex() else copy
        return copy.copy_(tangent)


def _place(x: Tensor) -> Any:
    room = x.untyped_storage().nbytes() // x.element_size()
    strides = [stride for size, stride in zip(x.shape, x.stride(), strict=True) if size != 1]
    return strides, x.storage_offset() if x.numel() else 0, room, x.is_conj(), x.is_neg()


def _note_dual(level: _Level, before: Tensor, dual: Tensor, tangent: Tensor) -> None:
    level.note(before, dual, tangent if tangent.dtype is before.dtype else tangent.to(before.dtype))


def carries_tangent(tensor: Any) -> bool:
    """Whether a tensor was computed from duals of the level that is on."""
    return _state.level is not None and isinstance(tensor, Tensor) and _is_computed(tensor, _state.level)


def _is_computed(tensor: Tensor, level: _Level) -> bool:
    if not tensor.requires_grad or not (tensor.is_floating_point() or tensor.is_complex()):
        return False
    return level.tangent_of_dual(tensor) is not None or _depends(tensor, level)


def by_jvp(function: Any, args: tuple[Any, ...]) -> Any:
    """A custom function's own ``jvp``, for arguments of which some carry tangents: its results, as duals.

    None where the function's backward is to be used: where it has one, and no jvp or gradients of duals are recorded.
    """
    level = _state.level
    if level is None or not any(carries_tangent(arg) for arg in args):
        return None
    has_backward = function.backward is not Function.backward
    if has_backward and (level.recorded or function.jvp is Function.jvp):
        return None
    tangents = [unpack_dual(arg).tangent if isinstance(arg, Tensor) else None for arg in args]
    result = _native._function_apply(function, function.setup_context is not Function.setup_context, *args)
    outputs = result if isinstance(result, tuple) else (result,)
    node = next(o.grad_fn for o in outputs if isinstance(o, Tensor) and o.grad_fn is not None)
    if node.materialize_grads:
        given = [ts.zeros_like(a) if t is None and _is_smooth(a) else t for a, t in zip(args, tangents, strict=True)]
    else:
        given = tangents
    with contextlib.nullcontext() if level.recorded else unrecorded():
        pushed = function.jvp(_ForwardContext(node), *given)
    answers = pushed if isinstance(pushed, tuple) else (pushed,)
    if len(answers) != len(outputs):
        raise RuntimeError(f"{function.__name__}.jvp: expected {len(outputs)} tangents, one for each output, got "
                           f"{len(answers)}")  # fmt: skip
    for output, tangent in zip(outputs, answers, strict=True):
        _check_aliases(output, tangent, args, given)
    made = tuple(_pushed(level, function, o, t, o in _same(args)) for o, t in zip(outputs, answers, strict=True))
    return made if isinstance(result, tuple) else made[0]


class _same:
    """Which objects there are, by identity."""

    def __init__(self, items: Any) -> None:
        self.items = items

    def __contains__(self, wanted: object) -> bool:
        return any(item is wanted for item in self.items)


def _memory_of(x: Any) -> Any:
    """The tensor that a view looks at; itself if it is no view."""
    return x if not isinstance(x, Tensor) or x._base is None else x._base


def _check_aliases(output: Any, tangent: Any, args: tuple[Any, ...], given: Any) -> None:
    """``RuntimeError`` unless a tangent is written to, or a view, where its output is."""
    if not isinstance(output, Tensor) or not isinstance(tangent, Tensor):
        return
    for arg, before in zip(args, given, strict=True):
        if output is arg and tangent is not before:
            raise RuntimeError("An inplace custom Function is not modifying the forward mode gradients inplace. If the "
                               "forward modifies an input inplace, then the jvp function must modify the gradient of "
                               "that input inplace and return it.")  # fmt: skip
    tensors = [arg for arg in args if isinstance(arg, Tensor)]
    if output._base is None or output in _same(args) or output._base not in _same([_memory_of(x) for x in tensors]):
        return
    if tangent._base is None:
        raise RuntimeError("A custom Function's forward is returning a view (or an input as-is) but the jvp is not "
                           "returning a view.")  # fmt: skip
    if tangent._base not in _same([_memory_of(x) for x in given]):
        raise RuntimeError("A custom Function is returning a view but the jvp is not returning a view of the given "
                           "grad input.")  # fmt: skip


def _is_smooth(x: Any) -> bool:
    return isinstance(x, Tensor) and (x.is_floating_point() or x.is_complex())


def _pushed(level: _Level, function: Any, output: Any, tangent: Any, written: bool) -> Any:
    if not isinstance(output, Tensor) or not _is_smooth(output) or not output.requires_grad:
        if tangent is not None:
            raise RuntimeError(f"{function.__name__}.jvp: expected None as the tangent of an output that is not "
                               "differentiable")  # fmt: skip
        return output
    if not isinstance(tangent, Tensor):
        raise RuntimeError(f"{function.__name__}.jvp: expected a Tensor as the tangent of a differentiable output, got "
                           f"{type(tangent).__name__}")  # fmt: skip
    if tangent.shape != output.shape:
        raise RuntimeError(f"{function.__name__}.jvp: expected a tangent of shape {tuple(output.shape)}, got "
                           f"{tuple(tangent.shape)}")  # fmt: skip
    before = output.detach().requires_grad_()
    with enable_grad():
        dual = _Replaced.apply(output, before) if written else _Dual.apply(before)
    _note_dual(level, before, dual, tangent)
    return dual


class _ForwardContext:
    """The context of a custom function as its ``jvp`` sees it."""

    def __init__(self, node: Any) -> None:
        self._node = node

    @property
    def saved_tensors(self) -> Any:
        return getattr(self._node, "saved_for_forward", ())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._node, name)


def unpack_dual(tensor: Tensor, *, level: int | None = None) -> UnpackedDualTensor:
    """The value of a tensor and its tangent, None if it was not computed from duals of this level.

    The tangent is recorded, for gradients of it, where a dual's value or tangent is part of a recorded computation.
    """
    if not isinstance(tensor, Tensor):
        raise TypeError(f"unpack_dual: expected a Tensor, got {type(tensor).__name__}")
    if level not in (None, 0):
        raise RuntimeError(f"unpack_dual: expected level 0, got {level}")
    current = _state.level
    if current is None:
        return UnpackedDualTensor(tensor, None)
    current.settle()
    if not tensor.requires_grad:
        return UnpackedDualTensor(tensor, None)
    tangent = current.tangent_of_dual(tensor)
    if tangent is not None:
        return UnpackedDualTensor(tensor.view_as(tensor) if current.recorded else tensor.detach(), tangent)
    if not _depends(tensor, current):
        return UnpackedDualTensor(tensor, None)
    tangent = current.push_forward(tensor)
    if current.recorded and not _native._is_forward_only(tensor):
        return UnpackedDualTensor(tensor.view_as(tensor), tangent)
    return UnpackedDualTensor(tensor.detach(), tangent.detach())


def _depends(tensor: Tensor, level: _Level) -> bool:
    befores = [made.before for made in level.made()]
    if not befores:
        return False
    seed = ts.zeros_like(tensor)
    with pushing():
        found = grad(tensor, befores, seed, retain_graph=True, allow_unused=True, create_graph=False)
    return any(g is not None for g in found)


use_jvp_rule(by_jvp)
