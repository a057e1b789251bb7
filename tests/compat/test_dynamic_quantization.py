"""Linear layers of 8 bits and of float16, and observers of ranges: printed as by PyTorch."""

from __future__ import annotations

import importlib.util

import pytest

needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch to compare with")

PROGRAM = """
import copy
import torch
import torch.ao.quantization as Q
from torch import nn

def made():
    net = nn.Sequential(nn.Linear(7, 16), nn.ReLU(), nn.Sequential(nn.Linear(16, 5, bias=False))).eval()
    for i, p in enumerate(net.parameters()):
        p.data = torch.sin(torch.arange(p.numel()).float() * (1.3 + i)).reshape(p.shape) * 0.4
    return net

INPUTS = [
    torch.sin(torch.arange(21).float() * 0.7).reshape(3, 7), torch.zeros(2, 7), torch.rand(0, 7), -torch.ones(1, 7),
    torch.sin(torch.arange(42).float()).reshape(2, 3, 7).abs(),
]
MODELS = [
    Q.quantize_dynamic(made(), {nn.Linear}), Q.quantize_dynamic(made(), {nn.Linear: Q.per_channel_dynamic_qconfig}),
    Q.quantize_dynamic(made(), dtype=torch.float16), Q.quantize_dynamic(made(), {"2": Q.default_dynamic_qconfig}),
    torch.quantization.quantize_dynamic(made()), copy.deepcopy(Q.quantize_dynamic(made(), {"0"})),
]
for model in MODELS:
    print(model, list(model.state_dict()), list(model.parameters())[1:])
    for x in INPUTS:
        print(tuple(model(x).shape), [round(v, 4) for v in model(x).flatten().tolist()])
first = MODELS[0][0]
print(first.weight(), first.bias(), first.scale, first.zero_point)
other = Q.quantize_dynamic(nn.Sequential(nn.Linear(7, 16)), {nn.Linear})
print(other.load_state_dict(Q.quantize_dynamic(made()[:1]).state_dict()))
print(torch.equal(other[0](INPUTS[0]), first(INPUTS[0])))
print(nn.BatchNorm1d(1).state_dict(), dict(MODELS[0].state_dict()._metadata))
for key in ("0.scale", "0._packed_params.dtype", "0._packed_params._packed_params"):
    for strict in (True, False):
        state = Q.quantize_dynamic(made()[:1]).state_dict()
        del state[key]
        try:
            print(other.load_state_dict(state, strict))
        except KeyError:
            print("missing", key, list(state))
T = torch.tensor([[1.0, -2.0, 3.0], [4.0, 5.0, 0.5]])
OBSERVERS = [
    Q.MinMaxObserver(), Q.MovingAverageMinMaxObserver(), Q.MovingAveragePerChannelMinMaxObserver(),
    Q.default_observer(), Q.MinMaxObserver(reduce_range=True), Q.MinMaxObserver(qscheme=torch.per_tensor_symmetric),
    Q.default_weight_observer(),
    Q.MinMaxObserver(quant_min=0, quant_max=15), Q.PerChannelMinMaxObserver(ch_axis=1), Q.MinMaxObserver(torch.qint8),
    Q.default_per_channel_weight_observer(),
    Q.MinMaxObserver.with_args(dtype=torch.qint8).with_args(reduce_range=True)(),
]
for observer in OBSERVERS:
    print(observer(T).equal(T), observer(T * 2).shape, observer, observer.calculate_qparams(), observer.state_dict())
    print(observer.quant_min, observer.quant_max, observer.dtype, observer.qscheme)
    observer.reset_min_max_vals()
    print(observer)
print(Q.MinMaxObserver().calculate_qparams(), Q.QConfig(1, 2))
"""


@needs_torch
def test_printed_as_by_torch(program):
    path = program.write("program.py", PROGRAM)
    printed = []
    for start in ([], ["-m", "tesserack", "run"]):
        done = program.start(*start, str(path))
        assert done.returncode == 0, done.stderr
        printed.append(done.stdout.splitlines())
    assert printed[0] == printed[1] and len(printed[0]) > 100


def test_layers_that_are_not_linear_are_refused(program):
    """In words, when they are named."""
    source = """
import torch
try:
    torch.ao.quantization.quantize_dynamic(torch.nn.Sequential(torch.nn.LSTM(2, 2)), {torch.nn.LSTM})
except RuntimeError as error:
    print(error)
try:
    torch.ao.quantization.quantize_dynamic(torch.nn.Sequential(torch.nn.Linear(2, 2)), dtype=torch.qint32)
except ValueError as error:
    print(error)
"""
    done = program.start("-m", "tesserack", "run", str(program.write("program.py", source)))
    told = done.stdout.splitlines()
    assert "expected layers of nn.Linear, got '0', LSTM" in told[0], done.stderr
    assert "expected the dtype qint8 or float16" in told[1]
