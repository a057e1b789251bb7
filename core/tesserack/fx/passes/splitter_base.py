"""A module in parts that a backend takes and parts that it does not."""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from tesserack.fx._compatibility import compatibility
from tesserack.fx.graph_module import GraphModule
from tesserack.fx.node import Node
from tesserack.fx.passes._split_inputs import generate_inputs_for_submodules
from tesserack.fx.passes._split_preview import Preview
from tesserack.fx.passes.operator_support import OperatorSupportBase
from tesserack.fx.passes.shape_prop import ShapeProp
from tesserack.fx.passes.split_utils import move_non_tensor_nodes_on_boundary, split_by_tags
from tesserack.fx.passes.tools_common import (
    CALLABLE_NODE_OPS,
    FxNetAccFusionsFinder,
    NodeList,
    NodeSet,
    is_node_output_tensor,
)
from tesserack.nn.modules.module import Module

__all__ = ["FxNetAccNodesFinder", "FxNetSplitterInternalError", "NodeEvent", "NodeEventTracker", "SplitResult",
           "Subgraph", "generate_inputs_for_submodules"]  # fmt: skip

DEFAULT_MIN_ACC_MODULE_SIZE = 1
DEFAULT_SKIP_FUSION = False
DEFAULT_ALLOW_NON_TENSOR = False


class _SplitterSettingBase:
    """How small a supported part may be, whether groups that share what are no tensors stay together, whether these may
    pass between parts, and how many parts there may be; the command line may say so, too.
    """

    def __init__(
        self,
        min_acc_module_size: int = DEFAULT_MIN_ACC_MODULE_SIZE,
        skip_fusion: bool = DEFAULT_SKIP_FUSION,
        allow_non_tensor: bool = DEFAULT_ALLOW_NON_TENSOR,
        max_acc_splits: int = -1,
        move_non_tensor_nodes_on_boundary: bool = False,
    ) -> None:
        parser = argparse.ArgumentParser(allow_abbrev=False)
        parser.add_argument("--min-acc-module-size", "--min_acc_module_size", type=int)
        parser.add_argument("--max-acc-splits", "--max_acc_splits", type=int)
        for name in ("skip-fusion", "allow-non-tensor", "move-non-tensor-nodes-on-boundary"):
            parser.add_argument(f"--{name}", f"--{name.replace('-', '_')}", action="store_true")
        given, _ = parser.parse_known_args()
        self.min_acc_module_size: int = given.min_acc_module_size or min_acc_module_size
        self.skip_fusion: bool = given.skip_fusion or skip_fusion
        self.allow_non_tensor: bool = given.allow_non_tensor or allow_non_tensor
        self.max_acc_splits: int = given.max_acc_splits or max_acc_splits
        self.move_non_tensor_nodes_on_boundary: bool = (
            given.move_non_tensor_nodes_on_boundary or move_non_tensor_nodes_on_boundary
        )


@compatibility(is_backward_compatible=False)
class NodeEvent:
    """Why a node is taken or not, and because of which other one."""

    def __init__(self, source: Node, desc: str, dep: Node | None = None) -> None:
        self.source, self.desc, self.dep = source, desc, dep

    def to_str(self) -> str:
        """As a line."""
        return f"{self.source.name}: {self.desc} {self.dep.name if self.dep else '#'}"


@compatibility(is_backward_compatible=False)
class NodeEventTracker:
    """What happened to nodes while the supported ones were sought."""

    def __init__(self, tracker_mode: int = 0, dump_prefix: str = "") -> None:
        self.tracker_mode, self.dump_prefix = tracker_mode, dump_prefix
        self.events: list[NodeEvent] = []
        self.node_events: dict[str, list[int]] = {}
        self.writer: Any = print

    def add(self, node: Node, desc: str, dep: Node | None = None) -> None:
        """Note one more."""
        self.node_events.setdefault(node.name, []).append(len(self.events))
        self.events.append(NodeEvent(node, desc, dep))

    def print_node(self, node_name: str, recursive: bool = False, tab: str = "", writer: Any = None) -> None:
        """Write what happened to a node, and if asked to those because of which it did."""
        for number in self.node_events.get(node_name, []):
            event = self.events[number]
            (writer or self.writer)(tab + event.to_str())
            if recursive and event.dep is not None:
                self.print_node(event.dep.name, True, f"| {tab}", writer)

    def to_dict(self) -> dict[str, list[str]]:
        """What happened, by node."""
        return {name: [self.events[k].to_str() for k in found] for name, found in self.node_events.items()}

    def print_all(self, writer: Any = None) -> None:
        """Write what happened to every node."""
        for name in self.node_events:
            (writer or self.writer)(f"Node: {name}:")
            self.print_node(name, tab="  ", writer=writer)


