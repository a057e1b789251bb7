"""``trace`` and ``trace_module``."""

from __future__ import annotations

import inspect
import re
import warnings
from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.jit import _recording
from tesserack.jit._apart import apart
from tesserack.jit._python_call import OPERATOR
from tesserack.jit._script import ScriptModule, TracingCheckError
from tesserack.jit._traced import Program, TopLevelTracedModule, TracedFunction, places_of, slots_of
from tesserack.nn.modules.module import Module
from tesserack.sparse._parts import is_sparse
from tesserack.utils import _pytree as pytree

__all__ = ["trace", "trace_module"]


def trace(
    func: Any,
    example_inputs: Any = None,
    optimize: Any = None,
    check_trace: bool = True,
    check_inputs: Sequence[Any] | None = None,
    check_tolerance: float = 1e-5,
    strict: bool = True,
    _force_outplace: bool = False,
    _module_class: Any = None,
    _compilation_unit: Any = None,
    example_kwarg_inputs: dict[str, Any] | None = None,
    _store_inputs: bool = True,
) -> Any:
    """Run a function or module once on ``example_inputs`` and give what it did, as a program that runs without it.

    What it does with tensors is written down, call by call; whatever else Python does (branches, loops, prints)
    happens once, now. Sizes follow those of later inputs where they come from ``x.shape``; other dtypes and devices
    are run as operators take them. Parameters and buffers of a module are those it has when it is called, gradients
    flow as in eager, random numbers are drawn anew.

    Arguments:
        example_inputs: a tensor or a tuple of arguments; tensors, or lists, tuples and dicts of them.
        check_trace: trace a second time, and compare graphs and results on ``check_inputs`` (the examples, if none).
        check_tolerance: how far results may lie apart.
        strict: refuse lists and dicts as results.
        example_kwarg_inputs: arguments by name, instead or besides.

    Raises:
        RuntimeError: for arguments or results that are no tensors, and for what cannot be written down.
        TracingCheckError: where the second trace differs.

    >>> import tesserack as ts
    >>> halves = ts.jit.trace(lambda x: x.view(2, x.shape[0] // 2).sum(1), ts.arange(4.0))
    >>> halves(ts.arange(6.0))
    tensor([ 3., 12.])
    """
    _deprecated("trace")
    if isinstance(func, (TopLevelTracedModule, TracedFunction)):
        warnings.warn(
            "The input to trace is already a ScriptModule, tracing it is a no-op. Returning the object as is.",
            stacklevel=2,
        )
        return func
    if example_inputs is None and not isinstance(example_kwarg_inputs, dict):
        raise RuntimeError("jit.trace: expected example_inputs, or example_kwarg_inputs as a dict, got neither")
    options = (check_trace, check_inputs, check_tolerance, strict)
    args = () if example_inputs is None else _as_tuple(example_inputs)
    kwargs = dict(example_kwarg_inputs or {})
    if isinstance(func, Module):
        return _traced_module(func, {"forward": (args, kwargs)}, options)
    owner = getattr(func, "__self__", None)
    if isinstance(owner, Module) and func.__name__ == "forward":
        return _traced_module(owner, {"forward": (args, kwargs)}, options)
    return TracedFunction(_program(func, args, kwargs, None, options), func)


def trace_module(
    mod: Any,
    inputs: dict[str, Any],
    optimize: Any = None,
    check_trace: bool = True,
    check_inputs: Sequence[dict[str, Any]] | None = None,
    check_tolerance: float = 1e-5,
    strict: bool = True,
    _force_outplace: bool = False,
    _module_class: Any = None,
    _compilation_unit: Any = None,
    example_inputs_is_kwarg: bool = False,
    _store_inputs: bool = True,
) -> Any:
    """As :func:`trace` for several methods of a module: ``inputs`` has the example arguments of each by name.

    >>> import tesserack as ts
    >>> class Net(ts.nn.Module):
    ...     def forward(self, x): return x + 1
    ...     def twice(self, x): return x * 2
    >>> net = ts.jit.trace_module(Net(), {"forward": ts.ones(2), "twice": ts.ones(2)})
    >>> net(ts.ones(2)), net.twice(ts.ones(2))
    (tensor([2., 2.]), tensor([2., 2.]))
    """
    _deprecated("trace_method")
    if not isinstance(mod, Module):
        raise AttributeError("expected torch.nn.Module as the first argument")
    if not isinstance(inputs, dict):
        raise AttributeError("expected a dictionary of (method_name, input) pairs")
    examples = {}
    for name, given in inputs.items():
        examples[name] = ((), dict(given)) if example_inputs_is_kwarg else (_as_tuple(given), {})
    checks = None if check_inputs is None else {n: [c[n] for c in check_inputs if n in c] for n in inputs}
    return _traced_module(mod, examples, (check_trace, checks, check_tolerance, strict))


