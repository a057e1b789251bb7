"""Passes over exported programs."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.aten.fake.fake_tensor import FakeTensor
from tesserack.fx.export.exported_program import ExportedProgram
from tesserack.nn.parameter import Parameter
from tesserack.utils._pytree import tree_map

__all__ = ["move_to_device_pass"]


def move_to_device_pass(ep: ExportedProgram, location: ts.device | str | dict[str, str]) -> ExportedProgram:
    """The program on another device: what it holds, and what it makes. The one that is given stays as it is.

    ``location`` is the device, or one for each that the program is on, by its name: ``{"cpu": "acme:0"}``.

    >>> import tesserack as ts
    >>> from tesserack.export import export
    >>> moved = move_to_device_pass(export(ts.nn.Linear(3, 4), (ts.ones(2, 3),)), "cpu")
    >>> moved.module()(ts.ones(2, 3)).device
    device(type='cpu')
    """
    made = copy.deepcopy(ep)

    def at(device: ts.device) -> ts.device:
        if not isinstance(location, dict):
            return ts.device(location)
        return ts.device(location.get(str(device), location.get(device.type, device)))

    def moved(value: Any) -> Any:
        if isinstance(value, FakeTensor):
            return FakeTensor(value.fake_mode, value._outline, at(value.device))
        if isinstance(value, Parameter):
            return Parameter(value.detach().to(at(value.device)), value.requires_grad)
        return value.to(at(value.device)) if isinstance(value, Tensor) else value

    known: dict[int, Any] = {}  # names of one tensor stay names of one

    def once(value: Any) -> Any:
        return known.setdefault(id(value), moved(value))

    made._state_dict = {name: once(value) for name, value in made.state_dict.items()}
    made._constants = {name: once(value) for name, value in made.constants.items()}
    if made.example_inputs is not None:
        made._example_inputs = tree_map(moved, made.example_inputs)
    for module in made.graph_module.modules():
        for node in getattr(module, "graph", ep.graph.__class__()).nodes:
            if isinstance(node.kwargs.get("device"), (str, ts.device)):
                node.kwargs = {**node.kwargs, "device": at(ts.device(node.kwargs["device"]))}
            node.meta["val"] = _with_names(node.meta.get("val"), moved)
    made.graph_module.recompile()
    leaves = [(x[0], x[1], at(ts.device(x[2])).type) if isinstance(x, tuple) else x for x in made._check.leaves]
    made._check = dataclasses.replace(made._check, leaves=leaves)
    return made


def _with_names(value: Any, moved: Any) -> Any:
    """Values of nodes on another device, with the names of sizes that vary."""

    def one(x: Any) -> Any:
        made = moved(x)
        if isinstance(x, FakeTensor):
            made._symbolic = x._symbolic
            made.requires_grad_(x.requires_grad)
        return made

    return tree_map(one, value)
