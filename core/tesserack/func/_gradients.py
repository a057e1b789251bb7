"""Gradients and products with Jacobians, as functions of functions."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial, wraps
from typing import Any

import tesserack as ts
from tesserack import Tensor, _native
from tesserack.autograd._run import grad as run_grad
from tesserack.autograd._whole import take, takers, whole, whole_made
from tesserack.autograd.function import batching
from tesserack.autograd.graph import disable_saved_tensors_hooks
from tesserack.func._batched import Unbatchable, bottom, lifted, rewrapped
from tesserack.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_unflatten

__all__ = ["grad", "grad_and_value", "jvp", "linearize", "vjp"]

_state = threading.local()
_HOOKS = "func: transforms don't yet support saved tensor hooks; call the transform outside of them"


@contextmanager
def level(forward: bool = False) -> Iterator[None]:
    """Within it, a transform runs: what inner ones give stays recorded, for it to differentiate.

    ``forward``: what is recorded keeps the values it saw, whatever is written to later. Saved-tensor hooks of the
    program would see tensors of a transform that is over when they unpack, and are refused.
    """
    _state.depth = depth() + 1
    outer, before = getattr(_state, "forward", 0), _native._forward_level(0)
    # Under no_grad tangents go on, and gradients do not: where both are taken, writes there are not recorded.
    alone = forward and depth() - 1 == outer and before != 2
    _native._forward_level(1 if alone else 2 if forward or before else 0)
    _state.forward = outer + forward
    if forward:
        _native._push_keeping_hooks()
    try:
        with ts.enable_grad(), nullcontext() if forward else disable_saved_tensors_hooks(_HOOKS):
            yield
    finally:
        _state.depth -= 1
        _state.forward -= forward
        _native._forward_level(before)
        if forward:
            _native._pop_keeping_hooks()


_CAPTURED = (
    "During a grad (vjp, jvp, grad, etc) transform, the function provided attempted to call in-place operation that "
    "would mutate a captured Tensor. This is not supported; please rewrite the function being transformed to "
    "explicitly accept the mutated Tensor(s) as inputs."
)


@contextmanager
def guarded(*trees: Any) -> Iterator[None]:
    """Within it, a transformed function runs, which may write to its arguments and to what it makes itself alone."""
    own = [bottom(x) for tree in trees for x in tree_leaves(tree) if isinstance(x, Tensor)]
    _native._push_write_guard(own, _CAPTURED)
    try:
        yield
    finally:
        _native._pop_write_guard()


def depth() -> int:
    """How many transforms are running."""
    return getattr(_state, "depth", 0)


def tracked(tree: Any, error: type[Exception] = RuntimeError) -> Any:
    """The same with tensors that gradients can be taken by: views of those that are recorded already, or new leaves.

    ``error`` is raised for tensors of integers, which have no gradient.
    """

    def track(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor):
            raise ValueError(f"func: expected tensors to differentiate by, got {type(leaf).__name__}")
        if not (leaf.is_floating_point() or leaf.is_complex()):
            raise error(f"func: Expected floating point or complex tensors to differentiate by, got {leaf.dtype}; only "
                        "those can require gradients")  # fmt: skip
        if not batching:
            return tracked_leaf(leaf)
        leaf = lifted(leaf)  # within a vmap that runs on all entries at once: a gradient for each of them
        return rewrapped(leaf, tracked_leaf(bottom(leaf)))

    def tracked_leaf(leaf: Tensor) -> Tensor:
        return leaf.view_as(leaf) if leaf.requires_grad else leaf.detach().requires_grad_()

    return tree_map(track, tree)


def outer_gradients(*trees: Any) -> bool:
    """Whether results are part of a larger computation: another transform runs, or an argument requires gradients.

    Never under ``no_grad``, which a transform obeys in what it gives, not in what it does.
    """
    return ts.is_grad_enabled() and _in_larger(*trees)


def _in_larger(*trees: Any) -> bool:
    return depth() > 0 or any(isinstance(x, Tensor) and x.requires_grad for tree in trees for x in tree_leaves(tree))


def released(tree: Any, keep: bool) -> Any:
    """Results without their record, unless they are part of a larger computation."""
    return tree if keep else tree_map(lambda x: _released(x) if isinstance(x, Tensor) else x, tree)


def _released(x: Tensor) -> Tensor:
    if x.requires_grad and not ts.is_grad_enabled():
        seen = x.view_as(x)  # which has tangents, where tangents are taken under no_grad
        if _native._is_forward_only(seen):
            return seen
    return x.detach()


def tensors_of(name: str, tree: Any, what: str) -> list[Tensor]:
    """The leaves of a tree, all tensors. ``RuntimeError`` otherwise."""
    leaves = tree_leaves(tree)
    for leaf in leaves:
        if not isinstance(leaf, Tensor):
            raise RuntimeError(f"{name}: expected {what} to hold tensors only, got {type(leaf).__name__}")
    return leaves


def outputs_of(name: str, output: Any) -> list[Tensor]:
    """The leaves of what a function returned: tensors, at least one. ``RuntimeError`` otherwise."""
    leaves = tensors_of(name, output, "the output")
    if not leaves:
        raise RuntimeError(f"{name}: expected a function that returns at least one tensor, got {output!r}")
    return leaves


def smooth_outputs_of(name: str, output: Any) -> list[Tensor]:
    """The same of what is pulled back: an integer has no cotangent, so ``RuntimeError`` for one."""
    leaves = outputs_of(name, output)
    for leaf in leaves:
        if not (leaf.is_floating_point() or leaf.is_complex()):
            raise RuntimeError(
                f"{name}: expected a function that returns floating-point or complex tensors, got {leaf.dtype}; "
                "return what has no derivative through has_aux"
            )
    return leaves


def gradients(outputs: list[Tensor], inputs: list[Tensor], cotangents: list[Tensor] | None = None) -> list[Tensor]:
    """Recorded gradients by ``inputs``, zeros where an output does not depend on one."""
    used = [k for k, y in enumerate(outputs) if y.requires_grad and has_gradient(bottom(y))]
    if not used:
        return [ts.zeros_like(x) for x in inputs]
    given: list[Tensor] | None
    if batching:  # entries do not depend on each other: the gradient of their sum has the gradient of each
        roots = [bottom(outputs[k]) for k in used]
        given = [y.new_ones(y.shape) for y in roots] if cotangents is None else [_beside(outputs[k], cotangents[k])
                                                                                 for k in used]  # fmt: skip
    else:
        roots = [outputs[k] for k in used]
        given = None if cotangents is None else [cotangents[k] for k in used]
    leaves = [bottom(x) for x in inputs]
    found = run_grad(roots, leaves, given, create_graph=True, allow_unused=True)
    filled = [ts.zeros_like(x) if g is None else g for x, g in zip(leaves, found, strict=True)]
    return [rewrapped(x, g) for x, g in zip(inputs, filled, strict=True)]


def _beside(output: Any, cotangent: Any) -> Tensor:
    """A cotangent for all entries of a batched output."""
    if bottom(output).shape != bottom(lifted(output)).shape:
        raise Unbatchable("an output that is the same for all entries")
    return bottom(lifted(cotangent))  # type: ignore[no-any-return]


def chosen(name: str, args: tuple[Any, ...], argnums: int | tuple[int, ...]) -> tuple[list[int], bool]:
    """Positions of the arguments to differentiate by, and whether one was asked for alone."""
    single = isinstance(argnums, int)
    if not single and not (isinstance(argnums, tuple) and argnums and all(isinstance(k, int) for k in argnums)):
        raise RuntimeError(f"{name}: expected argnums to be an int or a tuple of at least one, got {argnums!r}")
    wanted = (argnums,) if isinstance(argnums, int) else argnums
    places: list[int] = []
    for position in wanted:
        if not -len(args) <= position < len(args):
            raise RuntimeError(f"{name}: got argnum={position}, but only {len(args)} positional inputs")
        places.append(position % len(args))
    if len({*places}) < len(places):
        raise RuntimeError(f"{name}: expected every argument once, got argnums={argnums}")
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
    tensors_of(name, result[1], "aux")
    return result


def _named_as(func: Callable[..., Any]) -> Callable[[Callable[..., Any]], Any]:
    """What takes a function's name and signature; modules and partial functions have none."""
    return lambda wrapper: wraps(func)(wrapper) if callable(func) else wrapper


