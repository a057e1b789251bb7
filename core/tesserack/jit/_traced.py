"""What ``trace`` gives: programs that run without their Python, as functions and as modules."""

from __future__ import annotations

import io
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import tesserack as ts
from tesserack import Tensor, _native, library
from tesserack.jit import _archive, _recording
from tesserack.jit._apart import apart
from tesserack.jit._graph import Graph, code_of
from tesserack.jit._python_call import OPERATOR
from tesserack.jit._script import ScriptFunction, ScriptModule
from tesserack.nn.modules.module import Module
from tesserack.utils import _pytree as pytree

__all__ = ["ConstMap", "Program", "TopLevelTracedModule", "TracedFunction", "TracedModule"]

_grad_enabled, _is_tracing = _native.is_grad_enabled, _native._is_tracing

Slot = tuple[str, str]  # of a module by its path: the attribute
_DICTS = (dict, OrderedDict)


def _ordered(given: Any, tree: Any) -> Any:
    """With the items of dicts that were traced, in the order of then: a trace asks for them by key."""
    if tree.is_leaf() or len(tree.children_specs) == 0:
        return given
    parts = tree.children_specs
    if tree.type in _DICTS and type(given) in _DICTS and set(tree.context) <= set(given):
        return tree.type((key, _ordered(given[key], part)) for key, part in zip(tree.context, parts, strict=True))
    if tree.type is type(given) and tree.type in (list, tuple) and len(given) == len(parts):
        return tree.type(_ordered(one, part) for one, part in zip(given, parts, strict=True))
    return given


