"""Which nodes of a graph a backend takes: rules, and rules made of others."""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping
from typing import Any

from tesserack.fx.node import Node
from tesserack.fx.passes.tools_common import CALLABLE_NODE_OPS, get_node_target

__all__ = [
    "OpSupports",
    "OperatorSupport",
    "OperatorSupportBase",
    "any_chain",
    "chain",
    "create_op_support",
    "get_node_target",
]

IsNodeSupported = Callable[[Mapping[str, Any], Node], bool]


class OperatorSupportBase(abc.ABC):
    """A rule: subclasses define :meth:`is_node_supported`."""

    @abc.abstractmethod
    def is_node_supported(self, submodules: Mapping[str, Any], node: Node) -> bool:
        """Whether a node is taken; ``submodules`` are those of the module, by name."""


class OperatorSupport(OperatorSupportBase):
    """Takes the targets of a table, which gives for each None, or the dtypes of its positional and named arguments.

    Targets are named as :func:`get_node_target` names them. Placeholders, attributes and the output are always taken.
    """

    def __init__(self, support_dict: Mapping[str, Any] | None = None) -> None:
        self._support_dict = support_dict or {}

    def is_node_supported(self, submodules: Mapping[str, Any], node: Node) -> bool:
        """Whether the table has the target with these dtypes."""
        if node.op not in CALLABLE_NODE_OPS:
            return True
        target = get_node_target(submodules, node)
        if target not in self._support_dict:
            return False
        if self._support_dict[target] is None:
            return True
        args, kwargs = self._support_dict[target]
        by_position = all(
            len(node.args) <= k or not isinstance(node.args[k], Node) or _dtype_of(node.args[k]) in dtypes
            for k, dtypes in enumerate(args or ())
            if dtypes is not None
        )
        return by_position and all(
            not isinstance(node.kwargs.get(name), Node) or _dtype_of(node.kwargs[name]) in dtypes
            for name, dtypes in (kwargs or {}).items()
            if dtypes is not None
        )


def _dtype_of(argument: Any) -> Any:
    meta = argument.meta if isinstance(argument, Node) else {}
    return getattr(meta.get("tensor_meta"), "dtype", meta.get("type"))


class _Of(OperatorSupportBase):
    def __init__(self, rule: IsNodeSupported) -> None:
        self._rule = rule

    def is_node_supported(self, submodules: Mapping[str, Any], node: Node) -> bool:
        """What the function answers."""
        return self._rule(submodules, node)


def create_op_support(is_node_supported: IsNodeSupported) -> OperatorSupportBase:
    """The rule that a function of the submodules and a node is."""
    return _Of(is_node_supported)


def chain(*op_support: OperatorSupportBase) -> OperatorSupportBase:
    """Takes what all the rules take."""
    return _Of(lambda submodules, node: all(rule.is_node_supported(submodules, node) for rule in op_support))


def any_chain(*op_support: OperatorSupportBase) -> OperatorSupportBase:
    """Takes what one of the rules takes."""
    return _Of(lambda submodules, node: any(rule.is_node_supported(submodules, node) for rule in op_support))


class OpSupports:
    """Rules that are often wanted."""

    @classmethod
    def decline_if_input_dtype(cls, dtype: Any) -> OperatorSupportBase:
        """Takes nodes none of whose inputs has the dtype."""
        return _Of(lambda _, node: all(_dtype_of(argument) is not dtype for argument in node.all_input_nodes))

    @classmethod
    def decline_if_node_in_names(cls, disallow_set: set[str]) -> OperatorSupportBase:
        """Takes nodes of other names."""
        return _Of(lambda _, node: node.name not in disallow_set)