def _deprecated(name: str) -> None:
    warnings.warn(
        f"`torch.jit.{name}` is deprecated. Please switch to `torch.compile` or `torch.export`.",
        DeprecationWarning,
        stacklevel=3,
    )


def _as_tuple(inputs: Any) -> tuple[Any, ...]:
    if isinstance(inputs, (Tensor, dict)):
        return (inputs,)
    return inputs if isinstance(inputs, tuple) else tuple(inputs)


def _traced_module(module: Module, examples: dict[str, tuple[Any, Any]], options: Any) -> TopLevelTracedModule:
    if isinstance(module, ScriptModule) and type(module).__name__ == "TracedModule":
        raise RuntimeError("jit.trace: expected a module, got a part of one that was traced; trace the original")
    for part in module.modules():
        if part._backward_hooks or part._backward_pre_hooks:
            raise ValueError(
                f"jit.trace: Modules that have backward hooks assigned can't be compiled: got {type(part).__name__}; "
                "remove the hooks, or register them with tensors after the call"
            )
    check, inputs, tolerance, strict = options
    programs = {}
    for name, (args, kwargs) in examples.items():
        function = module if name == "forward" else getattr(module, name)
        some = inputs.get(name) if isinstance(inputs, dict) else inputs
        programs[name] = _program(function, args, kwargs, module, (check, some, tolerance, strict), name)
    return TopLevelTracedModule(module, programs)


def _argument_names(function: Any, module: Module | None, name: str) -> list[str]:
    target = getattr(module, name) if module is not None else function
    try:
        parameters = inspect.signature(target).parameters.values()
    except (TypeError, ValueError):  # a builtin
        return []
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [p.name for p in parameters if p.kind in kinds]


def _leaf_names(args: tuple[Any, ...], kwargs: dict[str, Any], positional: list[str]) -> list[str]:
    """A name for every tensor: the argument's, with a number where it holds several."""
    named = [(positional[k] if k < len(positional) else f"argument_{k + 1}", arg) for k, arg in enumerate(args)]
    names: list[str] = []
    for name, arg in (*named, *kwargs.items()):
        leaves = pytree.tree_leaves(apart(arg))
        plain = len(leaves) == 1 and leaves[0] is arg
        names += [name] if plain else [f"{name}_{k}" for k in range(len(leaves))]
    return [re.sub(r"\W", "_", name) for name in names]


def _program(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    module: Module | None,
    options: Any,
    method: str = "",
) -> Program:
    check, inputs, tolerance, strict = options
    name = method or getattr(function, "__name__", type(function).__name__)
    name = re.sub(r"\W", "_", name)
    positional = _argument_names(function, module, name)

    def once(args: tuple[Any, ...] = args, kwargs: dict[str, Any] = kwargs) -> _recording.Recording:
        return _recording.record(function, args, kwargs, _leaf_names(args, kwargs, positional), strict, module)

    places = places_of(module)  # as it was before: a program may put other tensors there
    recording = once()
    slots = slots_of(recording.graph, places)
    for slot, index in zip(slots, recording.graph.captures, strict=True):
        if slot is not None:
            recording.graph.rename(index, ".".join(filter(None, slot)))
    program = Program(name, recording, slots)
    program.positional = positional
    if check:
        state = _state_of(module)
        try:
            with ts.random.fork_rng():
                _check_graph(recording, once())
                for given in inputs if inputs is not None else [None]:
                    some = (args, kwargs) if given is None else (_as_tuple(given), {})
                    if given is not None:
                        _check_calls(recording, once(*some))
                    _check_results(program, function, *some, module, tolerance)
        finally:
            _restore(state)
    return program


# --- checks --------------------------------------------------------------------------------------------------------


def _state_of(module: Module | None) -> list[tuple[Tensor, Tensor]]:
    return [] if module is None else [(b, b.detach().clone()) for b in module.buffers()]


def _restore(state: list[tuple[Tensor, Tensor]]) -> None:
    with ts.no_grad():
        for buffer, before in state:
            if is_sparse(buffer) or not buffer.equal(before):
                buffer.copy_(before)


