"""Exported programs in files: the tensors by name and the program as text, in one safetensors file."""

from __future__ import annotations

import json
import os
from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.aten.fake.fake_tensor import FakeTensorMode
from tesserack.fx.export._ranges import InputCheck, Symbol, ValueRanges
from tesserack.fx.export._text import decode, encode, read_graph, write_graph
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
from tesserack.nn.parameter import Parameter
from tesserack.serialization import SerializationError
from tesserack.utils._pytree import tree_flatten, tree_unflatten, treespec_dumps, treespec_loads

__all__ = ["load", "save"]

_FORMAT, _VERSION = "tesserack.export", 1
_ARGUMENTS = {"tensor": TensorArgument, "size": SymIntArgument}


def save(
    ep: ExportedProgram,
    f: str | os.PathLike[str] | Any,
    *,
    extra_files: dict[str, Any] | None = None,
    opset_version: dict[str, int] | None = None,
    pickle_protocol: int | None = None,
) -> None:
    """Write a program to a file: a safetensors file with parameters and buffers by their names, and the graph as text.

    ``extra_files`` are texts by name, to be kept beside it. The options after that are taken and change nothing.

    >>> import io
    >>> import tesserack as ts
    >>> from tesserack.export import export, load, save
    >>> file = io.BytesIO()
    >>> save(export(ts.nn.ReLU(), (ts.ones(2),)), file)
    >>> load(file).module()(ts.tensor([-1.0, 2.0]))
    tensor([0., 2.])
    """
    if not isinstance(ep, ExportedProgram):
        raise TypeError(
            f"export.save: The 'ep' parameter must be an instance of 'ExportedProgram', got '{type(ep).__name__}' "
            "instead."
        )
    graph = write_graph(ep.graph_module)
    check, signature = ep._check, ep.graph_signature
    about = {
        "inputs": [_write_input(spec) for spec in signature.input_specs],
        "outputs": [_write_output(spec) for spec in signature.output_specs],
        "in_spec": treespec_dumps(check.in_spec),
        "out_spec": treespec_dumps(ep.call_spec.out_spec),  # type: ignore[arg-type]
        "names": check.names,
        "leaves": [_write_leaf(leaf) for leaf in check.leaves],
        "sizes": [[s.name, s.range.lower, s.range.upper, s.places, s.example] for s in check.symbols],
        "reasons": [s.reasons for s in check.symbols],
        "fixed": [[*place, why] for place, why in check.fixed.items()],
        "arguments": ep.module_call_graph[0].signature.forward_arg_names,  # type: ignore[union-attr]
        "modules": [entry.fqn for entry in ep.module_call_graph[1:]],
        "parameters": {
            name: value.requires_grad for name, value in ep.state_dict.items() if isinstance(value, Parameter)
        },
    }
    text = _text({**about, "graph": graph})
    content = {
        "format": _FORMAT,
        "version": _VERSION,
        "program": text,
        "state": {
            name: value.detach() if isinstance(value, Tensor) else value for name, value in ep.state_dict.items()
        },
        "constants": {name: value.detach() for name, value in ep.constants.items()},
        "example": _example(ep),
        "extra": {name: _plain(value) for name, value in (extra_files or {}).items()},
    }
    ts.save(content, f)
    if hasattr(f, "seek") and hasattr(f, "getvalue"):
        f.seek(0)


def _example(ep: ExportedProgram) -> list[Tensor] | None:
    """The tensors of the example, in order."""
    if ep.example_inputs is None:
        return None
    return [leaf.detach() for leaf in tree_flatten(ep.example_inputs)[0] if isinstance(leaf, Tensor)]


