"""Sequential, ModuleList, ModuleDict, ParameterList, ParameterDict."""

from collections import OrderedDict

import pytest
import tesserack as ts
from tesserack import nn


def layers(n):
    return [nn.Linear(1, i + 1) for i in range(n)]


def test_sequential_indexing():
    a, b, c = layers(3)
    net = nn.Sequential(a, b, c)
    assert len(net) == 3 and net[0] is a and net[-1] is c and list(net) == [a, b, c]
    part = net[1:]
    assert type(part) is nn.Sequential and list(part) == [b, c]
    net[1] = nn.ReLU()
    assert isinstance(net[1], nn.ReLU)
    del net[0]
    assert list(net._modules) == ["0", "1"] and net[1] is c
    for bad in (2, -3):
        with pytest.raises(IndexError, match="out of range"):
            net[bad]
    with pytest.raises(TypeError):
        net["0"]


def test_sequential_growing():
    a, b, c = layers(3)
    net = nn.Sequential(a)
    assert net.append(c) is net
    net.insert(1, b)
    assert list(net) == [a, b, c]
    net.extend([nn.ReLU()])
    assert net.pop(-1).extra_repr() == "" and len(net) == 3
    assert list(net + nn.Sequential(a)) == [a, b, c, a]
    assert list(nn.Sequential(a) * 2) == [a, a] == list(2 * nn.Sequential(a))
    with pytest.raises(ValueError, match="n > 0"):
        net * 0
    with pytest.raises(IndexError):
        net.insert(9, a)
    with pytest.raises(AssertionError):
        net.insert(0, 3)
    with pytest.raises(TypeError):
        net.append(3)


def test_sequential_keeps_given_names():
    net = nn.Sequential(OrderedDict(first=nn.ReLU(), second=nn.Tanh()))
    assert list(net._modules) == ["first", "second"]
    assert isinstance(net.first, nn.ReLU) and isinstance(net[1], nn.Tanh)
    assert list(net[:1]._modules) == ["first"]
    net[0] = nn.Identity()
    assert isinstance(net.first, nn.Identity)


def test_sequential_forward(device):
    net = nn.Sequential(nn.Identity(), nn.ReLU()).to(device)
    assert net(ts.tensor([-1.0, 2.0], device=device)).tolist() == [0.0, 2.0]
    assert nn.Sequential()(3) == 3


def test_module_list():
    a, b, c = layers(3)
    held = nn.ModuleList([a, b])
    held.append(c)
    assert len(held) == 3 and held[-1] is c and list(held[:2]) == [a, b] and type(held[:2]) is nn.ModuleList
    assert len(list(held.parameters())) == 6
    held.insert(0, c)
    assert list(held) == [c, a, b, c]
    held += [a]
    assert held.pop(0) is c and len(held) == 4
    del held[1:3]
    assert list(held) == [a, a]
    assert list(held + [b]) == [a, a, b] and a in held and c not in held
    with pytest.raises(TypeError, match="iterable"):
        held.extend(3)
    with pytest.raises(NotImplementedError):
        held(1)


def test_module_list_repr_counts_equal_modules():
    held = nn.ModuleList([nn.ReLU(), nn.ReLU(), nn.Tanh()])
    assert repr(held) == "ModuleList(\n  (0-1): 2 x ReLU()\n  (2): Tanh()\n)"
    assert repr(nn.ModuleList()) == "ModuleList()"


def test_module_dict():
    a, b, _ = layers(3)
    held = nn.ModuleDict({"a": a})
    held["b"] = b
    held.update([("c", nn.ReLU())])
    assert list(held) == ["a", "b", "c"] == list(held.keys()) and held["b"] is b and "a" in held and len(held) == 3
    assert [k for k, _ in held.items()] == ["a", "b", "c"] and next(iter(held.values())) is a
    assert held.pop("a") is a and "a" not in held
    del held["b"]
    held.clear()
    assert len(held) == 0
    with pytest.raises(KeyError):
        held["a"]
    with pytest.raises(KeyError, match="already exists"):
        held["keys"] = a
    with pytest.raises(ValueError, match="pairs"):
        held.update([("a",)])
    with pytest.raises(TypeError):
        held.update(3)
    with pytest.raises(TypeError):
        held["x"] = 3


def test_parameter_list():
    held = nn.ParameterList([ts.zeros(2), nn.Parameter(ts.ones(3))])
    held.append(ts.ones(1))
    held.extend([ts.ones(4)])
    assert [p.shape[0] for p in held] == [2, 3, 1, 4] and all(isinstance(p, nn.Parameter) for p in held)
    assert list(held.state_dict()) == ["0", "1", "2", "3"]
    assert [p.shape[0] for p in held[1:3]] == [3, 1]
    held[-1] = ts.ones(9)
    assert held[3].shape[0] == 9
    with pytest.raises(IndexError):
        held[4]
    with pytest.raises(TypeError):
        held.extend(ts.ones(2))
    assert "(0): Parameter containing: [" in repr(held) and "of size 2]" in repr(held)


def test_parameter_dict():
    held = nn.ParameterDict({"a": ts.zeros(2)})
    held["b"] = nn.Parameter(ts.ones(3))
    assert list(held) == ["a", "b"] and isinstance(held["a"], nn.Parameter) and len(held) == 2
    assert [n for n, _ in held.named_parameters()] == ["a", "b"]
    assert held.get("z") is None and held.setdefault("c", ts.ones(1)).shape[0] == 1
    assert list(reversed(held)) == ["c", "b", "a"]
    assert held.popitem()[0] == "c" and held.pop("a").shape[0] == 2 and "a" not in held
    assert list(held.copy()) == ["b"]
    held.update({"d": ts.ones(1)})
    assert [k for k, _ in held.items()] == ["b", "d"] and len(list(held.values())) == 2
    held.clear()
    assert not list(held.parameters())
    with pytest.raises(KeyError):
        held["a"]
    with pytest.raises(KeyError, match="already exists"):
        held["keys"] = ts.ones(1)


def test_dicts_of_parameters_are_added_by_name():
    one = {"b": ts.ones(1), "a": ts.ones(1)}
    assert [*nn.ParameterDict(one)] == ["a", "b"]
    assert [*nn.ParameterDict(OrderedDict(one))] == ["b", "a"] == [*nn.ParameterDict([*one.items()])]
    kept = nn.ParameterDict()
    with pytest.raises(TypeError, match="expected a string"):
        kept[3] = ts.ones(1)
    assert len(kept) == 0


def test_lists_of_parameters_without_data_say_no_device():
    held = nn.ParameterList([nn.Parameter(ts.empty(1, device="meta"))])
    assert "of size 1]" in repr(held)
