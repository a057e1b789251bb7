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
