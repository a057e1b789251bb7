"""What a splitter would do, in words."""

from __future__ import annotations

from typing import Any

from tesserack.fx.node import Node
from tesserack.fx.passes._split_inputs import generate_inputs_for_submodules
from tesserack.fx.passes.graph_manipulation import get_size_of_node
from tesserack.fx.passes.shape_prop import ShapeProp
from tesserack.fx.passes.tools_common import CALLABLE_NODE_OPS, get_node_target, is_node_output_tensor

__all__ = ["Preview"]


def _dtype(value: Any) -> Any:
    return getattr(value.meta.get("tensor_meta"), "dtype", None) if isinstance(value, Node) else None


def _trimmed(dtypes: list[Any]) -> tuple[Any, ...]:
    while dtypes and dtypes[-1] is None:
        dtypes.pop()
    return tuple(dtypes)


class Preview:
    """Reports of a splitter."""

    module: Any
    operator_support: Any
    sample_input: Any
    non_acc_submodule_name: str
    PCIe_BW: int
    put_nodes_into_subgraphs: Any
    remove_small_acc_subgraphs: Any
    tag: Any
    split: Any
    _lower_model_to_backend: Any
    _find_culprit: Any

    def node_support_preview(self, dump_graph: bool = False) -> str:
        """Which operators are taken with which dtypes, and which are not; printed, too."""
        modules = dict(self.module.named_modules())
        found: tuple[dict[str, dict[Any, None]], dict[str, dict[Any, None]]] = ({}, {})
        for node in self.module.graph.nodes:
            if node.op in CALLABLE_NODE_OPS:
                args = _trimmed([_dtype(arg) for arg in node.args])
                kwargs = tuple((k, _dtype(v)) for k, v in node.kwargs.items() if isinstance(v, Node))
                taken = self.operator_support.is_node_supported(modules, node)
                found[not taken].setdefault(get_node_target(modules, node), {})[args, kwargs] = None
        lines = []
        for title, kinds in zip(("Supported", "Unsupported"), found, strict=True):
            lines.append(f"\n{title} node types in the model:")
            lines += [f"{kind}: ({args}, {dict(kwargs)})" for kind, uses in kinds.items() for args, kwargs in uses]
        report = "\n".join(lines) + "\n"
        print(report)
        return report

    def split_preview(self, dump_graph: bool = False) -> str:
        """The parts, how large their inputs and outputs are, and whether they can be lowered; printed, too."""
        parts = self.put_nodes_into_subgraphs()
        report = self._count("Before", parts)
        parts = self.remove_small_acc_subgraphs(parts)
        report += self._count("After", parts)
        for k, part in enumerate(parts):
            name = "_run_on_acc_" if part.is_acc else self.non_acc_submodule_name
            report += f"{name}{k}: {len(part.nodes)} node(s)\n"
        self.tag(parts)
        split = self.split(remove_tag=True).eval()
        rates: dict[str, float] = {}
        for node in split.graph.nodes:
            if node.op == "call_module" and "acc" in node.target:
                text, rates[node.target] = self._of_part(split, node.target)
                report += text
        slowest = min(rates, key=lambda name: rates[name], default="")
        report += (
            f"\nTheoretical max qps (bounds by PCIe bandwidth) for this model is {rates.get(slowest, self.PCIe_BW)}, "
            f"bottleneck is submodule {slowest}."
        )
        print(report)
        return report

    @staticmethod
    def _count(when: str, parts: Any) -> str:
        taken = sum(part.is_acc for part in parts)
        return (
            f"{when} removing small acc subgraphs, total {len(parts)} subgraphs are created: {taken} acc subgraphs and "
            f"{len(parts) - taken} cpu subgraphs.\n"
        )

    def _of_part(self, split: Any, name: str) -> tuple[str, float]:
        module = getattr(split, name)
        inputs = generate_inputs_for_submodules(split, self.sample_input, [name])[name]
        ShapeProp(module).propagate(*inputs)
        report = f"\nProcessing acc submodule {name}\nChecking inputs...\n"
        given = [node for node in module.graph.nodes if node.op == "placeholder"]
        text, read = self._bytes(module, "Input", given)
        report += text + "Checking outputs...\n"
        text, written = self._bytes(module, "Output", module.graph.output_node().all_input_nodes)
        rate = self.PCIe_BW / max(read, written, 1)
        report += text + (
            f"Total input size in bytes is {read}, total output size in bytes is {written}, theoretical max qps ("
            f"bounds by PCIe bandwidth) for this submodule is {rate}.\n"
        )
        return report + self._tried(module, inputs), rate

    @staticmethod
    def _bytes(module: Any, what: str, nodes: list[Node]) -> tuple[str, int]:
        report, total = "", 0
        for node in nodes:
            if is_node_output_tensor(node):
                total += get_size_of_node(module, node).output_size
            else:
                report += f"{what} {node.name} is not a tensor, this might cause problems during lowering!\n"
        return report, total

    def _tried(self, module: Any, inputs: Any) -> str:
        stage = "lowering"
        try:
            lowered = self._lower_model_to_backend(module, inputs)
            stage = "inference"
            lowered(*inputs)
        except RuntimeError:
            return f"Run into an error during {stage}!\n{self._find_culprit(module, inputs)}"
        return "Lowering and running succeed!\n"
