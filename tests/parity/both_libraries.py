"""Bodies of tests that run with either library and return plain data, which must be the same."""

from __future__ import annotations

import importlib
import math
import re

import numpy as np
import pytest
import tesserack
import torch

LIBS = {"tesserack": tesserack, "torch": torch}


def both(body):
    """A test that runs a body with either library, and compares what it returns."""

    def test():
        found = [plain(run(body, lib), name) for name, lib in LIBS.items()]
        assert found[0] == found[1], "\n".join(difference(*found))

    test.__name__, test.__doc__ = body.__name__, body.__doc__
    return test


def difference(ours, theirs):
    """The innermost items that differ."""
    if isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for a, b in zip(ours, theirs, strict=True):
            if a != b:
                yield from difference(a, b)
    elif ours != theirs:
        yield f"ours:   {ours}"
        yield f"theirs: {theirs}"


def run(body, lib):
    importlib.import_module(f"{lib.__name__}.fx")
    return body(lib, lib.fx)


def plain(value, name):
    """Tensors as lists, texts with the package's name left out."""
    if isinstance(value, (tesserack.Tensor, torch.Tensor)):
        return ("tensor", tuple(value.shape), np.round(np.asarray(value.tolist(), dtype=float), 4).tolist())
    if isinstance(value, str):
        return re.sub(rf"\b{name}\b", "LIB", re.sub(r"0x[0-9a-f]+", "ADDRESS", value))
    if isinstance(value, dict):
        return {plain(k, name): plain(v, name) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item, name) for item in value]
    if value is None or isinstance(value, (bool, int, float)):
        return value
    return plain(getattr(value, "__name__", str(value)), name)


def nodes(graph):
    return [(n.op, n.name, str(n.args), str(n.kwargs), [u.name for u in n.users]) for n in graph.nodes]


def error(kind, call):
    """The class of an error, and the beginning of what it says."""
    with pytest.raises(kind) as caught:
        call()
    return type(caught.value).__name__


def refuses(call):
    """Whether it refuses to change something."""
    with pytest.raises((TypeError, NotImplementedError), match="does not support mutation"):
        call()
    return True


def leaf(a, b):
    return a + b


def net(lib):
    class Sub(lib.nn.Module):
        def __init__(self):
            super().__init__()
            self.w = lib.nn.Parameter(lib.ones(3))
            self.register_buffer("shift", lib.ones(3))

        def forward(self, x):
            return self.w * x + self.shift

    class Net(lib.nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = lib.nn.Linear(4, 3)
            self.subMod = Sub()
            self.layers = lib.nn.ModuleDict({"ALL_CAPS": lib.nn.ReLU(), "camelCase": lib.nn.Sequential(lib.nn.Tanh())})
            self.extra = lib.full((3,), 2.0)

        def forward(self, a, b: float = 2.0, *, flag=None):
            t = lib.sigmoid(self.lin(a)) * b
            u = self.subMod(t) - t // 2 + -t + t.add(self.extra, alpha=3)
            u = self.layers["camelCase"](self.layers["ALL_CAPS"](u))
            v, i = lib.max(u, dim=0)
            return {"v": v[None, :2, ...], "rest": (i, u.shape[0], math.sqrt(a.size(0)))}

    lib.manual_seed(0)
    return Net()
