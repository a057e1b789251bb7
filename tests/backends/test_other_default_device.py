"""Library code that makes tensors of its own says where: programs run with another default device."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tesserack as ts
from tesserack import nn
from tesserack.nn.utils import rnn

pytest.importorskip("tesserack_reference", reason="needs the reference backend, which make test installs")


@pytest.fixture(autouse=True)
def reference_by_default() -> Any:
    ts.set_default_device("reference")
    yield
    ts.set_default_device(None)


@pytest.mark.parametrize("format", ["safetensors", "torch"])
def test_files_come_back_on_the_cpu(tmp_path: Path, format: str) -> None:
    saved = {"host": ts.arange(3, device="cpu"), "none": ts.empty(0, 2, device="cpu"), "card": ts.ones(2)}
    ts.save(saved, tmp_path / "file", format=format)
    loaded = ts.load(tmp_path / "file")
    assert {t.device.type for t in loaded.values()} == {"cpu"}
    assert loaded["host"].tolist() == [0, 1, 2] and loaded["none"].shape == (0, 2)
    there = ts.load(tmp_path / "file", map_location="reference")
    assert {t.device.type for t in there.values()} == {"reference"} and there["card"].tolist() == [1, 1]


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_packed_sequences(kind: str) -> None:
    rows = [ts.randn(length, 3) for length in (4, 2, 1)]
    layer = getattr(nn, kind)(3, 5)
    out, _ = layer(rnn.pack_sequence(rows))
    padded, lengths = rnn.pad_packed_sequence(out, batch_first=True)
    alone, _ = layer(rows[1].unsqueeze(1))
    assert padded.device.type == "reference" and lengths.tolist() == [4, 2, 1]
    assert ts.allclose(padded[1, :2], alone[:, 0], atol=1e-6)
    out.data.sum().backward()
    assert layer.weight_ih_l0.grad is not None


def test_loaders_samplers_and_gradients() -> None:
    data = ts.utils.data.TensorDataset(ts.arange(10.0), ts.arange(10))
    parts = ts.utils.data.random_split(data, [7, 3], generator=ts.Generator().manual_seed(1))
    seen = [y for _, y in ts.utils.data.DataLoader(parts[0], batch_size=3, shuffle=True)]
    assert sorted(ts.cat(seen).tolist()) == sorted(parts[0].indices) and seen[0].device.type == "reference"
    host = ts.tensor([1.0, 4.0, 9.0], device="cpu")
    assert ts.gradient(host)[0].tolist() == [3.0, 4.0, 5.0]
    assert nn.utils.clip_grad_norm_([nn.Parameter(ts.ones(2))], 1.0).item() == 0
