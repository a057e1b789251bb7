"""The way from a module to an exported program: traces at several sizes, merged into one graph."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Sequence
from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.fx.export._asserts import named
from tesserack.fx.export._doubts import branches, doubts_of, telling_rows
from tesserack.fx.export._errors import ExportError, place_of, ways_out
from tesserack.fx.export._merge import Difference, merge
from tesserack.fx.export._narrow import corners, line_in, lowered, narrow
from tesserack.fx.export._ranges import InputCheck, Symbol, ValueRanges
from tesserack.fx.export._related import one_size, tied
from tesserack.fx.export._symbols import named_columns, remainders, sizes_at, symbols_of, trials
from tesserack.fx.export._trace import Program, Trace, line_of, remove_unread
from tesserack.fx.export._try import differs
from tesserack.fx.export._turns import other_values, traced
from tesserack.fx.export._watch import Watch
from tesserack.fx.export.dynamic_shapes import AdditionalInputs, ShapesCollection, bind, combined
from tesserack.fx.export.exported_program import ExportedProgram, ModuleCallEntry, ModuleCallSignature
from tesserack.fx.export.graph_signature import (
    ConstantArgument,
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    SymIntArgument,
    TensorArgument,
)
from tesserack.fx.graph import Graph
from tesserack.fx.node import Node
from tesserack.fx.passes.shape_prop import _extract_tensor_metadata
from tesserack.nn.modules.module import Module
from tesserack.utils._pytree import tree_flatten, tree_flatten_with_path

__all__ = ["assemble", "program_of"]

_CHANGES = {
    InputKind.PARAMETER: OutputKind.PARAMETER_MUTATION,
    InputKind.BUFFER: OutputKind.BUFFER_MUTATION,
    InputKind.USER_INPUT: OutputKind.USER_INPUT_MUTATION,
}


def program_of(module: Module, args: tuple[Any, ...], kwargs: dict[str, Any], names: list[str]) -> Program:
    """A module with its example, as it is traced."""
    leaves, in_spec = tree_flatten((args, kwargs))
    hidden = {
        f"{path}.{name}" if path else name
        for path, m in module.named_modules(remove_duplicate=False)
        for name in m._non_persistent_buffers_set
    }
    held = {id(x) for x in (*module.parameters(), *module.buffers())}
    constants = {
        id(value): f"{path}.{name}" if path else name
        for path, m in module.named_modules()
        for name, value in m.__dict__.items()
        if isinstance(value, Tensor) and id(value) not in held
    }
    return Program(
        module,
        leaves,
        in_spec,
        names,
        [*module.named_parameters(remove_duplicate=False)],
        [(name, x, name not in hidden) for name, x in module.named_buffers(remove_duplicate=False)],
        constants,
    )


def _keys(value: Any) -> list[str]:
    """A name for each leaf of a value of a class that programs register: those of its fields."""
    paths = [path for path, _ in tree_flatten_with_path(value)[0]]
    if len(paths) == 1 and not paths[0]:
        return [""]
    shown = [
        "_".join(str(getattr(key, "name", getattr(key, "key", getattr(key, "idx", key)))) for key in p) for p in paths
    ]
    return (
        shown
        if all(part.isidentifier() or part.replace("_", "").isalnum() for part in shown)
        else [str(k) for k in range(len(paths))]
    )


def leaf_names(inputs: dict[str, Any]) -> list[str]:
    """A name for each leaf of the inputs, by which placeholders are called."""
    found: list[str] = []
    taken: dict[str, int] = {}

    def unique(name: str) -> str:
        while name in taken:
            taken[name] += 1
            name = f"{name}_{taken[name]}"
        taken[name] = 0
        return name

    def walk(value: Any, name: str) -> None:
        if isinstance(value, dict):
            for key, item in value.items():
                walk(item, f"{name}_{key}")
        elif isinstance(value, (tuple, list)):
            for place, item in enumerate(value):
                walk(item, f"{name}_{place}")
        else:
            keys = _keys(value)
            found.extend(unique(f"{name}_{key}" if key else name) for key in keys)

    for name, value in inputs.items():
        walk(value, name)
    return found


def exported(module: Module, args: tuple[Any, ...], kwargs: dict[str, Any], shapes: Any) -> ExportedProgram:
    """The program of a module, sizes varying as ``shapes`` say."""
    inputs = combined(module.forward, args, kwargs)
    program = program_of(module, args, kwargs, leaf_names(inputs))
    if isinstance(shapes, (ShapesCollection, AdditionalInputs)):
        more, shapes = shapes, shapes.dynamic_shapes(module, args, kwargs)
    else:
        more = None
    symbols = symbols_of([*bind(inputs, shapes)], program.leaves)
    ep = assemble(program, symbols, (args, kwargs), [*inputs])
    if isinstance(more, AdditionalInputs):
        more.verify(ep)
    return ep


# --- sizes that vary --------------------------------------------------------------------------------------------------


class _Varies(Exception):
    """A program that is not the same for other sizes: which, and why."""

    def __init__(self, values: dict[str, int], why: str, line: str) -> None:
        super().__init__(why)
        self.values, self.why, self.line = values, why, line


def merged(program: Program, symbols: list[Symbol]) -> Trace:
    """One graph for all sizes. ``ExportError`` where the program depends on a size that is said to vary."""
    try:
        return _within_range(program, symbols)
    except _Varies as error:
        if not symbols or _decided_by_values(program, symbols):
            raise ways_out("number", f"{error.why}, where values that no trace knows are others", error.line) from error
        if _tie(program, symbols):
            return merged(program, symbols)
        guilty = [s for s in symbols if _alone_varies(program, symbols, s)]
        if _tie_compared(program, symbols, guilty):
            return merged(program, symbols)
        if any(s.hint for s in guilty or symbols) and all(s.hint for s in guilty):
            held = _hold(program, symbols, guilty, line_in(error.line))
            if all(s.auto for s in held):
                symbols[:] = [s for s in symbols if not any(s is t for t in held)]
                program.traces.clear()
                return merged(program, symbols)
        raise _specialized(guilty or symbols, symbols, error) from error.__cause__


def _tie(program: Program, symbols: list[Symbol]) -> bool:
    """Whether there are sizes without a name that vary together only: they are one symbol from then on."""
    if len(symbols) < 2 or not any(s.hint for s in symbols):
        return False

    def takes(row: Sequence[int]) -> bool:
        if tuple(row) not in program.traces:
            try:
                program.traces[tuple(row)] = _traced(program, symbols, row, False)
            except _Varies:
                return False
        return True

    found = tied(symbols, takes)
    if len(found) == len(symbols):
        return False
    symbols[:] = found
    program.traces.clear()
    return True


def _tie_compared(program: Program, symbols: list[Symbol], guilty: list[Symbol]) -> bool:
    """Whether sizes without a name that are the same in the example, and are compared, vary together: they are one
    symbol from then on, where the program is one graph for it."""
    if not _decide_together(program, symbols):
        return False
    for size in {s.example: None for s in guilty if s.hint}:
        group = [s for s in guilty if s.hint and s.example == size]
        if len(group) < 2:
            continue
        made = [dataclasses.replace(s, places=[*s.places]) for s in symbols]
        found = one_size(made, [t for s, t in zip(symbols, made, strict=True) if any(s is g for g in group)])
        program.traces.clear()
        try:
            _within_range(program, [dataclasses.replace(s, places=[*s.places]) for s in found])
        except (_Varies, ExportError):
            continue
        finally:
            program.traces.clear()
        symbols[:] = found
        return True
    return False


def _hold(program: Program, symbols: list[Symbol], guilty: list[Symbol], why: str) -> list[Symbol]:
    """Have sizes without a name keep to the range in which the program does the same; those that are to stay."""
    autos = [s for s in guilty or symbols if s.hint]
    fixed = {id(s): _narrowed(program, symbols, s) for s in autos if not any(s.reasons)}
    held = [s for s in autos if fixed.get(id(s))]
    if not held and not any(any(s.reasons) for s in autos if id(s) in fixed):
        held = [s for s in autos if s in guilty] or [s for s in autos if s.auto][-1:] or autos[-1:]
    for s in held:
        program.fixed.update({(leaf, dim): fixed.get(id(s)) or why for leaf, dim, _, _ in s.places})
    return held


def _narrowed(program: Program, symbols: list[Symbol], one: Symbol) -> str:
    """What fixes a size; empty if it may vary, perhaps within a range that it has from now on."""
    notes: dict[int, Watch] = {}
    alike: list[int] = []  # sizes at which the program does the same

    def row_of(n: int) -> list[int]:
        return [n if s is one else s.example for s in symbols]

    def note(n: int) -> Watch | None:
        row = (*row_of(n),)
        if n not in notes and row not in program.traces:
            with contextlib.suppress(_Varies):
                program.traces[row] = _traced(program, symbols, row, n == one.example)
        if n not in notes and row in program.traces:
            notes[n] = program.traces[row].unknown.watch
        return notes.get(n)

    def turns(n: int) -> Any:
        made = note(n) if n > 1 and n in one.range else None
        return made and made.turns()

    def otherwise(n: int) -> bool | None:
        """Whether what sizes have in common that take the example's branches is something else at one that does not;
        None where they are too few to tell."""
        own = turns(one.example)
        near = (one.example + step for step in (-2, -1, 1, 2))
        kin = [m for m in dict.fromkeys((*near, *alike[-_KNOWN:])) if turns(m) == own]
        if len(kin) < 2 or turns(n) == own:
            return None
        try:
            found = _merged_at(program, symbols, [row_of(m) for m in kin])
        except _Varies:
            return None
        return bool(differs(program, found, sizes_at(symbols, row_of(n))))

    def other(n: int) -> str | None:
        known, line = otherwise(n), None
        if known is not False:
            # Numbers of two branches always lie on a line: others beyond the branch show that it is none.
            step = 1 if n > one.example else -1
            beyond = (n + step, n + 2 * step) if turns(n) != turns(one.example) else ()
            near = [m for m in beyond if turns(m) == turns(n)]
            try:
                _merged_at(program, symbols, [row_of(m) for m in (*alike[-_KNOWN:], n, *near)])
            except _Varies as error:
                line = error.line
        if line is None and known:
            line = ""
        if line is None:
            alike.append(n)
        return line

    note(one.example)
    return narrow(one, other, notes)


_KNOWN = 4  # of the sizes that are known to be alike, the last, each further one is held against


def _specialized(guilty: list[Symbol], symbols: list[Symbol], error: _Varies) -> ExportError:
    names = ", ".join(s.name for s in guilty)
    shown = ", ".join(f"{s.name}={s.example}" for s in symbols)
    other = ", ".join(f"{name}={value}" for name, value in error.values.items())
    line = f"\n{error.line}" if error.line else ""
    return ExportError(
        f"export: Constraints violated ({names})! It is declared to vary, but the program is specialized to what it "
        f"is in the example, {shown}: with {other}, {error.why}{line}\nTell the range in which it may vary "
        f"(Dim min=, max=), relate it to others (2 * batch), let it be Dim.AUTO, or leave it out of dynamic_shapes"
    )


def _alone_varies(program: Program, symbols: list[Symbol], one: Symbol) -> bool:
    """Whether the program depends on this size where all others are the example's."""
    rows = [[s.example if s is not one else row[k] for k, s in enumerate(symbols)] for row in trials(symbols)]
    try:
        _merged_at(program, symbols, rows)
    except _Varies:
        return True
    return False


