"""Pictures of a training run, by matplotlib (``pip install "tesserack[plots]"``), which is imported when one is drawn.

No global state of matplotlib's is touched and no window opened: a function gives a ``matplotlib.figure.Figure``, which
notebooks show, and writes it to ``path`` if one is given (``.png``, ``.svg``, ``.pdf``).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["plot_confusion_matrix", "plot_history", "plot_images"]


def plot_history(
    history: Mapping[str, Sequence[float]], path: str | os.PathLike[str] | None = None, xlabel: str = "epoch"
) -> Any:
    """Curves over epochs (or steps): names that end alike, such as ``loss`` and ``test loss``, share a panel.

    Args:
        history: numbers by name, one for each epoch.

    Raises:
        ValueError: for no curves.

    >>> figure = plot_history({"loss": [3.0, 1.0], "test loss": [3.5, 2.0], "accuracy": [0.2, 0.9]})
    >>> [panel.get_ylabel() for panel in figure.axes]
    ['loss', 'accuracy']
    """
    panels: dict[str, list[str]] = {}
    for name in history:
        panels.setdefault(name.replace("_", " ").split()[-1] if name.strip() else name, []).append(name)
    if not panels:
        raise ValueError("plot_history: expected at least one curve, got none")
    figure = _figure(4.8 * len(panels), 3.4)
    for place, (kind, names) in enumerate(panels.items(), 1):
        panel = figure.add_subplot(1, len(panels), place)
        for name in names:
            values = [float(value) for value in history[name]]
            panel.plot(range(1, len(values) + 1), values, label=name, marker="." if len(values) < 30 else None)
        panel.set(xlabel=xlabel, ylabel=kind)
        panel.grid(alpha=0.3)
        if len(names) > 1:
            panel.legend()
    return _finished(figure, path)


def plot_confusion_matrix(
    matrix: Any, labels: Sequence[Any] | None = None, path: str | os.PathLike[str] | None = None
) -> Any:
    """How often each class was taken for each other: counts, shaded by their share of the true class.

    Args:
        matrix: ``(classes, classes)``, as :class:`tesserack.metrics.ConfusionMatrix` gives it.
        labels: names of the classes; their numbers unless given.

    Raises:
        ValueError: for a matrix that is not square, or labels of another number.

    >>> figure = plot_confusion_matrix([[5, 1], [0, 4]], ["cat", "dog"])
    >>> figure.axes[0].get_xlabel()
    'predicted'
    """
    rows: list[list[float]] = matrix.tolist() if hasattr(matrix, "tolist") else [list(row) for row in matrix]
    count = len(rows)
    if not count or any(len(row) != count for row in rows):
        raise ValueError(f"plot_confusion_matrix: expected a square matrix, got rows of {[len(row) for row in rows]}")
    names = [str(label) for label in (range(count) if labels is None else labels)]
    if len(names) != count:
        raise ValueError(f"plot_confusion_matrix: expected {count} labels, got {len(names)}")
    shares = [[value / (sum(row) or 1) for value in row] for row in rows]
    size = max(3.2, 0.5 * count + 1.5)
    figure = _figure(size, size)
    panel = figure.add_subplot()
    panel.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    panel.set_xticks(range(count), names, rotation=45 if max(map(len, names)) > 3 else 0)
    panel.set_yticks(range(count), names)
    panel.set(xlabel="predicted", ylabel="true")
    for i, row in enumerate(rows):
        for j, value in enumerate(row):
            color = "white" if shares[i][j] > 0.5 else "black"
            panel.text(j, i, f"{value:g}", ha="center", va="center", color=color, fontsize=8)
    return _finished(figure, path)


def plot_images(images: Any, columns: int = 8, path: str | os.PathLike[str] | None = None) -> Any:
    """A sheet of images ``(n, height, width)`` or ``(n, channels, height, width)``: grey, or red, green and blue from 0
    to 1.

    >>> import tesserack as ts
    >>> figure = plot_images(ts.rand(10, 1, 8, 8))
    >>> len(figure.axes)
    10
    """
    shown = images.detach().cpu().float()
    if shown.ndim == 3:
        shown = shown[:, None]
    if shown.ndim != 4 or shown.shape[1] not in (1, 3):
        raise ValueError(f"plot_images: expected (n, h, w), (n, 1, h, w) or (n, 3, h, w), got {tuple(images.shape)}")
    rows = -(-shown.shape[0] // columns)
    figure = _figure(columns, max(rows, 1))
    for place, image in enumerate(shown):
        panel = figure.add_subplot(rows, columns, place + 1)
        grey = image.shape[0] == 1
        pixels = image[0] if grey else image.permute(1, 2, 0).clamp(0, 1)
        panel.imshow(pixels.tolist(), cmap="gray" if grey else None)
        panel.axis("off")
    return _finished(figure, path)


def _figure(width: float, height: float) -> Any:
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ModuleNotFoundError('plots: matplotlib is not installed; try pip install "tesserack[plots]"') from error
    return Figure(figsize=(width, height), layout="constrained")


def _finished(figure: Any, path: str | os.PathLike[str] | None) -> Any:
    if path is not None:
        figure.savefig(path)
    return figure
