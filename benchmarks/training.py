"""Parts of training beside products: recurrent layers, losses over ways, sampling, pooling of blocks, optimizers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rows import Cost, Setup, row


def recurrent(kind: str) -> Setup:
    """A training step of one recurrent layer."""

    def setup(fw: Any, device: str) -> dict[str, Any]:
        model = getattr(fw.nn, kind)(64, 128).to(device)
        optimizer = fw.optim.SGD(model.parameters(), lr=0.01)
        x = fw.randn(50, 32, 64, device=device)

        def step() -> None:
            optimizer.zero_grad()
            model(x)[0].sum().backward()
            optimizer.step()

        return {"step": step}

    setup.__module__ = __name__
    return setup


def _products(gates: int) -> Cost:
    """Outputs, gradients of both weights, and of the states; nobody asks for the input's."""
    rows, inputs, hidden = 50 * 32, 64, 128
    return Cost(flops=2 * rows * gates * hidden * (2 * (inputs + hidden) + hidden))


row("LSTM 64-128, 50 steps, batch 32, SGD", "step()", limit=0.5, cost=_products(4))(recurrent("LSTM"))
row("GRU 64-128, 50 steps, batch 32, SGD", "step()", limit=0.5, cost=_products(3))(recurrent("GRU"))


@row("ctc_loss 50x16x20, 15 labels, with gradient", "step()")
def ctc(fw: Any, device: str) -> dict[str, Any]:
    x = fw.randn(50, 16, 20, device=device)
    labels = fw.randint(1, 20, (16, 15), device=device)

    def step() -> None:
        chances = x.detach().requires_grad_().log_softmax(2)
        fw.nn.functional.ctc_loss(chances, labels, [50] * 16, [15] * 16).backward()

    return {"step": step}


def _sampled(fw: Any, device: str) -> tuple[Any, Any, Callable[..., Any]]:
    x, grid = fw.randn(8, 16, 64, 64, device=device), fw.rand(8, 64, 64, 2, device=device) * 2 - 1
    return x, grid, fw.nn.functional.grid_sample


@row("grid_sample 8x16x64x64", "sample(x, grid, align_corners=False)")
def sampling(fw: Any, device: str) -> dict[str, Any]:
    x, grid, sample = _sampled(fw, device)
    return {"x": x, "grid": grid, "sample": sample}


@row("grid_sample 8x16x64x64, with gradients", "step()")
def sampling_backward(fw: Any, device: str) -> dict[str, Any]:
    x, grid, sample = _sampled(fw, device)

    def step() -> None:
        sample(x.detach().requires_grad_(), grid.detach().requires_grad_(), align_corners=False).sum().backward()

    return {"step": step}


@row("max_pool3d 3/2 2x16x16x32x32", "pool(x, 3, 2, 1)")
def max_blocks(fw: Any, device: str) -> dict[str, Any]:
    return {"x": fw.randn(2, 16, 16, 32, 32, device=device), "pool": fw.nn.functional.max_pool3d}


@row("avg_pool3d 3/2 2x16x16x32x32", "pool(x, 3, 2, 1)")
def mean_blocks(fw: Any, device: str) -> dict[str, Any]:
    return {"x": fw.randn(2, 16, 16, 32, 32, device=device), "pool": fw.nn.functional.avg_pool3d}


def _optimizer(name: str) -> Setup:
    def setup(fw: Any, device: str) -> dict[str, Any]:
        params = [fw.nn.Parameter(fw.randn(64, 64, device=device)) for _ in range(40)]
        for param in params:
            param.grad = fw.randn(64, 64, device=device)
        return {"step": getattr(fw.optim, name)(params, lr=1e-3).step}

    setup.__module__ = __name__
    return setup


for _name in ("Adadelta", "Adagrad", "Adamax", "ASGD", "NAdam", "RAdam", "RMSprop", "Rprop"):
    row(f"{_name}, 40 parameters of 64x64", "step()", limit=0.8)(_optimizer(_name))