def _lines(graph: Any) -> list[str]:
    """Without names, and lines of the program, which say nothing of what it does."""
    graph = graph.dissolved(OPERATOR)  # numbers of calls are of each run
    return [re.sub(r"  #.*", "", line) for line in str(graph).split("\n")]


def _check_graph(first: _recording.Recording, second: _recording.Recording) -> None:
    one, other = _lines(first.graph)[1:], _lines(second.graph)[1:]
    full, full_other = str(first.graph).split("\n")[1:], str(second.graph).split("\n")[1:]
    for k, line in enumerate(one):
        if k >= len(other) or line != other[k]:
            now = full_other[k].strip() if k < len(other) else "(the end)"
            text = f"First diverging operator:\nNode diff:\n\t- {full[k].strip()}\n\t+ {now}\n"
            raise TracingCheckError(f"Graph diff:\n{text}", None)
    for k, (a, b) in enumerate(zip(first.graph.captured, second.graph.captured, strict=False)):
        if first.graph.constant[k] and not (a.shape == b.shape and ts.allclose(a, b, equal_nan=True)):
            value = f"%{first.graph.captures[k]}"
            where = next((line.strip() for line in full if f"({value}" in line or f" {value}" in line), value)
            raise TracingCheckError(None, f"Node:\n\t{where}\nTensor {value} was {a} and then {b}")


def _calls(recording: _recording.Recording) -> list[str]:
    """What is called with what, in order: no types, which are of the inputs, and no decisions."""
    try:
        lines = _lines(recording.graph.outer_level())
    except RuntimeError:  # it holds a backward pass, which is for some sizes
        return []
    calls = [line.strip().rpartition(" = ")[2] for line in lines[1:]]
    return [call for call in calls if not re.match(r"size\.(eq|ne|lt|le|gt|ge)\(", call)]


def _check_calls(first: _recording.Recording, second: _recording.Recording) -> None:
    """Whether the program makes the same calls for other inputs."""
    one, other = _calls(first), _calls(second)
    for a, b in zip_longest(one, other, fillvalue="(the end)"):
        if a != b:
            raise TracingCheckError(f"Graph diff:\nFirst diverging operator:\nNode diff:\n\t- {a}\n\t+ {b}\n", None)


def _check_results(
    program: Program, function: Callable[..., Any], args: Any, kwargs: Any, module: Module | None, tolerance: float
) -> None:
    def run(called: Callable[..., Any]) -> list[Any]:
        leaves, tree = pytree.tree_flatten((args, kwargs))
        own_args, own_kwargs = pytree.tree_unflatten([_recording._cloned(leaf) for leaf in leaves], tree)
        return [ts.as_tensor(leaf) for leaf in pytree.tree_leaves(called(*own_args, **own_kwargs))]

    modules = {} if module is None else dict(module.named_modules(remove_duplicate=False))
    state = _state_of(module)
    expected = run(function)
    _restore(state)
    got = run(lambda *a, **k: program.run(a, k, modules))
    for k, (a, b) in enumerate(zip(got, expected, strict=True)):
        if difference := _difference(a, b, tolerance):
            _recording.warn_where_it_stands(
                f"Output nr {k + 1}. of the traced function does not match the corresponding output of the Python "
                f"function. Detailed error:\n{difference}"
            )
            return _warn_of_chance(program)


def _difference(a: Tensor, b: Tensor, tolerance: float) -> str:
    """In words, or nothing."""
    a, b = (t.to_dense() if is_sparse(t) else t for t in (a, b))
    if a.shape != b.shape:
        return f"The values for attribute 'shape' do not match: {tuple(a.shape)} != {tuple(b.shape)}."
    if not a.is_complex():
        a, b = a.double(), b.double()
    if ts.allclose(a, b, rtol=tolerance, atol=1e-5, equal_nan=True):
        return ""
    return f"Tensor-likes are not close! Greatest absolute difference: {(a - b).abs().max().item()}"


def _warn_of_chance(program: Program) -> None:
    chance = [str(node) for node in program.graph.nodes() if node._info["random"]]
    if chance:
        _recording.warn_where_it_stands(
            "Trace had nondeterministic nodes. Did you forget call .eval() on your model? Nodes:\n\t"
            + "\n\t".join(chance[:10])
            + "\nThis may cause errors in trace checking. To disable trace checking, pass check_trace=False to "
            "torch.jit.trace()"
        )
