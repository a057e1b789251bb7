"""Two convolutional networks play against each other until one draws digits: a generative adversarial network.

    python examples/dcgan.py --epochs 40

The drawer learns from scikit-learn's 1,797 scans only through the critic, who learns to tell scans from drawings. After
Radford, Metz and Chintala (2015).
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

NOISE, WIDTH = 32, 48


def make_drawer() -> nn.Module:
    """From noise (n, NOISE, 1, 1) to drawings (n, 1, 8, 8) from -1 to 1."""
    return nn.Sequential(
        nn.ConvTranspose2d(NOISE, 2 * WIDTH, 2, bias=False),
        nn.BatchNorm2d(2 * WIDTH),
        nn.ReLU(),
        nn.ConvTranspose2d(2 * WIDTH, WIDTH, 4, stride=2, padding=1, bias=False),
        nn.BatchNorm2d(WIDTH),
        nn.ReLU(),
        nn.ConvTranspose2d(WIDTH, 1, 4, stride=2, padding=1),
        nn.Tanh(),
    )


def make_critic() -> nn.Module:
    """From pictures (n, 1, 8, 8) to a score (n,): above 0 for scans."""
    return nn.Sequential(
        nn.Conv2d(1, WIDTH, 4, stride=2, padding=1),
        nn.LeakyReLU(0.2),
        nn.Dropout(0.3),
        nn.Conv2d(WIDTH, 2 * WIDTH, 4, stride=2, padding=1),
        nn.LeakyReLU(0.2),
        nn.Dropout(0.3),
        nn.Conv2d(2 * WIDTH, 1, 2),
        nn.Flatten(0),
    )


def step(optimizer: optim.Optimizer, loss: ts.Tensor) -> ts.Tensor:
    """One step down; the loss without its graph."""
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()


def judge(scores: ts.Tensor, real: bool) -> ts.Tensor:
    """How wrong the critic is. Scans count as 0.9 of a scan, so that it never gets too sure."""
    return F.binary_cross_entropy_with_logits(scores, ts.full_like(scores, 0.9 if real else 0.0))


def main() -> int:
    args = parse_arguments("Train a generative adversarial network on handwritten digits.", epochs=40, quick=2)
    scans = load_digits(args.device)[0] * 2 - 1
    drawer, critic = make_drawer().to(args.device), make_critic().to(args.device)
    drawing = optim.Adam(drawer.parameters(), lr=1e-3, betas=(0.5, 0.999))
    judging = optim.Adam(critic.parameters(), lr=4e-4, betas=(0.5, 0.999))
    loader = DataLoader(TensorDataset(scans), 64, shuffle=True, drop_last=True)
    history: dict[str, list[float]] = {"drawer's loss": [], "critic's loss": []}
    with Progress(args.epochs * len(loader), unit="steps") as bar:
        for _ in range(args.epochs):
            totals = ts.zeros(2, device=args.device)
            for (x,) in loader:
                drawn = drawer(ts.randn(len(x), NOISE, 1, 1, device=args.device))
                told = judge(critic(x), True) + judge(critic(drawn.detach()), False)
                critic_loss = step(judging, told)
                scores = critic(drawn)
                drawer_loss = step(drawing, F.binary_cross_entropy_with_logits(scores, ts.ones_like(scores)))
                totals += ts.stack((drawer_loss, critic_loss))
                bar.advance(drawer=drawer_loss, critic=critic_loss)
            for name, total in zip(history, totals.tolist(), strict=True):
                history[name].append(total / len(loader))
    drawer.eval()
    with ts.no_grad():
        sheet = drawer(ts.randn(64, NOISE, 1, 1, device=args.device)) / 2 + 0.5
    print(f"brightness of drawings {sheet.mean().item():.3f}, of scans {(scans.mean() / 2 + 0.5).item():.3f}")
    try:
        plot_images(sheet, 8, args.out / "dcgan_digits.png")
    except ModuleNotFoundError as error:
        print(f"no pictures: {error}", file=sys.stderr)
    finish("dcgan", args, drawer, history)
    return 0


if __name__ == "__main__":
    sys.exit(main())
