"""The smallest part of a module for which two ways to run it differ."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tesserack.fx._compatibility import compatibility
from tesserack.fx.graph_module import GraphModule
from tesserack.fx.node import Node, map_arg
from tesserack.fx.passes.shape_prop import ShapeProp
from tesserack.fx.passes.split_utils import split_by_tags
from tesserack.fx.passes.tools_common import CALLABLE_NODE_OPS, FxNetAccFusionsFinder, Names, NodeList, NodeSet

__all__ = ["FxNetMinimizerBadModuleError", "FxNetMinimizerResultMismatchError", "FxNetMinimizerRunFuncError"]

_LOGGER = logging.getLogger(__name__)


@compatibility(is_backward_compatible=False)
class FxNetMinimizerBadModuleError(Exception):
    """The part could not be taken out of the module."""


@compatibility(is_backward_compatible=False)
class FxNetMinimizerRunFuncError(Exception):
    """The part could not be run."""


@compatibility(is_backward_compatible=False)
class FxNetMinimizerResultMismatchError(Exception):
    """The two ways to run the part differ."""


_FAULTS = (FxNetMinimizerRunFuncError, FxNetMinimizerResultMismatchError)


@dataclass
class _MinimizerSettingBase:
    """Whether errors add up along the graph, how parts are sought (``sequential``, ``binary``, ``block``,
    ``accumulate``, ``skip``, ``defined``), and whether all of them are.
    """

    accumulate_error: bool = False
    traverse_method: str = "sequential"
    find_all: bool = False
    return_intermediate: bool = False
    all_outputs: bool = False

    def __str__(self) -> str:
        return "FX Minimizer Settings:\n" + "".join(f"\t{k}: {v}\n" for k, v in vars(self).items())


class _MinimizerBase:
    """Runs parts of a module in two ways, ``run_a`` and ``run_b`` of a subclass, and compares what they give.

    ``compare_fn(a, b, names)`` gives a number and whether the results agree; ``exclusion_fn(nodes, first, last)`` may
    take nodes out of a list; ``module_exporter(inputs, module, name)`` is given a part that differs.
    """

    def __init__(
        self,
        module: GraphModule,
        sample_input: Any,
        compare_fn: Callable[[Any, Any, Names], tuple[float, bool]],
        settings: _MinimizerSettingBase,
        module_exporter: Callable[[Any, GraphModule, str], None] | None = None,
        exclusion_fn: Callable[[NodeList, int, int], None] | None = None,
    ) -> None:
        assert isinstance(module, GraphModule), f"Expected GraphModule, got {type(module)}"
        self.module, self.sample_input, self.compare_fn, self.settings = module, sample_input, compare_fn, settings
        self.module_exporter, self.exclusion_fn = module_exporter, exclusion_fn
        self.results: dict[Any, Any] = {}
        self.reports: list[list[str]] = []
        self.iteration = 0
        self.run_shape_prop()
        callable_nodes = {node for node in module.graph.nodes if node.op in CALLABLE_NODE_OPS}
        self.fusions = FxNetAccFusionsFinder(module, callable_nodes)()
        names = [node.name for node in module.graph.nodes if node.op == "placeholder"]
        assert len(names) == len(sample_input), (
            f"Placeholder count ({len(names)}) does not match sample_input count ({len(sample_input)})"
        )
        self.a_outputs: dict[str, Any] = dict(zip(names, sample_input, strict=True))
        self.b_outputs: dict[str, Any] = {**self.a_outputs}

    def run_shape_prop(self) -> None:
        """Note what values are like."""
        ShapeProp(self.module).propagate(*self.sample_input)

    def run_a(self, mod: GraphModule, inputs: Any, report_idx: int = -1) -> Any:
        """The results one way."""
        raise RuntimeError("run_a() is not implemented.")

    def run_b(self, mod: GraphModule, inputs: Any, report_idx: int = -1) -> Any:
        """The results the other way."""
        raise RuntimeError("run_b() is not implemented.")

    # --- one part ----------------------------------------------------------------------------------------------------

    def _inputs(self, whole: GraphModule, name: str) -> tuple[Any, Any]:
        part = getattr(whole, name)
        names = [node.name for node in part.graph.nodes if node.op == "placeholder"]
        if set(names) <= self.a_outputs.keys():
            of_a, of_b = ([outputs[n] for n in names] for outputs in (self.a_outputs, self.b_outputs))
        else:
            seen: list[Any] = []
            handle = part.register_forward_pre_hook(lambda module, inputs: seen.append(inputs))
            whole(*self.sample_input)
            handle.remove()
            of_a = of_b = [*seen[0]]
        return of_a, of_b if self.settings.accumulate_error else of_a

    def _tag_nodes(self, selected_nodes: NodeSet) -> None:
        for node in self.module.graph.nodes:
            if node.op not in CALLABLE_NODE_OPS:
                continue
            read = [n for n in node.all_input_nodes if n.op in CALLABLE_NODE_OPS]
            after = any(n.tag in ("minimize", "main_1") for n in read)
            node.tag = "minimize" if node in selected_nodes else "main_1" if after else "main_0"

    def _build_submodule(self, nodes: NodeSet) -> tuple[GraphModule, str]:
        self._tag_nodes(nodes)
        whole = split_by_tags(self.module, ["main_0", "minimize", "main_1"])
        names = [name for name, _ in whole.named_children() if "minimize" in name]
        if len(names) != 1:
            raise FxNetMinimizerBadModuleError(f"Expected only one minimize submodule with nodes {nodes}")
        return whole, names[0]

    def _run_and_compare(self, whole: GraphModule, name: str, output_names: Names, report_idx: int = -1) -> None:
        part = getattr(whole, name)
        of_a, of_b = self._inputs(whole, name)
        if not self.reports:
            self.reports.append([])
            self.iteration = 1
        report = self.reports[report_idx if report_idx >= 0 else self.iteration - 1]
        report.append("Run and compare ...")
        if output_names and not self.settings.all_outputs:
            _return(part, output_names)
        key = map_arg(part.graph.output_node().args, lambda n: n.name)
        try:
            result_a, result_b = self.run_a(part, of_a, report_idx), self.run_b(part, of_b, report_idx)
            self._store(part, result_a, result_b)
        except Exception as error:
            report.append(f"Exception raised when running {name}: {error}")
            raise FxNetMinimizerRunFuncError(f"Exception raised when running {name}: {error}") from error
        number, alike = self.compare_fn(result_a, result_b, output_names or [str(v) for v in key])
        self.results[key] = number
        report.append(f"Numerical accuracy = {number}")
        if not alike:
            report.append(f"Result mismatch for {key}")
            if self.module_exporter is not None:
                shown = str(key[-1][0] if isinstance(key[-1], tuple) else key[-1])
                self.module_exporter(of_a, part, f"{shown}_cpu")
                self.module_exporter(of_b, part, f"{shown}_acc")
            raise FxNetMinimizerResultMismatchError(f"Result mismatch for {key}")

    def _store(self, part: GraphModule, result_a: Any, result_b: Any) -> None:
        returned: Any = part.graph.output_node().args[0]
        pairs = zip(returned, result_a, result_b, strict=True) if not isinstance(returned, Node) else [
            (returned, result_a, result_b)]  # fmt: skip
        for node, a, b in pairs:
            self.a_outputs[node.name], self.b_outputs[node.name] = a, b

    def _try(self, nodes: NodeSet, last: str, title: list[str]) -> bool:
        """Whether the two ways differ for these nodes."""
        self.iteration += 1
        self.reports.append(title)
        try:
            self._run_and_compare(*self._build_submodule(nodes), [last])
        except _FAULTS as error:
            title.append(f"Found {type(error).__name__} for {sorted(nodes)}")
            return True
        finally:
            self.print_report(title)
        return False

    def _left(self, nodes: NodeList, first: int = -1, last: int = -1) -> NodeList:
        """The nodes that the user does not exclude."""
        found = [*nodes]
        if self.exclusion_fn is not None:
            self.exclusion_fn(found, first, last)
        return found

    # --- ways to search ----------------------------------------------------------------------------------------------

    def _binary_traverse(self, nodes: NodeList, first: int = 0) -> NodeSet:
        left = self._left(nodes, first, first + len(nodes))
        if not left:
            self.reports.append(["All nodes are excluded by user"])
            return set()
        title = [f"Binary search iteration {self.iteration + 1}", f"From {left[0].name} to {left[-1].name}"]
        if not self._try(set(left), left[-1].name, title):
            return set()
        if len(nodes) == 1:
            return set(left)
        middle = len(nodes) // 2
        found = self._binary_traverse(nodes[:middle], first)
        if found and not self.settings.find_all:
            return found
        return found | self._binary_traverse(nodes[middle:], first + middle)

    def _sequential_traverse(self, nodes: NodeList) -> NodeSet:
        found: NodeSet = set()
        for node in nodes:
            if not self._left([node]):
                continue
            group = self.fusions.get(node, {node})
            title = [f"Sequential traverse iteration {self.iteration + 1}.", f"Visit node: {node.name}"]
            if self._try(group, node.name, title):
                found.add(node)
                if not self.settings.find_all:
                    break
        return found

    def _accumulate_traverse(self, nodes: NodeList) -> NodeSet:
        if self.settings.find_all:
            print("'Find All' mode is not supported in accumulate traversal.")
            return set()
        for count, node in enumerate(nodes, 1):
            if self._try(set(nodes[:count]), node.name, [f"Accumulate traverse, add node: {node.name}"]):
                return {node}
        return set()

    def _defined_traverse(self, nodes: NodeList) -> NodeSet:
        left = self._left(nodes)
        if not left:
            self.reports.append(["All nodes are excluded by user"])
            return set()
        title = [f"Defined graph from {left[0].name} to {left[-1].name}"]
        return set(left) if self._try(set(left), left[-1].name, title) else set()

    def _block_traverse(self, nodes: NodeList, find_last_node: bool | None) -> NodeSet:
        """The block between the first prefix that differs and the last suffix that does."""
        last, first = len(nodes) - 1, 0
        if not self._try(set(self._left(nodes)), nodes[-1].name, ["Block search, all nodes"]):
            return set()
        if find_last_node is None or find_last_node:
            last = self._bisect(0, last, lambda k: self._differs(nodes[: k + 1]))
        if not find_last_node:
            first = last - self._bisect(0, last, lambda k: self._differs(nodes[last - k : last + 1]))
        return set(nodes[first : last + 1])

    def _differs(self, nodes: NodeList) -> bool:
        left = self._left(nodes)
        title = [f"Block search iteration {self.iteration + 1}", f"From {nodes[0].name} to {nodes[-1].name}"]
        return bool(left) and self._try(set(left), left[-1].name, title)

    @staticmethod
    def _bisect(low: int, high: int, holds: Callable[[int], bool]) -> int:
        """The least number for which it holds; it does for the largest."""
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if holds(middle) else (middle + 1, high)
        return low

    def _skip_traverse(self, all_nodes: NodeList, skip_nodes: list[str]) -> NodeSet:
        """Blocks between nodes that are left out."""
        found: NodeSet = set()
        block: NodeList = []
        for node in [*all_nodes, None]:
            if node is not None and node.name not in skip_nodes:
                block.append(node)
                continue
            left = self._left(block) if block else []
            if left and self._try(set(left), left[-1].name, [f"Nodes block from {left[0].name} to {left[-1].name}"]):
                found.update(left)
                if not self.settings.find_all:
                    break
            block = []
        return found

    def _collect_nodes(self, start: str | None, end: str | None) -> NodeList:
        """The nodes from one name to another, both of them included; all where none are given."""
        found: NodeList = []
        collecting = start is None
        for node in self.module.graph.nodes:
            if node.op not in CALLABLE_NODE_OPS:
                continue
            collecting = collecting or node.name == start
            if collecting:
                found.append(node)
            if node.name == end:
                break
        return found

    def run_nodes(self, start: str | None = None, end: str | None = None) -> None:
        """Run the part from one node to another both ways, and compare; prints what fails."""
        nodes = self._collect_nodes(start, end)
        try:
            whole, name = self._build_submodule(set(nodes))
            self._run_and_compare(whole, name, [])
        except _FAULTS as error:
            print(error)

    def print_report(self, report: list[str]) -> None:
        """Log what is known so far."""
        _LOGGER.info("\n".join(report))

    def print_reports(self) -> None:
        """Log all that is known."""
        for report in self.reports:
            self.print_report(report)

    def minimize(
        self,
        start: str | None = None,
        end: str | None = None,
        skip_nodes: list[str] | None = None,
        find_last_node: bool | None = None,
    ) -> NodeSet:
        """The nodes for which the two ways differ, sought as the settings say. ``RuntimeError`` for an unknown way."""
        nodes = self._collect_nodes(start, end)
        method = self.settings.traverse_method
        if method == "skip":
            if skip_nodes is None:
                raise RuntimeError("'skip_nodes' can't be None when 'traverse_method' is 'skip'.")
            return self._skip_traverse(nodes, skip_nodes)
        if method == "block":
            return self._block_traverse(nodes, find_last_node)
        ways = {"sequential": self._sequential_traverse, "binary": self._binary_traverse,
                "accumulate": self._accumulate_traverse, "defined": self._defined_traverse}  # fmt: skip
        if method not in ways:
            raise RuntimeError(f"Unknown traverse method {method}!")
        return ways[method](nodes)


def _return(part: GraphModule, names: Names) -> None:
    """Have a part return the nodes of these names."""
    found = [node for node in part.graph.nodes if node.name in names]
    part.graph.erase_node(part.graph.output_node())
    part.graph.output(found[0] if len(found) == 1 else tuple(found))
    part.graph.lint()
    part.recompile()
