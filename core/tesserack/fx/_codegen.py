"""The program that a graph's nodes stand for, as text: what is written around it may be another's choice."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tesserack.fx._compatibility import compatibility
from tesserack.fx._naming import Namespace
from tesserack.fx._writer import Writer
from tesserack.utils import _pytree as pytree

__all__ = ["CodeGen", "PyTreeCodeGen", "PyTreeInfo", "PythonCode"]

TransformCodeFunc = Callable[[list[str]], list[str]]


@compatibility(is_backward_compatible=True)
@dataclass
class PythonCode:
    """Source text of a function and the values its names stand for; which node a line after its head is of."""

    src: str
    globals: dict[str, Any]
    _lineno_map: dict[int, int | None] | None = field(default=None)
    _prologue_start: int = 0


class PyTreeInfo(NamedTuple):
    """How the arguments of a function lie in those of its graph."""

    orig_args: list[str]
    in_spec: pytree.TreeSpec
    out_spec: pytree.TreeSpec | None


def _called(method: Callable[..., str], *args: Any, **options: Any) -> str:
    """A method that may be overridden without the newer options."""
    known = inspect.signature(method).parameters
    every = any(p.kind is p.VAR_KEYWORD for p in known.values())
    return method(*args, **{k: v for k, v in options.items() if every or k in known})


@compatibility(is_backward_compatible=False)
class CodeGen:
    """Writes a graph as a function: subclasses may give it another head, another return, and change its lines.

    >>> from tesserack import fx
    >>> class Listed(CodeGen):
    ...     def gen_fn_def(self, free_vars, maybe_return_annotation):
    ...         return f"def forward(self, values):\\n    {', '.join(free_vars)}, = values"
    ...     def process_inputs(self, *inputs):
    ...         return inputs[0]
    >>> traced = fx.symbolic_trace(lambda a, b: a - b)
    >>> traced.graph.set_codegen(Listed())
    >>> _ = traced.recompile()
    >>> traced([5, 3])
    2
    """

    _sym_repr: Any = staticmethod(repr)

    def __init__(self) -> None:
        self._body_transformer: TransformCodeFunc | None = None
        self._func_name = "forward"

    def gen_fn_def(self, free_vars: list[str], maybe_return_annotation: str, *, expanded_def: bool = False) -> str:
        """The head of the function, for these parameters; each on its own line if asked."""
        if not free_vars or free_vars[0] != "self":
            free_vars.insert(0, "self")
        if not expanded_def:
            return f"def {self._func_name}({', '.join(free_vars)}){maybe_return_annotation}:"
        lines = "".join(f"    {_with_comma(arg)}\n" for arg in free_vars)
        return f"def {self._func_name}(\n{lines}){maybe_return_annotation}:"

    def generate_output(
        self, output_args: Any, *, descs: Sequence[str] | None = None, repr_fn: Callable[[Any], str] | None = None
    ) -> str:
        """The statement that returns."""
        return f"return {(repr_fn or repr)(output_args)}"

    def process_inputs(self, *args: Any) -> Any:
        """The arguments of the graph from those of the function."""
        return args

    def process_outputs(self, outputs: Any) -> Any:
        """What the function returns from what the graph does."""
        return outputs

    def additional_globals(self) -> list[tuple[str, Any]]:
        """Names that the head needs, with their values."""
        return []

    def _gen_python_code(
        self,
        nodes: Any,
        root_module: str,
        namespace: Namespace,
        *,
        verbose: bool = False,
        include_stride: bool = False,
        include_device: bool = False,
        colored: bool = False,
        expanded_def: bool = False,
        record_func: bool = False,
        additional_meta: list[str] | None = None,
    ) -> PythonCode:
        writer = Writer(namespace, root_module, verbose, include_stride, include_device, additional_meta or [])
        body = writer.body([*nodes], lambda value: _called(self.generate_output, value, repr_fn=writer.value))
        wraps = "\n".join(f'{writer.wrap_name()}("{name}")' for name in writer.wrapped)
        if self._body_transformer is not None:
            body = self._body_transformer(body)
        for name, value in self.additional_globals():
            writer.global_name(name, value)
        head = _called(self.gen_fn_def, writer.parameters, writer.returned, expanded_def=expanded_def)
        text, numbers = _without_counters("".join(body), head.count("\n") + 1)
        source = f"\n{wraps}\n\n{head}\n{text}"
        return PythonCode(source, writer.globals, numbers, wraps.count("\n") + 4)


def _with_comma(arg: str) -> str:
    code, comment, rest = arg.partition("#")
    return f"{code.rstrip()},  #{rest}" if comment else f"{arg},"


def _without_counters(body: str, first: int) -> tuple[str, dict[int, int | None]]:
    """The lines, indented, without the marks that say of which node they are; and of which they are."""
    lines: list[str] = []
    numbers: dict[int, int | None] = {}
    current = None
    for line in body.split("\n"):
        found = re.search(r"# COUNTER: (\d+)", line)
        if found is None:
            numbers[len(lines) + first] = current
            lines.append(line)
        else:
            current = int(found[1])
    text = "\n".join(lines).lstrip("\n")
    return "\n".join(f"    {line}" for line in text.split("\n")), numbers


class _BoxedCodeGen(CodeGen):
    """A function of one list, which it empties."""

    def gen_fn_def(self, free_vars: list[str], maybe_return_annotation: str, *, expanded_def: bool = False) -> str:
        names = [re.split("[:=]", var)[0].strip() for var in free_vars if var != "self"]
        head = f"def {self._func_name}(self, args_list){maybe_return_annotation}:"
        if not names:
            return head
        steps = ["args_iter = iter(args_list)", *(f"{name} = next(args_iter)" for name in names), "args_list.clear()"]
        return head + "".join(f"\n    {step}" for step in steps)


class PyTreeCodeGen(CodeGen):
    """A function whose arguments are nested, of a graph whose arguments are their leaves."""

    def __init__(self, pytree_info: PyTreeInfo) -> None:
        super().__init__()
        self.pytree_info = pytree_info

    def process_inputs(self, *inputs: Any) -> Any:
        """The leaves of the arguments."""
        return pytree.tree_leaves(inputs)

    def process_outputs(self, outputs: Any) -> Any:
        """The leaves put together."""
        if self.pytree_info is None or self.pytree_info.out_spec is None:
            return outputs
        leaves = outputs if isinstance(outputs, (list, tuple)) else [outputs]
        return pytree.tree_unflatten(leaves, self.pytree_info.out_spec)

    def gen_fn_def(self, free_vars: list[str], maybe_return_annotation: str, *, expanded_def: bool = False) -> str:
        """The head, in which the arguments are taken apart."""
        names = self.pytree_info.orig_args
        if names and names[0] == "self":
            free_vars.insert(0, "self")
        head = super().gen_fn_def([*names], maybe_return_annotation, expanded_def=expanded_def)
        return head + (self._taken_apart(names, free_vars) if free_vars else "")

    def _taken_apart(self, names: list[str], free_vars: list[str]) -> str:
        spec = self.pytree_info.in_spec
        given = f"[{', '.join(names)}]"
        if spec.type is tuple and [c.type for c in spec.children_specs] == [tuple, dict]:
            count = spec.children_specs[0].num_children
            keys = zip(spec.children_specs[1].context, names[count:], strict=False)
            given = f"([{', '.join(names[:count])}], {{{', '.join(f'{k!r}:{name}' for k, name in keys)}}})"
        typed = [var.partition("=")[0].strip() for var in free_vars if ":" in var]
        kinds = "\n    " + "".join(f"{var}; " for var in typed) + "\n" if typed else ""
        left = ", ".join(re.split("[:#=]", var)[0].strip() for var in free_vars)
        return f"{kinds}\n    {left}, = fx_pytree.tree_flatten_spec({given}, self._in_spec)"

    def generate_output(
        self, output_args: Any, *, descs: Sequence[str] | None = None, repr_fn: Callable[[Any], str] | None = None
    ) -> str:
        """The statement that returns, put together."""
        if self.pytree_info and self.pytree_info.out_spec:
            return f"return pytree.tree_unflatten({(repr_fn or repr)(output_args)}, self._out_spec)"
        return super().generate_output(output_args, repr_fn=repr_fn)
