"""What nodes note of where they come from: lines of the program, and annotations of the user's."""

from __future__ import annotations

import contextlib
import copy
import functools
import sys
import traceback as _traceback
from collections.abc import Callable, Iterator
from enum import Enum
from pathlib import Path
from types import FrameType
from typing import Any

from tesserack.fx._compatibility import compatibility

__all__ = [
    "NodeSource", "NodeSourceAction", "annotate", "annotate_fn", "current_meta_to_copy", "format_stack",
    "get_current_meta", "get_current_replay_node", "get_graph_provenance_json", "has_preserved_node_meta",
    "lines_of_caller", "preserve_node_meta", "reset_grad_fn_seq_nr", "set_current_meta", "set_current_replay_node",
    "set_grad_fn_seq_nr", "set_stack_trace", "user_frame",
]  # fmt: skip

current_meta: dict[str, Any] = {}
current_replay_node: Any = None
should_preserve_node_meta = False
# What nodes made while a graph is run take over from the node that is run.
_COPIED = (
    "nn_module_stack", "torch_fn", "source_fn_stack", "original_aten", "recompute", "from_node", "quantization_tag",
    "_numeric_debug_handle", "partitioner_tag", "arg_kwarg_vals", "stack_trace", "seq_nr", "custom",
)  # fmt: skip
_OURS = str(Path(__file__).resolve().parent.parent)


class NodeSourceAction(Enum):
    """What a pass did to make a node."""

    CREATE = "create"
    REPLACE = "replace"


class NodeSource:
    """Which node of an earlier graph a node was made from, by which pass."""

    def __init__(self, node: Any, pass_name: str = "", action: Any = None) -> None:
        actions = action if isinstance(action, list) else [action] if action is not None else []
        self.pass_name, self.action = pass_name, actions
        self.name, self.target, self.graph_id = "", "", -1
        self.from_node: list[NodeSource] = []
        if node is not None:
            self.name, self.graph_id = node.name, id(node.graph)
            self.target = str(node.target)
            self.from_node = copy.deepcopy(node.meta.get("from_node", []))

    def to_dict(self) -> dict[str, Any]:
        """As plain dicts and lists."""
        return {
            "name": self.name, "target": self.target, "graph_id": self.graph_id, "pass_name": self.pass_name,
            "action": self._actions(), "from_node": [s.to_dict() for s in self.from_node],
        }  # fmt: skip

    def _actions(self) -> str:
        return "+".join(action.name.lower() for action in self.action)

    def print_readable(self, indent: int = 0) -> str:
        """As text, a line per node."""
        names = f"name={self.name}, pass_name={self.pass_name}, action={self._actions()}, graph_id={self.graph_id}"
        first = f"{' ' * indent}({names})\n"
        return first + "".join(source.print_readable(indent + 4) for source in self.from_node)

    def __repr__(self) -> str:
        return self.print_readable()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NodeSource) and self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        return hash((self.name, self.graph_id, self.pass_name))


@contextlib.contextmanager
@compatibility(is_backward_compatible=False)
def preserve_node_meta(enable: bool = True) -> Iterator[None]:
    """Within it, nodes that come of running a graph take over what its nodes note."""
    global should_preserve_node_meta, current_meta
    before = should_preserve_node_meta, {**current_meta}
    should_preserve_node_meta = enable
    try:
        yield
    finally:
        should_preserve_node_meta, current_meta = before


def has_preserved_node_meta() -> bool:
    """Whether nodes take over what is current."""
    return should_preserve_node_meta


def current_meta_to_copy() -> dict[str, Any]:
    """What a new node takes over."""
    return {key: copy.copy(current_meta[key]) for key in _COPIED if key in current_meta}


def set_stack_trace(stack: list[str]) -> None:
    """Have new nodes come from these lines."""
    if should_preserve_node_meta and stack:
        current_meta["stack_trace"] = "".join(stack)


def format_stack() -> list[str]:
    """The lines where the program is, or those that new nodes come from."""
    if should_preserve_node_meta:
        return [current_meta.get("stack_trace", "")]
    return _traceback.format_list(_traceback.extract_stack()[:-1])


@contextlib.contextmanager
def annotate(annotation_dict: dict[str, Any]) -> Iterator[None]:
    """Within it, traced nodes have these entries in ``meta["custom"]``.

    >>> from tesserack import fx
    >>> def program(x):
    ...     with annotate({"stage": 1}):
    ...         return x + 1
    >>> [n.meta.get("custom") for n in fx.symbolic_trace(program).graph.nodes if n.op == "call_function"]
    [{'stage': 1}]
    """
    global should_preserve_node_meta
    before, had = should_preserve_node_meta, current_meta.get("custom")
    should_preserve_node_meta = True
    current_meta["custom"] = {**(had or {}), **annotation_dict}
    try:
        yield
    finally:
        should_preserve_node_meta = before
        if had is None:
            current_meta.pop("custom", None)
        else:
            current_meta["custom"] = had


def annotate_fn(annotation_dict: dict[str, Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator: what the function does is annotated."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            with annotate(annotation_dict):
                return function(*args, **kwargs)

        return call

    return decorate


def set_grad_fn_seq_nr(seq_nr: int) -> None:
    """Note which step of the backward pass runs."""
    if should_preserve_node_meta:
        current_meta.setdefault("prev_grad_fn_seq_nr", []).append(current_meta.get("grad_fn_seq_nr"))
        current_meta["grad_fn_seq_nr"] = seq_nr


def reset_grad_fn_seq_nr() -> None:
    """Take back what :func:`set_grad_fn_seq_nr` did."""
    if should_preserve_node_meta and current_meta.get("prev_grad_fn_seq_nr"):
        current_meta["grad_fn_seq_nr"] = current_meta["prev_grad_fn_seq_nr"].pop()


@contextlib.contextmanager
@compatibility(is_backward_compatible=False)
def set_current_meta(node: Any, pass_name: str = "") -> Iterator[None]:
    """Within it, new nodes are made for this one."""
    global current_meta
    if not (should_preserve_node_meta and node.meta):
        yield
        return
    before = current_meta
    current_meta = {**node.meta, "from_node": [NodeSource(node, pass_name, NodeSourceAction.CREATE)]}
    try:
        yield
    finally:
        current_meta = before


@compatibility(is_backward_compatible=False)
def get_current_meta() -> dict[str, Any]:
    """What new nodes take over."""
    return current_meta


@contextlib.contextmanager
def set_current_replay_node(node: Any) -> Iterator[None]:
    """Within it, this node is being made again."""
    global current_replay_node
    before, current_replay_node = current_replay_node, node
    try:
        yield
    finally:
        current_replay_node = before


def get_current_replay_node() -> Any:
    """The node that is being made again."""
    return current_replay_node


def get_graph_provenance_json(graph: Any) -> dict[str, Any]:
    """By node, which nodes of earlier graphs it comes from."""
    return {
        node.name: [source.to_dict() for source in node.meta["from_node"]]
        for node in graph.nodes
        if isinstance(node.meta.get("from_node"), list)
    }


def user_frame() -> FrameType | None:
    """The innermost frame of a program: none of this package's."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_OURS):
        frame = frame.f_back
    return frame


def lines_of_caller() -> str:
    """The frames of the program, as a traceback lists them, without those of tracing."""
    frames = [f for f in _traceback.extract_stack()[:-1] if not f.filename.startswith(_OURS)]
    return "".join(_traceback.format_list(frames)).strip()
