"""Learn to read handwritten digits: a small convolutional network on scikit-learn's 1,797 scans of 8 x 8 pixels.

    python examples/digits.py --device cpu --epochs 20 --save digits.safetensors

Trains on four fifths of the scans, tests on the rest, saves the model, and reloads it in a new process to check that
it predicts the same.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tesserack as ts
from tesserack import nn, optim
from tesserack.nn import functional as F
from tesserack.utils.data import DataLoader, TensorDataset

SEED = 0


def main() -> int:
    args = parse_arguments()
    try:
        device = ts.zeros(1, device=args.device).device
    except (RuntimeError, ValueError) as error:  # an unknown or unusable device: the message says what to do
        print(f"error: {error}", file=sys.stderr)
        return 2
    train, test = load_digits(device)
    if args.predict:
        print(json.dumps(predict(load_model(args.predict, device), test)))
        return 0
    ts.manual_seed(SEED)
    model = make_model().to(device)
    seconds = fit(model, train, args.epochs, args.batch_size)
    predictions = predict(model, test)
    labels = test.tensors[1].tolist()
    accuracy = sum(p == y for p, y in zip(predictions, labels, strict=True)) / len(labels)
    same = reloads_the_same(model, predictions, args.save, args.device)
    report(device, accuracy, seconds, args.epochs * len(train), same)
    return 0 if same else 1


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train a small network on handwritten digits.")
    parser.add_argument("--device", default="cpu", help="where to train (default: cpu)")
    parser.add_argument("--epochs", type=positive, default=20, help="passes over the training scans (default: 20)")
    parser.add_argument("--batch-size", type=positive, default=64, help="scans per step (default: 64)")
    parser.add_argument("--save", metavar="PATH", help="keep the trained model in this safetensors file")
    parser.add_argument("--predict", metavar="PATH", help=argparse.SUPPRESS)  # what the new process is asked to do
    return parser.parse_args()


def positive(text: str) -> int:
    """A whole number above 0, for argparse."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"expected a number above 0, got {text}")
    return number


# --- data and model ------------------------------------------------------------------------------------------------


def load_digits(device: Any) -> tuple[TensorDataset, TensorDataset]:
    """Scans (n, 1, 8, 8) from 0 to 1 and their digits, four fifths for training and one fifth for testing."""
    try:
        from sklearn.datasets import load_digits as read
        from sklearn.model_selection import train_test_split
    except ImportError:
        sys.exit("error: the scans come with scikit-learn: pip install scikit-learn")
    scans, digits = read(return_X_y=True)
    scans = (scans / 16).astype("float32").reshape(-1, 1, 8, 8)
    parts = train_test_split(scans, digits.astype("int64"), test_size=0.2, random_state=SEED, stratify=digits)
    train_x, test_x, train_y, test_y = (ts.tensor(part).to(device) for part in parts)
    return TensorDataset(train_x, train_y), TensorDataset(test_x, test_y)


def make_model() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1, bias=False),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.Conv2d(32, 32, 3, padding=1, bias=False),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.2),
        nn.Linear(256, 10),
    )


def load_model(path: str, device: Any) -> nn.Module:
    model = make_model()
    model.load_state_dict(ts.load(path))
    return model.to(device)


# --- training ------------------------------------------------------------------------------------------------------


def fit(model: nn.Module, data: TensorDataset, epochs: int, batch_size: int) -> float:
    """Train the model; returns the seconds it took."""
    # What the data draws has a generator of its own, and the devices' start anew: the same numbers on all of them.
    random = ts.Generator().manual_seed(SEED)
    ts.manual_seed(SEED)
    loader = DataLoader(data, batch_size, shuffle=True, generator=random)
    optimizer = optim.AdamW(model.parameters(), lr=5e-3, weight_decay=1e-2)
    schedule = optim.lr_scheduler.OneCycleLR(optimizer, 5e-3, epochs=epochs, steps_per_epoch=len(loader))
    loss_of = nn.CrossEntropyLoss(label_smoothing=0.05)
    model.train()
    began = time.perf_counter()
    with Progress(epochs, len(data)) as progress:
        for epoch in range(epochs):
            total = ts.zeros((), device=data.tensors[0].device)
            for scans, digits in loader:
                loss = loss_of(model(shifted(scans, random)), digits)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                schedule.step()
                total += loss.detach() * len(digits)
                progress.advance(len(digits))
            progress.epoch(epoch, total.item() / len(data))
    return time.perf_counter() - began


