"""A variational autoencoder of handwritten digits: each scan as a point of a plane, and new scans from other points.

    python examples/vae.py --epochs 100

Learns from scikit-learn's 1,797 scans; writes a sheet of scans decoded from a grid of points. After Kingma and Welling,
"Auto-Encoding Variational Bayes" (2013).
"""

from __future__ import annotations

import sys

import tesserack as ts
from common import finish, load_digits, parse_arguments
from tesserack import nn, optim
from tesserack.nn import functional as F
from tesserack.utils.data import DataLoader, TensorDataset
from tesserack.utils.plots import plot_images
from tesserack.utils.progress import Progress

LATENT, WIDTH = 2, 128


class VAE(nn.Module):
    """Encodes a scan as a normal distribution over points; decodes points to the brightness of pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.encode = nn.Sequential(nn.Flatten(), nn.Linear(64, WIDTH), nn.SiLU(), nn.Linear(WIDTH, 2 * LATENT))
        layers = (nn.Linear(LATENT, WIDTH), nn.SiLU(), nn.Linear(WIDTH, WIDTH), nn.SiLU(), nn.Linear(WIDTH, 64))
        self.decode = nn.Sequential(*layers, nn.Unflatten(1, (1, 8, 8)))

    def forward(self, x: ts.Tensor) -> tuple[ts.Tensor, ts.Tensor, ts.Tensor]:
        mean, log_variance = self.encode(x).chunk(2, 1)
        point = mean + (log_variance / 2).exp() * ts.randn_like(mean)
        return self.decode(point), mean, log_variance


def loss_of(model: nn.Module, x: ts.Tensor) -> ts.Tensor:
    """The bound on the likelihood of a scan, as a loss: how badly it is redrawn, and how much its point tells."""
    redrawn, mean, log_variance = model(x)
    drawing = F.binary_cross_entropy_with_logits(redrawn, x, reduction="sum")
    told = -0.5 * (1 + log_variance - mean.square() - log_variance.exp()).sum()
    return (drawing + told) / len(x)


def main() -> int:
    args = parse_arguments("Train a variational autoencoder on handwritten digits.", epochs=100, quick=3)
    scans, _ = load_digits(args.device)
    scans = scans[ts.randperm(len(scans)).to(args.device)]
    train, test = scans[:-300], scans[-300:]
    model = VAE().to(args.device)
    optimizer = optim.Adam(model.parameters(), lr=2e-3)
    history: dict[str, list[float]] = {"loss": [], "test loss": []}
    with Progress(args.epochs * len(train), unit="scans") as bar:
        for _ in range(args.epochs):
            total = ts.zeros((), device=args.device)
            for (x,) in DataLoader(TensorDataset(train), 64, shuffle=True):
                loss = loss_of(model, x)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                total += loss.detach() * len(x)
                bar.advance(len(x), loss=loss.detach())
            history["loss"].append(total.item() / len(train))
            with ts.no_grad():
                history["test loss"].append(loss_of(model, test).item())
    print(f"test loss {history['test loss'][0]:.2f} after the first epoch, {history['test loss'][-1]:.2f} at the end")
    line = ts.linspace(-2, 2, 10, device=args.device)
    with ts.no_grad():
        grid = model.decode(ts.cartesian_prod(line, line)).sigmoid()
    try:
        plot_images(grid, 10, args.out / "vae_digits.png")
    except ModuleNotFoundError as error:
        print(f"no pictures: {error}", file=sys.stderr)
    finish("vae", args, model, history)
    return 0


if __name__ == "__main__":
    sys.exit(main())
