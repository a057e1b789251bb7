"""What functions take quantized tensors, and what they answer: printed as by PyTorch."""

from __future__ import annotations

import importlib.util

import pytest

needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch to compare with")

PROGRAM = """
import copy
import io

import torch
import torch.nn.functional as F

x = torch.quantize_per_tensor(torch.linspace(-2, 2, 32).reshape(1, 2, 4, 4), 0.1, 7, torch.quint8)
y = torch.quantize_per_tensor(torch.linspace(-2, 2, 4).reshape(2, 2), 0.05, -3, torch.qint8)
c = torch.quantize_per_channel(y.dequantize(), torch.tensor([0.1, 0.2]), torch.tensor([0, 3]), 0, torch.qint8)

def filled(q):
    q = q.clone()
    q[0] = 0.25
    q[-1:, :1].fill_(0.5)
    return q

FUNCTIONS = [
    lambda q: q, lambda q: q[..., 0], lambda q: q.transpose(0, 1), lambda q: q.permute(1, 0, *range(2, q.dim())),
    lambda q: q.reshape(2, -1).T, lambda q: q.flatten(), lambda q: q.unsqueeze(0).squeeze(0), lambda q: q.chunk(2, -1),
    lambda q: list(q), lambda q: q.index_select(0, torch.tensor([0])), lambda q: q.sort().values, lambda q: q.max(),
    lambda q: q.min(1), lambda q: q.relu(), lambda q: torch.relu(q), lambda q: F.relu6(q),
    lambda q: F.hardtanh(q, -1, 1),
    lambda q: F.leaky_relu(q, 0.1), lambda q: q.clamp(-0.3, 0.4), lambda q: q.mean(1, keepdim=True), lambda q: q.mean(),
    lambda q: q.sigmoid(), lambda q: torch.tanh(q), lambda q: F.hardsigmoid(q), lambda q: torch.cat([q, q], 1),
    lambda q: torch.stack([q, q]), lambda q: q == q, lambda q: torch.where(q != q), lambda q: q < 0.3,
    lambda q: torch.equal(q, q), lambda q: q.masked_fill(q > 0, 1.0), filled, copy.deepcopy,
    lambda q: q.clone().copy_(torch.full(q.shape, 0.25)), lambda q: torch.dequantize(q).sum(), lambda q: q.to("cpu"),
    lambda q: (isinstance(q, torch.Tensor), torch.is_tensor(q), q.is_quantized, q.dtype, q.shape, q.stride(), len(q)),
    lambda q: (q.q_scale(), q.q_zero_point(), q.qscheme(), q.int_repr().flatten()[0], q.is_floating_point()),
    lambda q: torch._make_per_tensor_quantized_tensor(q.int_repr(), 0.5, 3),
]
for q in (x, y):
    for function in FUNCTIONS:
        print(function(q))
print(F.max_pool2d(x, 2), F.avg_pool2d(x, 2), F.adaptive_avg_pool2d(x, 1), F.interpolate(x, scale_factor=2))
print(c, c.clone(), c.detach().q_per_channel_axis(), c.dequantize())
print(torch._make_per_channel_quantized_tensor(c.int_repr(), torch.ones(2), torch.zeros(2, dtype=torch.int64), 1))
REFUSED = [
    lambda: x * 2, lambda: x.abs(), lambda: x.tolist(), lambda: x.numpy(), lambda: y.to(torch.float32),
    lambda: c.t(), lambda: c.relu(), lambda: torch._make_per_tensor_quantized_tensor(torch.ones(2), 1.0, 0),
    lambda: y.gather(0, torch.tensor([[0]])), lambda: y.cumsum(0), lambda: y.item(),
]
for call in REFUSED:
    try:
        print(call())
    except Exception:
        print("refused")
"""


@needs_torch
def test_printed_as_by_torch(program):
    path = program.write("program.py", PROGRAM)
    printed = []
    for start in ([], ["-m", "tesserack", "run"]):
        done = program.start(*start, str(path))
        assert done.returncode == 0, done.stderr
        printed.append(done.stdout.splitlines())
    assert printed[0] == printed[1] and len(printed[0]) > 300


