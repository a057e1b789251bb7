"""Recurrent layers, cells and packed sequences beside torch's, over the options of their constructors."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import tesserack as ts
import torch
from tesserack import nn

tnn = torch.nn
OPTIONS = [
    {"num_layers": layers, "bias": bias, "batch_first": first, "bidirectional": both}
    for layers, bias, first, both in itertools.product((1, 2), (True, False), (False, True), (False, True))
]
CASES = [
    *(("LSTM", options) for options in OPTIONS),
    *(("LSTM", options | {"proj_size": 3}) for options in OPTIONS[:8]),
    *(("GRU", options) for options in OPTIONS),
    *(("RNN", options) for options in OPTIONS[:8]),
    *(("RNN", options | {"nonlinearity": "relu"}) for options in OPTIONS[:4]),
]


def draw(*shape: int) -> Any:
    return torch.randn(*shape, dtype=torch.double, requires_grad=True)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(("name", "options"), CASES, ids=range(len(CASES)))
def test_layers(name: str, options: dict[str, Any], packed: bool, beside: Any) -> None:
    torch.manual_seed(1)
    ours, theirs = beside.pair(getattr(nn, name)(4, 5, **options), getattr(tnn, name)(4, 5, **options))
    first = options["batch_first"]
    x = draw(3, 6, 4)
    batch, lengths = (3, [2, 6, 3]) if first else (6, [2, 3, 3, 1, 1, 3])
    slices = options["num_layers"] * (2 if options["bidirectional"] else 1)
    states = [draw(slices, batch, options.get("proj_size", 5)), draw(slices, batch, 5)][: 2 if name == "LSTM" else 1]
    mine = beside.ours([x, *states])
    results = []
    for lib, layer, (data, *hx) in ((nn, ours, mine), (tnn, theirs, [x, *states])):
        if packed:
            data = lib.utils.rnn.pack_padded_sequence(data, lengths, batch_first=first, enforce_sorted=False)
        output, last = layer(data, tuple(hx) if name == "LSTM" else hx[0])
        if packed:
            output, back = lib.utils.rnn.pad_packed_sequence(output, batch_first=first)
            assert back.tolist() == lengths
        last = last if name == "LSTM" else (last,)
        (output.square().sum() + sum((t * t * t).sum() for t in last)).backward()
        results.append((output, *last))
    beside.close(*results)
    beside.close([t.grad for t in mine], [t.grad for t in (x, *states)])
    beside.gradients(ours, theirs)


@pytest.mark.parametrize("name", ["LSTM", "GRU", "RNN"])
def test_without_state_and_without_batch(name: str, beside: Any) -> None:
    torch.manual_seed(2)
    ours, theirs = beside.pair(getattr(nn, name)(4, 5, 2), getattr(tnn, name)(4, 5, 2))
    for shape in ((3, 2, 4), (3, 4)):
        x = torch.randn(*shape, dtype=torch.double)
        beside.close(ours(beside.ours(x)), theirs(x))
    one = torch.randn(2, 5, dtype=torch.double)
    hx, mine = ((one, one + 1), (beside.ours(one), beside.ours(one + 1))) if name == "LSTM" else (
        one, beside.ours(one))  # fmt: skip
    x = torch.randn(3, 4, dtype=torch.double)
    beside.close(ours(beside.ours(x), mine), theirs(x, hx))


@pytest.mark.parametrize("name", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("reverse", [False, True])
def test_second_derivatives(name: str, reverse: bool, device: Any) -> None:
    ts.manual_seed(3)
    layer = getattr(nn, name)(2, 2, bidirectional=reverse).double().to(device)
    x = ts.randn(3, 2, 2, dtype=ts.float64, device=device, requires_grad=True)
    names = [name for name, _ in layer.named_parameters()]

    def call(x: Any, *weights: Any) -> Any:
        return nn.utils.stateless.functional_call(layer, dict(zip(names, weights, strict=True)), (x,))[0]

    inputs = (x, *[p.detach().clone().requires_grad_() for p in layer.parameters()])
    assert ts.autograd.gradcheck(call, inputs)
    assert ts.autograd.gradgradcheck(call, inputs)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_other_dtypes(dtype: str, beside: Any, device: Any) -> None:
    torch.manual_seed(4)
    ours, theirs = nn.LSTM(8, 16).to(device), tnn.LSTM(8, 16)
    ours.load_state_dict(beside.ours(dict(theirs.state_dict())))
    x = torch.randn(7, 3, 8)
    expected = theirs(x)
    got = ours.to(getattr(ts, dtype))(beside.ours(x).to(getattr(ts, dtype)))
    assert got[0].dtype == getattr(ts, dtype)
    beside.close([got[0].float(), *[t.float() for t in got[1]]], [expected[0], *expected[1]],
                 tolerance=1e-4 if dtype == "float32" else 0.1)  # fmt: skip


@pytest.mark.parametrize("options", [{}, {"bias": False}])
@pytest.mark.parametrize("name", ["LSTMCell", "GRUCell", "RNNCell"])
def test_cells(name: str, options: dict[str, Any], beside: Any) -> None:
    torch.manual_seed(5)
    ours, theirs = beside.pair(getattr(nn, name)(4, 5, **options), getattr(tnn, name)(4, 5, **options))
    for shape in ((3, 4), (4,)):
        x, h = torch.randn(*shape, dtype=torch.double), torch.randn(*shape[:-1], 5, dtype=torch.double)
        hx, mine = ((h, h), (beside.ours(h),) * 2) if name == "LSTMCell" else (h, beside.ours(h))
        beside.close(ours(beside.ours(x)), theirs(x))
        beside.close(ours(beside.ours(x), mine), theirs(x, hx))
    ours.zero_grad(), theirs.zero_grad()
    for layer, out in ((ours, ours(beside.ours(x), mine)), (theirs, theirs(x, hx))):
        (out[0] if isinstance(out, tuple) else out).square().sum().backward()
        assert layer.weight_hh.grad is not None
    beside.gradients(ours, theirs)


def test_dropout_between_layers(device: Any) -> None:
    ts.manual_seed(6)
    layer = nn.LSTM(4, 5, 2, dropout=0.5).to(device)
    x = ts.randn(3, 2, 4, device=device)
    assert not layer(x)[0].equal(layer(x)[0])
    layer.eval()
    assert layer(x)[0].equal(layer(x)[0])
    everything = nn.LSTM(4, 5, 2, dropout=1.0).to(device)
    assert everything(x)[0].equal(everything(x + 1)[0])


BAD_OPTIONS = [
    {"dropout": 2.0},
    {"dropout": True},
    {"hidden_size": 0},
    {"hidden_size": 2.5},
    {"num_layers": 0},
    {"proj_size": -1},
    {"proj_size": 5},
]


@pytest.mark.parametrize("options", BAD_OPTIONS, ids=str)
def test_bad_options(options: dict[str, Any]) -> None:
    arguments = {"input_size": 4, "hidden_size": 5} | options
    with pytest.raises(Exception) as expected:
        tnn.LSTM(**arguments)
    with pytest.raises(expected.type):
        nn.LSTM(**arguments)


BAD_CALLS = [
    lambda m, layer: layer(m.ones(3, 2, 3)),
    lambda m, layer: layer(m.ones(3, 2, 4, 1)),
    lambda m, layer: layer(m.ones(3, 2, 4).double()),
    lambda m, layer: layer(m.ones(3, 2, 4), (m.ones(1, 3, 5), m.ones(1, 2, 5))),
    lambda m, layer: layer(m.ones(3, 2, 4), (m.ones(1, 2, 5), m.ones(1, 2, 6))),
    lambda m, layer: layer(m.ones(3, 4), (m.ones(1, 2, 5), m.ones(1, 2, 5))),
    lambda m, layer: layer(m.ones(0, 2, 4)),
    lambda m, layer: m.nn.utils.rnn.pack_padded_sequence(m.ones(3, 2, 4), [2, 3]),
    lambda m, layer: m.nn.utils.rnn.pack_padded_sequence(m.ones(3, 2, 4), [3, 0]),
    lambda m, layer: m.nn.utils.rnn.pack_padded_sequence(m.ones(3, 2, 4), [3]),
    lambda m, layer: m.nn.utils.rnn.pad_packed_sequence(
        m.nn.utils.rnn.pack_sequence([m.ones(3), m.ones(2)]), total_length=2
    ),
]


@pytest.mark.parametrize("call", range(len(BAD_CALLS)))
def test_bad_calls(call: int) -> None:
    with pytest.raises(Exception) as expected:
        BAD_CALLS[call](torch, tnn.LSTM(4, 5))
    with pytest.raises(expected.type):
        BAD_CALLS[call](ts, nn.LSTM(4, 5))


def test_packing(compare_program: Any) -> None:
    def program(m: Any) -> Any:
        rnn = m.nn.utils.rnn
        sequences = [m.arange(float(n)) for n in (2, 4, 1)]
        packed = rnn.pack_sequence(sequences, enforce_sorted=False)
        padded, lengths = rnn.pad_packed_sequence(packed, True, -1.0, 6)
        doubled = packed.double()
        return [
            *packed, padded, lengths, *rnn.unpack_sequence(packed), doubled.data, packed.to(m.float32) is packed,
            rnn.invert_permutation(m.tensor([2, 0, 1])), packed.is_cuda, isinstance(doubled, rnn.PackedSequence),
        ]  # fmt: skip

    compare_program(program)


def test_empty_batch(device: Any) -> None:
    for name in ("LSTM", "GRU", "RNN"):
        layer = getattr(nn, name)(4, 5).to(device)
        x = ts.ones(3, 0, 4, device=device, requires_grad=True)
        output, _ = layer(x)
        output.sum().backward()
        assert tuple(output.shape) == (3, 0, 5)
        assert tuple(x.grad.shape) == (3, 0, 4)
