"""Layers look functions up when they are called: profilers and quantizers put others into ``nn.functional``."""

from __future__ import annotations

from typing import Any

import pytest
import tesserack as ts
import tesserack.nn.functional as F
from tesserack import nn

ROWS, IMAGE = ts.ones(2, 4), ts.ones(1, 2, 4, 4)
LAYERS: dict[str, tuple[nn.Module, Any]] = {
    "linear": (nn.Linear(4, 4), ROWS),
    "bilinear": (nn.Bilinear(4, 4, 2), (ROWS, ROWS)),
    "multi_head_attention_forward": (nn.MultiheadAttention(4, 2), (ROWS, ROWS, ROWS)),
    "conv2d": (nn.Conv2d(2, 2, 1), IMAGE),
    "conv_transpose2d": (nn.ConvTranspose2d(2, 2, 1), IMAGE),
    "embedding": (nn.Embedding(4, 2), ts.tensor([1])),
    "layer_norm": (nn.LayerNorm(4), ROWS),
    "batch_norm": (nn.BatchNorm2d(2), IMAGE),
    "group_norm": (nn.GroupNorm(1, 2), IMAGE),
    "relu": (nn.ReLU(), ROWS),
    "gelu": (nn.GELU(), ROWS),
    "softmax": (nn.Softmax(-1), ROWS),
    "dropout": (nn.Dropout(), ROWS),
    "max_pool2d": (nn.MaxPool2d(2), IMAGE),
    "interpolate": (nn.Upsample(scale_factor=2), IMAGE),
    "cross_entropy": (nn.CrossEntropyLoss(), (ROWS, ts.tensor([1, 2]))),
}


@pytest.mark.parametrize("name", sorted(LAYERS))
def test_a_function_that_is_replaced_is_called(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    layer, given = LAYERS[name]
    calls, real = [], getattr(F, name)

    def counted(*args: Any, **kwargs: Any) -> Any:
        calls.append(name)
        return real(*args, **kwargs)

    monkeypatch.setattr(F, name, counted)
    layer(*given) if isinstance(given, tuple) else layer(given)
    assert calls == [name]


def test_compiled_layers_do_so_too(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
    compiled = ts.compile(layer)
    assert all(compiled(ROWS).equal(layer(ROWS)) for _ in range(4))
    monkeypatch.setattr(F, "linear", lambda x, weight, bias: x * 100)
    assert all(compiled(ROWS).equal(ROWS * 10_000) for _ in range(4))