def _within_range(program: Program, symbols: list[Symbol]) -> Trace:
    """The graph, after tries at sizes in between, the greatest and the least; least ones that the program does not name
    are found: 0 or 1 if it takes them, else 2."""
    if not symbols:
        found = program.traces[()] = _traced(program, symbols, (), True)
        return _merged_at(program, symbols, other_values(program, symbols)) if found.unknown.values else found
    rows = trials(symbols)
    example = (*(s.example for s in symbols),)
    program.traces[example] = _traced(program, symbols, example, True)
    if program.traces[example].unknown.values:
        rows += other_values(program, symbols)
    _all_remainders(program, symbols, rows)
    rows += _asked_for(program, symbols, rows) + corners(symbols)
    named = [[s.range.lower + more if s.declared else s.example for s in symbols] for more in (0, 1)]
    rows += [row for row in named[: 2 if any(s.declared and not s.range.lower for s in symbols) else 1]
             if any(s.declared for s in symbols)]  # fmt: skip
    found = _all_remainders(program, symbols, rows)
    if all(s.declared for s in symbols):
        return found
    together = _decide_together(program, symbols)
    least = {id(s): 2 for s in symbols}
    left = [s for s in symbols if not s.declared]
    for lower in (1, 0):
        low = [s.range.lower if s.declared else min(lower, s.example) for s in symbols]
        taken = _taken(program, symbols, rows, left, low, together)
        if taken is None:
            break
        left, more = taken
        rows += more
        least |= {id(s): lower for s in left}
    ends = [s.range.lower if s.declared else min(least[id(s)], s.example) for s in symbols]
    found = _all_remainders(program, symbols, rows, ends)
    for s in symbols:
        if not s.declared:
            s.range = ValueRanges(min(least[id(s)], s.example), s.range.upper)
    return found


