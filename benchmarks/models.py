"""Whole training steps of small models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rows import row


def _training_step(fw: Any, model: Any, optimizer: Any, x: Any, y: Any) -> Callable[[], Any]:
    loss_function = fw.nn.CrossEntropyLoss()

    def step() -> Any:
        optimizer.zero_grad()
        loss = loss_function(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return step


@row("MLP 64-128-128-10, batch 64, Adam", "step()", limit=0.25)
def mlp(fw: Any, device: str) -> dict[str, Any]:
    nn = fw.nn
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10)).to(device)
    x = fw.randn(64, 64, device=device)
    y = fw.randint(0, 10, (64,), device=device)
    return {"step": _training_step(fw, model, fw.optim.Adam(model.parameters()), x, y)}


@row("digits CNN, batch 64, Adam", "step()")
def digits_cnn(fw: Any, device: str) -> dict[str, Any]:
    nn = fw.nn
    model = nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * 4 * 4, 10),
    ).to(device)
    x = fw.randn(64, 1, 8, 8, device=device)
    y = fw.randint(0, 10, (64,), device=device)
    return {"step": _training_step(fw, model, fw.optim.Adam(model.parameters()), x, y)}


@row("AdamW step, 50 x 20,000", "optimizer.step()", limit=0.6)
def adamw(fw: Any, device: str) -> dict[str, Any]:
    parameters = [fw.nn.Parameter(fw.randn(20_000, device=device)) for _ in range(50)]
    for parameter in parameters:
        parameter.grad = fw.randn(20_000, device=device)
    return {"optimizer": fw.optim.AdamW(parameters)}