def shifted(scans: ts.Tensor, random: ts.Generator) -> ts.Tensor:
    """The batch moved by at most one pixel each way: more varied training scans."""
    down, right = ts.randint(0, 3, (2,), generator=random).tolist()
    return F.pad(scans, (1, 1, 1, 1))[:, :, down : down + 8, right : right + 8].contiguous()


def predict(model: nn.Module, data: TensorDataset) -> list[int]:
    model.eval()
    with ts.no_grad():
        return [digit for scans, _ in DataLoader(data, 256) for digit in model(scans).argmax(dim=1).tolist()]


def reloads_the_same(model: nn.Module, predictions: list[int], path: str | None, device: str) -> bool:
    """Save the model, load it in a new process, and compare what it predicts there."""
    with tempfile.TemporaryDirectory() as folder:
        path = path or str(Path(folder) / "digits.safetensors")
        ts.save(model.state_dict(), path)
        command = [sys.executable, __file__, "--device", device, "--predict", path]
        answer = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return bool(json.loads(answer.stdout) == predictions)


# --- what is shown -------------------------------------------------------------------------------------------------


class Progress:
    """A progress bar on a terminal, one line per epoch elsewhere."""

    def __init__(self, epochs: int, images: int) -> None:
        self.epochs, self.images = epochs, images
        self.began = time.perf_counter()
        self.bar: Any = None
        if sys.stdout.isatty():
            self.bar = rich_bar()
            self.task = self.bar.add_task("training", total=epochs * images, loss="-", speed="-")

    def __enter__(self) -> Progress:
        if self.bar:
            self.bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self.bar:
            self.bar.stop()

    def advance(self, images: int) -> None:
        if self.bar:
            self.bar.advance(self.task, images)

    def epoch(self, epoch: int, loss: float) -> None:
        elapsed = time.perf_counter() - self.began
        speed = (epoch + 1) * self.images / elapsed
        left = (self.epochs - epoch - 1) * self.images / speed
        if self.bar:
            self.bar.update(self.task, loss=f"{loss:.4f}", speed=f"{speed:,.0f}")
        else:
            print(f"epoch {epoch + 1}/{self.epochs}  loss {loss:.4f}  {speed:,.0f} images/s  {left:.0f} s left")


def rich_bar() -> Any:
    try:
        from rich import progress
    except ImportError:
        return None
    columns: list[Any] = [
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.TaskProgressColumn(),
        progress.TextColumn("loss {task.fields[loss]}  {task.fields[speed]} images/s"),
        progress.TimeRemainingColumn(),
    ]
    return progress.Progress(*columns)


def report(device: Any, accuracy: float, seconds: float, images: int, same: bool) -> None:
    """The closing table."""
    fallbacks = dict(ts.backends.fallbacks())
    rows = {
        "device": str(device),
        "test accuracy": f"{accuracy:.2%}",
        "training time": f"{seconds:.2f} s",
        "images/s": f"{images / seconds:,.0f}",
        "peak memory": peak_memory(device),
        **kernels(device),
        "fallbacks": ", ".join(f"{op}: {count}" for op, count in fallbacks.items()) or "none",
        "reloaded in a new process": "predicts the same" if same else "PREDICTS SOMETHING ELSE",
    }
    show: Callable[[dict[str, str]], None] = rich_table if sys.stdout.isatty() else plain_table
    show(rows)


def kernels(device: Any) -> dict[str, str]:
    """Of devices that compile kernels while they run: how many, and how long that took."""
    told = getattr(ts.get_device_module(device.type), "kernel_statistics", None)
    if told is None:
        return {}
    counts = told()
    ready = f"{counts['compiled']} compiled, {counts['from_disk']} from disk, {counts['seconds']:.2f} s"
    return {"kernels": ready, "launches": f"{counts['launches']:,}"}


def peak_memory(device: Any) -> str:
    return f"{ts.memory_stats(device)['allocated_peak'] / 2**20:.1f} MiB"


def rich_table(rows: dict[str, str]) -> None:
    try:
        from rich.console import Console
        from rich.table import Table
    except ImportError:
        plain_table(rows)
        return
    table = Table(title="handwritten digits", show_header=False)
    for name, value in rows.items():
        table.add_row(name, value)
    Console().print(table)


def plain_table(rows: dict[str, str]) -> None:
    width = max(map(len, rows))
    for name, value in rows.items():
        print(f"{name:<{width}}  {value}")


if __name__ == "__main__":
    sys.exit(main())