def _taken(
    program: Program, symbols: list[Symbol], rows: list[list[int]], left: list[Symbol], low: list[int], together: bool
) -> tuple[list[Symbol], list[list[int]]] | None:
    """The sizes that may be as small as ``low`` says, and rows at which they are: all of them, or each that may by
    itself, as a batch's where that of an image may not."""

    example = [s.example for s in symbols]
    near = [s.range.lower if s.declared else min(s.example, 2) for s in symbols]

    def row_of(group: list[Symbol], others: Sequence[int] = example) -> list[int]:
        columns = zip(symbols, low, others, strict=True)
        return [n if any(s is t for t in group) or (group is left and s.declared) else o for s, n, o in columns]

    def takes(more: list[list[int]], group: list[Symbol]) -> bool:
        try:  # at other remainders too: the least one alone may be what a number is told from
            _all_remainders(program, symbols, [*rows, *more], row_of(group, near))
        except _Varies:
            return False
        return True

    more = [row_of(left), *(lowered(symbols, low) if together else ())]
    if takes(more, left):
        return left, more
    found = [s for s in left if len(left) > 1 and takes([row_of([s])], [s])]
    more = [row_of([s]) for s in found] + [row_of(found)]
    return (found, more) if found and takes(more, found) else None


def _all_remainders(
    program: Program, symbols: list[Symbol], rows: list[list[int]], low: Sequence[int] | None = None
) -> Trace:
    """The merged graph, with further tries where sizes are divided, until those of every remainder are among them, and
    at sizes that tell apart what a number may be. No size is less than ``low`` says."""
    least = [max(s.range.lower, 2) if s.declared else min(2, s.example) for s in symbols] if low is None else low
    for _ in range(4):
        found = _merged_at(program, symbols, rows)
        more = remainders(symbols, found.divisors) + telling_rows(symbols, found.doubts, least)
        more = [row for row in more if row not in rows]
        if not more:
            return found
        rows += more
    return _merged_at(program, symbols, rows)