def test_pickled_and_back(program):
    """With its scale, as by torch.save of a list."""
    source = """
import pickle, torch
q = pickle.loads(pickle.dumps(torch.quantize_per_tensor(torch.tensor([0.5, 9.0]), 0.5, 3, torch.qint8)))
print(q.q_scale(), q.q_zero_point(), q.dtype, q.dequantize().tolist())
"""
    done = program.start("-m", "tesserack", "run", str(program.write("program.py", source)))
    assert done.stdout.split() == ["0.5", "3", "torch.qint8", "[0.5,", "9.0]"], done.stderr


SAVED = """
import sys, torch
x = torch.linspace(-2, 2, 12).reshape(3, 4)
q = torch.quantize_per_tensor(x, 0.1, 3, torch.qint8)
c = torch.quantize_per_channel(x, torch.tensor([0.1, 0.2, 0.3]), torch.tensor([0, 1, 2]), 0, torch.quint8)
saved = {"q": q, "part": q[:, 1:], "c": c, "dtype": torch.qint8, "scheme": torch.per_channel_affine}
torch.save(saved, sys.argv[1], _use_new_zipfile_serialization=sys.argv[2] == "new")
"""

LOADED = """
import sys, torch
for safe in (True, False):
    found = torch.load(sys.argv[1], weights_only=safe)
    q, part, c = found["q"], found["part"], found["c"]
    print(q.dequantize().tolist(), q.q_scale(), q.q_zero_point(), part.int_repr().tolist(), part.q_scale())
    print(c.int_repr().tolist(), c.q_per_channel_scales().tolist(), c.q_per_channel_zero_points().tolist())
    print(c.q_per_channel_axis(), c.dtype, found["dtype"] is torch.qint8, found["scheme"] is torch.per_channel_affine)
"""

OURS, THEIRS = ["-m", "tesserack", "run"], []


@pytest.mark.parametrize("form", ["new", "old"])
@pytest.mark.parametrize(
    ("writer", "reader"),
    [
        pytest.param(OURS, OURS, id="ours by us"),
        pytest.param(OURS, THEIRS, id="ours by torch", marks=needs_torch),
        pytest.param(THEIRS, OURS, id="torch's by us", marks=needs_torch),
    ],
)
def test_saved_and_loaded(writer, reader, form, program, tmp_path):
    file, save, load = tmp_path / "saved.pt", program.write("save.py", SAVED), program.write("load.py", LOADED)
    done = program.start(*writer, str(save), str(file), form)
    assert done.returncode == 0, done.stderr
    done = program.start(*reader, str(load), str(file))
    assert done.returncode == 0, done.stderr
    printed = done.stdout.splitlines()
    assert len(printed) == 6 and printed[:3] == printed[3:] and printed[2] == "0 torch.quint8 True True"
    assert "[0, 1, 2]" in printed[1] and printed[0].startswith("[[-2.0, -1.6") and " 0.1 3 [[" in printed[0]


def test_a_model_of_dynamic_linear_layers_is_saved(program):
    source = """
import io, torch
def make():
    torch.manual_seed(1)
    net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    return torch.ao.quantization.quantize_dynamic(net, {torch.nn.Linear}, dtype=torch.qint8)
first, second, file = make(), make(), io.BytesIO()
with torch.no_grad():
    second[0].set_weight_bias(torch.quantize_per_tensor(torch.ones(8, 4), 0.1, 0, torch.qint8), torch.zeros(8))
torch.save(first.state_dict(), file)
file.seek(0)
x = torch.ones(3, 4)
print(torch.equal(first(x), second(x)))
second.load_state_dict(torch.load(file, weights_only=False))
print(torch.equal(first(x), second(x)))
"""
    done = program.start("-m", "tesserack", "run", str(program.write("program.py", source)))
    assert done.stdout.split() == ["False", "True"], done.stderr
