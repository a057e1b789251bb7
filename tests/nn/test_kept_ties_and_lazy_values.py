"""Ties that moving and loading keep, tensors that are not there yet, copies of what old hooks compute, old names."""

from __future__ import annotations

import copy
import pickle
from collections import OrderedDict

import pytest
import tesserack as ts
from tesserack import nn
from tesserack.nn.modules import module as modules
from tesserack.nn.utils import prune


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(2, 2), nn.Linear(2, 2)
        self.b.weight = self.a.weight
        self.register_buffer("x", ts.ones(2))
        self.inner = nn.Module()
        self.inner.register_buffer("y", self.x)


def test_loading_by_assigning_keeps_ties():
    net, other = Tied(), Tied()
    net.load_state_dict(other.state_dict(), assign=True)
    assert net.a.weight is net.b.weight and net.x is net.inner.y
    assert ts.equal(net.a.weight, other.a.weight)
    state = Tied().state_dict()
    state["b.weight"] = state["b.weight"].clone()
    net.load_state_dict(state, assign=True)
    assert net.a.weight is net.b.weight
    state["b.weight"] = state["b.weight"] + 1
    net.load_state_dict(state, assign=True)
    assert net.a.weight is not net.b.weight and ts.equal(net.b.weight, net.a.weight + 1)


@pytest.mark.parametrize(
    "move",
    [
        lambda net: net.to(ts.float64),
        lambda net: net.to_empty(device="meta"),
        lambda net: net.half(),
        lambda net: net.type(ts.float64),
    ],
)
def test_moving_keeps_ties(move):
    net = move(Tied())
    assert net.a.weight is net.b.weight and net.x is net.inner.y


@pytest.mark.parametrize(
    "ask",
    [
        lambda p: p.numel(),
        lambda p: p.nelement(),
        lambda p: p.mean(),
        lambda p: p + 1,
        lambda p: ts.zeros(1) * p,
        lambda p: p.dim(),
        lambda p: p.ndim,
        lambda p: len(p),
        lambda p: p.tolist(),
        lambda p: p.stride(),
        lambda p: p.nbytes,
        lambda p: p.numpy(),
        lambda p: p[0],
        lambda p: p.zero_(),
        lambda p: nn.functional.linear(ts.ones(1, 2), p),
    ],
)
def test_what_has_no_shape_yet_is_not_empty(ask):
    with pytest.raises(ValueError, match="uninitialized parameter"):
        ask(nn.LazyLinear(2).weight)
    with pytest.raises(ValueError, match="uninitialized parameter"):
        ask(nn.LazyBatchNorm1d().running_mean)


@pytest.mark.filterwarnings("ignore:.*jit.script")
def test_what_has_no_shape_yet_is_no_script() -> None:
    with pytest.raises(RuntimeError, match="run a forward pass"):
        ts.jit.script(nn.Sequential(nn.LazyLinear(2)))


def test_what_has_no_shape_yet_can_be_moved_copied_and_kept():
    layer = nn.LazyLinear(3).to(ts.float64)
    assert layer.weight.dtype is ts.float64 and layer.weight.device.type == "cpu" and layer.weight.is_leaf
    for again in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert again(ts.ones(1, 2, dtype=ts.float64)).shape == (1, 3)
    assert repr(layer.weight) == "<UninitializedParameter>"


def test_layers_know_the_sizes_of_the_state_they_loaded():
    cases = [
        (nn.LazyLinear(2), nn.Linear(3, 2), "in_features", 3),
        (nn.LazyConv2d(4, 3, groups=2), nn.Conv2d(6, 4, 3, groups=2), "in_channels", 6),
        (nn.LazyConvTranspose1d(4, 3, groups=2), nn.ConvTranspose1d(6, 4, 3, groups=2), "in_channels", 6),
        (nn.LazyBatchNorm1d(), nn.BatchNorm1d(5), "num_features", 5),
        (
            nn.LazyInstanceNorm2d(affine=True, track_running_stats=False),
            nn.InstanceNorm2d(5, affine=True),
            "num_features",
            5,
        ),
    ]
    for lazy, whole, name, size in cases:
        lazy.load_state_dict(whole.state_dict())
        assert getattr(lazy, name) == size and str(size) in repr(lazy)


def test_what_old_hooks_compute_is_copied(recwarn):
    ways = [
        nn.utils.weight_norm,
        nn.utils.spectral_norm,
        lambda layer: prune.random_unstructured(layer, "weight", 0.5),
        lambda layer: prune.l1_unstructured(prune.l1_unstructured(layer, "weight", 1), "weight", 1),
    ]
    for way in ways:
        net = nn.Sequential(way(nn.Linear(3, 2)))
        x = ts.ones(1, 3)
        net(x)
        copied = copy.deepcopy(net).eval()
        assert ts.allclose(copied(x), net.eval()(x), atol=1e-6)
        copied(x).sum().backward()
        assert net[0].bias.grad is None


class Pole(nn.Module):
    """As packages of manifolds have it: a parameter is put aside before the property of its name can answer."""

    @property
    def k(self):
        return -self.c

    def __init__(self):
        super().__init__()
        self.k = nn.Parameter(ts.ones(1))
        found = self._parameters.pop("k")
        self.c = nn.Parameter(found.detach() * 2)