class Program:
    """A graph that runs: on the tensors it is given, and on those it found when it was traced.

    ``slots`` says for each of the latter where it lies in a module now, or None: then it is kept here.
    """

    def __init__(self, name: str, recording: _recording.Recording, slots: list[Slot | None]) -> None:
        self.name, self.names, self.slots = name, recording.names, slots
        self.given, self.gave = recording.given, recording.gave
        self.traced = recording.graph
        self.calls = recording.calls  # which the graph names by number
        self.constants: list[Tensor | None] = [
            None if slot else tensor for slot, tensor in zip(slots, recording.graph.captured, strict=True)
        ]
        self.frozen = False
        self.positional: list[str] = []  # names of the arguments
        self._settle()

    def _settle(self) -> None:
        given = self.given.children_specs
        flat = [child.is_leaf() for child in given[0].children_specs]
        self._flat = len(flat) if all(flat) and not given[1].children_specs else -1
        self._bound = self.traced.has_backward
        self._held: Any = tuple(self.constants) if not any(self.slots) else None
        self._owners = [slot[0] for slot in self.slots if slot is not None]
        self._members = [slot[1] for slot in self.slots if slot is not None]
        self._constants_at = [(k, self.constants[k]) for k, slot in enumerate(self.slots) if slot is None]
        self._level, self._of_cards = self._levels()
        self._runner = _native._GraphRunner(self._level)
        self._told = self._note_guard
        self._single = self.gave.is_leaf()
        self._special: Any = None
        self._tried = not self.frozen
        # Where nothing is to be looked at but the arguments.
        plain = self._tried and not self._bound and self._single and self._held is not None
        self._quick = self._runner.run if plain else None

    def _levels(self) -> tuple[Any, bool]:
        """The calls that run, and whether they are those that reach cards: a backward pass may use what lies within an
        operator, and its gradients are the program's own."""
        if self.frozen:
            return self.traced, False
        if not self._bound:
            try:
                return self.traced.outer_level(), False
            except RuntimeError:  # a number is used that a function with a gradient of its own has made
                return self.alone.outer_level(), False
        try:
            return self.traced.outer_level(), False
        except RuntimeError:
            return self.traced.leaf_level(), True

    # --- running ---

    def _leaves(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        if len(args) == self._flat and not kwargs and all(isinstance(a, Tensor) for a in args):
            return list(args)
        args, kwargs = self._arranged(args, kwargs)
        places, named = self.given.children_specs
        args = _ordered(args, places)
        if set(kwargs) == set(named.context):
            kwargs = _ordered(kwargs, named)
        leaves, tree = pytree.tree_flatten(apart((args, kwargs)))
        if tree != self.given or not all(isinstance(leaf, Tensor) for leaf in leaves):
            raise RuntimeError(
                f"{self.name}() Expected tensors for the arguments {', '.join(self.names)}, laid out as when it was "
                f"traced, got {len(args)} arguments"
                + (f" and {', '.join(kwargs)}" if kwargs else "")
                + "; trace again with such arguments"
            )
        return leaves

    def _arranged(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """By position what was traced so, by keyword the rest."""
        count, named = len(self.given.children_specs[0].children_specs), self.given.children_specs[1].context
        given = dict(kwargs)
        place = list(args)
        while len(place) < count and (name := self._argument(len(place))) in given:
            place.append(given.pop(name))
        further = [name for name in self.positional[count:] if name in named]
        for name in (further or list(named))[: max(0, len(place) - count)]:
            given.setdefault(name, place.pop(count))
        return tuple(place), {name: given.pop(name) for name in named if name in given} | given

    def _argument(self, k: int) -> str:
        return self.positional[k] if k < len(self.positional) else ""

    def captures(self, modules: dict[str, Module]) -> list[Tensor]:
        """The tensors of its slots, as they are now."""
        found: list[Any] = [*map(getattr, map(modules.__getitem__, self._owners), self._members)]
        for place, constant in self._constants_at:
            found.insert(place, constant)
        return found

    def run(self, args: tuple[Any, ...], kwargs: dict[str, Any], modules: dict[str, Module]) -> Any:
        """What the program gives for these arguments."""
        plain = len(args) == self._flat and not kwargs
        inputs: Any = args if plain else self._leaves(args, kwargs)
        captures: Any = self.captures(modules) if self._held is None else self._held
        exact = self._special is not None and not (_grad_enabled() or _is_tracing())
        try:
            results = self._special.run_fitting(inputs, captures) if exact else None
            if results is None and (self._bound or not self._tried):
                results = self._results(inputs, captures)
            elif results is None:
                results = self._runner.run(inputs, captures, self._told)
        except TypeError:
            self._leaves(args, kwargs)  # says what is wrong with the arguments, if they are
            raise
        return results[0] if self._single else pytree.tree_unflatten(results, self.gave)

    def _results(self, inputs: Any, captures: Any) -> list[Tensor]:
        if self._bound and not self._runner.fits(inputs, captures):
            raise RuntimeError(
                f"{self.name}: the trace holds a backward pass, which is for the sizes, dtypes and layouts that it was "
                f"traced with, got inputs of {[tuple(t.shape) for t in inputs]}; trace again with such inputs"
            )
        if not self._tried:
            self._specialise()
        if self._of_cards:
            with ts.no_grad():
                return self._runner.run(inputs, captures, self._told)
        return self._runner.run(inputs, captures, self._told)

    def _note_guard(self, node: int) -> None:
        info = self._level.node(node)
        _recording.warn_where_it_stands(
            f"{self.name}: a decision on sizes, {info['op']}, at {info['line']}, would have come out differently for "
            "these inputs: the trace goes the way of those it was made with"
        )

    def _specialise(self) -> None:
        """For the sizes it was traced with, without gradients: the passes' result, made when first called."""
        self._tried = True
        if not self.traced.writes_memory:
            self._special = _native._GraphRunner(self.traced.specialised().optimised(True))

    # --- other forms ---

    @property
    def alone(self) -> Any:
        """The graph without calls of this process: what functions with gradients of their own compute is in it."""
        return self.traced.dissolved(OPERATOR) if self.calls else self.traced

    def freeze(self, modules: dict[str, Module]) -> Program:
        """With the tensors of its slots as constants, and what follows from constants alone computed."""
        made = object.__new__(Program)
        made.__dict__.update(self.__dict__)
        held = [t.detach().clone() for t in self.captures(modules)]
        level = self._level if self._bound or not self.calls else self.alone.outer_level()
        graph = _native._Graph.parse(str(level), held)
        made.calls = []
        made.traced = graph if graph.writes_memory else graph.optimised(True, any_size=True)
        made.constants = list(made.traced.captured)
        made.slots = [None] * len(made.constants)
        made.frozen = True
        made._settle()
        return made

    def shown_captures(self) -> list[str]:
        """Names of what it found: ``self.fc.weight``, or ``CONSTANTS.c0``."""
        numbers = iter(range(len(self.slots)))
        return [
            ".".join(("self", *filter(None, slot))) if slot else f"CONSTANTS.c{next(numbers)}" for slot in self.slots
        ]

    def named_constants(self) -> dict[str, Tensor]:
        """The tensors that it keeps itself, as ``code`` names them: ``c0``."""
        return {f"c{k}": kept for k, (_, kept) in enumerate(self._constants_at) if kept is not None}

    @property
    def graph(self) -> Graph:
        """Calls as the program made them, parts within."""
        return Graph(self.alone)

    @property
    def inlined_graph(self) -> Graph:
        """Calls as they reach a card."""
        return Graph(self.alone.leaf_level())

    @property
    def code(self) -> str:
        """As Python would write it."""
        outer = Graph(self._level if self._bound or not self.calls else self.alone.outer_level())
        return code_of(outer, self.name, self.names, self.shown_captures())

    def __getstate__(self) -> dict[str, Any]:
        text = str(self.alone)
        if "generator(" in text:
            raise RuntimeError(
                f"jit.save: {self.name} draws from a generator of its own, which a file does not hold; use the default "
                "one"
            )
        state = dict(self.__dict__)
        for name in (
            "traced",
            "calls",
            "_level",
            "_of_cards",
            "_told",
            "_runner",
            "_special",
            "_quick",
            "_tried",
            "_flat",
            "_bound",
            "_held",
            "_owners",
            "_members",
            "_constants_at",
            "_single",
        ):
            state.pop(name, None)
        # What slots held stands for nothing but its layout.
        stand_ins = [t if slot is None else None for slot, t in zip(self.slots, self.constants, strict=True)]
        return state | {"text": text, "constants": stand_ins}

    def __setstate__(self, state: dict[str, Any]) -> None:
        text = state.pop("text")
        self.__dict__.update(state)
        blank = ts.empty(0)
        library.make_named_in(text)
        self.calls = []
        self.traced = _native._Graph.parse(text, [blank if c is None else c for c in self.constants])
        self._settle()


class ConstMap:
    """The constants of a program, as attributes."""

    def __init__(self, const_mapping: dict[str, Tensor]) -> None:
        self.const_mapping = const_mapping

    def __getattr__(self, attr: str) -> Tensor:
        held: dict[str, Tensor] = self.__dict__.get("const_mapping", {})
        if attr not in held:
            raise AttributeError(f"ConstMap: expected one of {', '.join(held) or 'none'}, got {attr}")
        return held[attr]


class TracedFunction(ScriptFunction):
    """A function that was traced: called as it, without its Python. See :func:`tesserack.jit.trace`."""

    def __init__(self, program: Program, original: Callable[..., Any] | None = None) -> None:
        self._program = program
        self.__name__ = self.name = program.name
        self.__doc__ = getattr(original, "__doc__", None)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        program = self._program
        if program._quick is not None and len(args) == program._flat and not kwargs:
            try:
                return program._quick(args, program._held, program._told)[0]
            except TypeError:
                program._leaves(args, kwargs)  # says what is wrong with the arguments, if they are
                raise
        return program.run(args, kwargs, {})

    graph = property(lambda self: self._program.graph)
    inlined_graph = property(lambda self: self._program.inlined_graph)
    code = property(lambda self: self._program.code)
    qualified_name = property(lambda self: f"__torch__.{self.name}")

    def graph_for(self, *args: Any, **kwargs: Any) -> Graph:
        """The graph; it is the same for all inputs."""
        return self._program.graph

    def save(self, f: Any, _extra_files: Any = None) -> None:
        """As :func:`tesserack.jit.save`."""
        _archive.write(self, f, _extra_files)

    def save_to_buffer(self, _extra_files: Any = None) -> bytes:
        """What :meth:`save` writes."""
        file = io.BytesIO()
        _archive.write(self, file, _extra_files)
        return file.getvalue()

    def __repr__(self) -> str:
        return f"<tesserack.jit.ScriptFunction {self.name}>"


class TracedModule(ScriptModule):
    """A part of a traced module: its parameters and buffers, shared with the original, which computes where it is
    called by itself. After :func:`tesserack.jit.load` there is no original, and it does not compute.
    """

    def __init__(self, original: Module) -> None:
        super().__init__()
        own = self.__dict__
        own["_original"], own["_name"] = original, getattr(original, "original_name", type(original).__name__)
        own["training"] = original.training
        for name, parameter in original._parameters.items():
            self._parameters[name] = parameter
        for name, buffer in original._buffers.items():
            self._buffers[name] = buffer
        self._non_persistent_buffers_set.update(original._non_persistent_buffers_set)
        for name, part in original._modules.items():
            self._modules[name] = None if part is None else TracedModule(part)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the original gives."""
        if self._original is None:
            raise NotImplementedError(
                f"jit: {self.original_name} was loaded as a part of a traced module, which holds its program alone"
            )
        return self._original(*args, **kwargs)

    @property
    def original_name(self) -> str:
        """The name of the class that was traced."""
        return str(self.__dict__["_name"])

    def save(self, f: Any, _extra_files: Any = None) -> None:
        """As :func:`tesserack.jit.save`."""
        _archive.write(self, f, _extra_files)

    def save_to_buffer(self, _extra_files: Any = None) -> bytes:
        """What :meth:`save` writes."""
        file = io.BytesIO()
        _archive.write(self, file, _extra_files)
        return file.getvalue()

    def extra_repr(self) -> str:
        """The original's class."""
        return f"original_name={self.original_name}"

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_original": None}


class TopLevelTracedModule(TracedModule):
    """A module that was traced: its programs run without its Python, on the parameters and buffers it has now.

    See :func:`tesserack.jit.trace`.
    """

    def __init__(self, original: Module, programs: dict[str, Program]) -> None:
        super().__init__(original)
        self.__dict__["_programs"] = programs
        for name in programs:
            if name != "forward":
                self.__dict__[name] = _Method(self, name)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The program that was traced."""
        return self._run("forward", args, kwargs)

    def _run(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        programs = self.__dict__["_programs"]
        if name not in programs:
            raise NotImplementedError(f"jit: {self.original_name}.{name} was not traced; got {', '.join(programs)}")
        return programs[name].run(args, kwargs, self._by_path())

    def _by_path(self) -> dict[str, Module]:
        own = self.__dict__
        if "_paths" not in own:
            own["_paths"] = dict(self.named_modules(remove_duplicate=False))
        return own["_paths"]  # type: ignore[no-any-return]

    @property
    def graph(self) -> Graph:
        """The graph of ``forward``: calls as the module made them, their parts within."""
        return self._main().graph

    @property
    def inlined_graph(self) -> Graph:
        """The calls of ``forward`` as they reach a card."""
        return self._main().inlined_graph

    @property
    def code(self) -> str:
        """``forward`` as Python would write it."""
        return self._main().code

    @property
    def code_with_constants(self) -> tuple[str, ConstMap]:
        """``forward`` as Python would write it, and the tensors that it calls ``CONSTANTS``."""
        return self._main().code, ConstMap(self._main().named_constants())

    def _main(self) -> Program:
        programs: dict[str, Program] = self.__dict__["_programs"]
        if "forward" not in programs:
            raise AttributeError(f"forward of {self.original_name} was not traced")
        return programs["forward"]

    def graph_for(self, *args: Any, **kwargs: Any) -> Graph:
        """The graph; it is the same for all inputs."""
        return self.graph

    def frozen(self, kept: list[str]) -> TopLevelTracedModule:
        """With parameters and buffers as constants of the programs; ``kept`` names attributes that stay."""
        made: TopLevelTracedModule = object.__new__(type(self))
        made.__dict__.update(_Shell(self.original_name, kept, self).__dict__)
        made.__dict__["_programs"] = {n: p.freeze(self._by_path()) for n, p in self.__dict__["_programs"].items()}
        for name in made.__dict__["_programs"]:
            if name != "forward":
                made.__dict__[name] = _Method(made, name)
        return made

    def __getstate__(self) -> dict[str, Any]:
        hidden = ("_paths", *(name for name, value in self.__dict__.items() if isinstance(value, _Method)))
        return {name: value for name, value in super().__getstate__().items() if name not in hidden}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for name in self.__dict__["_programs"]:
            if name != "forward":
                self.__dict__[name] = _Method(self, name)


class _Shell(Module):
    """What is left of a module whose tensors are constants."""

    def __init__(self, name: str, kept: list[str], of: TopLevelTracedModule) -> None:
        super().__init__()
        self.__dict__.update(_original=None, _name=name, training=False)
        for attribute in kept:
            setattr(self, attribute, getattr(of, attribute))


class _Method:
    """A traced method other than ``forward``."""

    def __init__(self, module: TopLevelTracedModule, name: str) -> None:
        self._module, self.name = module, name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._module._run(self.name, args, kwargs)

    graph = property(lambda self: self._module.__dict__["_programs"][self.name].graph)
    code = property(lambda self: self._module.__dict__["_programs"][self.name].code)


def places_of(module: Module | None) -> list[tuple[Tensor, Slot]]:
    """Where in the module each parameter and buffer lies."""
    places: list[tuple[Tensor, Slot]] = []
    if module is not None:
        for path, part in module.named_modules(remove_duplicate=False):
            for registry in (part._parameters, part._buffers):
                for name, tensor in registry.items():
                    if tensor is not None:
                        places.append((tensor, (path, name)))
    return places


def slots_of(graph: _native._Graph, places: list[tuple[Tensor, Slot]]) -> list[Slot | None]:
    """Where in the module each tensor lies that a graph found."""
    by_identity = {id(tensor): slot for tensor, slot in reversed(places)}
    return [by_identity.get(id(tensor)) for tensor in graph.captured]
