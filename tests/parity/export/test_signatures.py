"""Exported programs beside torch.export's: what is lifted, what is changed, what comes back, and the numbers."""

from __future__ import annotations

import numpy as np
import pytest
import tesserack as ts
import tesserack.export as ours
import torch
import torch.export as theirs

pytestmark = pytest.mark.filterwarnings("ignore")


def norms(m):
    class Norms(m.nn.Module):
        def __init__(self):
            super().__init__()
            self.c, self.bn, self.l = m.nn.Conv2d(3, 4, 3), m.nn.BatchNorm2d(4), m.nn.Linear(4, 2)
            self.register_buffer("n", m.zeros(()))
            self.register_buffer("k", m.ones(2), persistent=False)
            self.const = m.ones(2)

        def forward(self, x, *, d):
            self.n.add_(1)
            d["y"].mul_(2)
            h = self.bn(self.c(x)).relu().mean((2, 3))
            return {"o": self.l(h) * self.k + self.const + m.ones(2), "d": d["y"], "i": 3, "none": None}

    return Norms(), (m.ones(2, 3, 8, 8),), {"d": {"y": m.ones(2)}}, {"x": {0: "b"}, "d": {"y": None}}


def norms_in_evaluation(m):
    module, *rest = norms(m)
    return module.eval(), *rest


def mlp(m):
    module = m.nn.Sequential(m.nn.Linear(4, 8), m.nn.Tanh(), m.nn.Linear(8, 2))
    return module, (m.ones(3, 4),), {}, {"input": {0: "b"}}


def inputs(m):
    class Inputs(m.nn.Module):
        def forward(self, x, pair, *more, flag=True, **named):
            return pair[0] + x, [named["z"] * 2, more[0]], x.shape[0] if flag else 0

    args = m.ones(3), (m.ones(3), {"a": m.ones(1)}), m.ones(2), 5
    return Inputs(), args, {"flag": True, "z": m.ones(1)}, None


def writes(m):
    class Writes(m.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("cache", m.zeros(4, 3))

        def forward(self, x, at):
            self.cache[:2] = x
            x[0] += 1
            return self.cache.sum(0), x

    return Writes(), (m.ones(2, 3), m.ones(1)), {}, None


def flow(m):
    class Flow(m.nn.Module):
        def __init__(self):
            super().__init__()
            self.l = m.nn.Linear(3, 3)

        def forward(self, x):
            return m.cond(x.sum() > 0, lambda x: self.l(x), lambda x: x - 1, (x,))

    return Flow(), (m.ones(2, 3),), {}, {"x": {0: "b"}}


CASES = {f.__name__: f for f in (norms, norms_in_evaluation, mlp, inputs, writes, flow)}


def named(tree, lib):
    if isinstance(tree, dict):
        return {key: named(value, lib) for key, value in tree.items()}
    return lib.Dim(tree, min=2, max=32) if isinstance(tree, str) else tree


def described(spec):
    value = getattr(spec.arg, "value", None)
    return spec.kind.name, type(spec.arg).__name__, spec.target, value, getattr(spec, "persistent", None)


@pytest.mark.parametrize("name", CASES)
def test_signature_and_results(name):
    found, results = [], []
    for m, lib in ((torch, theirs), (ts, ours)):
        module, args, kwargs, shapes = CASES[name](m)
        weights = np.random.default_rng(0)
        with m.no_grad():
            for p in module.parameters():
                p.copy_(m.tensor(weights.standard_normal(tuple(p.shape)).astype("float32")))
        program = lib.export(module, args, kwargs, dynamic_shapes=named(shapes, lib)).run_decompositions()
        signature = program.graph_signature
        found.append(
            {
                "inputs": sorted(map(str, map(described, signature.input_specs))),
                "names": sorted(spec.arg.name for spec in signature.input_specs),
                "outputs": [described(spec) for spec in signature.output_specs],
                "user": list(signature.user_inputs),
                "parameters": [*signature.parameters],
                "buffers": sorted(signature.buffers),
                "hidden": [*signature.non_persistent_buffers],
                "mutated": {*signature.buffers_to_mutate.values()},
                "written": {*signature.user_inputs_to_mutate.values()},
                "state": [*program.state_dict],
                "constants": {*program.constants},
                "named": [key for key, _ in program.named_parameters()],
                "ranges": [str(value) for value in program.range_constraints.values()],
                "modules": sorted(entry.fqn for entry in program.module_call_graph),
            }
        )
        given = m.utils._pytree.tree_map_only(m.Tensor, m.clone, (args, kwargs))
        outputs = program.module()(*given[0], **given[1])
        leaves = m.utils._pytree.tree_leaves((outputs, given, dict(program.state_dict)))
        results.append([x.detach().numpy() if isinstance(x, m.Tensor) else x for x in leaves])
    assert found[0] == found[1]
    for one, other in zip(*results, strict=True):
        if isinstance(one, np.ndarray):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
        else:
            assert one == other


def test_dims_and_names_are_pytorchs():
    for lib in (ours, theirs):
        batch = lib.Dim("batch", min=2, max=8)
        assert (batch.__name__, batch.min, batch.max, (2 * batch).__name__) == ("batch", 2, 8, "2*batch")
        assert [d.__name__ for d in lib.dims("a", "b")] == ["a", "b"]
    own = {"ExportError", "InputError"}
    assert {name for name in ours.__all__ if name not in own and not name.startswith("export_for")} <= {*dir(theirs)}
    with ts.compat.enable(scope=__name__):
        import torch as shown
        from torch.export import Dim, export
        from torch.export.graph_signature import InputKind

        program = export(shown.nn.ReLU(), (shown.ones(2),), dynamic_shapes=({0: Dim.AUTO},))
        assert isinstance(program, shown.export.ExportedProgram)
        assert program.graph_signature.input_specs[0].kind is InputKind.USER_INPUT
        assert shown.export.exported_program.ExportedProgram is shown.export.ExportedProgram
