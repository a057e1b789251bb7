"""Gradients and products with Jacobians, as functions of functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.autograd._products import depth, gradients, level, push_forward
from tesserack.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_unflatten

__all__ = ["grad", "grad_and_value", "jvp", "linearize", "vjp"]


def tracked(tree: Any, error: type[Exception] = RuntimeError) -> Any:
    """The same with tensors that gradients can be taken by: views of those that are recorded already, or new leaves.

    ``error`` is raised for tensors of integers, which have no gradient.
    """

    def track(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor):
            return leaf
        if not (leaf.is_floating_point() or leaf.is_complex()):
            raise error(f"func: Expected floating point or complex tensors to differentiate by, got {leaf.dtype}; only "
                        "those can require gradients")  # fmt: skip
        return leaf.view_as(leaf) if leaf.requires_grad else leaf.detach().requires_grad_()

    return tree_map(track, tree)


def outer_gradients(*trees: Any) -> bool:
    """Whether results are part of a larger computation: another transform runs, or an argument requires gradients.

    Never under ``no_grad``, which a transform obeys in what it gives, not in what it does.
    """
    if not ts.is_grad_enabled():
        return False
    return depth() > 0 or any(isinstance(x, Tensor) and x.requires_grad for tree in trees for x in tree_leaves(tree))


def released(tree: Any, keep: bool) -> Any:
    """Results without their record, unless they are part of a larger computation."""
    return tree if keep else tree_map(lambda x: x.detach() if isinstance(x, Tensor) else x, tree)


def tensors_of(name: str, tree: Any, what: str) -> list[Tensor]:
    """The leaves of a tree, all tensors. ``RuntimeError`` otherwise."""
    leaves = tree_leaves(tree)
    for leaf in leaves:
        if not isinstance(leaf, Tensor):
            raise RuntimeError(f"{name}: expected {what} to hold tensors only, got {type(leaf).__name__}")
    return leaves


def chosen(name: str, args: tuple[Any, ...], argnums: int | tuple[int, ...]) -> tuple[list[int], bool]:
    """Positions of the arguments to differentiate by, and whether one was asked for alone."""
    single = isinstance(argnums, int)
    wanted = (argnums,) if isinstance(argnums, int) else tuple(argnums)
    places = []
    for position in wanted:
        if not -len(args) <= position < len(args):
            raise RuntimeError(f"{name}: got argnum={position}, but only {len(args)} positional inputs")
        places.append(position % len(args))
    return places, single


def with_tracked(args: tuple[Any, ...], places: list[int]) -> tuple[list[Any], list[Any]]:
    """The arguments with those at ``places`` tracked, and these alone."""
    made = list(args)
    for place in places:
        made[place] = tracked(made[place])
    return made, [made[place] for place in places]


def split_aux(name: str, result: Any, has_aux: bool) -> tuple[Any, Any]:
    """The output of a function, and what it gives besides if ``has_aux``."""
    if not has_aux:
        return result, None
    if not isinstance(result, tuple) or len(result) != 2:
        raise RuntimeError(f"{name}: expected the function to return (output, aux) with has_aux=True")
    return result


def grad_and_value(func: Callable[..., Any], argnums: int | tuple[int, ...] = 0, has_aux: bool = False) -> Any:
    """A function giving ``(gradients, value)`` of a scalar function; ``(gradients, (value, aux))`` with ``has_aux``.

    Gradients are by the positional arguments ``argnums``, which may be nested, and have their structure.
    ``RuntimeError`` unless the value is one tensor of one element and no dims.
    """

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        keep = outer_gradients(args, kwargs)
        places, single = chosen("grad", args, argnums)
        with level():
            made, inputs = with_tracked(args, places)
            value, aux = split_aux("grad", func(*made, **kwargs), has_aux)
            if not isinstance(value, Tensor):
                raise RuntimeError(f"grad: expected the function to return a tensor, got {type(value).__name__}")
            if value.dim() != 0:
                raise RuntimeError(f"grad: expected a scalar output, got shape {tuple(value.shape)}")
            leaves, spec = tree_flatten(inputs)
            found = _filled(leaves, gradients([value], [x for x in leaves if _differentiable(x)]))
        result = released(tree_unflatten(found, spec), keep)
        result = result[0] if single else tuple(result)
        value, aux = released(value, keep), released(aux, keep)
        return (result, (value, aux)) if has_aux else (result, value)

    return wrapper


def _differentiable(leaf: Any) -> bool:
    return isinstance(leaf, Tensor) and leaf.requires_grad


def _filled(leaves: list[Any], found: list[Tensor]) -> list[Any]:
    """Gradients at the places of differentiable leaves; zeros for other tensors."""
    left = iter(found)
    return [next(left) if _differentiable(x) else ts.zeros_like(x) if isinstance(x, Tensor) else None for x in leaves]


def grad(func: Callable[..., Any], argnums: int | tuple[int, ...] = 0, has_aux: bool = False) -> Any:
    """A function giving the gradients of a scalar function; ``(gradients, aux)`` with ``has_aux``.

    >>> import tesserack as ts
    >>> ts.func.grad(ts.func.grad(lambda x: x**3))(ts.tensor(2.0))
    tensor(12.)
    """
    both = grad_and_value(func, argnums, has_aux)

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        found, value = both(*args, **kwargs)
        return (found, value[1]) if has_aux else found

    return wrapper


def vjp(func: Callable[..., Any], *primals: Any, has_aux: bool = False) -> Any:
    """``(output, vjp_fn)`` or ``(output, vjp_fn, aux)``: ``vjp_fn(cotangents)`` gives a gradient for each primal.

    >>> import tesserack as ts
    >>> _, back = ts.func.vjp(ts.sin, ts.zeros(2))
    >>> back(ts.ones(2))
    (tensor([1., 1.]),)
    """
    keep = outer_gradients(primals)
    with level():
        inputs = [tracked(primal) for primal in primals]
        output, aux = split_aux("vjp", func(*inputs), has_aux)
    outputs = tensors_of("vjp", output, "the output")

    def vjp_fn(cotangents: Any, retain_graph: bool = True, create_graph: bool | None = None) -> Any:
        given = tensors_of("vjp", cotangents, "the cotangents")
        if [c.shape for c in given] != [y.shape for y in outputs]:
            raise RuntimeError(
                f"vjp: expected cotangents of shapes {[tuple(y.shape) for y in outputs]}, got "
                f"{[tuple(c.shape) for c in given]}"
            )
        inner = (keep and ts.is_grad_enabled()) or outer_gradients(given)
        with level():
            leaves, spec = tree_flatten(inputs)
            found = _filled(leaves, gradients(outputs, [x for x in leaves if _differentiable(x)], given))
        return tuple(released(tree_unflatten(found, spec), inner))

    shown = released(output, keep)
    return (shown, vjp_fn, released(aux, keep)) if has_aux else (shown, vjp_fn)


def _writable(tree: Any) -> Any:
    """Copies, which the function may write to in place: what is differentiated by may not be."""
    return tree_map(lambda x: x.clone() if isinstance(x, Tensor) else x, tree)


def _write_back(primals: Any, handed: Any) -> None:
    """What a function wrote to its arguments, in the caller's tensors."""
    for primal, made in zip(tree_leaves(primals), tree_leaves(handed), strict=True):
        if isinstance(made, Tensor) and made._version and not primal.requires_grad:
            primal.copy_(made.detach())