def grad_and_value(func: Callable[..., Any], argnums: int | tuple[int, ...] = 0, has_aux: bool = False) -> Any:
    """A function giving ``(gradients, value)`` of a scalar function; ``(gradients, (value, aux))`` with ``has_aux``.

    Gradients are by the positional arguments ``argnums``, which may be nested, and have their structure.
    ``RuntimeError`` unless the value is one tensor of one element and no dims.
    """

    @_named_as(func)
    @whole_made
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        keep = outer_gradients(args, kwargs)
        places, single = chosen("grad", args, argnums)
        with level():
            made, inputs = with_tracked(args, places)
            with guarded(args, kwargs):
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

    @_named_as(func)
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
    if takers:
        found = take(_vjp, (func, primals, has_aux), {}, computes=True)
        if found is not NotImplemented:
            shown, pulls, *aux = found
            return (shown, partial(_pull, pulls), *aux)
    larger, keep = _in_larger(primals), outer_gradients(primals)
    with level():
        inputs = [tracked(primal) for primal in primals]
        with guarded(primals):
            output, aux = split_aux("vjp", func(*inputs), has_aux)
    outputs = smooth_outputs_of("vjp", output)
    shape = tree_flatten(output)[1]

    def vjp_fn(cotangents: Any, retain_graph: bool = True, create_graph: bool | None = None) -> Any:
        given = tensors_of("vjp", cotangents, "the cotangents")
        if tree_flatten(cotangents)[1] != shape:
            raise RuntimeError("vjp: expected cotangents of the structure of the output")
        if [c.shape for c in given] != [y.shape for y in outputs]:
            raise RuntimeError(
                f"vjp: expected cotangents of shapes {[tuple(y.shape) for y in outputs]}, got "
                f"{[tuple(c.shape) for c in given]}"
            )
        inner = (larger and ts.is_grad_enabled()) or outer_gradients(given)
        with level():
            leaves, spec = tree_flatten(inputs)
            found = _filled(leaves, gradients(outputs, [x for x in leaves if _differentiable(x)], given))
        return tuple(released(tree_unflatten(found, spec), inner))

    shown = released(output, keep)
    return (shown, vjp_fn, released(aux, keep)) if has_aux else (shown, vjp_fn)


