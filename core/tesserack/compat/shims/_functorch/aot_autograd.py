"""``torch._functorch.aot_autograd``: functions and modules whose forward and backward graphs are given to compilers."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from tesserack import Tensor
from tesserack.func import functional_call
from tesserack.fx.experimental.proxy_tensor import make_fx
from tesserack.fx.graph_module import GraphModule
from tesserack.jit._compile.aot import aot_autograd, boxed_nop, make_boxed_func
from tesserack.nn.modules.module import Module
from tesserack.utils._pytree import tree_flatten, tree_unflatten

__all__ = [
    "aot_function",
    "aot_module",
    "aot_module_simplified",
    "boxed_nop",
    "make_boxed_compiler",
    "make_boxed_func",
]


def make_boxed_compiler(compiler: Callable[..., Any]) -> Callable[..., Any]:
    """A compiler whose functions take one list."""

    @functools.wraps(compiler)
    def call(graph: Any, inputs: Any) -> Any:
        return make_boxed_func(compiler(graph, inputs))

    return call


def aot_module_simplified(
    mod: GraphModule, args: Any, fw_compiler: Any, bw_compiler: Any = None, partition_fn: Any = None,
    decompositions: Any = None, **options: Any,
) -> Any:  # fmt: skip
    """What compilers for the forward and the backward graph make of a module, given as a backend is given it."""
    return aot_autograd(fw_compiler, bw_compiler, decompositions=decompositions)(mod, args)


def aot_function(
    fn: Callable[..., Any], fw_compiler: Any, bw_compiler: Any = None, partition_fn: Any = None,
    decompositions: Any = None, num_params_buffers: int = 0, keep_inference_input_mutations: bool = False,
    inference_compiler: Any = None, **options: Any,
) -> Callable[..., Any]:  # fmt: skip
    """A function whose graphs are made at its first call, for arguments like those, and given to the compilers."""
    made: list[tuple[Any, Any]] = []

    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        leaves, spec = tree_flatten((args, kwargs))
        places = [k for k, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
        given = [leaves[k] for k in places]
        if not made:
            made.append(_compiled(fn, leaves, places, spec, given))
        run, shape = made[0]
        return tree_unflatten([*run(*given)], shape)

    def _compiled(fn: Any, leaves: list[Any], places: list[int], spec: Any, given: list[Any]) -> tuple[Any, Any]:
        shapes: list[Any] = []

        def flat(*tensors: Any) -> Any:
            filled = [*leaves]
            for k, tensor in zip(places, tensors, strict=True):
                filled[k] = tensor
            args, kwargs = tree_unflatten(filled, spec)
            results, shape = tree_flatten(fn(*args, **kwargs))
            shapes.append(shape)
            return results

        graph = make_fx(flat, tracing_mode="fake")(*given)
        backend = aot_autograd(fw_compiler, bw_compiler, inference_compiler, decompositions)
        return backend(graph, given), shapes[0]

    return call


def aot_module(mod: Module, *args: Any, **kwargs: Any) -> Module:
    """A module of the same parameters and buffers, whose graphs are given to the compilers at its first call."""

    def call(params: Any, buffers: Any, args: Any, kwargs: Any) -> Any:
        return functional_call(mod, (params, buffers), args, kwargs)

    compiled = aot_function(call, *args, **kwargs)

    class AOTModule(Module):
        def __init__(self) -> None:
            super().__init__()
            self.orig_module = mod

        def forward(self, *args: Any, **kwargs: Any) -> Any:
            return compiled(dict(mod.named_parameters()), dict(mod.named_buffers()), args, kwargs)

    return AOTModule()
