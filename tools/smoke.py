"""A minute in the life of an installed Tesserack: import, compute, differentiate, train, save, load."""

from __future__ import annotations

import platform
import sys
import tempfile
from pathlib import Path

import tesserack as ts
from tesserack.nn import Linear, ReLU, Sequential


def train() -> float:
    """Fit y = 3x + 1 and return the last loss."""
    ts.manual_seed(0)
    x = ts.rand(64, 1)
    y = x * 3.0 + 1.0
    model = Sequential(Linear(1, 16), ReLU(), Linear(16, 1))
    optimizer = ts.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(300):
        optimizer.zero_grad()
        loss = ((model(x) - y) ** 2).mean()
        loss.backward()
        optimizer.step()
    return float(loss.item())


def main() -> None:
    assert "numpy" not in sys.modules, "import tesserack imports numpy"
    a = ts.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    (a @ a).sum().backward()
    assert a.grad is not None and a.grad.tolist() == [[7.0, 11.0], [9.0, 13.0]], a.grad

    loss = train()
    assert loss < 1e-2, loss

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.safetensors")
        ts.save({"a": a.detach()}, str(path))
        assert ts.load(str(path))["a"].tolist() == a.tolist()
    print(f"smoke test passed: tesserack {ts.__version__}, Python {platform.python_version()}, loss {loss:.1e}")


if __name__ == "__main__":
    main()
