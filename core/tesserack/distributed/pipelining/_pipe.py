"""A whole module cut into stages at marks: what is computed between them, as modules of their own."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from tesserack import fx
from tesserack.distributed.pipelining.stage import PipelineStage, build_stage

__all__ = ["Pipe", "SplitPoint", "pipe_split", "pipeline"]

_tracers: list[_Tracer] = []


class SplitPoint(enum.Enum):
    """Where a stage begins: before a submodule is called, or after."""

    BEGINNING = 1
    END = 2


def pipe_split() -> None:
    """In a ``forward`` that :func:`pipeline` traces: the next stage begins here. Else nothing."""
    if _tracers:
        _tracers[-1].create_node("call_function", pipe_split, (), {})


class _Tracer(fx.Tracer):
    """Goes into those modules alone that a cut is in."""

    def __init__(self, marks: Mapping[str, SplitPoint]) -> None:
        super().__init__()
        self._marks = marks

    def is_leaf_module(self, m: Any, module_qualified_name: str) -> bool:
        if not self._marks:
            return super().is_leaf_module(m, module_qualified_name)
        return not any(mark.startswith(f"{module_qualified_name}.") for mark in self._marks)


class PipeInfo(NamedTuple):
    """What a stage needs to know of the pipeline."""

    graph: Any
    num_stages: int
    has_loss_and_backward: bool = False


class Pipe:
    """A module cut into stages, which :func:`pipeline` makes; parameters keep their names."""

    def __init__(self, stages: list[Any], graph: Any) -> None:
        self._stages, self._graph = stages, graph

    @property
    def num_stages(self) -> int:
        """How many there are."""
        return len(self._stages)

    def get_stage_module(self, stage_idx: int) -> Any:
        """The module of a stage."""
        if not 0 <= stage_idx < len(self._stages):
            raise ValueError(f"Invalid stage index {stage_idx}!")
        return self._stages[stage_idx]

    def info(self) -> PipeInfo:
        """What :func:`build_stage` is given."""
        return PipeInfo(self._graph, self.num_stages)

    def build_stage(self, stage_index: int, device: Any, group: Any = None) -> PipelineStage:
        """This rank's stage; its module is moved to ``device``."""
        return build_stage(self.get_stage_module(stage_index).to(device), stage_index, self.info(), device, group)

    def __call__(self, *args: Any) -> Any:
        """All stages, one after another, in this process."""
        for stage in self._stages:
            result = stage(*args)
            args = result if isinstance(result, tuple) else (result,)
        return result

    def __repr__(self) -> str:
        return f"Pipe({self.num_stages} stages)"


def pipeline(
    module: Any,
    mb_args: tuple[Any, ...],
    mb_kwargs: dict[str, Any] | None = None,
    split_spec: dict[str, SplitPoint] | None = None,
    split_policy: Callable[[Any], Any] | None = None,
) -> Pipe:
    """Cut a module into stages: where ``split_spec`` says, by names of submodules, or at :func:`pipe_split` in its
    ``forward``, or where ``split_policy(graph_module)`` puts calls of it. The ``forward`` around the marks is traced,
    by :mod:`tesserack.fx`; ``mb_args`` are the arguments of a microbatch.

    Raises ``ValueError`` for both a specification and a policy, and where no submodule of a name is called;
    ``RuntimeError`` where two stages share a parameter.

    >>> from tesserack import nn, ones
    >>> model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    >>> pipe = pipeline(model, (ones(4, 2),), split_spec={"1": SplitPoint.BEGINNING})
    >>> pipe.num_stages, [name for name, _ in pipe.get_stage_module(1).named_parameters()]
    (2, ['2.weight', '2.bias'])
    """
    if split_spec is not None and split_policy is not None:
        raise ValueError("Cannot specify both `split_spec` and `split_policy`. Please use only one of them.")
    if mb_kwargs:
        raise NotImplementedError("pipeline: expected the arguments of a microbatch by position, got keywords")
    marks = dict(split_spec or {})
    tracer = _Tracer(marks)
    _tracers.append(tracer)
    try:
        graph = tracer.trace(module)
    finally:
        _tracers.pop()
    if split_policy is not None:
        graph = split_policy(fx.GraphModule(module, graph)).graph
    stage_of = _stages_of(graph, marks)
    count = 1 + max(stage_of.values(), default=0)
    stages = [_Part(graph, stage_of, k, count).module(module) for k in range(count)]
    _check_shared(stages)
    return Pipe(stages, graph)


def _stages_of(graph: Any, marks: Mapping[str, SplitPoint]) -> dict[Any, int]:
    """The stage of each node that computes something."""
    found: dict[Any, int] = {}
    stage, left = 0, set(marks)
    for node in graph.nodes:
        if node.op == "call_function" and node.target is pipe_split:
            stage += 1
            continue
        mark = marks.get(node.target) if node.op == "call_module" else None
        if mark is SplitPoint.BEGINNING:
            stage += 1
        if node.op not in ("placeholder", "output", "get_attr"):
            found[node] = stage
        if mark is SplitPoint.END:
            stage += 1
        left.discard(node.target if mark is not None else "")
    if left:
        raise ValueError(f"pipeline: expected submodules that are called by name, got {', '.join(sorted(left))}")
    # A cut with nothing behind it is none.
    used = sorted({*found.values()})
    return {node: used.index(k) for node, k in found.items()}


class _Part:
    """The graph of one stage: it takes what the stages before it give, and gives what later ones need."""

    def __init__(self, graph: Any, stage_of: Mapping[Any, int], stage: int, count: int) -> None:
        self.graph, self.stage_of, self.stage, self.last = graph, stage_of, stage, stage == count - 1

    def _crossing(self, stage: int) -> list[Any]:
        """Nodes of stages before one that it or later ones need, in order; of the first, the model's arguments."""
        placed = [n for n in self.graph.nodes if n.op == "placeholder"]
        if stage == 0:
            return placed
        needed = set()
        for node in self.graph.nodes:
            if self.stage_of.get(node, -1) >= stage or node.op == "output":
                needed |= set(node.all_input_nodes)
        before = {n for n in needed if n.op != "get_attr" and self.stage_of.get(n, 0) < stage}
        return [n for n in self.graph.nodes if n in before]

    def module(self, root: Any) -> Any:
        """The stage as a module: parameters are those of ``root``, under the same names."""
        made, at = fx.Graph(), {}
        for node in self._crossing(self.stage):
            at[node] = made.placeholder(node.name)

        def value(node: Any) -> Any:
            if node.op == "get_attr" and node not in at:
                at[node] = made.node_copy(node, lambda n: at[n])
            return at[node]

        for node in self.graph.nodes:
            if self.stage_of.get(node) == self.stage:
                at[node] = made.node_copy(node, value)
            elif node.op == "output" and self.last:
                made.output(fx.map_arg(node.args[0], value))
        if not self.last:
            given = tuple(value(n) for n in self._crossing(self.stage + 1))
            made.output(given if len(given) != 1 else given[0])
        return fx.GraphModule(root, made)


def _check_shared(stages: list[Any]) -> None:
    seen: dict[int, tuple[int, str]] = {}
    for k, stage in enumerate(stages):
        for name, param in stage.named_parameters():
            other = seen.setdefault(id(param), (k, name))
            if other[0] != k:
                raise RuntimeError(
                    f"pipeline: expected every parameter in one stage, got {name} in stages {other[0]} and {k}; have "
                    "it computed in one of them"
                )
