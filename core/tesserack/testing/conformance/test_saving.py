"""Files: written from the device, readable anywhere, the same bytes as from the cpu."""

# The names of tesserack and tesserack.nn are collected, which type checkers do not see.
# mypy: disable-error-code="attr-defined,no-any-return"
from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np

import tesserack as ts
from tesserack import nn
from tesserack.testing import cases
from tesserack.testing.conformance.card import Card


def values(card: Card, device: Any) -> dict[str, Any]:
    """A tensor of every dtype the device has, views and empty ones among them."""
    numbers = np.arange(24).reshape(4, 6) % 2
    made: dict[str, Any] = {
        dtype: ts.from_numpy(numbers.copy()).to(getattr(ts, dtype)).to(device)
        for dtype in cases.DTYPES
        if card.supports(dtype)
    }
    made["view"] = made[card.real].t()[1:]
    made["empty"] = ts.empty(0, 3, device=device)
    made["scalar"] = ts.tensor(2.5, device=device)
    made["rest"] = {"epoch": 3, "names": ["a", "b"], "rate": 0.1}
    return made


def test_round_trip(card: Card, tmp_path: Path) -> None:
    """Saved on the device, loaded on the cpu and back on the device."""
    original = values(card, card.device)
    path = tmp_path / "file.safetensors"
    ts.save(original, path)
    for where in ("cpu", card.device):
        loaded = ts.load(path, map_location=where)
        assert loaded.keys() == original.keys()
        assert loaded["rest"] == original["rest"]
        for name, tensor in original.items():
            if isinstance(tensor, ts.Tensor):
                found = loaded[name]
                assert (found.dtype, found.shape) == (tensor.dtype, tensor.shape)
                assert found.device.type == ts.device(where).type
                np.testing.assert_array_equal(cases.values(found), cases.values(tensor), err_msg=name)


def test_the_file_does_not_depend_on_the_device(card: Card) -> None:
    """What is written is what the cpu writes: the file opens where the plugin is not installed."""
    written = []
    for where in (card.device, "cpu"):
        buffer = io.BytesIO()
        ts.save(values(card, where), buffer)
        data = buffer.getvalue()
        end = 8 + int.from_bytes(data[:8], "little")
        written.append((json.loads(data[8:end]), data[end:]))
    assert written[0] == written[1]


def test_state_dict(card: Card, tmp_path: Path) -> None:
    """A trained module goes to the cpu and back through a file, and predicts the same."""
    model = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 2)).to(card.device)
    x = ts.randn(8, 6, device=card.device)
    model(x)
    model.eval()
    expected = model(x).tolist()
    path = tmp_path / "model.safetensors"
    ts.save(model.state_dict(), path)
    twin = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 2))
    twin.load_state_dict(ts.load(path, map_location="cpu"))
    twin.eval()
    rtol, atol = (1e-4, 1e-5) if card.real in ("float32", "float64") else (2e-2, 1e-2)
    np.testing.assert_allclose(twin(x.cpu()).tolist(), expected, rtol, atol)
    assert twin.to(card.device)(x).tolist() == expected
