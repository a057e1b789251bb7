"""An LSTM that foretells the voltage of a nerve cell's membrane, one step ahead and many.

    python examples/time_series.py --epochs 15

The recording of 12,000 samples comes with matplotlib. The first four fifths are for training; the forecast of the rest
is compared with saying that nothing changes.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import tesserack as ts
from common import finish, needed, parse_arguments
from tesserack import nn, optim
from tesserack.nn import functional as F
from tesserack.utils.progress import Progress

WINDOW, BATCH = 100, 32


def load_voltage(device: Any) -> ts.Tensor:
    """The recording, shifted and scaled to mean 0 and deviation 1."""
    folder = Path(needed("matplotlib").get_data_path(), "sample_data")
    path = folder / "membrane.dat"
    if not path.exists():
        sys.exit(f"error: the recording is not at {path}; install matplotlib from PyPI, with its sample data")
    series = ts.frombuffer(bytearray(path.read_bytes()), dtype=ts.float32).clone()
    return ((series - series.mean()) / series.std()).to(device)


class Forecaster(nn.Module):
    """After each sample, how much the next one differs from it."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(1, 48, batch_first=True)
        self.head = nn.Linear(48, 1)

    def forward(self, series: ts.Tensor, state: Any = None) -> tuple[ts.Tensor, Any]:
        hidden, state = self.lstm(series[..., None], state)
        return series + self.head(hidden)[..., 0], state


def windows(series: ts.Tensor) -> ts.Tensor:
    """Pieces (n, WINDOW + 1) that overlap by half, in random order."""
    pieces = series.unfold(0, WINDOW + 1, WINDOW // 2)
    return pieces[ts.randperm(len(pieces)).to(series.device)]


@ts.no_grad()
def forecast(model: Forecaster, seen: ts.Tensor, steps: int) -> ts.Tensor:
    """So many samples after those seen, each made from the one before."""
    guess, state = model(seen[None])
    guesses = [guess[:, -1:]]
    for _ in range(steps - 1):
        guess, state = model(guesses[-1], state)
        guesses.append(guess)
    return ts.cat(guesses, 1)[0]


def main() -> int:
    args = parse_arguments("Train an LSTM on the voltage of a membrane.", epochs=15, quick=1)
    series = load_voltage(args.device)
    split = len(series) * 4 // 5
    train, test = series[: split // 4 if args.quick else split], series[split:]
    model = Forecaster().to(args.device)
    optimizer = optim.Adam(model.parameters(), lr=5e-3)
    schedule = optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs)
    history: dict[str, list[float]] = {"loss": [], "test loss": []}
    count = len(windows(train))
    with Progress(args.epochs * count, unit="windows") as bar:
        for _ in range(args.epochs):
            total = ts.zeros((), device=args.device)
            for batch in windows(train).split(BATCH):
                loss = F.mse_loss(model(batch[:, :-1])[0], batch[:, 1:])
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                total += loss.detach() * len(batch)
                bar.advance(len(batch), loss=loss.detach())
            schedule.step()
            history["loss"].append(total.item() / count)
            with ts.no_grad():
                history["test loss"].append(F.mse_loss(model(test[None, :-1])[0], test[None, 1:]).item())
    unchanged = F.mse_loss(test[:-1], test[1:]).item()
    print(f"one step ahead: error {history['test loss'][-1]:.5f}, of saying that nothing changes {unchanged:.5f}")
    ahead = forecast(model, test[:500], 50)
    print(f"fifty steps ahead: mean error {(ahead - test[500:550]).abs().mean().item():.3f} deviations")
    finish("time_series", args, model, history)
    return 0


if __name__ == "__main__":
    sys.exit(main())