def _vjp(func: Callable[..., Any], primals: Any, has_aux: bool) -> Any:
    """Of a run that is captured: in the place of the function a tensor that has it, for it lives as long as it is
    needed."""
    shown, vjp_fn, *aux = vjp(func, *primals, has_aux=has_aux)
    pulls: Any = ts.empty(0)
    pulls.vjp_fn = vjp_fn
    return (shown, pulls, *aux)


@whole
def _pull(pulls: Any, *args: Any, **kwargs: Any) -> Any:
    return pulls.vjp_fn(*args, **kwargs)


def has_gradient(tensor: Tensor) -> bool:
    """Whether what runs backward now goes on from a tensor that requires gradients."""
    return not _native._is_forward_only(tensor) or getattr(_state, "pushing", False)


@contextmanager
def pushing() -> Iterator[None]:
    """What runs backward within it is for tangents, which go through what was computed under ``no_grad``."""
    before = _native._pushing(True)
    _state.pushing = True
    try:
        yield
    finally:
        _state.pushing = before
        _native._pushing(before)


def push_forward(outputs: list[Tensor], inputs: list[Tensor], tangents: list[Tensor]) -> list[Tensor]:
    """J v for each output: the backward pass is linear in its cotangents, and differentiated by them gives J."""
    smooth = [y for y in outputs if y.is_floating_point() or y.is_complex()]
    if batching:
        raise Unbatchable("a product with tangents")
    seeds = [ts.zeros_like(y).requires_grad_() for y in smooth]
    with pushing():
        pulled = gradients(smooth, inputs, seeds)
        pushed = iter(gradients(pulled, seeds, tangents) if seeds else [])
    return [next(pushed) if y.is_floating_point() or y.is_complex() else ts.zeros_like(y) for y in outputs]


def writable(tree: Any) -> Any:
    """Copies, which the function may write to in place: what is differentiated by may not be."""
    return tree_map(lambda x: x.clone() if isinstance(x, Tensor) else x, tree)


def write_back(primals: Any, handed: Any) -> None:
    """What a function wrote to its arguments, in the caller's tensors."""
    for primal, made in zip(tree_leaves(primals), tree_leaves(handed), strict=True):
        if isinstance(made, Tensor) and made._version and not primal.requires_grad:
            primal.copy_(made.detach())


