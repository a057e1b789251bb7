"""Gradient clipping, and parameters as one vector."""

import math

import numpy as np
import pytest
import tesserack as ts
from tesserack import nn
from tesserack.nn.utils import (
    clip_grad_norm_,
    clip_grad_value_,
    get_total_norm,
    parameters_to_vector,
    rnn,
    vector_to_parameters,
)


def with_grads(device):
    params = [nn.Parameter(ts.zeros(2, device=device)) for _ in range(3)]
    params[0].grad = ts.tensor([3.0, 0.0], device=device)
    params[1].grad = ts.tensor([0.0, -4.0], device=device)
    return params


@pytest.mark.parametrize(("order", "norm"), [(2, 5.0), (1, 7.0), (math.inf, 4.0), (3, 91 ** (1 / 3))])
def test_clip_grad_norm(order, norm, device):
    params = with_grads(device)
    assert clip_grad_norm_(params, 1.0, order).item() == pytest.approx(norm, rel=1e-6)
    assert params[0].grad.tolist() == pytest.approx([3 / norm, 0], rel=1e-5)
    assert params[1].grad.tolist() == pytest.approx([0, -4 / norm], rel=1e-5)
    assert params[2].grad is None


def test_pad_sequence_and_back(device):
    rows = [ts.arange(n, dtype=ts.float32, device=device).reshape(n, 1).requires_grad_() for n in (3, 1)]
    padded = rnn.pad_sequence(rows, batch_first=True, padding_value=-1)
    assert padded.squeeze(-1).tolist() == [[0, 1, 2], [0, -1, -1]]
    padded.sum().backward()
    assert rows[1].grad.tolist() == [[1.0]]
    assert rnn.pad_sequence(rows, padding_side="left")[..., 0].tolist() == [[0, 0], [1, 0], [2, 0]]
    lengths = ts.tensor([3, 1])
    assert [r.flatten().tolist() for r in rnn.unpad_sequence(padded, lengths, True)] == [[0, 1, 2], [0]]
    for bad in ({"padding_side": "up"}, {"sequences": []}, {"sequences": [ts.ones(1, 2), ts.ones(1, 3)]}):
        with pytest.raises(RuntimeError, match="pad_sequence"):
            rnn.pad_sequence(**{"sequences": rows} | bad)


def test_small_gradients_are_left_alone(device):
    params = with_grads(device)
    clip_grad_norm_(iter(params), 10.0)
    assert params[0].grad.tolist() == [3.0, 0.0]
    assert clip_grad_norm_([], 1.0).item() == 0 and clip_grad_norm_(params[2], 1.0).item() == 0
    assert get_total_norm([p.grad for p in params[:2]]).item() == 5


def test_norms_that_are_not_finite(device):
    params = with_grads(device)
    params[0].grad[0] = math.nan
    with pytest.raises(RuntimeError, match="nan"):
        clip_grad_norm_(params, 1.0, error_if_nonfinite=True)
    assert params[1].grad.tolist() == [0.0, -4.0]
    assert math.isnan(clip_grad_norm_(params, 1.0).item())


def test_clip_grad_value(device):
    params = with_grads(device)
    clip_grad_value_(params, 3.5)
    assert params[0].grad.tolist() == [3.0, 0.0] and params[1].grad.tolist() == [0.0, -3.5]


def test_vector_round_trip(device):
    a, b = nn.Linear(3, 2).to(device), nn.Linear(3, 2).to(device)
    vector = parameters_to_vector(a.parameters())
    assert tuple(vector.shape) == (8,) and vector.requires_grad
    vector_to_parameters(vector, b.parameters())
    assert ts.equal(a.weight, b.weight) and ts.equal(a.bias, b.bias)
    assert isinstance(b.weight, nn.Parameter) and b.weight.is_leaf
    with pytest.raises(ValueError, match="shape"):
        vector_to_parameters(vector[1:], b.parameters())
    with pytest.raises(TypeError, match="Tensor"):
        vector_to_parameters([1.0], b.parameters())
    with pytest.raises(TypeError, match="device"):
        parameters_to_vector([])


def test_gradients_go_by_their_other_name():
    p = nn.Parameter(ts.ones(2))
    p._grad = ts.full((2,), 3.0)
    assert p.grad.tolist() == [3, 3] and p._grad is p.grad
    nn.utils.clip_grad_norm_([p], 1.0)
    assert abs(p.grad.norm().item() - 1) < 1e-4


class _Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("calls", ts.zeros(1))

    def forward(self, x):
        self.calls = self.calls + 1
        return x + self.calls


def test_what_a_functional_call_assigns_is_in_what_was_given():
    layer, given = nn.Sequential(_Counting()), {"0.calls": ts.tensor([4.0])}
    assert ts.func.functional_call(layer, given, ts.ones(1)).item() == 6
    assert given["0.calls"].item() == 5 and layer[0].calls.item() == 0
    ts.func.functional_call(layer, (given,), ts.ones(1))
    assert given["0.calls"].item() == 5


class _Plain(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.rate = nn.Linear(1, 1), 0.0

    def forward(self, x):
        return self.inner(x), tuple(self.inner.parameters())


def test_a_functional_call_takes_tensors_for_tensors_and_lists_new_parameters():
    module, x = _Plain(), ts.ones(1, 1)
    for given, word in (({"inner.weight": "text"}, "'text'"), ({"rate": ts.ones(1)}, "'rate' is 0.0")):
        with pytest.raises(TypeError, match=word):
            ts.func.functional_call(module, given, x)
    extra = nn.Parameter(ts.ones(2))
    assert ts.func.functional_call(module, {"inner.extra": extra}, x)[1][-1] is extra
    assert len(list(module.parameters())) == 2 and not hasattr(module.inner, "extra") and module.rate == 0.0


def test_a_functional_call_of_modules_that_hold_each_other():
    module = nn.Linear(1, 1, bias=False)
    module.add_module("itself", module)
    weight = ts.full((1, 1), 3.0)
    assert ts.func.functional_call(module, {"weight": weight}, ts.ones(1), tie_weights=False).item() == 3


class _Positive(nn.Module):
    def forward(self, x):
        return x.exp()

    def right_inverse(self, y):
        if bool((y <= 0).any()):
            raise ValueError("not positive")
        return y.log()


class _Unsigned(nn.Module):
    def forward(self, x):
        return -x.abs()


def test_an_inverse_is_tried_on_what_the_parametrization_gives():
    layer = nn.Linear(2, 2)
    nn.utils.parametrize.register_parametrization(layer, "weight", _Unsigned())
    nn.utils.parametrize.register_parametrization(layer, "weight", _Positive())
    assert ((layer.weight > 0) & (layer.weight <= 1)).all()


@pytest.mark.parametrize("dtype", [ts.float64, ts.complex128], ids=str)
def test_spectral_norm_finds_the_largest_singular_value(dtype):
    ts.manual_seed(0)
    layer = nn.utils.parametrizations.spectral_norm(nn.Linear(5, 4, dtype=dtype), n_power_iterations=200)
    weight = layer.weight.detach()
    assert np.linalg.norm(weight.numpy(), 2) == pytest.approx(1, rel=1e-6)
    layer.weight.abs().sum().backward()
    assert layer.parametrizations.weight.original.grad.isfinite().all()


def test_parameters_without_gradients_are_clipped_to_nothing(device):
    params = [nn.Parameter(ts.ones(2, device=device))]
    for given in (params, [], iter(params)):
        assert clip_grad_norm_(given, 1.0).item() == 0
    clip_grad_value_(params, 1.0)
    assert params[0].grad is None and params[0].tolist() == [1, 1]
