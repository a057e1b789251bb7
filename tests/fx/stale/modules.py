"""Layers, and tensors that are held."""

from __future__ import annotations

import functools

import tesserack as ts
from tesserack import nn

from tests.fx.stale.cases import CASES, Case, attribute_of, case


class Net(nn.Module):
    gain = 3.0

    def __init__(self):
        super().__init__()
        self.linear, self.norm, self.act, self.drop = nn.Linear(2, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Dropout(0.5)
        self.blocks = nn.ModuleList([nn.Linear(4, 4)])
        self.table = nn.ModuleDict({"a": nn.Linear(4, 4), "b": nn.Linear(4, 4)})
        self.scales = nn.ParameterList([nn.Parameter(ts.ones(4))])
        self.register_buffer("shift", ts.ones(4))

    def extra(self, x):
        return x * 2

    def forward(self, x):
        y = self.drop(self.act(self.norm(self.linear(x)))) * self.gain
        for block in (*self.blocks, *self.table.values()):
            y = block(y) + self.shift
        return self.extra(y) * self.scales[0] + len(list(self.buffers()))


def renamed(net):
    net.table["z"] = net.table.pop("a")


MODULES = {
    "training": lambda net: net.eval(),
    "training of a part": lambda net: net.norm.eval(),
    "parameter": lambda net: setattr(net.linear, "weight", nn.Parameter(ts.zeros(4, 2))),
    "no parameter": lambda net: setattr(net.linear, "bias", None),
    "parameter in place": lambda net: net.linear.weight.data.mul_(3),
    "data of a parameter": lambda net: setattr(net.linear.weight, "data", ts.ones(4, 2)),
    "layout of a parameter": lambda net: setattr(net.linear.weight, "data", ts.ones(2, 4).T),
    "gradients of a parameter": lambda net: net.linear.weight.requires_grad_(False),
    "all gradients": lambda net: net.requires_grad_(False),
    "buffer": lambda net: net.register_buffer("shift", ts.zeros(4)),
    "another buffer": lambda net: net.register_buffer("late", ts.zeros(4)),
    "part": lambda net: setattr(net, "act", nn.Tanh()),
    "another block": lambda net: net.blocks.append(nn.Linear(4, 4)),
    "block": lambda net: net.blocks.__setitem__(0, nn.Linear(4, 4)),
    "order of parts": lambda net: net.table.update({"a": net.table.pop("a")}),
    "name of a part": renamed,
    "parameter of a list": lambda net: net.scales.__setitem__(0, nn.Parameter(ts.full((4,), 7.0))),
    "probability": lambda net: setattr(net.drop, "p", 0.0),
    "momentum": lambda net: setattr(net.norm, "momentum", 0.9),
    "eps": lambda net: setattr(net.norm, "eps", 0.5),
    "statistics": lambda net: net.norm.running_mean.fill_(5.0),
    "class attribute": lambda net: setattr(type(net), "gain", 2.5),
    "forward of the class": lambda net: setattr(type(net), "forward", lambda self, x: self.linear(x)),
    "own forward": lambda net: setattr(net, "forward", lambda x: x),
    "forward of a part": lambda net: setattr(net.act, "forward", lambda x: x * 7),
    "method": lambda net: setattr(net, "extra", lambda x: x * 7),
    "forward hook": lambda net: net.linear.register_forward_hook(lambda m, i, o: o * 2),
    "forward pre-hook": lambda net: net.linear.register_forward_pre_hook(lambda m, i: (i[0] * 0.5,)),
    "backward hook": lambda net: net.linear.register_full_backward_hook(lambda m, gi, go: None),
    "parametrization": lambda net: nn.utils.parametrize.register_parametrization(net.linear, "weight", nn.Tanh()),
    "dtype": lambda net: net.double(),
    "loaded state": lambda net: net.load_state_dict({k: v + 1 for k, v in net.state_dict().items()}),
}


def of_module(name):
    class Own(Net):
        pass

    ts.manual_seed(0)
    net = Own()
    dtype = ts.float64 if name == "dtype" else None

    def change():
        nonlocal dtype
        MODULES[name](net)
        given.append(dtype)

    given = []

    def run(x):
        return net(x if not given or given[0] is None else x.to(given[0]))

    return Case(run, change)


for _name in MODULES:
    CASES[f"modules: {_name}"] = functools.partial(of_module, _name)


HELD = {
    "values": (lambda w: w.fill_(7.0), lambda x, w: x * w),
    "data": (lambda w: setattr(w, "data", ts.full((2,), 7.0)), lambda x, w: x * w),
    "shape": (lambda w: setattr(w, "data", ts.full((1,), 7.0)), lambda x, w: x * w.numel()),
    "size": (lambda w: w.resize_(1), lambda x, w: x * w.shape[0]),
    "stride": (lambda w: setattr(w, "data", ts.ones(4)[::2]), lambda x, w: x * (2 if w.is_contiguous() else 5)),
    "requires_grad": (lambda w: w.requires_grad_(), lambda x, w: x * (2 if w.requires_grad else 5) * w),
    "dtype": (lambda w: setattr(w, "data", w.double()), lambda x, w: x * w),
}


def of_held(name):
    change, function = HELD[name]
    w = ts.ones(2)
    return Case(lambda x: function(x, w), lambda: change(w))


for _name in HELD:
    CASES[f"a held tensor's {_name}"] = functools.partial(of_held, _name)


@case
def an_attribute_of_a_tensor():
    w = ts.ones(2)
    w.scale = 2.0
    return attribute_of(w, "scale", 7.0, lambda x: x * w.scale)


@case
def the_gradient_of_a_tensor():
    w = ts.ones(2, requires_grad=True)
    return Case(lambda x: x + 1 if w.grad is None else x, lambda: w.sum().backward(), captured=False)


@case
def where_a_tensor_begins():
    base = ts.arange(4.0)
    w = base[:2]

    def change():
        w.set_(base.untyped_storage(), 2, (2,), (1,))

    return Case(lambda x: x * w.storage_offset(), change, captured=False)
