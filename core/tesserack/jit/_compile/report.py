"""What became of a function: its graphs, and why there are none."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from operator import getitem
from pathlib import Path
from typing import Any

from tesserack.jit._compile.compiled import Compiled, config

__all__ = ["ExplainOutput", "explain"]


@dataclass
class GraphBreak:
    """Why a run is no graph."""

    reason: str
    user_stack: list[Any] = field(default_factory=list)
    graph_break: bool = True


@dataclass
class ExplainOutput:
    """The graphs of a call, how many steps each has, and why there are none where there are none. ``out_guards`` tells
    what later calls compare: what must be as it was for the graph to run.
    """

    graphs: list[Any]
    graph_count: int
    graph_break_count: int
    break_reasons: list[GraphBreak]
    op_count: int
    ops_per_graph: list[list[Any]] | None = None
    out_guards: list[Any] | None = None
    compile_times: str | None = None
    name: str = "function"
    planned: list[str] = field(default_factory=list)  # how graphs of what was compiled, and called, run by now

    def to_html(self, path: str | os.PathLike[str] | None = None) -> str:
        """The same as a page with a picture of each graph, and the lines of the program that are none; it is written
        to ``path`` if one is given. It needs no other file.

        >>> import tesserack as ts
        >>> told = explain(lambda x: x.relu() + 1)(ts.ones(2))
        >>> "<svg" in told.to_html(), "<script" in told.to_html()
        (True, False)
        """
        from tesserack.jit._compile.page import page

        text = page(self, f"compile: {self.name}")
        if path is not None:
            Path(path).write_text(text, encoding="utf-8")
        return text

    def __str__(self) -> str:
        lines = [f"Graph Count: {self.graph_count}", f"Graph Break Count: {self.graph_break_count}",
                 f"Op Count: {self.op_count}", "Break Reasons:"]  # fmt: skip
        for number, found in enumerate(self.break_reasons, 1):
            lines += [f"  Break Reason {number}:", f"    Reason: {found.reason}"]
        for number, ops in enumerate(self.ops_per_graph or [], 1):
            lines += [f"Ops per Graph {number}:", *(f"    {op}" for op in ops)]
        if self.planned:
            lines += ["Planned:", *(f"    {plan}" for plan in self.planned)]
        if self.out_guards:
            lines += ["Compared at each call:", *(f"    {guard}" for guard in self.out_guards)]
        return "\n".join(lines)


def _planned(compiled: Compiled) -> list[str]:
    """How each graph runs: halves with their kernels, and why calls of operators are not planned."""
    told = [*compiled.reasons, *compiled.notes]
    found = [f"calls are plain Python's: {told[-1]}"] if compiled.plain and told else []
    for number, entry in enumerate(compiled.places, 1):
        for runner in getattr(entry.capture.module, "runners", ()):
            found += [f"graph {number}, {_plan(plan)}" for plan in runner.plans()]
            found += [f"graph {number} is called operator by operator: {why}" for why in runner.why_called()]
    return found


def _plan(plan: dict[str, Any]) -> str:
    told = f"{plan['half'] or 'whole'}: {plan['kernels']} kernels"
    if plan["fused"]:
        told += f", {plan['fused']} more within these"
    if plan["claimed"]:
        told += f", {plan['claimed']} in parts that the card compiled"
    if plan["recorded"]:
        told += f", {plan['recorded']} of them launched together"
    if plan["branches"] > 1:
        told += f" in up to {plan['branches']} branches side by side"
    if plan["called"]:
        told += f", {plan['called']} operators called ({', '.join(sorted(set(plan['operators'])))})"
    return f"{told}; {plan['arena']:,} bytes between them"


def _guards(compiled: Compiled) -> list[str]:
    """What is compared: arguments, what the program's code reads by name, and the modules it comes to."""
    found: list[str] = []
    for entry in compiled.places:
        depends = entry.dependencies
        given = enumerate(entry.capture.outlines)
        found += [f"argument {k}: {dtype}{shape} on {device}" for k, (dtype, shape, device) in given]
        names = {".".join((r.name, *r.path)) for _, _, r in depends.found}
        found += [f"global {name}" for name in sorted(names)]
        found += [f"closure {name}" for name in sorted({n for code in depends.codes for n in code.co_freevars})]
        parts = Counter(type(module).__name__ for module in depends.tokens.modules.values())
        found += [
            f"module {name}" + (f", {count} of them" if count > 1 else "") for name, count in sorted(parts.items())
        ]
    return found


def explain(f: Callable[..., Any], *extra_args: Any, **extra_kwargs: Any) -> Any:
    """A function of arguments: what becomes of a call with these, which runs as plain Python where it is no graph.

    >>> import tesserack as ts
    >>> print(explain(lambda x: x.relu() + 1)(ts.ones(2)))
    Graph Count: 1
    Graph Break Count: 0
    Op Count: 2
    Break Reasons:
    Ops per Graph 1:
        aten.relu.default
        aten.add.Tensor
    Compared at each call:
        argument 0: tesserack.float32(2,) on cpu
    """

    def inner(*args: Any, **kwargs: Any) -> ExplainOutput:
        graphs: list[Any] = []

        def keep(gm: Any, example_inputs: Any) -> Any:
            graphs.append(gm)
            return gm.forward

        function = getattr(f, "_torchdynamo_orig_callable", getattr(f, "_orig_mod", f))
        compiled = Compiled(function, [function], keep, False, {})
        for _ in range(config["attempts"] + config["closer"]):  # a run that imports something is tried again
            compiled(*args, **kwargs)
            if graphs or compiled.plain:
                break
        steps = [
            [n.target for n in gm.graph.nodes if n.op == "call_function" and n.target is not getitem] for gm in graphs
        ]
        reasons = [GraphBreak(reason) for reason in compiled.reasons]
        count = sum(map(len, steps))
        name = getattr(function, "__qualname__", type(function).__name__)
        own = getattr(f, "__dict__", {}).get("_compiled")
        planned = _planned(own) if isinstance(own, Compiled) else []
        return ExplainOutput(
            graphs, len(graphs), len(reasons), reasons, count, steps, _guards(compiled), name=name, planned=planned
        )

    return inner(*extra_args, **extra_kwargs) if extra_args or extra_kwargs else inner