def _plain(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _text(content: dict[str, Any]) -> str:
    """JSON, with a line for every entry and for every node of a graph."""

    def lines(value: Any, depth: int, key: str = "") -> str:
        space = "  " * depth
        if isinstance(value, dict) and value and (depth < 2 or key == "graphs" or "nodes" in value):
            items = (f"{space}  {json.dumps(name)}: {lines(item, depth + 1, name)}" for name, item in value.items())
            return "{\n" + ",\n".join(items) + f"\n{space}}}"
        if isinstance(value, list) and value and (depth < 2 or key == "nodes"):
            return "[\n" + ",\n".join(f"{space}  {json.dumps(item)}" for item in value) + f"\n{space}]"
        return json.dumps(value)

    return lines(content, 0)


def _write_leaf(leaf: Any) -> Any:
    if not isinstance(leaf, tuple):
        return {"constant": encode(leaf)}
    shape, dtype, device = leaf
    return {"tensor": [list(shape), str(dtype).rpartition(".")[2], device]}


def _write_argument(arg: Any) -> Any:
    if isinstance(arg, ConstantArgument):
        return {"constant": [arg.name, encode(arg.value)]}
    kind = next((kind for kind, cls in _ARGUMENTS.items() if isinstance(arg, cls)), None)
    if kind is None:
        raise TypeError(f"export.save: expected tensors, sizes and constants as arguments, got {arg!r}")
    return {kind: arg.name}


def _write_input(spec: InputSpec) -> list[Any]:
    return [spec.kind.name, _write_argument(spec.arg), spec.target, spec.persistent]


def _write_output(spec: OutputSpec) -> list[Any]:
    return [spec.kind.name, _write_argument(spec.arg), spec.target]


# --- reading ----------------------------------------------------------------------------------------------------------


def load(
    f: str | os.PathLike[str] | Any,
    *,
    extra_files: dict[str, Any] | None = None,
    expected_opset_version: dict[str, int] | None = None,
) -> ExportedProgram:
    """Read what :func:`save` wrote. No code of the file's is run: it names operators, which have to be there.

    The texts that ``extra_files`` names are filled in.

    Raises:
        SerializationError: the file is damaged, no exported program, or of a later version.
    """
    content = ts.load(f)
    if not isinstance(content, dict) or content.get("format") != _FORMAT:
        raise SerializationError("export.load: expected a program that tesserack.export.save wrote, got another file")
    if content.get("version") != _VERSION:
        raise SerializationError(
            f"export.load: expected version {_VERSION} of the format, got {content.get('version')}; a later Tesserack "
            "wrote it"
        )
    for name in extra_files or ():
        extra_files[name] = content["extra"].get(name)  # type: ignore[index]
    try:
        program = _program(json.loads(content["program"]), content["state"], content["constants"])
        program._example_inputs = _read_example(program, content.get("example"))
        return program
    except (ValueError, TypeError, LookupError, AttributeError, RuntimeError, NotImplementedError) as error:
        raise SerializationError(f"export.load: the program cannot be read: {type(error).__name__}: {error}") from error


def _program(about: dict[str, Any], state: dict[str, Any], constants: dict[str, Tensor]) -> ExportedProgram:
    root, graph = read_graph(about["graph"], FakeTensorMode())
    for name, wanted in about["parameters"].items():
        state[name] = Parameter(state[name], bool(wanted))
    _tie(about, state)
    symbols = [
        Symbol(name, ValueRanges(lower, upper), [(*map(int, place),) for place in places], example, declared=True)  # type: ignore[misc]
        for name, lower, upper, places, example in about["sizes"]
    ]
    for symbol, (below, above) in zip(symbols, about.get("reasons", ()), strict=False):
        symbol.reasons = str(below), str(above)
    fixed = {(int(leaf), int(dim)): str(why) for leaf, dim, why in about.get("fixed", ())}
    in_spec, out_spec = treespec_loads(about["in_spec"]), treespec_loads(about["out_spec"])
    check = InputCheck(in_spec, about["names"], [_read_leaf(leaf) for leaf in about["leaves"]], symbols, fixed)
    signature = ModuleCallSignature([], [], in_spec, out_spec, about["arguments"])
    return ExportedProgram(
        root,
        graph,
        ExportGraphSignature([*map(_read_input, about["inputs"])], [*map(_read_output, about["outputs"])]),
        state,
        {s.name: s.range for s in symbols},
        [ModuleCallEntry("", signature), *(ModuleCallEntry(str(name)) for name in about["modules"])],
        None,
        constants,
        check=check,
    )


def _read_example(ep: ExportedProgram, tensors: list[Tensor] | None) -> Any:
    if tensors is None:
        return None
    rest = iter(tensors)
    return tree_unflatten([next(rest) if isinstance(x, tuple) else x for x in ep._check.leaves], ep._check.in_spec)


def _tie(about: dict[str, Any], state: dict[str, Any]) -> None:
    """Names of one tensor share it again: files keep one memory for them."""
    first: dict[tuple[Any, ...], str] = {}
    for name, value in state.items():
        if isinstance(value, Tensor) and value.numel():
            key = value._storage_ptr(), value.storage_offset(), tuple(value.shape), value.stride()
            state[name] = state[first.setdefault(key, name)]


def _read_leaf(leaf: dict[str, Any]) -> Any:
    if "constant" in leaf:
        return decode(leaf["constant"], {})
    shape, dtype, device = leaf["tensor"]
    return tuple(map(int, shape)), decode({"dtype": dtype}, {}), str(device)


def _read_argument(content: dict[str, Any]) -> Any:
    ((kind, value),) = content.items()
    if kind == "constant":
        return ConstantArgument(value[0], decode(value[1], {}))
    return _ARGUMENTS[kind](value)


def _read_input(content: list[Any]) -> InputSpec:
    kind, arg, target, persistent = content
    return InputSpec(InputKind[kind], _read_argument(arg), target, persistent)


def _read_output(content: list[Any]) -> OutputSpec:
    kind, arg, target = content
    return OutputSpec(OutputKind[kind], _read_argument(arg), target)