@compatibility(is_backward_compatible=False)
class FxNetAccNodesFinder:
    """The nodes that a backend takes. Unless ``allow_non_tensor``, those are left out that read from, or hand to,
    others what are no tensors.
    """

    def __init__(self, module: GraphModule, operator_support: OperatorSupportBase, allow_non_tensor: bool) -> None:
        self.module, self.operator_support, self.allow_non_tensor = module, operator_support, allow_non_tensor
        self.acc_nodes: NodeSet = set()
        self.tracker = NodeEventTracker()

    def _leave_out_readers(self, nodes: NodeList) -> None:
        while nodes:
            node = nodes.pop(0)
            for user in node.users:
                if user in self.acc_nodes:
                    self.acc_nodes.remove(user)
                    self.tracker.add(user, "acc_del|user_of_new_cpu_node", node)
                    if not is_node_output_tensor(user):
                        nodes.append(user)

    def reduce_acc_nodes_non_tensor_input(self) -> None:
        """Leave out those that read what are no tensors."""
        self._leave_out_readers([
            node for node in self.module.graph.nodes
            if node.op in CALLABLE_NODE_OPS and node not in self.acc_nodes and not is_node_output_tensor(node)
        ])  # fmt: skip

    def reduce_acc_nodes_non_tensor_output(self) -> None:
        """Leave out those that hand others what are no tensors."""
        while True:
            found = [
                node for node in sorted(self.acc_nodes)
                if not is_node_output_tensor(node) and any(user not in self.acc_nodes for user in node.users)
            ]  # fmt: skip
            if not found:
                return
            for node in found:
                self.acc_nodes.remove(node)
                self.tracker.add(node, "acc_del|non_tensor_output_with_cpu_user")
            self._leave_out_readers(found)

    def __call__(self) -> NodeSet:
        modules = dict(self.module.named_modules())
        self.acc_nodes = set()
        for node in self.module.graph.nodes:
            if node.op not in CALLABLE_NODE_OPS:
                self.tracker.add(node, "init_cpu|not_callable")
            elif not self.operator_support.is_node_supported(modules, node):
                self.tracker.add(node, "init_cpu|operator_support")
            else:
                self.tracker.add(node, "init_acc|callable_and_operator_supported")
                self.acc_nodes.add(node)
        if not self.allow_non_tensor:
            self.reduce_acc_nodes_non_tensor_input()
            self.reduce_acc_nodes_non_tensor_output()
        return self.acc_nodes


@compatibility(is_backward_compatible=False)
class FxNetSplitterInternalError(Exception):
    """The parts could not be made."""


@compatibility(is_backward_compatible=False)
@dataclass
class Subgraph:
    """A part: its nodes, and whether the backend takes it."""

    is_acc: bool
    nodes: NodeList
    device_ordinal: int | None = None


class SplitResult(NamedTuple):
    """A module in parts, example inputs of each, and the beginning of the names of parts that are not taken."""

    split_module: GraphModule
    submodule_inputs: dict[str, Any]
    non_acc_submodule_prefix: str


