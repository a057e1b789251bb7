"""What the examples share: options, the device, and what they leave behind."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tesserack as ts
from tesserack import nn
from tesserack.utils.plots import plot_history
from tesserack.utils.reproducibility import log_run
from tesserack.utils.tracking import track


def parse_arguments(description: str, epochs: int, quick: int) -> argparse.Namespace:
    """The options of every example. ``quick``: the epochs of ``--quick``."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--device", default="cpu", help="where to train (default: cpu)")
    parser.add_argument("--epochs", type=positive, help=f"how long to train (default: {epochs})")
    parser.add_argument("--quick", action="store_true", help=f"a trial: {quick} epochs, and less of everything")
    parser.add_argument("--out", type=Path, default=Path("runs"), help="folder for model and plots (default: runs)")
    parser.add_argument("--track", action="append", default=[], metavar="NAME", help="tensorboard, mlflow, wandb, json")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    args.epochs = args.epochs or (quick if args.quick else epochs)
    try:
        args.device = ts.zeros(1, device=args.device).device
    except (RuntimeError, ValueError) as error:  # an unknown or unusable device: the message says what to do
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    args.out.mkdir(parents=True, exist_ok=True)
    ts.manual_seed(args.seed)
    return args


def positive(text: str) -> int:
    """A whole number above 0, for argparse."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"expected a number above 0, got {text}")
    return number


def needed(package: str) -> Any:
    """A package that brings the data; says how to install it."""
    import importlib

    try:
        return importlib.import_module(package)
    except ImportError:
        name = {"sklearn": "scikit-learn"}.get(package.partition(".")[0], package.partition(".")[0])
        sys.exit(f"error: the data comes with {name}: pip install {name}")


def load_digits(device: Any) -> tuple[ts.Tensor, ts.Tensor]:
    """scikit-learn's 1,797 scans (n, 1, 8, 8) from 0 to 1, and their digits."""
    scans, digits = needed("sklearn.datasets").load_digits(return_X_y=True)
    x = ts.tensor((scans / 16).astype("float32").reshape(-1, 1, 8, 8))
    return x.to(device), ts.tensor(digits.astype("int64")).to(device)


def finish(name: str, args: argparse.Namespace, model: nn.Module, history: Mapping[str, Sequence[float]]) -> None:
    """Save the model, draw the history, log the run, also where ``--track`` says, and say so."""
    ts.save(model.state_dict(), args.out / f"{name}.safetensors")
    files = [f"{name}.safetensors"]
    try:
        plot_history(history, args.out / f"{name}.png")
        files.append(f"{name}.png")
    except ModuleNotFoundError as error:
        print(f"no plot: {error}", file=sys.stderr)
    options = {key: str(value) for key, value in vars(args).items()}
    with track(*args.track, project=name, folder=args.out, options=options) as run:
        for epoch in range(max(map(len, history.values()), default=0)):
            run.log({key: values[epoch] for key, values in history.items() if epoch < len(values)}, epoch + 1)
        run.file(args.out / f"{name}.safetensors")
    log_run(args.out / f"{name}.json", options=options, history={k: [*map(float, v)] for k, v in history.items()})
    print(f"written to {args.out}: {', '.join([*files, f'{name}.json'])}")