def _depend(outputs: list[Tensor], inputs: list[Tensor]) -> None:
    """``RuntimeError`` for an output that no input has a part in."""
    leaves = [bottom(x) for x in inputs]
    for place, y in enumerate(outputs):
        root = bottom(y)
        found: Any = [None]
        if root.requires_grad:
            with pushing():
                found = run_grad([root], leaves, [ts.ones_like(root)], retain_graph=True, allow_unused=True)
        if all(g is None for g in found):
            raise RuntimeError(
                f"jvp: expected every output to depend on the primals, which strict=True asks for, got output {place} "
                f"of shape {tuple(y.shape)} that does not; strict=False gives it a product of zeros"
            )


@partial(whole, computes=True)
def jvp(func: Callable[..., Any], primals: Any, tangents: Any, *, strict: bool = False, has_aux: bool = False) -> Any:
    """``(output, J v)`` or ``(output, J v, aux)`` for tuples of primals and tangents of the same structure.

    By differentiating a backward pass, so that it takes functions that can be differentiated twice. What they do under
    ``no_grad`` counts as constant for gradients alone. ``RuntimeError`` with ``strict`` where an
    output does not depend on the primals.

    >>> import tesserack as ts
    >>> ts.func.jvp(ts.sin, (ts.zeros(2),), (ts.ones(2),))[1]
    tensor([1., 1.])
    """
    if not isinstance(primals, tuple) or not isinstance(tangents, tuple) or not primals:
        raise RuntimeError("jvp: expected tuples of primals and of tangents, of at least one each")
    if tree_flatten(primals)[1] != tree_flatten(tangents)[1]:
        raise RuntimeError("jvp: expected primals and tangents of the same structure")
    keep = outer_gradients(primals, tangents)
    with level(forward=True):
        tensors_of("jvp", primals, "the primals")
        inputs = [tracked(primal, ValueError) for primal in primals]
        leaves = tree_leaves(inputs)
        handed = writable(inputs)
        with guarded(primals, handed):
            output, aux = split_aux("jvp", func(*handed), has_aux)
        write_back(primals, handed)
        given = tensors_of("jvp", tangents, "the tangents")
        if [t.shape for t in given] != [x.shape for x in leaves]:
            raise RuntimeError(
                f"jvp: expected tangents of shapes {[tuple(x.shape) for x in leaves]}, got "
                f"{[tuple(t.shape) for t in given]}"
            )
        _, spec = tree_flatten(output)
        outputs = outputs_of("jvp", output)
        if strict:
            _depend(outputs, leaves)
        pushed = tree_unflatten(push_forward(outputs, leaves, given), spec)
    result = released(output, keep), released(pushed, keep)
    return (*result, released(aux, keep)) if has_aux else result


def linearize(func: Callable[..., Any], *primals: Any) -> tuple[Any, Callable[..., Any]]:
    """``(output, jvp_fn)``: ``jvp_fn(*tangents)`` gives J v at these primals without calling ``func`` again."""
    keep = outer_gradients(primals)
    with level(forward=True):
        inputs = [tracked(primal) for primal in primals]
        with guarded(primals):
            output = func(*inputs)
    leaves = tensors_of("linearize", inputs, "the primals")
    outputs = outputs_of("linearize", output)
    _, spec = tree_flatten(output)
    shape = tree_flatten(primals)[1]

    def jvp_fn(*tangents: Any) -> Any:
        given = tensors_of("linearize", tangents, "the tangents")
        if tree_flatten(tangents)[1] != shape:
            raise RuntimeError("linearize: expected tangents of the structure of the primals")
        if [(t.shape, t.dtype) for t in given] != [(x.shape, x.dtype) for x in leaves]:
            raise RuntimeError(
                f"linearize: expected tangents of {[(tuple(x.shape), x.dtype) for x in leaves]}, got "
                f"{[(tuple(t.shape), t.dtype) for t in given]}"
            )
        inner = (keep and ts.is_grad_enabled()) or outer_gradients(tangents)
        with level():
            pushed = push_forward(outputs, leaves, given)
        return released(tree_unflatten(pushed, spec), inner)

    return released(output, keep), jvp_fn
