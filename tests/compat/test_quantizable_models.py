"""Models written to be quantized, in floating point, and parts of operators: printed as by PyTorch."""

from __future__ import annotations

import importlib.util

import pytest

needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch to compare with")

MODEL = """
import copy
import torch
from torch import nn
from torch.ao.quantization import DeQuantStub, QuantStub, QuantWrapper, fuse_modules, fuse_modules_qat

torch.manual_seed(0)

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.bn, self.relu = nn.Conv2d(2, 2, 1), nn.BatchNorm2d(2), nn.ReLU()
        self.linear, self.relu2 = nn.Linear(3, 3), nn.ReLU()
        self.skip, self.joined = torch.ao.nn.quantized.FloatFunctional(), torch.nn.quantized.FloatFunctional()
        self.quant, self.dequant = QuantStub(), DeQuantStub()
        self.alone, self.relu3 = nn.BatchNorm2d(2), nn.ReLU()
        for i, p in enumerate(self.parameters()):
            p.data = torch.linspace(-1, 1, p.numel()).reshape(p.shape) + i / 8
        self.bn.running_mean += 0.5
        self.bn.running_var *= 2

    def forward(self, x):
        y = self.relu2(self.linear(self.relu(self.bn(self.conv(self.quant(x))))))
        y = self.skip.add_relu(x, self.skip.mul_scalar(y, 0.5))
        return self.dequant(self.joined.cat([self.relu3(self.alone(y)), self.joined.add_scalar(x, 1.0)], 1))

GROUPS = [["conv", "bn", "relu"], ["linear", "relu2"], ["alone", "relu3"]]
model = Block().eval()
x = torch.linspace(-1, 1, 36).reshape(2, 2, 3, 3)
before = model(x)
fused = fuse_modules(model, GROUPS)
print(fused, list(fused.state_dict()))
print(torch.allclose(fused(x), before, atol=1e-5), model(x).equal(before))
print(fuse_modules_qat(copy.deepcopy(model).train(), GROUPS[:2]))
for groups, mode in ((GROUPS, True), ([["conv", "relu", "bn"]], False)):
    try:
        fuse_modules(model.train(mode), groups)
    except AssertionError as error:
        print(error)
print(QuantWrapper(nn.Linear(1, 1)))
f = torch.ao.nn.quantized.FloatFunctional()
a, b = torch.tensor([[1.0, -2.0]]), torch.tensor([[3.0], [1.0]])
print(f.add(a, a).tolist(), f.mul(a, a).tolist(), f.matmul(a, b).tolist(), list(f.state_dict()), f)
try:
    f(a)
except RuntimeError:
    print("refused")
"""

PARTS = """
import torch

x, grad = torch.linspace(-1, 1, 6).reshape(2, 3), torch.linspace(2, 0, 6).reshape(2, 3)
show = lambda t: [round(v, 5) for v in t.flatten().tolist()]
print(show(torch._softmax_backward_data(grad, x.softmax(1), 1, torch.float32)))
print(show(torch._log_softmax_backward_data(grad, x.log_softmax(-1), -1, x.dtype)), show(torch._softmax(x, 0, False)))
print(show(torch._weight_norm(x, torch.tensor([[1.0], [2.0]]), 0)), torch._shape_as_tensor(x), torch._dim_arange(x, 1))
print(torch._aminmax(x)[1].item(), torch._aminmax(x, 1)[0].shape, torch._unique(torch.tensor([2, 1, 2]))[0].tolist())
print([t.tolist() for t in torch._unique2(torch.tensor([2, 1, 2]), return_counts=True)])
rows, mask = torch.arange(12.0).reshape(2, 3, 2), torch.tensor([[True, True, False], [True, False, False]])
sizes = torch.tensor([[1, 2], [3, 1]])
fused = torch._nested_from_padded(torch.arange(16.0).reshape(2, 2, 2, 2), torch.tensor([[1, 4], [2, 4]]), True)
for nt in (torch._nested_tensor_from_mask(rows, mask), torch._nested_from_padded(rows, sizes), fused):
    print([row.tolist() for row in nt.unbind()])
    again = torch._nested_from_padded_and_nested_example(torch.nested.to_padded_tensor(nt, 0.0), nt)
    print([row.tolist() for row in again.unbind()])
scores = torch.linspace(-1, 1, 9).reshape(1, 1, 3, 3).repeat(2, 1, 1, 1)
print(show(torch._masked_softmax(scores, ~mask, 3, 1)), show(torch._masked_softmax(scores, scores > 0.1, 3, 2)))
print(show(torch._VF._add_relu(x, grad)), show(torch._add_relu(x, grad, alpha=-1)))
left, right = torch.ones(8, 8), torch.ones(2, 8, 8)
print(torch._grouped_mm(left, right, torch.tensor([4, 8], dtype=torch.int32)).sum().item())
print(torch.legacy_contiguous_format, torch.empty_like(x.T, memory_format=torch.legacy_contiguous_format).stride())
print(torch.div(7, 2, rounding_mode="trunc"), torch.div(-7, 2, rounding_mode="floor"))
print(show(torch.fake_quantize_per_tensor_affine(x, 0.25, 1, 0, 4)))
torch._assert_tensor_metadata(x, [2, 3], [3, 1], torch.float32, device=torch.device("cpu"))
torch._check_tensor_all_with(ValueError, x == x)
CALLS = (
    lambda: torch._check_tensor_all_with(ValueError, x > 0, lambda: "some are not"),
    lambda: torch._check_tensor_all(x), lambda: torch._check_tensor_all([True]),
    lambda: torch._check(x.sum() > 9), lambda: torch._check(1), lambda: torch._check(False, "text"),
    lambda: torch._check_with(KeyError, False, lambda: "why"), lambda: torch._check_is_size(-1),
    lambda: torch._check_not_implemented(False), lambda: torch._check_type(False, lambda: "type"),
    lambda: torch._assert_scalar(0, "zero"), lambda: torch._assert_tensor_metadata(x, [3, 2]),
    lambda: torch._softmax_backward_data(grad, x, 1, x),
)
for call in CALLS:
    try:
        print(call())
    except Exception as error:
        print(type(error).__name__)
"""


@needs_torch
@pytest.mark.parametrize("source", [MODEL, PARTS], ids=["model", "parts"])
def test_printed_as_by_torch(program, source):
    path = program.write("program.py", source)
    printed = []
    for start in ([], ["-m", "tesserack", "run"]):
        done = program.start(*start, str(path))
        assert done.returncode == 0, done.stderr
        printed.append(done.stdout.splitlines())
    assert printed[0] == printed[1] and len(printed[0]) > 10