def _asked_for(program: Program, symbols: list[Symbol], rows: list[list[int]]) -> list[list[int]]:
    """Sizes around those that the program compares its sizes with."""
    found: dict[tuple[int, ...], None] = {}
    own: dict[tuple[int, ...], None] = {}  # with the other sizes of the trace, where sizes decide together
    for row, made in program.traces.items():
        for place, (symbol, value) in enumerate(zip(symbols, row, strict=False)):
            wanted = {n for _, _, f, o in symbol.places for n in made.unknown.watch.further(f, o, value)}
            least = symbol.range.lower if symbol.declared else 2
            for n in sorted(wanted):
                if n >= least and n in symbol.range and n != symbol.example:
                    found[(*rows[0][:place], n, *rows[0][place + 1 :])] = None
                    own[(*row[:place], n, *row[place + 1 : len(symbols)])] = None
    asked = [[*row] for row in found if [*row] not in rows][:_MOST_ASKED]
    if not _decide_together(program, symbols):
        return asked
    return asked + [[*row] for row in own if [*row] not in rows and [*row] not in asked][:_MOST_ASKED]


def _decide_together(program: Program, symbols: list[Symbol]) -> bool:
    """Whether what the program does may follow from several sizes."""
    related = any(t.unknown.watch.related for t in program.traces.values())
    return len(symbols) > 1 and (related or any(any(s.reasons) for s in symbols))


_MOST_ASKED = 24  # tries, for a program that compares sizes with many numbers