def test_names_of_properties_that_have_no_answer_yet():
    pole = Pole()
    assert pole.k.item() == -2 and [name for name, _ in pole.named_parameters()] == ["c"]
    with pytest.raises(KeyError, match="already exists"):
        pole.register_buffer("k", ts.ones(1))


def test_backward_hooks_of_the_old_form_for_all_modules():
    calls = []
    handle = modules.register_module_backward_hook(lambda module, into, out: calls.append((type(module), len(into))))
    try:
        with pytest.raises(RuntimeError, match="both"):
            modules.register_module_full_backward_hook(lambda *args: None)
        nn.Sigmoid()(ts.ones(2, requires_grad=True) * 1).sum().backward()
        assert calls == [(nn.Sigmoid, 1)]
    finally:
        handle.remove()
    nn.Sigmoid()(ts.ones(2, requires_grad=True) * 1).sum().backward()
    assert len(calls) == 1
    full = modules.register_module_full_backward_hook(lambda *args: None)
    try:
        with pytest.raises(RuntimeError, match="both"):
            modules.register_module_backward_hook(lambda *args: None)
    finally:
        full.remove()


@pytest.mark.usefixtures("needs_lapack")
def test_states_of_spectral_norm_before_there_was_a_vector_on_the_right():
    ts.manual_seed(0)
    layer = nn.utils.spectral_norm(nn.Linear(4, 3))
    for _ in range(30):
        layer(ts.ones(1, 4))
    state = layer.eval().state_dict()
    old = OrderedDict((key, value.clone()) for key, value in state.items() if key != "weight_v")
    old["weight"] = layer.weight.detach().clone()
    other = nn.utils.spectral_norm(nn.Linear(4, 3)).eval()
    other.load_state_dict(old)
    assert ts.allclose(other(ts.eye(4)), layer(ts.eye(4)), atol=1e-5)
    assert ts.allclose(other.weight_v, layer.weight_v, atol=1e-4)
    bare = OrderedDict(state)  # without what it says of versions
    other.load_state_dict(bare)
    del old["weight_u"], old["weight"]
    with pytest.raises(RuntimeError, match="weight_u"):
        nn.utils.spectral_norm(nn.Linear(4, 3)).load_state_dict(old)


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("shape", [(0, 3, 4), (3, 0, 4)])
def test_nothing_through_attention(first, shape, device):
    x = ts.ones(shape, device=device)
    outputs = [
        nn.TransformerEncoderLayer(4, 2, 8, batch_first=first).to(device)(x),
        nn.TransformerDecoderLayer(4, 2, 8, batch_first=first).to(device)(x, x),
    ]
    attention = nn.MultiheadAttention(4, 2, batch_first=first).to(device)
    for options in ({}, {"need_weights": False}, {"average_attn_weights": False}):
        output, weights = attention(x, x, x, **options)
        outputs.append(output)
        assert weights is None or weights.numel() == 0
    assert all(output.shape == shape for output in outputs)
    sum(output.sum() for output in outputs).backward()
    assert attention.in_proj_weight.grad.abs().sum() == 0


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_instances_are_normalised_without_an_epsilon(dims, device):
    x = ts.arange(2.0 * 3 * 4**dims, device=device).reshape(2, 3, *[4] * dims)
    layer = getattr(nn, f"InstanceNorm{dims}d")(3, eps=0).to(device)
    found = layer(x).flatten(2)
    assert ts.allclose(found.mean(-1), ts.zeros(2, 3, device=device), atol=1e-5)
    assert ts.allclose(found.var(-1, correction=0), ts.ones(2, 3, device=device), atol=1e-4)
    with pytest.raises(ValueError, match="eps must be positive"):
        nn.functional.batch_norm(x, None, None, training=True, eps=0.0)


def test_copies_of_parameter_dicts_keep_their_order():
    params = nn.ParameterDict(OrderedDict((key, ts.ones(1)) for key in "bca"))
    assert list(params.copy()) == ["b", "c", "a"] and list(params | {"z": ts.ones(1)}) == ["b", "c", "a", "z"]


def test_the_older_form_of_local_response_normalisation():
    x = ts.tensor([1.0, 2.0, 3.0, 4.0]).reshape(1, 4, 1, 1)
    found = nn.CrossMapLRN2d(3, alpha=3, beta=1, k=0)(x).flatten()
    # Sums over 1 2, 1 2 3, and behind them over the neighbours and the first one, which stays.
    wanted = [1 / 5, 2 / 14, 3 / (4 + 9 + 16 + 1), 4 / (9 + 16 + 1)]
    assert ts.allclose(found, ts.tensor(wanted), rtol=1e-6)
    with pytest.raises(ValueError, match="4D"):
        nn.CrossMapLRN2d(3)(ts.ones(2, 3, 4))


def test_a_buffer_that_shows_a_parameter_still_does_in_a_deep_copy() -> None:
    """Where PyTorch's copy of the buffer has memory of its own."""

    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.whole = nn.Parameter(ts.zeros(4))
            self.register_buffer("part", self.whole.detach()[:2])

    again = copy.deepcopy(Tied())
    again.whole.data.fill_(5)
    assert again.part.tolist() == [5, 5] and again.whole.requires_grad
