"""A user's program as a type checker sees it: `make lint` runs mypy --strict over it, test_typing.py runs it."""

from __future__ import annotations

import tesserack as ts
from tesserack import Tensor, nn, optim
from tesserack.autograd import Function
from tesserack.nn import functional as F
from tesserack.utils.data import DataLoader, TensorDataset


class Square(Function):
    """x * x, with its gradient by hand."""

    @staticmethod
    def forward(ctx: ts.autograd.function.FunctionCtx, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: ts.autograd.function.FunctionCtx, grad: Tensor) -> Tensor:
        x: Tensor
        (x,) = ctx.saved_tensors
        return grad * x * 2


class Net(nn.Module):
    """Two layers."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.hidden = nn.Linear(2, width)
        self.norm = nn.BatchNorm1d(width)
        self.out = nn.Sequential(nn.ReLU(), nn.Dropout(0.0), nn.Linear(width, 1))
        nn.init.xavier_uniform_(self.hidden.weight)

    def forward(self, x: Tensor) -> Tensor:
        """(N, 2) to (N, 1)."""
        y: Tensor = self.out(self.norm(self.hidden(x)))
        return y


def train(steps: int) -> float:
    """Fit |a| + |b| and return the last loss."""
    ts.manual_seed(0)
    x = ts.rand(64, 2)
    target = x.abs().sum(dim=1, keepdim=True)
    loader = DataLoader(TensorDataset(x, target), batch_size=16, shuffle=True)
    model = Net(8)
    optimizer = optim.AdamW(model.parameters(), lr=1e-2)
    schedule = optim.lr_scheduler.StepLR(optimizer, step_size=steps)
    loss = ts.zeros(())
    for _ in range(steps):
        for inputs, wanted in loader:
            optimizer.zero_grad()
            loss = F.mse_loss(model(inputs), wanted)
            loss.backward()
            optimizer.step()
        schedule.step()
    return float(loss.item())


def main() -> None:
    """Train, and take a gradient of a function of one's own."""
    x = ts.tensor([1.0, 2.0], requires_grad=True, dtype=ts.float32, device=ts.device("cpu"))
    y: Tensor = Square.apply(x)
    (grad,) = ts.autograd.grad(y.sum(), [x])
    assert grad.tolist() == [2.0, 4.0]
    with ts.no_grad():
        length = ts.linalg.vector_norm(x.detach()).item()
    assert abs(length - 5.0**0.5) < 1e-6
    assert isinstance(nn.ModuleList([nn.Linear(1, 1)])[0], nn.Module)
    rows: Tensor = ts.einsum("i,i->", x, x)  # what Python wraps has its own signature
    (places,) = ts.nonzero(x, as_tuple=True)
    assert ts.unique(places).numel() == 2 and rows.ndim == 0
    assert not (hasattr(x, "is_cuda") and x.is_cuda)  # of packages that are installed or on offer
    assert train(steps=20) < 0.1


if __name__ == "__main__":
    main()