def _merged_at(program: Program, symbols: list[Symbol], rows: Sequence[Sequence[int]]) -> Trace:
    """The graph of the example, merged with those at other sizes.

    Where operators take other steps for some sizes, by a rule of their own and not the program's, the graph has to give
    what the program does there: both run on data of those sizes.
    """
    every = [[s.example for s in symbols], *rows]
    kept = program.traces  # of earlier tries; what is merged into is changed, and is not kept
    traces = [kept.get((*row,)) or _traced(program, symbols, row, k == 0) for k, row in enumerate(every)]
    kept.update(((*row,), made) for row, made in zip(every, traces, strict=True))
    steps = [[(node.op, node.target) for node in t.graph.nodes if node.op == "call_function"] for t in traces]
    base = max(range(len(steps)), key=lambda k: (sum(other == steps[k] for other in steps) > 2, -k))
    del kept[(*every[base],)]
    alike = [base, *(k for k, other in enumerate(steps) if other == steps[base] and k != base)]
    for k in alike[1:]:
        _same_constants(traces[base], traces[k], _values(symbols, every[k]))
    columns = named_columns(symbols, [every[k] for k in alike])
    try:
        graphs, trees = [traces[k].graph for k in alike], [traces[k].unknown.watch.trees for k in alike]
        traces[base].divisors, pairs = merge(graphs, [traces[k].root for k in alike], columns, trees)
    except Difference as error:
        raise _Varies(_values(symbols, every[alike[error.trace]]), error.why, place_of(error.node)) from error
    traces[base].doubts = doubts_of(pairs, symbols, [every[k] for k in alike])
    traces[base].doubts += branches(traces[base].unknown.watch.asked, symbols, every[base])
    for k, row in enumerate(every):
        if k not in alike:
            line = place_of(_first_other(traces[base], traces[k]))
            if len(row) > len(symbols) or [*row] == [*every[base][: len(symbols)]]:
                raise _Varies(_values(symbols, row), "the program takes other steps", line)
            why = differs(program, traces[base], sizes_at(symbols, row))
            if why:
                than = ", ".join(f"{s.name}={n}" for s, n in zip(symbols, every[base], strict=False))
                raise _Varies(_values(symbols, row), f"it takes other steps than with {than}, {why}", line)
    return traces[base]


def _values(symbols: Sequence[Symbol], row: Sequence[int]) -> dict[str, int]:
    return {s.name: value for s, value in zip(symbols, row, strict=False)}


def _traced(program: Program, symbols: Sequence[Symbol], row: Sequence[Any], example: bool) -> Trace:
    try:
        return traced(program, symbols, row)
    except ExportError:
        raise
    except Exception as error:
        if example:
            raise
        first = str(error).strip().splitlines()
        why = f"it fails: {first[0] if first else type(error).__name__}"
        raise _Varies(_values(symbols, row), why, line_of(error)) from error


def _decided_by_values(program: Program, symbols: list[Symbol]) -> bool:
    """Whether values that no trace knows are why the program is not one graph, and no size is."""
    if not any(made.unknown.values for made in program.traces.values()):
        return False
    try:
        _merged_at(program, symbols, other_values(program, symbols))
    except _Varies:
        return True
    except ExportError:
        pass
    return False


def _first_other(one: Trace, other: Trace) -> Node | None:
    for a, b in zip(one.graph.nodes, other.graph.nodes, strict=False):
        if (a.op, a.target) != (b.op, b.target) and a.op != "placeholder":
            return a if a.meta.get("stack_trace") else b
    return None


def _same_constants(one: Trace, other: Trace, values: dict[str, int]) -> None:
    pairs = zip(one.constants, other.constants, strict=False)
    for (name, a), (_, b) in pairs:
        if a is not b and (a.shape != b.shape or a.dtype is not b.dtype or not ts.equal(a, b)):
            raise _Varies(values, f"a tensor that it makes of Python's numbers is another one ({name})", "")


# --- the program ------------------------------------------------------------------------------------------------------


