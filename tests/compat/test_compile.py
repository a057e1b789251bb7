"""``torch.compile`` without a backend: nothing is compiled, and modules carry the names that files expect."""

from __future__ import annotations

import copy
import pickle

import pytest
import tesserack as ts
from tesserack import nn
from tesserack.compiler import OptimizedModule


@pytest.fixture
def pair():
    net = nn.Sequential(nn.Linear(2, 3), nn.Dropout(0.5))
    return net, ts.compile(net)


def test_a_compiled_module_names_the_original(pair):
    net, compiled = pair
    assert isinstance(compiled, OptimizedModule) and compiled._orig_mod is net
    assert [*compiled.state_dict()] == ["_orig_mod.0.weight", "_orig_mod.0.bias"]
    compiled.load_state_dict({f"_orig_mod.{name}": value for name, value in net.state_dict().items()})
    x = ts.ones(4, 2)
    assert ts.equal(compiled.eval()(x), net(x)) and not net.training
    assert compiled.train() is compiled and net.training and len(compiled) == 2 and compiled


def test_attributes_are_the_original_ones(pair):
    net, compiled = pair
    compiled.extra = 3
    assert net.extra == 3 and compiled.extra == 3 and "extra" in dir(compiled)
    del compiled.extra
    assert not hasattr(net, "extra")
    with pytest.raises(AttributeError, match="nope"):
        _ = compiled.nope


def test_copies_hold_a_copy(pair):
    net, compiled = pair
    for twin in (copy.deepcopy(compiled), pickle.loads(pickle.dumps(compiled))):
        assert type(twin) is OptimizedModule and twin._orig_mod is not net
        assert ts.equal(twin._orig_mod[0].weight, net[0].weight)


def test_hooks_of_either_run(pair):
    net, compiled = pair
    seen = []
    compiled.register_forward_hook(lambda m, i, o: seen.append("outer"))
    net.register_forward_hook(lambda m, i, o: seen.append("inner"))
    compiled(ts.ones(1, 2))
    assert seen == ["inner", "outer"]


def test_the_decorator_gives_functions_back_and_wraps_modules():
    layer = nn.Linear(1, 1)
    assert ts.compile(ts.relu) is ts.relu and ts.compile(dynamic=True)(ts.relu) is ts.relu
    assert ts.compile(mode="max-autotune")(layer)._orig_mod is layer and ts.compile(layer, disable=True) is layer
    assert layer.compile() is None and [*layer.state_dict()] == ["weight", "bias"]