def jvp(func: Callable[..., Any], primals: Any, tangents: Any, *, strict: bool = False, has_aux: bool = False) -> Any:
    """``(output, J v)`` or ``(output, J v, aux)`` for tuples of primals and tangents of the same structure.

    By differentiating a backward pass, so that it takes functions that can be differentiated twice.

    >>> import tesserack as ts
    >>> ts.func.jvp(ts.sin, (ts.zeros(2),), (ts.ones(2),))[1]
    tensor([1., 1.])
    """
    if not isinstance(primals, tuple) or not isinstance(tangents, tuple):
        raise RuntimeError("jvp: expected tuples of primals and of tangents")
    keep = outer_gradients(primals, tangents)
    with level():
        inputs = [tracked(primal, ValueError) for primal in primals]
        leaves = tensors_of("jvp", inputs, "the primals")
        handed = _writable(inputs)
        output, aux = split_aux("jvp", func(*handed), has_aux)
        _write_back(primals, handed)
        given = tensors_of("jvp", tangents, "the tangents")
        if [t.shape for t in given] != [x.shape for x in leaves]:
            raise RuntimeError(
                f"jvp: expected tangents of shapes {[tuple(x.shape) for x in leaves]}, got "
                f"{[tuple(t.shape) for t in given]}"
            )
        _, spec = tree_flatten(output)
        outputs = tensors_of("jvp", output, "the output")
        pushed = tree_unflatten(push_forward(outputs, leaves, given), spec)
    result = released(output, keep), released(pushed, keep)
    return (*result, released(aux, keep)) if has_aux else result


def linearize(func: Callable[..., Any], *primals: Any) -> tuple[Any, Callable[..., Any]]:
    """``(output, jvp_fn)``: ``jvp_fn(*tangents)`` gives J v at these primals without calling ``func`` again."""
    keep = outer_gradients(primals)
    with level():
        inputs = [tracked(primal) for primal in primals]
        output = func(*inputs)
    leaves = tensors_of("linearize", inputs, "the primals")
    outputs = tensors_of("linearize", output, "the output")
    _, spec = tree_flatten(output)

    def jvp_fn(*tangents: Any) -> Any:
        given = tensors_of("linearize", tangents, "the tangents")
        inner = (keep and ts.is_grad_enabled()) or outer_gradients(tangents)
        with level():
            pushed = push_forward(outputs, leaves, given)
        return released(tree_unflatten(pushed, spec), inner)

    return released(output, keep), jvp_fn