def assemble(
    program: Program, symbols: list[Symbol], example: tuple[tuple[Any, ...], dict[str, Any]], arguments: list[str]
) -> ExportedProgram:
    """The exported program of what is traced."""
    found = merged(program, symbols)
    if found.unknown.values:
        named(found.graph)
        remove_unread(found.graph)
    persistent = {name: kept for name, _, kept in program.buffers}
    values = {id(node): leaf for (kind, _, node), leaf in zip(found.inputs[-len(program.leaves) or len(found.inputs) :],
                                                               program.leaves, strict=True)}  # fmt: skip
    specs = [_input(kind, name, node, persistent, values) for kind, name, node in found.inputs]
    _describe(found, dict(program.parameters))
    output = next(node for node in reversed([*found.graph.nodes]) if node.op == "output")
    results: Any = output.args[0]
    targets = [(_CHANGES[kind], name) for kind, name, _ in found.changed if kind in _CHANGES]
    if len(targets) != len(found.changed):
        constant = next(name for kind, name, _ in found.changed if kind not in _CHANGES)
        raise ExportError(f"export: the program writes to {constant}, which is no buffer; register it by "
                          "register_buffer, or clone it first")  # fmt: skip
    outputs = [OutputSpec(kind, _argument(value), name) for (kind, name), value in zip(targets, results, strict=False)]
    outputs += [OutputSpec(OutputKind.USER_OUTPUT, _argument(value), None) for value in results[len(targets) :]]
    constants = dict(found.constants)
    constants |= {name: tensor for name, tensor, kept in program.buffers if not kept}
    check = InputCheck(program.in_spec, program.names, [_outline(x) for x in program.leaves], symbols, program.fixed)
    signature = ModuleCallSignature([], [], program.in_spec, found.out_spec, arguments)
    return ExportedProgram(
        found.root,
        found.graph,
        ExportGraphSignature(specs, outputs),
        _state(program),
        {s.name: s.range for s in symbols},
        [ModuleCallEntry("", signature), *_modules(found)],
        example,
        constants,
        check=check,
    )


def _describe(found: Trace, parameters: dict[str, Tensor]) -> None:
    """Nodes say what their tensors are like; parameters that train, that they do."""
    for kind, name, node in found.inputs:
        if kind is InputKind.PARAMETER and parameters[name].requires_grad:
            node.meta["val"].requires_grad_()
    for node in found.graph.nodes:
        value = node.meta.get("val")
        if isinstance(value, Tensor):
            node.meta["tensor_meta"] = _extract_tensor_metadata(value)


def _input(kind: InputKind, name: str, node: Node, persistent: dict[str, bool], values: dict[int, Any]) -> InputSpec:
    if kind is InputKind.USER_INPUT:
        value = values[id(node)]
        constant = not isinstance(value, Tensor)
        return InputSpec(kind, ConstantArgument(node.name, value) if constant else TensorArgument(node.name), None)
    return InputSpec(kind, TensorArgument(node.name), name, persistent[name] if kind is InputKind.BUFFER else None)


def _argument(value: Any) -> Any:
    if not isinstance(value, Node):
        return ConstantArgument("", value)
    return TensorArgument(value.name) if isinstance(value.meta.get("val"), Tensor) else SymIntArgument(value.name)


def _outline(leaf: Any) -> Any:
    return (tuple(map(int, Tensor.size(leaf))), leaf.dtype, leaf.device.type) if isinstance(leaf, Tensor) else leaf


def _state(program: Program) -> dict[str, Any]:
    """Parameters, then persistent buffers, then what else there is, such as extra state, by the names it has here:
    hooks of ``state_dict`` may rename."""
    state = dict(program.parameters) | {name: x for name, x, kept in program.buffers if kept}
    known = {id(x) for x in state.values()}
    more = program.module.state_dict(keep_vars=True)
    return state | {name: x for name, x in more.items() if id(x) not in known and not isinstance(x, Tensor)}


def _modules(found: Trace) -> list[ModuleCallEntry]:
    seen: dict[str, None] = {}

    def look(graph: Graph, root: Module) -> None:
        for node in graph.nodes:
            for path, _ in node.meta.get("nn_module_stack", {}).values():
                if path:
                    seen[path] = None
            if node.op == "get_attr":
                inner = getattr(root, node.target)
                look(inner.graph, inner)

    look(found.graph, found.root)
    return [ModuleCallEntry(path) for path in seen]
