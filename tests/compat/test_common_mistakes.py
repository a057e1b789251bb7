"""Errors of common mistakes: PyTorch's classes, and the words that programs look for in their messages."""

from __future__ import annotations

import copy

import pytest
import tesserack as ts
from tesserack import nn, optim
from tesserack.nn import functional as F
from tesserack.utils.data import DataLoader, TensorDataset, random_split

LAYER = nn.Linear(4, 3)
LEAF = ts.ones(2, requires_grad=True)


class WithoutSuper(nn.Module):
    def __init__(self):
        self.layer = nn.Linear(1, 1)


def twice():
    loss = (LEAF**2).sum()
    loss.backward()
    loss.backward()


def changed_in_place():
    result = LEAF.exp()
    result.add_(1)
    result.sum().backward()


MISTAKES = [
    (lambda: LAYER(ts.ones(2, 5)), RuntimeError, "mat1 and mat2 shapes cannot be multiplied"),
    (lambda: ts.ones(2, 3) @ ts.ones(4, 5), RuntimeError, r"shapes cannot be multiplied \(2x3 and 4x5\)"),
    (lambda: LAYER(ts.ones(2, 4).double()), RuntimeError, "to have the same dtype, but got"),
    (
        lambda: ts.ones(2, 3) + ts.ones(2, 4),
        RuntimeError,
        r"size of tensor a \(3\) must match the size of tensor b \(4\)",
    ),
    (lambda: ts.ones(2) + ts.ones(2, device="meta"), RuntimeError, "Expected all tensors to be on the same device"),
    (lambda: LAYER.load_state_dict({}), RuntimeError, r"Missing key\(s\) in state_dict: \"weight\", \"bias\""),
    (lambda: LAYER.load_state_dict(3), TypeError, "Expected state_dict to be dict-like"),
    (lambda: nn.Linear(4, 2).load_state_dict(LAYER.state_dict()), RuntimeError, "size mismatch for weight"),
    (
        lambda: LAYER.load_state_dict({**LAYER.state_dict(), "x": ts.ones(1)}),
        RuntimeError,
        r"Unexpected key\(s\) in state_dict: \"x\"",
    ),
    (lambda: nn.Conv2d(3, 4, 3)(ts.ones(1, 2, 8, 8)), RuntimeError, "to have 3 channels, but got 2 channels instead"),
    (lambda: nn.BatchNorm2d(3)(ts.ones(2, 3)), ValueError, r"expected 4D input \(got 2D input\)"),
    (lambda: nn.BatchNorm1d(3)(ts.ones(2)), ValueError, r"expected 2D or 3D input \(got 1D input\)"),
    (lambda: nn.BatchNorm1d(3)(ts.ones(1, 3)), ValueError, "Expected more than 1 value per channel when training"),
    (lambda: nn.Embedding(3, 2)(ts.tensor([5])), IndexError, "out of"),
    (lambda: F.cross_entropy(ts.ones(2, 3), ts.tensor([5, 1])), IndexError, "arget 5 is out of bounds"),
    (lambda: F.cross_entropy(ts.ones(2, 3), ts.tensor([1, 1, 1])), ValueError, "to match target batch_size"),
    (lambda: F.cross_entropy(ts.ones(2, 3), ts.tensor([[1], [1]])), RuntimeError, "multi-target not supported"),
    (lambda: F.nll_loss(ts.ones(2, 3), ts.tensor([[1], [1]])), RuntimeError, "multi-target not supported"),
    (lambda: ts.ones(2).masked_fill(ts.ones(2), 0), RuntimeError, "expected mask to be a bool tensor, got float32"),
    (lambda: ts.ones(2).masked_fill_(ts.ones(2), 0), RuntimeError, "expected mask to be a bool tensor"),
    (lambda: ts.where(ts.ones(2), ts.ones(2), ts.ones(2)), RuntimeError, "condition to be a bool tensor"),
    (lambda: F.binary_cross_entropy(ts.ones(2) * 2, ts.ones(2)), RuntimeError, "should be between 0 and 1"),
    (twice, RuntimeError, "Trying to backward through the graph a second time"),
    (changed_in_place, RuntimeError, "modified by an inplace operation"),
    (lambda: (LEAF * 2).backward(), RuntimeError, "grad can be implicitly created only for scalar outputs"),
    (lambda: ts.ones(2).sum().backward(), RuntimeError, "does not require grad and does not have a grad_fn"),
    (lambda: LEAF.add_(1), RuntimeError, "leaf Variable that requires grad"),
    (lambda: LEAF.numpy(), RuntimeError, "Can't call numpy\\(\\) on Tensor that requires grad"),
    (lambda: copy.deepcopy(LEAF * 2), RuntimeError, "Only Tensors created explicitly by the user"),
    (
        lambda: ts.ones(2, dtype=ts.int64, requires_grad=True),
        RuntimeError,
        "nly Tensors of floating point and complex dtype",
    ),
    (lambda: optim.SGD([], lr=0.1), ValueError, "optimizer got an empty parameter list"),
    (lambda: optim.SGD(LEAF, lr=0.1), TypeError, "should be an iterable of Tensors or dicts"),
    (lambda: optim.SGD([1], lr=0.1), TypeError, "optimizer can only optimize Tensors"),
    (lambda: optim.SGD([LEAF * 2], lr=0.1), ValueError, "can't optimize a non-leaf Tensor"),
    (lambda: optim.SGD([LEAF], lr=-1), ValueError, "Invalid learning rate: -1"),
    (
        lambda: optim.SGD(LAYER.parameters(), lr=1).load_state_dict(optim.SGD([LEAF], lr=1).state_dict()),
        ValueError,
        "contains a parameter group that doesn't match the size of optimizer's group",
    ),
    (lambda: optim.lr_scheduler.StepLR(None, 1), TypeError, "NoneType is not an Optimizer"),
    (lambda: nn.ModuleList([1]), TypeError, "int is not a Module subclass"),
    (WithoutSuper, AttributeError, r"cannot assign module before Module.__init__\(\) call"),
    (lambda: setattr(LAYER, "weight", ts.ones(3, 4)), TypeError, "as parameter 'weight'.*Parameter or None expected"),
    (lambda: LAYER.get_submodule("a"), AttributeError, "Linear has no attribute `a`"),
    (lambda: LAYER.missing, AttributeError, "'Linear' object has no attribute 'missing'"),
    (lambda: nn.Dropout(2), ValueError, "dropout probability has to be between 0 and 1, but got 2"),
    (lambda: DataLoader([1, 2], batch_size=0), ValueError, "batch_size should be a positive integer value"),
    (lambda: TensorDataset(ts.ones(2), ts.ones(3)), AssertionError, "Size mismatch between tensors"),
    (
        lambda: random_split([1, 2, 3], [1, 1]),
        ValueError,
        "Sum of input lengths does not equal the length of the input",
    ),
    (lambda: ts.ones(2, 3).t().view(6), RuntimeError, r"view size is not compatible.*Use .reshape\(...\) instead"),
    (lambda: ts.ones(2, 3).reshape(4), RuntimeError, r"shape '\[4\]' is invalid for input of size 6"),
    (lambda: ts.cat([ts.ones(2, 3), ts.ones(2, 4)]), RuntimeError, "Sizes of tensors must match except in dimension 0"),
    (lambda: ts.stack([ts.ones(2), ts.ones(3)]), RuntimeError, "expects each tensor to be equal size"),
    (lambda: ts.ones(3)[5], IndexError, "index 5 is out of bounds for dimension 0 with size 3"),
    (
        lambda: ts.ones(3).sum(2),
        IndexError,
        r"Dimension out of range \(expected to be in range of \[-1, 0\], but got 2\)",
    ),
    (lambda: bool(ts.ones(2)), RuntimeError, "Boolean value of Tensor with more than one value is ambiguous"),
    (lambda: ts.ones(2, dtype=ts.int64).div_(2), RuntimeError, "can't be cast to the desired output type"),
    (lambda: ts.linalg.inv(ts.zeros(2, 2)), ts.linalg.LinAlgError, "the input matrix is singular"),
]


@pytest.mark.parametrize(("mistake", "kind", "words"), MISTAKES, ids=[words[:40] for _, _, words in MISTAKES])
def test_a_mistake_is_told_as_pytorch_tells_it(mistake, kind, words):
    with pytest.raises(kind, match=words):
        mistake()
