"""``make_graphed_callables``: modules and functions whose forward and backward work are graphs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tesserack
from tesserack.autograd.function import Function, once_differentiable
from tesserack.utils import _pytree

from tesserack_cuda.graphs import graph_pool_handle

__all__ = ["Makers", "make_graphed_callables"]


class Makers(NamedTuple):
    """What is bound to one backend: the classes of graphs, and the backend's module."""

    graph: Any
    cuda_graph: Any
    module: Any


class _Captured(NamedTuple):
    """The graphs of one callable, and the tensors that they read and write."""

    forward: Any
    backward: Any
    inputs: tuple[Any, ...]  # arguments, then parameters
    n_arguments: int
    outputs: tuple[Any, ...]
    spec: Any
    grad_outputs: tuple[Any, ...]
    grad_inputs: tuple[Any, ...]


def make_graphed_callables(
    makers: Makers,
    callables: Any,
    sample_args: Any,
    num_warmup_iters: int = 3,
    allow_unused_input: bool = False,
    pool: Any = None,
) -> Any:
    """Replace callables, one or a tuple, by such that run as graphs; of modules, the ``forward`` is replaced.

    Args:
        makers: see there.
        callables: functions or modules without hooks, in the order in which they will run.
        sample_args: a tuple of tensors for each, whose shapes and ``requires_grad`` later arguments have too.
        num_warmup_iters: how often each runs before it is captured.
        allow_unused_input: whether inputs may be without influence on the outputs.
        pool: a token, see ``graph_pool_handle``; by default a new one, which all the graphs share.

    Raises:
        RuntimeError: within autocast whose cache is enabled.
        AssertionError: for hooks, buffers that require gradients, and arguments other than tensors.
    """
    if (
        tesserack.is_autocast_enabled(makers.module.current_stream().device.type)
        and tesserack.is_autocast_cache_enabled()
    ):
        raise RuntimeError(
            "make_graphed_callables does not support the autocast caching. Please set `cache_enabled=False`."
        )
    several = isinstance(callables, tuple)
    functions = callables if several else (callables,)
    arguments = sample_args if several else (sample_args,)
    surfaces = [_surface(function, given) for function, given in zip(functions, arguments, strict=True)]
    _warm_up(makers, functions, arguments, surfaces, num_warmup_iters, allow_unused_input)
    captured = _capture(makers, functions, arguments, surfaces, allow_unused_input, pool)
    made = tuple(_replaced(function, one) for function, one in zip(functions, captured, strict=True))
    return made if several else made[0]


def _surface(function: Any, arguments: Any) -> tuple[Any, ...]:
    """All tensors that a callable reads: its arguments and parameters."""
    parameters: tuple[Any, ...] = ()
    if isinstance(function, tesserack.nn.Module):
        if function._backward_hooks or function._forward_hooks or function._forward_pre_hooks:
            raise AssertionError(
                "Modules must not have hooks registered at the time they are passed. However, registering hooks on "
                "modules after passing them through make_graphed_callables is allowed."
            )
        if any(buffer.requires_grad for buffer in function.buffers()):
            raise AssertionError(
                "In any nn.Module passed to make_graphed_callables, only parameters may be trainable. All buffers must "
                "have requires_grad=False."
            )
        parameters = tuple(function.parameters())
    leaves = tuple(_pytree.tree_leaves(arguments))
    if not all(isinstance(leaf, tesserack.Tensor) for leaf in leaves):
        raise AssertionError(
            "In the beta API, sample_args for each callable must contain only Tensors. Other types are not allowed."
        )
    return leaves + parameters


def _trained(tensors: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(x for x in tensors if x is not None and x.requires_grad)


def _gradients(outputs: Sequence[Any], inputs: Sequence[Any], seeds: Sequence[Any], allow_unused: bool) -> Any:
    return tesserack.autograd.grad(
        outputs=_trained(outputs),
        inputs=_trained(inputs),
        grad_outputs=tuple(seed for seed in seeds if seed is not None),
        only_inputs=True,
        allow_unused=allow_unused,
    )


def _seeds(outputs: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(tesserack.empty_like(x) if x.requires_grad else None for x in outputs)


def _warm_up(
    makers: Makers, functions: Any, arguments: Any, surfaces: Any, iterations: int, allow_unused: bool
) -> None:
    makers.module.synchronize()
    with tesserack.stream(makers.module.Stream()):
        for function, given, surface in zip(functions, arguments, surfaces, strict=True):
            for _ in range(iterations):
                outputs = _pytree.tree_leaves(function(*given))
                if _trained(outputs) and _trained(surface):
                    _gradients(outputs, surface, _seeds(outputs), allow_unused)
                del outputs
    makers.module.synchronize()


def _capture(
    makers: Makers, functions: Any, arguments: Any, surfaces: Any, allow_unused: bool, pool: Any
) -> list[_Captured]:
    """All forwards in order, then all backwards in the reverse one, as they will run."""
    forwards, pool = [], graph_pool_handle() if pool is None else pool
    for function, given in zip(functions, arguments, strict=True):
        made = makers.cuda_graph()
        with makers.graph(made, pool=pool):
            outputs = function(*given)
        forwards.append((made, *_pytree.tree_flatten(outputs)))
    found = []
    for (forward, outputs, spec), given, surface in reversed(list(zip(forwards, arguments, surfaces, strict=True))):
        backward, seeds, gradients = None, _seeds(outputs), iter(())
        if _trained(outputs) and _trained(surface):
            backward = makers.cuda_graph()
            with makers.graph(backward, pool=pool):
                gradients = iter(_gradients(outputs, surface, seeds, allow_unused))
        of_inputs = tuple(next(gradients, None) if x.requires_grad else None for x in surface)
        count = len(_pytree.tree_leaves(given))
        found.append(_Captured(forward, backward, surface, count, tuple(outputs), spec, seeds, of_inputs))
    return found[::-1]


def _graphed(captured: _Captured) -> Callable[..., Any]:
    """A function that copies its arguments to where the graph reads them, and replays it."""

    class Graphed(Function):
        @staticmethod
        def forward(ctx: Any, *inputs: Any) -> Any:
            for static, given in zip(captured.inputs[: captured.n_arguments], inputs, strict=False):
                if static is not given and static.data_ptr() != given.data_ptr():
                    static.copy_(given)
            captured.forward.replay()
            return tuple(x.detach() for x in captured.outputs)

        @staticmethod
        @once_differentiable
        def backward(ctx: Any, *grads: Any) -> Any:
            for static, given in zip(captured.grad_outputs, grads, strict=True):
                if static is not None and static.data_ptr() != given.data_ptr():
                    static.copy_(given)
            if captured.backward is not None:
                captured.backward.replay()
            return tuple(None if x is None else x.detach() for x in captured.grad_inputs)

    parameters = captured.inputs[captured.n_arguments :]

    def functionalized(*arguments: Any) -> Any:
        results = Graphed.apply(*_pytree.tree_leaves(arguments), *parameters)
        return _pytree.tree_unflatten(list(results), captured.spec)

    return functionalized


def _replaced(function: Any, captured: _Captured) -> Any:
    graphed = _graphed(captured)
    if not isinstance(function, tesserack.nn.Module):
        return graphed
    training, eager = function.training, function.forward

    def forward(*arguments: Any, **keywords: Any) -> Any:
        """The graph, in the mode that the module was captured in."""
        return graphed(*arguments) if function.training == training else eager(*arguments, **keywords)

    setattr(function, "forward", forward)  # noqa: B010, since a class has the method
    return function
