"""Classes of modules that a program makes of others while it runs, as packages of higher-order training do."""

import collections
import copy

import pytest
import tesserack as ts
from tesserack import nn


def _in_order(module):
    return [getattr(module, name) for names in module._all_weights for name in names]


@pytest.mark.parametrize("kind", [nn.RNN, nn.LSTM, nn.GRU])
@pytest.mark.parametrize("settable", [True, False])
def test_flat_weights_that_are_a_property(kind, settable):
    flat = property(_in_order, (lambda module, value: None) if settable else None)
    derived = type("Derived", (kind,), {"_flat_weights": flat})
    ts.manual_seed(0)
    plain = kind(2, 3, num_layers=2)
    ts.manual_seed(0)
    layer = derived(2, 3, num_layers=2)
    x = ts.ones(4, 1, 2)
    assert ts.equal(layer(x)[0], plain(x)[0]) and len([*layer.parameters()]) == 8
    plain.__dict__.pop("_flat_weights", None)
    plain.__class__ = derived  # of a module that exists
    assert ts.equal(layer(x)[0], plain(x)[0])


def test_what_the_property_gives_is_computed_with():
    class Fast(nn.LSTM):
        fast = None

        @property
        def _flat_weights(self):
            return self.fast or _in_order(self)

        @_flat_weights.setter
        def _flat_weights(self, value):
            pass

    layer = Fast(2, 3)
    layer.fast = [ts.zeros_like(p, requires_grad=True) for p in layer.parameters()]
    out = layer(ts.ones(4, 1, 2))[0]
    assert not out.any()
    out.sum().backward()
    assert layer.fast[0].grad is not None and all(p.grad is None for p in layer.parameters())


def test_a_class_made_of_that_of_a_module():
    layer = nn.Linear(2, 3)
    fast = type("Fast" + type(layer).__name__, (type(layer),), {"extra": lambda self: 7})
    new = fast.__new__(fast)
    new.__dict__ = copy.copy(layer.__dict__)
    new._parameters = dict(layer._parameters)
    layer.__class__ = fast
    x = ts.ones(1, 2)
    assert new.extra() == layer.extra() == 7 and ts.equal(new(x), layer(x))


def test_parameters_that_a_property_gives():
    class Functional(nn.Module):
        def __init__(self):
            super().__init__()
            self._parameters = collections.OrderedDict()
            self.fast = [ts.ones(2)]

        @property
        def weight(self):
            return self.fast[0]

        def forward(self, x):
            return x * self.weight

    module = Functional()
    assert module(ts.ones(2)).tolist() == [1, 1] and not [*module.parameters()]


@pytest.mark.parametrize("kind", [nn.RNN, nn.LSTM, nn.GRU])
def test_flat_weights_that_are_assigned(kind):
    layer, x = kind(2, 3), ts.ones(4, 1, 2)
    layer._flat_weights = [ts.zeros_like(p, requires_grad=True) for p in layer.parameters()]
    assert not layer(x)[0].any()
    layer.bias_ih_l0 = nn.Parameter(ts.ones_like(layer.bias_ih_l0))
    assert layer._flat_weights[2] is layer.bias_ih_l0 and layer(x)[0].any()
    assert layer.double()._flat_weights[0] is layer.weight_ih_l0
    assert layer(x.double())[0].dtype is ts.float64


@pytest.mark.parametrize("kind", [nn.RNN, nn.LSTM, nn.GRU])
def test_items_of_flat_weights_that_are_assigned(kind):
    """One at a time, through one list or through the attribute; a copy of the module has them, too."""
    layer, x = kind(2, 3), ts.ones(4, 1, 2)
    weights = layer._flat_weights
    weights[0], weights[1] = ts.zeros_like(weights[0]), ts.zeros_like(weights[1])
    for place in (2, 3):
        layer._flat_weights[place] = ts.zeros_like(layer._flat_weights[place])
    assert not layer(x)[0].any() and not copy.deepcopy(layer)(x)[0].any()
    layer.bias_ih_l0 = nn.Parameter(ts.ones_like(layer.bias_ih_l0))
    assert layer(x)[0].any() and layer.double()._flat_weights[0] is layer.weight_ih_l0


def test_a_module_that_takes_the_attributes_of_another():
    class Wrapped(nn.LSTM):
        def __init__(self, other):
            nn.Module.__init__(self)
            kept = ("_parameters", "_modules", "_buffers", "_flat_weights")
            self.__dict__.update({name: value for name, value in vars(other).items() if name not in kept})
            for name in other._parameters:
                self.register_parameter(name, None)
            self._parameters = other._parameters

        @property
        def _flat_weights(self):
            return [getattr(self, name) for name in self._flat_weights_names]

    other, x = nn.LSTM(3, 4), ts.rand(2, 3)
    wrapped = Wrapped(other)
    assert ts.equal(wrapped(x)[0], other(x)[0]) and len([*wrapped.parameters()]) == 4
