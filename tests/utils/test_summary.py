"""tesserack.summary: what a model is made of, without a kernel."""

from __future__ import annotations

import pytest
import tesserack as ts
from tesserack import nn


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.attn = nn.LayerNorm(width), nn.MultiheadAttention(width, 2, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: ts.Tensor) -> ts.Tensor:
        y = self.norm(x)
        x = x + self.attn(y, y, y, need_weights=False)[0]
        return x + self.mlp(x)


class Tiny(nn.Module):
    """A language model whose head shares the weight of its embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(50, 16)
        self.blocks = nn.ModuleList([Block(16) for _ in range(2)])
        self.head = nn.Linear(16, 50, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens: ts.Tensor) -> ts.Tensor:
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def test_convolutions_agree_with_a_count_by_hand(device: ts.device) -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(8 * 16, 5))
    model = model.to(device)
    found = ts.summary(model, (2, 3, 4, 4))
    conv, linear = 2 * 2 * 8 * 16 * 27, 2 * 2 * 128 * 5
    assert found.flops == conv + linear
    assert [layer.flops for layer in found.layers] == [conv + linear, conv, 0, 0, linear]
    assert [layer.output_shape for layer in found.layers] == [(2, 5), (2, 8, 4, 4), (2, 8, 4, 4), (2, 128), (2, 5)]
    assert found.parameters == found.trainable == 224 + 16 + 128 * 5 + 5
    assert found.parameter_bytes == 4 * found.parameters
    assert found.buffer_bytes == 4 * 16 + 8
    assert found.activation_bytes == 4 * (256 + 256 + 256 + 10)


def test_transformer_with_shared_weights(device: ts.device) -> None:
    model = Tiny().to(device)
    model.blocks[0].requires_grad_(False)
    found = ts.summary(model, ts.zeros(3, 7, dtype=ts.int64, device=device))
    assert found.output_shape == (3, 7, 50)
    assert found.parameters == sum(p.numel() for p in model.parameters())
    assert found.parameters - found.trainable == sum(p.numel() for p in model.blocks[0].parameters())
    paths = [layer.path for layer in found.layers]
    assert paths[:4] == ["", "embed", "blocks.0", "blocks.0.norm"] and paths[-1] == "head"
    mlp = next(layer for layer in found.layers if layer.path == "blocks.1.mlp")
    assert (mlp.depth, mlp.flops, mlp.output_shape) == (3, 2 * 2 * 21 * 16 * 64, (3, 7, 16))
    text = str(found)
    assert "\n(model) " in text
    assert "\n  blocks.1 " in text and "\n    mlp " in text and "\n      0 " in text
    assert "of which" in text and "MultiheadAttention" in text and f"{found.parameters:,}" in text
    assert all(p.device == device for p in model.parameters())


def test_the_model_stays_as_it_is(device: ts.device) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5)).to(device)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state = ts.get_rng_state()
    ts.summary(model, (3, 4))
    assert all(ts.equal(value, before[name]) for name, value in model.state_dict().items())
    assert not model[0]._forward_hooks and model.training
    assert ts.equal(ts.get_rng_state(), state)


def test_a_model_too_large_for_the_machine() -> None:
    with ts.device("meta"):
        model = nn.Linear(1_000_000, 1_000_000)
    assert ts.summary(model, (8, 1_000_000)).parameter_bytes == 4 * (10**12 + 10**6)


def test_several_inputs_and_results(device: ts.device) -> None:
    found = ts.summary(nn.LSTM(3, 5).to(device), [ts.zeros(6, 2, 3, device=device)])
    assert found.output_shape == [(6, 2, 5), [(1, 2, 5), (1, 2, 5)]]
    found = ts.summary(nn.Bilinear(3, 4, 5), [ts.zeros(2, 3), ts.zeros(2, 4)])
    assert found.output_shape == (2, 5)


def test_what_does_not_fit_is_said_where() -> None:
    wrong = Tiny()
    wrong.blocks[1].mlp[2] = nn.Linear(9, 16)
    with pytest.raises(RuntimeError, match=r"linear: (?s:.*)in module Tiny\.blocks\.1\.mlp\.2: Linear") as caught:
        ts.summary(wrong, ts.zeros(2, 3, dtype=ts.int64))
    with pytest.raises(TypeError, match="expected a Module, got function"):
        ts.summary(lambda x: x, (2,))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="expected a tensor, a shape or a list of tensors as input, got 'x'"):
        ts.summary(Tiny(), "x")
    assert "9" in str(caught.value)
