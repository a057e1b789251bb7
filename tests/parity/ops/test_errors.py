"""Bad calls are refused by both libraries, with the same class of exception."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tesserack as ts
import torch


def twice(m: Any, call: Callable[[Any], Any]) -> None:
    y = call(m.ones(2, requires_grad=True)).sum()
    y.backward()
    y.backward()


def hooked(m: Any, hook: Callable[[Any], Any]) -> None:
    x = m.ones(2, requires_grad=True)
    x.register_hook(hook)
    x.sum().backward()


BAD: dict[str, Callable[[Any], Any]] = {
    "broadcast": lambda m: m.ones(2, 3) + m.ones(4),
    "matmul shapes": lambda m: m.ones(2, 3) @ m.ones(2, 3),
    "matmul 0-d": lambda m: m.ones(()) @ m.ones(2),
    "mm of 3-d": lambda m: m.mm(m.ones(1, 2, 3), m.ones(3, 2)),
    "bmm of 2-d": lambda m: m.bmm(m.ones(2, 3), m.ones(3, 2)),
    "matmul dtypes": lambda m: m.ones(2, 2) @ m.ones(2, 2, dtype=m.float64),
    "mask minus number": lambda m: m.tensor([True]) - 1,
    "number minus mask": lambda m: 1 - m.tensor([True]),
    "numbers minus mask": lambda m: m.ones(1) - m.tensor([True]),
    "numbers minus True": lambda m: m.tensor([2]) - True,
    "unbind 0-d": lambda m: m.ones(()).unbind(),
    "LongTensor of floats": lambda m: m.LongTensor(m.ones(2)),
    "restarts every 0": lambda m: m.optim.lr_scheduler.CosineAnnealingWarmRestarts(m.optim.SGD([m.ones(1)], 1), 0),
    "plus a mask": lambda m: +m.tensor([True]),
    "addcdiv of integers": lambda m: m.tensor([2]).addcdiv(m.tensor([2]), m.tensor([2])),
    "put of another dtype": lambda m: m.zeros(2, 3).__setitem__([0], m.tensor([1, 2, 3])),
    "put of a wider 0-d": lambda m: m.zeros(2, 3).__setitem__([0], m.tensor(1.0, dtype=m.float64)),
    "backward twice of x * 2": lambda m: twice(m, lambda x: x * 2),
    "backward twice of x / 2": lambda m: twice(m, lambda x: x / 2),
    "backward twice of mul_(2)": lambda m: twice(m, lambda x: (x + 0).mul_(2)),
    "hook changes the size": lambda m: hooked(m, lambda g: g.reshape(1, 2)),
    "hook changes the dtype": lambda m: hooked(m, lambda g: g.to(m.float64)),
    "version of an inference tensor": lambda m: m.inference_mode()(m.ones)(2)._version,
    "invert floats": lambda m: ~m.ones(1),
    "bitwise_not of floats": lambda m: m.ones(1).bitwise_not(),
    "write to an inference tensor": lambda m: m.inference_mode()(m.ones)(2).add_(1),
    "fill an inference tensor": lambda m: m.inference_mode()(m.ones)(2).zero_(),
    "unravel floats": lambda m: m.unravel_index(m.ones(1), (2,)),
    "linalg.norm of 3-d": lambda m: m.linalg.norm(m.ones(1, 2, 2), 1),
    "matrix_norm of a vector": lambda m: m.linalg.matrix_norm(m.ones(2)),
    "pad_sequence dims": lambda m: m.nn.utils.rnn.pad_sequence([m.ones(1, 2), m.ones(1, 3)]),
    "gaussian_nll_loss shapes": lambda m: m.nn.functional.gaussian_nll_loss(m.ones(2, 3), m.ones(2, 3), m.ones(3)),
    "gaussian_nll_loss variance": lambda m: m.nn.functional.gaussian_nll_loss(m.ones(2), m.ones(2), -m.ones(2)),
    "diag of 3-d": lambda m: m.ones(1, 2, 2).diag(),
    "diag_embed dims": lambda m: m.ones(2).diag_embed(0, 1, 1),
    "fill_diagonal_ unequal": lambda m: m.ones(2, 2, 3).fill_diagonal_(1),
    "block_diag of 3-d": lambda m: m.block_diag(m.ones(1, 2, 2)),
    "diff of a number": lambda m: m.ones(()).diff(),
    "diff prepend": lambda m: m.ones(2).diff(prepend=m.ones(1, 1)),
    "slice_scatter sizes": lambda m: m.ones(3).slice_scatter(m.ones(2)),
    "select_scatter index": lambda m: m.ones(3).select_scatter(m.ones(()), 0, 3),
    "quantile beyond": lambda m: m.ones(3).quantile(1.5),
    "quantile of nothing": lambda m: m.ones(0).quantile(0.5),
    "quantile of integers": lambda m: m.ones(2, dtype=m.int64).quantile(0.5),
    "quantile dtypes": lambda m: m.ones(2).quantile(m.tensor([0.5], dtype=m.float64)),
    "mode of nothing": lambda m: m.ones(2, 0).mode(),
    "gcd of floats": lambda m: m.gcd(m.ones(1), m.ones(1)),
    "renorm of a vector": lambda m: m.ones(2).renorm(2, 0, 1.0),
    "pixel_shuffle channels": lambda m: m.nn.functional.pixel_shuffle(m.ones(1, 3, 2, 2), 2),
    "cov of bool": lambda m: m.tensor([True]).cov(),
    "set_ of a leaf": lambda m: m.ones(2, requires_grad=True).set_(m.ones(2)),
    "dim": lambda m: m.ones(2, 3).sum(2),
    "negative dim": lambda m: m.ones(2, 3).sum(-3),
    "softmax dim": lambda m: m.softmax(m.ones(2), 1),
    "repeated dim": lambda m: m.ones(2, 3).sum((0, 0)),
    "max of nothing": lambda m: m.ones(0).max(),
    "argmax of nothing": lambda m: m.ones(0).argmax(),
    "amax of nothing": lambda m: m.ones(0, 2).amax(0),
    "mean of integers": lambda m: m.ones(2, dtype=m.int64).mean(),
    "view": lambda m: m.ones(2, 3).view(4),
    "view two -1": lambda m: m.ones(2, 3).view(-1, -1),
    "view strides": lambda m: m.ones(2, 3).t().view(6),
    "reshape": lambda m: m.ones(2, 3).reshape(5, -1),
    "expand": lambda m: m.ones(2).expand(3),
    "expand fewer": lambda m: m.ones(2, 3).expand(3),
    "permute": lambda m: m.ones(2, 3).permute(0),
    "permute twice": lambda m: m.ones(2, 3).permute(0, 0),
    "transpose": lambda m: m.ones(2, 3).transpose(0, 2),
    "t of 3-d": lambda m: m.ones(1, 2, 3).t(),
    "select": lambda m: m.ones(2).select(0, 2),
    "narrow": lambda m: m.ones(2).narrow(0, 1, 2),
    "index": lambda m: m.ones(2)[2],
    "index dims": lambda m: m.ones(2)[0, 0],
    "index float": lambda m: m.ones(2)[0.5],
    "index step": lambda m: m.ones(2)[::0],
    "index tensor": lambda m: m.ones(2)[m.tensor([2])],
    "index mask": lambda m: m.ones(2)[m.tensor([True, False, True])],
    "index float tensor": lambda m: m.ones(2)[m.tensor([0.0])],
    "iterate 0-d": lambda m: list(m.ones(())),
    "len 0-d": lambda m: len(m.ones(())),
    "item of many": lambda m: m.ones(2).item(),
    "bool of many": lambda m: bool(m.ones(2)),
    "bool of none": lambda m: bool(m.ones(0)),
    "float of many": lambda m: float(m.ones(2)),
    "int of nan": lambda m: int(m.tensor(float("nan"))),
    "index of float": lambda m: [0][m.ones(()).__index__()],
    "cat nothing": lambda m: m.cat([]),
    "cat shapes": lambda m: m.cat([m.ones(2, 3), m.ones(2, 2)]),
    "cat 0-d": lambda m: m.cat([m.ones(()), m.ones(())]),
    "cat a tensor": lambda m: m.cat(m.ones(2)),
    "stack shapes": lambda m: m.stack([m.ones(2), m.ones(3)]),
    "stack nothing": lambda m: m.stack([]),
    "split": lambda m: m.ones(5).split([2, 2]),
    "chunk": lambda m: m.ones(5).chunk(0),
    "gather dtype": lambda m: m.ones(2).gather(0, m.zeros(2)),
    "gather index": lambda m: m.ones(2).gather(0, m.tensor([2])),
    "scatter index": lambda m: m.zeros(2).scatter(0, m.tensor([3]), 1.0),
    "index_select 2-d": lambda m: m.ones(2).index_select(0, m.zeros(1, 1, dtype=m.int64)),
    "index_select range": lambda m: m.ones(2).index_select(0, m.tensor([5])),
    "take range": lambda m: m.ones(2).take(m.tensor([5])),
    "topk": lambda m: m.ones(2).topk(3),
    "kthvalue": lambda m: m.ones(2).kthvalue(3),
    "sort dim": lambda m: m.ones(2).sort(1),
    "unfold": lambda m: m.ones(2).unfold(0, 3, 1),
    "unfold step": lambda m: m.ones(2).unfold(0, 1, 0),
    "diagonal": lambda m: m.ones(2, 2).diagonal(0, 0, 0),
    "tril of 1-d": lambda m: m.tril(m.ones(3)),
    "float negative steps": lambda m: m.arange(0, 5, -1),
    "arange zero step": lambda m: m.arange(0, 5, 0),
    "linspace": lambda m: m.linspace(0, 1, -1),
    "negative size": lambda m: m.ones(-1),
    "eye": lambda m: m.eye(-1),
    "ragged": lambda m: m.tensor([[1], [1, 2]]),
    "of strings": lambda m: m.tensor(["a"]),
    "of None": lambda m: m.tensor(None),
    "of a dict": lambda m: m.tensor({}),
    "overflowing uint8": lambda m: m.tensor(300, dtype=m.uint8),
    "overflowing int64": lambda m: m.tensor(2**70),
    "fill overflow": lambda m: m.ones(2, dtype=m.int8).fill_(1000),
    "full overflow": lambda m: m.full((2,), 2**70),
    "inplace cast": lambda m: m.ones(2, dtype=m.int64).mul_(0.5),
    "inplace shape": lambda m: m.ones(2).add_(m.ones(3, 2)),
    "inplace expanded": lambda m: m.ones(1).expand(3).add_(1),
    "inplace compare leaf": lambda m: m.ones(2, requires_grad=True).add_(1),
    "out dtype": lambda m: m.add(m.ones(2), m.ones(2), out=m.ones(2, dtype=m.int64)),
    "out requires grad": lambda m: m.add(m.ones(2, requires_grad=True), 1, out=m.ones(2)),
    "setitem shape": lambda m: m.ones(2, 3).__setitem__(0, m.ones(2)),
    "setitem mask": lambda m: m.ones(2).__setitem__(m.tensor([True, True]), m.ones(3)),
    "setitem string": lambda m: m.ones(2).__setitem__(0, "a"),
    "requires_grad of integers": lambda m: m.ones(2, dtype=m.int64).requires_grad_(),
    "requires_grad non-leaf": lambda m: setattr(m.ones(2, requires_grad=True) * 2, "requires_grad", False),
    "backward of many": lambda m: (m.ones(2, requires_grad=True) * 2).backward(),
    "backward of constant": lambda m: m.ones(()).backward(),
    "backward twice": lambda m: [s.backward() for s in [(m.ones(2, requires_grad=True) ** 2).sum()] * 2],
    "backward shape": lambda m: (m.ones(2, requires_grad=True) * 2).backward(m.ones(3)),
    "grad of unused": lambda m: m.autograd.grad(m.ones(1, requires_grad=True).sum(), m.ones(1, requires_grad=True)),
    "grad of integer": lambda m: m.autograd.grad(m.ones(1, requires_grad=True).sum(), m.ones(1)),
    "wrong grad": lambda m: setattr(m.ones(2), "grad", m.ones(3)),
    "grad not a tensor": lambda m: setattr(m.ones(2), "grad", 1.0),
    "saved then changed": lambda m: changed(m),
    "numpy with grad": lambda m: m.ones(2, requires_grad=True).numpy(),
    "clamp of nothing": lambda m: m.clamp(m.ones(2)),
    "where three": lambda m: m.where(m.ones(2, dtype=m.bool), m.ones(3), m.ones(2)),
    "bitwise of floats": lambda m: m.ones(2) & m.ones(2),
    "shift of floats": lambda m: m.ones(2).bitwise_not(),
    "sub of bools": lambda m: m.tensor([True]) - m.tensor([True]),
    "neg of bools": lambda m: -m.tensor([True]),
    "integer zero division": lambda m: m.tensor([1]) // m.tensor([0]),
    "integer remainder": lambda m: m.tensor([1]) % 0,
    "negative integer power": lambda m: m.tensor([2]) ** -1,
    "rounding": lambda m: m.div(m.ones(2), 2, rounding_mode="up"),
    "add a string": lambda m: m.ones(2) + "a",
    "add None": lambda m: m.add(m.ones(2), None),
    "no argument": lambda m: m.add(m.ones(2)),
    "too many arguments": lambda m: m.relu(m.ones(2), 1, 2),
    "unknown keyword": lambda m: m.relu(m.ones(2), nothing=1),
    "twice": lambda m: m.sum(m.ones(2), input=m.ones(2)),
    "string dim": lambda m: m.ones(2).sum("a"),
    "float dim": lambda m: m.ones(2, 2).sum(0.5),
    "tensor list dim": lambda m: m.ones(2, 2).softmax([0]),
    "dtype string": lambda m: m.ones(2, dtype="float32"),
    "device string": lambda m: m.ones(2, device="nosuchdevice"),
    "device type": lambda m: m.ones(2, device=1.5),
    "conv channels": lambda m: m.nn.functional.conv2d(m.ones(1, 3, 4, 4), m.ones(2, 4, 3, 3)),
    "conv kernel": lambda m: m.nn.functional.conv2d(m.ones(1, 3, 2, 2), m.ones(2, 3, 3, 3)),
    "conv stride": lambda m: m.nn.functional.conv2d(m.ones(1, 3, 4, 4), m.ones(2, 3, 3, 3), stride=0),
    "conv groups": lambda m: m.nn.functional.conv2d(m.ones(1, 3, 4, 4), m.ones(2, 3, 3, 3), groups=2),
    "pool padding": lambda m: m.nn.functional.max_pool2d(m.ones(1, 1, 4, 4), 2, padding=2),
    "pool window": lambda m: m.nn.functional.avg_pool2d(m.ones(1, 1, 2, 2), 3),
    "layer_norm": lambda m: m.nn.functional.layer_norm(m.ones(2, 3), (2,)),
    "batch_norm": lambda m: m.nn.functional.batch_norm(m.ones(2, 3), m.ones(2), m.ones(2)),
    "batch_norm of one": lambda m: m.nn.functional.batch_norm(m.ones(1, 3), None, None, training=True),
    "cross_entropy": lambda m: m.nn.functional.cross_entropy(m.ones(2, 3), m.tensor([0, 3])),
    "cross_entropy batch": lambda m: m.nn.functional.cross_entropy(m.ones(2, 3), m.tensor([0])),
    "nll dtype": lambda m: m.nn.functional.nll_loss(m.ones(2, 3), m.ones(2)),
    "embedding range": lambda m: m.nn.functional.embedding(m.tensor([3]), m.ones(3, 2)),
    "embedding dtype": lambda m: m.nn.functional.embedding(m.ones(1), m.ones(3, 2)),
    "linear": lambda m: m.nn.functional.linear(m.ones(2, 3), m.ones(4, 2)),
    "dropout": lambda m: m.nn.functional.dropout(m.ones(2), 1.5),
    "one_hot": lambda m: m.nn.functional.one_hot(m.tensor([3]), 2),
    "pad": lambda m: m.nn.functional.pad(m.ones(2), (1,)),
    "reflect": lambda m: m.nn.functional.pad(m.ones(1, 2), (2, 0), "reflect"),
    "interpolate nothing": lambda m: m.nn.functional.interpolate(m.ones(1, 1, 2)),
    "interpolate twice": lambda m: m.nn.functional.interpolate(m.ones(1, 1, 2), 3, 2.0),
    "interpolate mode": lambda m: m.nn.functional.interpolate(m.ones(1, 1, 2), 3, mode="smooth"),
    "interpolate dims": lambda m: m.nn.functional.interpolate(m.ones(1, 1, 2), 3, mode="bilinear"),
    "interpolate corners": lambda m: m.nn.functional.interpolate(m.ones(1, 1, 2), 3, align_corners=True),
    "interpolate sizes": lambda m: m.nn.functional.interpolate(m.ones(1, 1, 2), (3, 3)),
    "interpolate to nothing": lambda m: m.nn.functional.interpolate(m.ones(1, 1, 2), 0),
    "unfold blocks": lambda m: m.nn.functional.unfold(m.ones(1, 2, 2), 3),
    "fold blocks": lambda m: m.nn.functional.fold(m.ones(1, 4, 3), (2, 2), 2),
    "fold channels": lambda m: m.nn.functional.fold(m.ones(1, 3, 1), (2, 2), 2),
    "max_unpool": lambda m: m.nn.functional.max_unpool2d(m.ones(1, 2, 2), m.zeros(1, 2, 1, dtype=m.int64), 2),
    "embedding_bag offsets": lambda m: m.nn.functional.embedding_bag(
        m.zeros(1, 1, dtype=m.int64), m.ones(2, 2), m.zeros(1, dtype=m.int64)
    ),
    "embedding_bag first offset": lambda m: m.nn.functional.embedding_bag(
        m.zeros(2, dtype=m.int64), m.ones(2, 2), m.ones(1, dtype=m.int64)
    ),
    "embedding_bag mode": lambda m: m.nn.functional.embedding_bag(
        m.zeros(1, 1, dtype=m.int64), m.ones(2, 2), mode="least"
    ),
    "polygamma": lambda m: m.special.polygamma(-1, m.ones(2)),
    "combinations": lambda m: m.combinations(m.ones(2, 2)),
    "cartesian_prod": lambda m: m.cartesian_prod(m.ones(2, 2), m.ones(2)),
    "einsum": lambda m: m.einsum("ij,jk", m.ones(2, 3), m.ones(2, 3)),
    "einsum of nothing": lambda m: m.einsum("a"),
    "einsum letters": lambda m: m.einsum("i->j", m.ones(2)),
    "as_strided": lambda m: m.ones(2).as_strided((3,), (1,)),
    "as_strided negative": lambda m: m.ones(2).as_strided((2,), (-1,)),
    "from nothing": lambda m: m.frombuffer(b"", dtype=m.float32),
    "multinomial": lambda m: m.multinomial(m.ones(2), 3),
    "bernoulli": lambda m: m.bernoulli(m.ones(2) * 2),
    "bincount": lambda m: m.bincount(m.tensor([-1])),
    "unflatten": lambda m: m.ones(6).unflatten(0, (4, 2)),
    "squeeze": lambda m: m.ones(1).squeeze(1),
    "unsqueeze": lambda m: m.ones(1).unsqueeze(3),
    "flatten": lambda m: m.ones(2, 2).flatten(1, 0),
    "movedim": lambda m: m.ones(2, 2).movedim((0, 1), (0,)),
    "repeat": lambda m: m.ones(2, 2).repeat(2),
    "roll": lambda m: m.ones(2, 2).roll(1, (0, 1)),
    "flip": lambda m: m.ones(2, 2).flip(0, 0),
    "cross": lambda m: m.linalg.cross(m.ones(2), m.ones(2)),
    "norm dim": lambda m: m.norm(m.ones(2), dim=3),
    "copy": lambda m: m.ones(2).copy_(m.ones(3)),
    "generator": lambda m: m.rand(2, generator=1),
    "manual_seed": lambda m: m.manual_seed("a"),
    "default dtype": lambda m: m.set_default_dtype(m.int64),
    "finfo": lambda m: m.finfo(m.int64),
    "iinfo": lambda m: m.iinfo(m.float32),
    "index_select of nothing": lambda m: m.ones(3, 0).index_select(0, m.tensor([5])),
    "kthvalue of nothing": lambda m: m.ones(2, 0).kthvalue(1, 1),
    "lerp": lambda m: m.lerp(m.ones(2), m.ones(2).double(), 0.5),
    "lerp weights": lambda m: m.ones(2).lerp_(m.ones(2), m.ones(2).double()),
    "nonzero twice": lambda m: m.nonzero(m.ones(2), as_tuple=True, out=m.ones(2, 1, dtype=m.int64)),
    "foreach of nothing": lambda m: m._foreach_add([], 1),
    "affine_grid of a row": lambda m: m.nn.functional.affine_grid(m.ones(1, 2, 3), (1, 2, 2)),
    "empty_like of a sparse format": lambda m: m.empty_like(m.eye(2).to_sparse(), memory_format=m.preserve_format),
    "ones_like of a sparse format": lambda m: m.ones_like(m.eye(2).to_sparse(), memory_format=m.preserve_format),
    "sparse half into int": lambda m: m.eye(2, dtype=m.int32).mul_(m.eye(2, dtype=m.half).to_sparse()),
    "sparse int into bool": lambda m: m.eye(2, dtype=m.bool).mul_(m.eye(2, dtype=m.int32).to_sparse()),
    "is_same_size of a row": lambda m: m.nested.nested_tensor([m.ones(2)]).is_same_size(m.ones(1, 2)),
    "group_norm of one value": lambda m: m.nn.GroupNorm(4, 4)(m.ones(1, 4, 1)),
    "module to copy": lambda m: m.nn.Linear(2, 2).to("cpu", copy=True),
}


def changed(module: Any) -> None:
    """A saved tensor is written to before backward."""
    x = module.ones(2, requires_grad=True)
    y = x.exp()
    y.add_(1)
    y.sum().backward()


# Cases in which the classes differ, and why.
OTHER_CLASS: dict[str, str] = {
    "overflowing int64": "OverflowError, as Python says it, rather than ValueError",
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", BAD)
def test_refused(name: str, request: pytest.FixtureRequest) -> None:
    """Both raise, and a handler written for PyTorch catches ours."""
    if name in OTHER_CLASS:
        request.applymarker(pytest.mark.xfail(reason=OTHER_CLASS[name], strict=True))
    try:
        expected = BAD[name](torch)
    except Exception as error:
        with pytest.raises(type(error).__mro__[0 if type(error).__module__ == "builtins" else 1]) as found:
            BAD[name](ts)
        assert len(str(found.value)) > 8, "says too little"
    else:
        pytest.fail(f"PyTorch gave {expected}")
