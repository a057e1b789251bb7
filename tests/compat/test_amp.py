"""Mixed precision: what is cast, scaled losses, and the switches around them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tesserack as ts
from tesserack import nn
from tesserack.amp import GradScaler, autocast, custom_bwd, custom_fwd
from tesserack.utils.checkpoint import checkpoint


def test_regions_choose_dtypes():
    a, b = ts.randn(3, 3), ts.randn(3, 3)
    with autocast("cpu"):
        assert (a @ b).dtype == ts.bfloat16 and ts.mm(a, b).dtype == ts.bfloat16
        assert nn.Linear(3, 2)(a).dtype == ts.bfloat16
        assert nn.functional.conv2d(a[None, None], ts.ones(1, 1, 2, 2)).dtype == ts.bfloat16
        assert (a + b).dtype == ts.float32 and a.exp().dtype == ts.float32
        half = a @ b
        assert nn.functional.mse_loss(half, half).dtype == ts.float32
        assert ts.cat([half, a]).dtype == ts.float32 and ts.cat([half, half]).dtype == ts.bfloat16
        assert (a.double() @ b.double()).dtype == ts.float64 and (a.long() @ b.long()).dtype == ts.int64
        with autocast("cpu", enabled=False):
            assert (a @ b).dtype == ts.float32
        with autocast("cpu", dtype=ts.float16):
            assert (a @ b).dtype == ts.float16
        assert (a @ b).dtype == ts.bfloat16 and ts.is_autocast_enabled("cpu")
    assert (a @ b).dtype == ts.float32 and not ts.is_autocast_enabled("cpu")
    with autocast("nosuch"):  # other devices are not concerned
        assert (a @ b).dtype == ts.float32


def test_gradients_come_back_in_the_parameters_dtype():
    layer = nn.Linear(4, 4)
    x = ts.randn(2, 4)
    with autocast("cpu"):
        loss = (layer(layer(x)).float() ** 2).sum()
    loss.backward()
    assert layer.weight.grad.dtype == ts.float32
    expected = ts.autograd.grad((layer(layer(x)) ** 2).sum(), layer.weight)[0]
    assert ts.allclose(layer.weight.grad, expected, rtol=0.1, atol=0.1)


def test_parameters_changed_between_regions_are_cast_anew():
    layer = nn.Linear(2, 2, bias=False)
    x = ts.ones(1, 2)
    with autocast("cpu"):
        before = layer(x)
    with ts.no_grad():
        layer.weight.fill_(1)
    with autocast("cpu"):
        assert layer(x).tolist() == [[2, 2]] and before.dtype == ts.bfloat16


def test_as_a_decorator_and_with_odd_arguments():
    @autocast("cpu", dtype=ts.bfloat16)
    def product(a):
        return a @ a

    assert product(ts.ones(2, 2)).dtype == ts.bfloat16
    with pytest.warns(UserWarning, match="disabled"), autocast("cpu", dtype=ts.float64):
        assert (ts.ones(2, 2) @ ts.ones(2, 2)).dtype == ts.float32
    with pytest.raises(ValueError, match="device_type"):
        autocast(3)


def test_custom_functions_keep_the_region_of_their_forward():
    seen = []

    class Product(ts.autograd.Function):
        @staticmethod
        @custom_fwd(device_type="cpu")
        def forward(ctx, a, b):
            ctx.save_for_backward(a, b)
            return a @ b

        @staticmethod
        @custom_bwd(device_type="cpu")
        def backward(ctx, grad):
            a, b = ctx.saved_tensors
            seen.append(ts.is_autocast_enabled("cpu"))
            return (grad @ b.t()).float(), (a.t() @ grad).float()

    a = ts.ones(2, 2, requires_grad=True)
    with autocast("cpu"):
        y = Product.apply(a, ts.ones(2, 2))
    y.sum().backward()
    assert y.dtype == ts.bfloat16 and seen == [True] and a.grad.tolist() == [[2, 2], [2, 2]]

    class Exact(ts.autograd.Function):
        @staticmethod
        @custom_fwd(device_type="cpu", cast_inputs=ts.float32)
        def forward(ctx, a):
            return a @ a

        @staticmethod
        @custom_bwd(device_type="cpu")
        def backward(ctx, grad):
            return grad

    with autocast("cpu"):
        assert Exact.apply(ts.ones(2, 2, dtype=ts.bfloat16)).dtype == ts.float32


def test_scaler_adapts():
    w = nn.Parameter(ts.ones(1))
    optimizer = ts.optim.SGD([w], lr=1.0)
    scaler = GradScaler("cpu", init_scale=8.0, growth_interval=2)
    for _ in range(2):
        optimizer.zero_grad()
        scaler.scale((w * 0.5).sum()).backward()
        assert w.grad.item() == 0.5 * scaler.get_scale()
        scaler.unscale_(optimizer)
        assert w.grad.item() == 0.5
        with pytest.raises(RuntimeError, match="unscaled already"):
            scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
    assert w.item() == 0 and scaler.get_scale() == 16
    optimizer.zero_grad()
    scaler.scale((w * float("inf")).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert w.item() == 0 and scaler.get_scale() == 8
    with pytest.raises(RuntimeError, match="no gradient was checked"):
        scaler.update()
    other = GradScaler("cpu")
    other.load_state_dict(scaler.state_dict())
    assert other.get_scale() == 8 and other.state_dict() == scaler.state_dict()


def test_a_scaler_without_its_device_does_nothing():
    with pytest.warns(UserWarning, match="disabled"):
        scaler = GradScaler("nosuch")
    w = nn.Parameter(ts.ones(1))
    optimizer = ts.optim.SGD([w], lr=1.0)
    scaler.scale(w.sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert w.item() == 0 and scaler.get_scale() == 1 and scaler.state_dict() == {}


def test_switches():
    ts.use_deterministic_algorithms(True, warn_only=True)
    assert ts.are_deterministic_algorithms_enabled() and ts.get_deterministic_debug_mode() == 1
    ts.set_deterministic_debug_mode("default")
    assert not ts.are_deterministic_algorithms_enabled()
    ts.set_float32_matmul_precision("high")
    assert ts.get_float32_matmul_precision() == "high"
    ts.set_float32_matmul_precision("highest")
    with pytest.raises(RuntimeError, match="highest"):
        ts.set_float32_matmul_precision("low")
    with pytest.warns(UserWarning, match="set_default_tensor_type"):
        ts.set_default_tensor_type("torch.DoubleTensor")
    try:
        assert ts.ones(1).dtype == ts.float64
    finally:
        ts.set_default_dtype(ts.float32)
    with pytest.raises(TypeError):
        ts.set_default_tensor_type("torch.LongTensor")


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_what_is_checkpointed_runs_again_in_the_regions_of_its_first_run(use_reentrant):
    net = ts.nn.Sequential(ts.nn.Linear(3, 4), ts.nn.Tanh(), ts.nn.Linear(4, 3))
    x, seen = ts.ones(2, 3, requires_grad=True), []

    def run(value):
        seen.append((ts.is_autocast_enabled("cpu"), ts.get_autocast_dtype("cpu")))
        return net(value)

    with autocast("cpu", dtype=ts.float16):
        inside = checkpoint(run, x, use_reentrant=use_reentrant)
    inside.float().sum().backward()
    assert inside.dtype is ts.float16 and seen == [(True, ts.float16)] * 2
    outside = checkpoint(run, x, use_reentrant=use_reentrant)
    with autocast("cpu"):
        outside.sum().backward()
        assert ts.is_autocast_enabled("cpu")
    assert outside.dtype is ts.float32 and [on for on, _ in seen[2:]] == [False, False]
    assert not ts.is_autocast_enabled("cpu")


@pytest.mark.parametrize("early_stop", [True, False])
def test_gradients_taken_within_what_is_checkpointed(early_stop):
    x = ts.tensor([0.5, -1.0], dtype=ts.float64, requires_grad=True)

    def slope(value):
        return ts.autograd.grad(value.sin().sum(), value, create_graph=True)[0]

    y = checkpoint(slope, x, use_reentrant=False, early_stop=early_stop)
    y.sum().backward()
    assert ts.allclose(y, x.cos()) and ts.allclose(x.grad, -x.detach().sin())


def test_fourier_transforms_take_float32():
    with autocast("cpu"):
        product = ts.ones(4, 4) @ ts.ones(4, 4)
        assert product.dtype is ts.bfloat16 and ts.fft.rfft(product).dtype is ts.complex64
    with pytest.raises(RuntimeError, match="Unsupported dtype"):
        ts.fft.rfft(product)


def test_pooling_in_three_dims_takes_float32():
    x = ts.ones(1, 1, 4, 4, 4, dtype=ts.bfloat16)
    with autocast("cpu"):
        assert ts.nn.functional.avg_pool3d(x, 2).dtype is ts.nn.AvgPool3d(2)(x).dtype is ts.float32
        assert ts.nn.functional.avg_pool2d(x[0], 2).dtype is ts.bfloat16


# --- optimizers that scale themselves --------------------------------------------------------------------------------


class TakesScaler(ts.optim.SGD):
    _step_supports_amp_scaling = True
    seen: Any = None

    def step(self, closure: Any = None, grad_scaler: Any = None) -> Any:
        self.seen = grad_scaler
        grad_scaler.unscale_(self)
        return super().step(closure)


class ReadsScale(ts.optim.SGD):
    _step_supports_amp_scaling = True
    seen: Any = None

    def step(self, closure: Any = None) -> Any:
        self.seen = (float(self.grad_scale), float(self.found_inf))


def test_scalers_give_themselves_to_a_step_that_supports_it() -> None:
    w = ts.ones(2, requires_grad=True)
    scaler = ts.amp.GradScaler("cpu", init_scale=4.0)
    takes = TakesScaler([w], lr=1.0)
    scaler.scale((w * 2).sum()).backward()
    with pytest.warns(FutureWarning, match="keyword argument"):
        scaler.step(takes)
    scaler.update()
    assert takes.seen is scaler and w.tolist() == [-1, -1]
    reads = ReadsScale([w], lr=1.0)
    w.grad = ts.tensor([1.0, float("inf")])
    scaler.step(reads)
    scaler.update()
    assert reads.seen == (4.0, 1.0) and not hasattr(reads, "grad_scale") and scaler.get_scale() == 2.0


@pytest.mark.parametrize("change", ["in place", "data", "kept data", "copy", "step"])
def test_a_region_casts_a_weight_again_that_was_changed(change: str) -> None:
    layer = ts.nn.Linear(2, 2, bias=False)
    optimizer = ts.optim.SGD(layer.parameters(), lr=0.5)
    kept = layer.weight.data
    x = ts.ones(1, 2)
    with ts.autocast("cpu", dtype=ts.bfloat16):
        first = layer(x)
        if change == "step":
            first.sum().backward()
            optimizer.step()
        elif change == "kept data":
            kept.add_(1)
        else:
            with ts.no_grad():
                if change == "in place":
                    layer.weight.mul_(3)
                elif change == "data":
                    layer.weight.data.add_(1)
                else:
                    layer.weight.copy_(ts.ones(2, 2))
        second = layer(x)
    assert ts.equal(second, (x.bfloat16() @ layer.weight.detach().bfloat16().T))
    assert not ts.equal(first, second)


@pytest.mark.parametrize("value", [3.0, float("inf")])
def test_sparse_gradients_are_unscaled(value):
    table = nn.Embedding(4, 2, sparse=True)
    optimizer = ts.optim.SGD(table.parameters(), lr=1.0)
    scaler = GradScaler("cpu", init_scale=8.0)
    before = table.weight.detach().clone()
    scaler.scale((table(ts.tensor([1, 1, 2])) * value).sum()).backward()
    scaler.unscale_(optimizer)
    grad = table.weight.grad.to_dense()
    assert table.weight.grad.is_sparse and grad[1, 0] == 2 * value and grad[2, 0] == value
    scaler.step(optimizer)
    moved = (before - table.weight.detach())[1, 0]
    assert moved == pytest.approx(6.0 if value == 3 else 0.0)


def test_a_scale_does_not_grow_beyond_what_losses_hold():
    """Nor is it finer than they are."""
    scaler = ts.amp.GradScaler("cpu", init_scale=3e38, growth_interval=1)
    parameter = ts.nn.Parameter(ts.ones(2))
    optimizer = ts.optim.SGD([parameter], lr=0.1)
    for _ in range(2):
        parameter.grad = ts.zeros(2)
        scaler.step(optimizer)
        scaler.update()
        assert scaler.get_scale() == 3e38
    scaler = ts.amp.GradScaler("cpu", init_scale=1.0, growth_factor=1.1, growth_interval=1)
    wanted = np.float32(1)
    for _ in range(5):
        parameter.grad = ts.zeros(2)
        scaler.step(optimizer)
        scaler.update()
        wanted = np.float32(float(wanted) * 1.1)
    assert scaler.get_scale() == float(wanted)
    scaler._init_growth_tracker = 7
    assert scaler.state_dict()["_growth_tracker"] == 7
