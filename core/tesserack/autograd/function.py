"""``Function``: operations whose gradient is written in Python."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

from tesserack import _native
from tesserack._native import FunctionCtx, Tensor
from tesserack.autograd._whole import take, takers

__all__ = ["Function", "FunctionCtx", "once_differentiable"]


BackwardCFunction = FunctionCtx  # what PyTorch calls the nodes of functions in Python, which their contexts are


class VmapInfo(NamedTuple):
    """What the ``vmap`` of a custom function is told of the call of :func:`tesserack.vmap` it is in."""

    batch_size: int
    randomness: str


batching: list[VmapInfo] = []  # of calls of vmap that run on all entries at once; the innermost last
_vmap_rule: list[Callable[[Any, tuple[Any, ...]], Any]] = []  # one, as soon as there is vmap

_jvp_rule: list[Callable[[Any, tuple[Any, ...]], Any]] = []  # one, as soon as there are dual numbers


def use_jvp_rule(rule: Callable[[Any, tuple[Any, ...]], Any]) -> None:
    """Say what ``apply`` does of a function with a ``jvp``: ``rule(function, args)``; None where none is dual."""
    _jvp_rule[:] = [rule]


def use_vmap_rule(rule: Callable[[Any, tuple[Any, ...]], Any]) -> None:
    """Say what ``apply`` does within ``vmap``: ``rule(function, args)``, NotImplemented where no argument is mapped."""
    _vmap_rule[:] = [rule]


class _NodeClass:
    """The class of a function's nodes, ``Function._backward_cls``."""

    def __get__(self, instance: Any, owner: type) -> type[FunctionCtx]:
        return _native._node_class(owner.__name__)


