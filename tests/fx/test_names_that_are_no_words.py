"""Modules and parameters may be called what Python cannot spell: hyphens, blanks, keywords."""

from __future__ import annotations

import collections
import copy
import io
import pickle

import pytest
import tesserack as ts
from tesserack import nn
from tesserack.fx import symbolic_trace

pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.")


class Program(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        inner = collections.OrderedDict(
            [("norm-1", nn.BatchNorm1d(3)), ("norm_1", nn.Linear(3, 3)), ("a b", nn.Linear(3, 3)), ('"', nn.Tanh())]
        )
        self.add_module("class", nn.Sequential(inner))
        self.register_buffer("b-1", ts.ones(3))
        self.register_parameter("lambda", nn.Parameter(ts.full((3,), 2.0)))

    def forward(self, x):
        return getattr(self, "class")(x) * getattr(self, "b-1") + getattr(self, "lambda")


def exported_and_loaded(module, x):
    file = io.BytesIO()
    ts.export.save(ts.export.export(module, (x,)), file)
    file.seek(0)
    return ts.export.load(file).module()


def traced_and_loaded(module, x):
    file = io.BytesIO()
    ts.jit.save(ts.jit.trace(module, x), file)
    file.seek(0)
    return ts.jit.load(file)


WAYS = {
    "symbolic_trace": lambda module, x: symbolic_trace(module),
    "copied": lambda module, x: copy.deepcopy(symbolic_trace(module)),
    "pickled": lambda module, x: pickle.loads(pickle.dumps(symbolic_trace(module))),
    "trace": lambda module, x: ts.jit.trace(module, x),
    "trace and load": traced_and_loaded,
    "export": lambda module, x: ts.export.export(module, (x,)).module(),
    "export and load": exported_and_loaded,
    "unflatten": lambda module, x: ts.export.unflatten(ts.export.export(module, (x,))),
    "compile": lambda module, x: ts.compile(module),
    "a backend": lambda module, x: ts.compile(module, backend="eager"),
}


@pytest.mark.parametrize("way", WAYS)
def test_graphs_of_such_modules(way) -> None:
    module, x = Program().eval(), ts.randn(2, 3)
    graph = WAYS[way](module, x)
    for value in (x, x + 1):
        ts.testing.assert_close(graph(value), module(value))


def test_parameters_keep_their_names() -> None:
    program = ts.export.export(Program().eval(), (ts.randn(2, 3),))
    assert {"class.norm-1.weight", "class.norm_1.weight", "b-1", "lambda"} <= program.state_dict.keys()
    assert len({node.target for node in program.graph.find_nodes(op="placeholder")}) == len(program.state_dict) + 1