class _SplitterBase(Preview):
    """Splits a module at its example inputs into ``_run_on_acc_0``, ``_run_on_cpu_1`` and so on.

    Subclasses may lower a part (``_lower_model_to_backend``), and say which node makes that fail (``_find_culprit``).
    """

    PCIe_BW = 100 * 2**30

    def __init__(
        self,
        module: GraphModule,
        sample_input: Sequence[Any],
        operator_support: OperatorSupportBase,
        settings: _SplitterSettingBase,
        non_acc_submodule_name: str = "_run_on_cpu_",
        return_tuple: bool = False,
        nodes_finder: FxNetAccNodesFinder | None = None,
    ) -> None:
        assert isinstance(module, GraphModule), f"Expected GraphModule, got {type(module)}"
        self.module, self.sample_input, self.operator_support = module, sample_input, operator_support
        self.settings, self.non_acc_submodule_name, self._return_tuple = settings, non_acc_submodule_name, return_tuple
        ShapeProp(module).propagate(*sample_input)
        finder = nodes_finder or FxNetAccNodesFinder(module, operator_support, settings.allow_non_tensor)
        self.acc_nodes = finder()
        self.fusions = {} if settings.skip_fusion else FxNetAccFusionsFinder(module, self.acc_nodes)()
        self.deps = self.find_deps()
        self.update_deps_for_fusions()
        self._node_submodule_map: dict[str, str] = {}
        self.tags: list[str] = []

    def get_node_submodule_map(self) -> dict[str, str]:
        """The part that each node is in, by name."""
        return self._node_submodule_map

    def find_deps(self) -> dict[Node, NodeSet]:
        """The nodes that each node reads."""
        deps: dict[Node, NodeSet] = defaultdict(set)
        for node in self.module.graph.nodes:
            if node.op in CALLABLE_NODE_OPS:
                for user in node.users:
                    if user.op != "output":
                        deps[user].add(node)
        return deps

    def update_deps_for_fusions(self) -> None:
        """Have nodes of a group wait for what any of them reads, and others for all of the group."""
        for node, group in self.fusions.items():
            for neighbour in group:
                self.deps[node].update(self.deps[neighbour] - group)
                for user in neighbour.users:
                    if user not in group:
                        self.deps[user].add(node)

    def _lower_model_to_backend(self, mod: GraphModule, inputs: Any) -> Module:
        return mod

    def _find_culprit(self, mod: GraphModule, inputs: Any) -> str:
        return "Unable to find a culprit because _find_culprit() function is not implemented."

    # --- parts -------------------------------------------------------------------------------------------------------

    def starter_nodes(self) -> tuple[dict[Node, None], dict[Node, None]]:
        """The nodes that only read parameters: those that are not taken, and those that are."""
        found: tuple[dict[Node, None], dict[Node, None]] = ({}, {})
        for node in self.module.graph.nodes:
            if node.op == "call_function" and not node.all_input_nodes:
                found[node in self.acc_nodes][node] = None
            for user in node.users if node.op in ("placeholder", "get_attr") else ():
                found[user in self.acc_nodes][user] = None
        return found

    def put_nodes_into_subgraphs(self) -> list[Subgraph]:
        """The parts, by turns of those that are not taken and those that are."""
        waiting = self.starter_nodes()
        for nodes in waiting:
            for node in [node for node in nodes if node.op not in CALLABLE_NODE_OPS]:
                del nodes[node]
        seen: NodeSet = set()
        taken = not any(not self.deps[node] for node in waiting[False])
        parts, current = list[Subgraph](), list[Node]()
        while waiting[False] or waiting[True]:
            ready = next((n for n in waiting[taken] if self.deps[n] <= seen), None)
            if ready is None:
                if not current:
                    raise FxNetSplitterInternalError("Subgraph can't be empty")
                parts.append(Subgraph(taken, current))
                taken, current = not taken, []
                continue
            del waiting[taken][ready]
            seen.add(ready)
            current.append(ready)
            following = [*sorted(self.fusions.get(ready, set()) - seen), *ready.users]
            for other in following:
                if other.op in CALLABLE_NODE_OPS and other not in seen:
                    waiting[other in self.acc_nodes][other] = None
        if current:
            parts.append(Subgraph(taken, current))
        if not parts:
            raise FxNetSplitterInternalError("Couldn't create subgraphs")
        return parts

    def remove_small_acc_subgraphs(self, subgraphs: list[Subgraph]) -> list[Subgraph]:
        """The parts, with supported ones that are too small made part of what comes before them."""
        found: list[Subgraph] = []
        for part in subgraphs:
            small = part.is_acc and len(part.nodes) < self.settings.min_acc_module_size
            if small:
                print(
                    "Eliminating acc subgraph because it's smaller than the threshold: "
                    f"{len(part.nodes)} < {self.settings.min_acc_module_size}"
                )
            if found and (small or (not part.is_acc and not found[-1].is_acc)):
                found[-1].nodes.extend(part.nodes)
            else:
                part.is_acc = part.is_acc and not small
                found.append(part)
        return found

    def tag(self, subgraphs: list[Subgraph]) -> None:
        """Note at nodes which part they are in."""
        self.tags = []
        for part in subgraphs:
            tag = f"{'_run_on_acc_' if part.is_acc else self.non_acc_submodule_name}{len(self.tags)}"
            self.tags.append(tag)
            for node in part.nodes:
                if hasattr(node, "tag"):
                    raise FxNetSplitterInternalError(f"Node {node} was already tagged")
                node.tag = tag
                self._node_submodule_map[node.name] = tag

    def split(self, remove_tag: bool = False) -> GraphModule:
        """The module in parts, by the tags of its nodes."""
        made: GraphModule = split_by_tags(self.module, self.tags, return_tuple=self._return_tuple)
        if remove_tag:
            for node in self.module.graph.nodes:
                node.__dict__.pop("tag", None)
        return made

    def __call__(self) -> GraphModule:
        parts = self.put_nodes_into_subgraphs()
        if self.settings.move_non_tensor_nodes_on_boundary:
            move_non_tensor_nodes_on_boundary(parts)
        parts = self.remove_small_acc_subgraphs(parts)
        taken = sum(part.is_acc for part in parts)
        print(f"Got {taken} acc subgraphs and {len(parts) - taken} non-acc subgraphs")
        self.tag(parts)
        return self.split()

    def generate_split_results(self) -> SplitResult:
        """The module in parts with example inputs of each. ``ValueError`` if there are more than settings allow."""
        made = self()
        names = [name for name, _ in made.named_children()]
        if 0 < self.settings.max_acc_splits < len(names):
            raise ValueError(
                "Cannot fulfill max_acc_splits limit. This may cause split fragmentation and result in performance "
                "issues."
            )
        inputs = generate_inputs_for_submodules(made, self.sample_input, names)
        return SplitResult(made, inputs, self.non_acc_submodule_name)