class Function:
    """Base class of custom differentiable operations.

    Define ``forward(ctx, *args)`` and ``backward(ctx, *grads)`` as static methods, or ``forward(*args)`` with
    ``setup_context(ctx, inputs, output)``; call it as ``MyFunction.apply(*args)``. ``backward`` returns one gradient
    (or None) per argument of ``forward``; written with tensor operations, it can be differentiated again.

    >>> import tesserack as ts
    >>> class Square(ts.autograd.Function):
    ...     @staticmethod
    ...     def forward(ctx, x):
    ...         ctx.save_for_backward(x)
    ...         return x * x
    ...     @staticmethod
    ...     def backward(ctx, grad):
    ...         (x,) = ctx.saved_tensors
    ...         return 2 * x * grad
    >>> x = ts.tensor(3.0, requires_grad=True)
    >>> Square.apply(x).backward()
    >>> x.grad
    tensor(6.)
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        warnings.warn(
            f"{type(self)} should not be instantiated. Methods on autograd functions are all static, so you should "
            "invoke them on the class itself, by apply().",
            DeprecationWarning,
            stacklevel=2,
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """``RuntimeError``: how functions were called before they were static."""
        raise RuntimeError(
            "Legacy autograd function with non-static forward method is deprecated. Please use new-style autograd "
            "function with static forward method."
        )

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if cls.vjp is not Function.vjp:
            both = cls.backward is not Function.backward and not getattr(cls, "_backward_is_vjp", False)
            cls.backward = _refuse_both if both else cls.vjp  # type: ignore[method-assign]
            cls._backward_is_vjp = True

    @staticmethod
    def forward(*args: Any, **kwargs: Any) -> Any:
        """Compute the result; history is not recorded inside."""
        raise NotImplementedError("You must implement the forward function for custom autograd.Function.")

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> Any:
        """Save what backward needs, when ``forward`` takes no ctx."""
        raise NotImplementedError("setup_context is not implemented.")

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        """Turn the gradients of the results into those of the arguments."""
        raise NotImplementedError(
            "You must implement either the backward or vjp method for your custom autograd.Function "
            "to use it with backward mode AD."
        )

    vjp = backward

    _backward_cls = _NodeClass()
    _backward_is_vjp = False
    generate_vmap_rule = False

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *args: Any) -> Any:
        """Answer a call under :func:`tesserack.vmap` for all entries: the result, and the dim that counts them in it.

        ``info`` has ``batch_size`` and ``randomness``; ``in_dims`` has for each argument the dim of its entries, or
        None. Without one, ``forward`` is called for each entry.
        """
        raise NotImplementedError(
            "To use autograd.Function with vmap, you must either override the vmap staticmethod or set "
            "generate_vmap_rule=True."
        )

    @staticmethod
    def jvp(ctx: Any, *grad_inputs: Any) -> Any:
        """The tangents of the results for those of the arguments, within a dual level.

        Asked for where there is no ``backward``, or no gradients of the tangents are recorded.
        """
        raise NotImplementedError(
            "You must implement the jvp function for custom autograd.Function to use it with forward mode AD."
        )

    @classmethod
    def apply(cls, *args: Any, **kwargs: Any) -> Any:
        """Run ``forward`` on the arguments and record ``backward`` for them."""
        if kwargs:
            args = _in_order(cls, args, kwargs)
        separate = cls.setup_context is not Function.setup_context
        # What setup_context is given are all arguments, with those that were left out.
        if separate and getattr(cls.forward, "__defaults__", None) and len(args) < cls.forward.__code__.co_argcount:
            args = _in_order(cls, args, {})
        if batching:
            found = _vmap_rule[0](cls, args)
            if found is not NotImplemented:
                return found
        if (cls.jvp is not Function.jvp or cls.backward is Function.backward) and _jvp_rule:
            found = _jvp_rule[0](cls, args)
            if found is not None:
                return found
        if takers:
            found = take(_native._function_apply, (cls, separate, *args), {}, True, not _is_recorded(args))
            if found is not NotImplemented:
                return found
        return _native._function_apply(cls, separate, *args)


def _is_recorded(args: tuple[Any, ...]) -> bool:
    return _native.is_grad_enabled() and any(isinstance(arg, Tensor) and arg.requires_grad for arg in args)


def _in_order(cls: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """Arguments given by name at their places in ``forward``, whose first parameter may be the context."""
    import inspect

    own = cls.setup_context is Function.setup_context
    bound = inspect.signature(cls.forward).bind(*((None, *args) if own else args), **kwargs)
    bound.apply_defaults()
    return bound.args[1:] if own else bound.args


def _refuse_both(ctx: Any, *grads: Any) -> Any:
    raise RuntimeError(
        "Implementing both 'backward' and 'vjp' for a custom Function is not allowed. You should only implement one "
        "of them."
    )


class _OnceOnly(Function):
    """Passes values through; its own backward says that there is no second derivative."""

    @staticmethod
    def forward(ctx: Any, count: int, *values: Any) -> Any:
        return tuple(value.detach() if isinstance(value, Tensor) else value for value in values[:count])

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        raise RuntimeError("trying to differentiate twice a function that was marked with @once_differentiable")


def once_differentiable(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator for ``backward``: it may use anything, recorded or not, and differentiating it again is an error."""

    @functools.wraps(fn)
    def wrapper(ctx: Any, *grads: Any) -> Any:
        with _native.no_grad():
            results = fn(ctx, *grads)
        wanted = any(isinstance(grad, Tensor) and grad.requires_grad for grad in grads)
        if not _native.is_grad_enabled() or not wanted:
            return results
        several = isinstance(results, tuple)
        found = [_requiring_grad(result) for result in (results if several else (results,))]
        # They hang on the gradients too: a derivative by these, as forward mode takes it, is an error and not nothing.
        marked = _OnceOnly.apply(len(found), *found, *grads)
        return marked if several else marked[0]

    return wrapper


def _requiring_grad(value: Any) -> Any:
    if isinstance(value, Tensor) and value.is_floating_point():
        return value.detach().requires_grad_()
    return value


def _nested_map(condition: Callable[[Any], bool], fn: Callable[[Any], Any], condition_msg: str | None = None) -> Any:
    """A function that applies ``fn`` to what fulfils the condition, within lists, tuples and dicts."""

    def mapped(o: Any) -> Any:
        if condition(o):
            return fn(o)
        if o is None:
            return None
        if isinstance(o, (list, tuple)):
            parts = [mapped(part) for part in o]
            return type(o)(*parts) if hasattr(o, "_fields") else type(o)(parts)
        if isinstance(o, dict):
            return {key: mapped(value) for key, value in o.items()}
        known = "" if condition_msg is None else f"; accepted types: {condition_msg}, or lists and tuples of them"
        raise ValueError(f"auto nesting doesn't know how to process an input object of type {type(o).__name__}{known}")

    return mapped
