"""Operators on DTensors, in every placement of what they are given, against the same on whole tensors."""

import itertools
import sys
import warnings
from typing import Any

import tesserack as ts
from tesserack import distributed as dist
from tesserack.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor, init_device_mesh
from tesserack.distributed.tensor.debug import fallbacks
from tesserack.nn import functional as F

EVEN, UNEVEN = (4, 8, 8), (5, 3, 6)  # sizes that two and four ranks divide, and sizes that they do not
CLASSES = ts.tensor([1, 0, 2, 2])

ONE = {
    "mul2": lambda x: x * 2, "add2": lambda x: x + 2, "div": lambda x: x / 3, "neg": lambda x: -x,
    "exp": lambda x: x.exp(), "relu": F.relu, "gelu": F.gelu, "silu": F.silu, "pow": lambda x: x**2,
    "clamp": lambda x: x.clamp(-0.5, 0.5), "where": lambda x: ts.where(x > 0, x, 0.0), "abs": lambda x: x.abs(),
    "sum": lambda x: x.sum(), "sum0": lambda x: x.sum(0), "sum_kept": lambda x: x.sum(-1, True),
    "mean": lambda x: x.mean(), "mean1": lambda x: x.mean(1), "max": lambda x: x.max(), "amin": lambda x: x.amin(1),
    "max.dim": lambda x: x.max(1)[0], "var": lambda x: x.var(-1), "norm": lambda x: x.norm(),
    "norm1": lambda x: x.norm(dim=1), "norm3": lambda x: ts.linalg.vector_norm(x, 3),
    "norm_inf": lambda x: ts.linalg.vector_norm(x, float("inf")), "logsumexp": lambda x: x.logsumexp(-1),
    "softmax": lambda x: x.softmax(-1), "log_softmax": lambda x: x.log_softmax(1), "cumsum": lambda x: x.cumsum(0),
    "topk": lambda x: x.topk(2, -1)[0], "sort": lambda x: x.sort(0)[0], "transpose": lambda x: x.transpose(0, 2),
    "permute": lambda x: x.permute(1, 2, 0), "flatten": lambda x: x.flatten(), "flatten01": lambda x: x.flatten(0, 1),
    "flatten12": lambda x: x.flatten(1), "unsqueeze": lambda x: x.unsqueeze(1), "select": lambda x: x[1],
    "slice": lambda x: x[:, 1:3], "slice_all": lambda x: x[:, :, 0:99], "ellipsis": lambda x: x[..., None, 2],
    "split": lambda x: x.split(2, 0)[1], "chunk": lambda x: ts.cat(x.chunk(2, -1)[::-1], -1),
    "unbind": lambda x: x.unbind(1)[0], "stack": lambda x: ts.stack([x, x * 2], 1), "flip": lambda x: x.flip(1),
    "expand": lambda x: x.unsqueeze(0).expand(3, *x.shape), "tril": lambda x: x.tril(),
    "pad": lambda x: F.pad(x, (1, 2)), "to": lambda x: x.to(ts.float64),
    "diagonal": lambda x: x.diagonal(0, 0, 1), "repeat": lambda x: x.repeat(2, 1, 1), "clone": lambda x: x.clone(),
    "masked_fill": lambda x: x.masked_fill(x > 0, 1.5), "roll": lambda x: x.roll(1, 0),
    "dropout0": lambda x: F.dropout(x, 0.0), "rms_norm": lambda x: F.rms_norm(x, (x.shape[-1],)),
    "glu": lambda x: x[..., ::2] * x[..., 1::2].sigmoid(), "narrow": lambda x: x.narrow(1, 0, 2),
    "einsum": lambda x: ts.einsum("abc,adc->abd", x, x), "argsort": lambda x: x.gather(1, x.argsort(1)),
}  # fmt: skip
TWO = {
    "add": lambda x, y: x + y, "sub": lambda x, y: x - y, "mul": lambda x, y: x * y, "max2": ts.maximum,
    "div": lambda x, y: x / (y * y + 1), "mse": lambda x, y: (x - y).pow(2).mean(),
    "lerp": lambda x, y: ts.lerp(x, x * y, 0.3),
}  # fmt: skip
PAIRS = [[(8, 4), (8, 4)], [(5, 3), (5, 3)], [(4, 8), (8,)], [(5, 1), (3,)], [(8, 4), ()]]
PRODUCTS = [
    [(8, 4), (4, 8)], [(5, 3), (3, 7)], [(4, 8, 4), (4, 4, 6)], [(5, 4), (4,)], [(6,), (6,)],
    [(2, 4, 3, 8), (2, 4, 8, 5)], [(2, 4, 8), (8, 6)], [(2, 4, 3, 8), (8, 5)],
]  # fmt: skip

# Name, function, shapes of its tensors.
CASES: list[tuple[str, Any, list[tuple[int, ...]]]] = [
    *((name, function, [shape]) for name, function in ONE.items() for shape in (EVEN, UNEVEN)),
    *(
        (name, function, shapes)
        for name, function in TWO.items()
        for shapes in PAIRS
        if (name, shapes[0]) != ("lerp", (5, 1))
    ),
    *(("matmul", lambda x, y: x @ y, shapes) for shapes in PRODUCTS),
    ("view_heads", lambda x: x.view(4, 8, 4, 2).transpose(1, 2), [EVEN]),
    ("merge_heads", lambda x: x.reshape(32, 8).reshape(4, 8, 8), [EVEN]),
    ("squeeze", lambda x: x.squeeze(1), [(4, 1, 6)]),
    ("cat", lambda x, y: ts.cat([x, y], 1), [(4, 8), (4, 3)]),
    ("linear", F.linear, [(2, 4, 8), (6, 8), (6,)]),
    ("linear_uneven", F.linear, [(3, 5), (7, 5), (7,)]),
    ("linear_vectors", F.linear, [(4,), (4,)]),
    ("layer_norm", lambda x, w, b: F.layer_norm(x, (8,), w, b), [(4, 5, 8), (8,), (8,)]),
    ("group_norm", lambda x, w: F.group_norm(x, 2, w), [(4, 8, 3), (8,)]),
    ("sdpa", lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), [(4, 4, 5, 8)] * 3),
    ("attention", lambda q, k: (q @ k.transpose(-2, -1)).softmax(-1) @ k, [(2, 4, 5, 8)] * 2),
    ("embedding", lambda w: F.embedding(_like(w, ts.tensor([[1, 3, 0], [8, 4, 1]])), w), [(9, 4)]),
    ("cross_entropy", lambda x: F.cross_entropy(x, _like(x, ts.tensor([1, 0, 2, -100, 4, 3]))), [(6, 5)]),
    ("cross_entropy_sum", lambda x: F.cross_entropy(x, _like(x, CLASSES), reduction="sum"), [(4, 5)]),
    ("nll_none", lambda x: F.nll_loss(x, _like(x, CLASSES), reduction="none"), [(4, 5)]),
    ("bce", lambda x: F.binary_cross_entropy_with_logits(x, ts.ones_like(x)), [(4, 5)]),
    ("conv", lambda x, w: F.conv2d(x, w, padding=1), [(4, 3, 6, 6), (8, 3, 3, 3)]),
    ("pool", lambda x: F.avg_pool2d(F.max_pool2d(x, 2), 2), [(4, 4, 8, 8)]),
    ("index", lambda x: x[:, _like(x, ts.tensor([[2, 0, 1], [1, 3, 3]]))], [(4, 4, 6)]),
    ("index_rows", lambda x: x[_like(x, ts.tensor([2, 0, 1, 1]))], [(5, 3)]),
    ("interpolate", lambda x: F.interpolate(x, scale_factor=2), [(4, 4, 3, 3)]),
    ("batch_stats", lambda x: (x - x.mean(0)) * (x.var(0, correction=0) + 1e-5).rsqrt(), [(8, 4)]),
    ("index_select", lambda x: x.index_select(0, _like(x, ts.tensor([2, 0, 1, 1]))), [(4, 6)]),
]


def _like(x: Any, plain: ts.Tensor) -> Any:
    """A plain tensor, replicated where ``x`` is distributed."""
    return (
        distribute_tensor(plain, x.device_mesh, [Replicate()] * x.device_mesh.ndim) if isinstance(x, DTensor) else plain
    )


def placed(whole: ts.Tensor, mesh: Any, placements: Any) -> DTensor:
    """As :func:`distribute_tensor`, of which Partial may be one: ranks hold different parts of a sum."""
    at = mesh.get_coordinate()
    parts = whole.detach()
    share = 1.0
    for dim, p in enumerate(placements):
        if p.is_partial():
            n = mesh.size(dim)
            weights = [2 * (k + 1) / (n * (n + 1)) for k in range(n)]
            share *= weights[at[dim]]
    cut = [Replicate() if p.is_partial() else p for p in placements]
    local = distribute_tensor(parts, mesh, cut).to_local() * share
    return DTensor.from_local(local, mesh, placements, shape=whole.shape, stride=whole.stride())


def choices(ndim: int) -> list[Any]:
    return [Replicate(), Partial(), *map(Shard, range(ndim))]


def check(name: str, function: Any, shapes: Any, mesh: Any, placements: Any) -> None:
    where = f"{name}: {placements}"
    ts.manual_seed(1)
    whole = [ts.randn(s, dtype=ts.float64) for s in shapes]
    given = [placed(x, mesh, p).requires_grad_() for x, p in zip(whole, placements, strict=True)]
    whole = [x.requires_grad_() for x in whole]
    expected, got = function(*whole), function(*given)
    assert isinstance(got, DTensor), where
    assert got.shape == expected.shape, (where, got.shape, expected.shape)
    assert got.to_local().shape == got._spec.local_shape(), (where, got.placements, got.to_local().shape)
    assert ts.allclose(got.full_tensor(), expected, atol=1e-10), (where, got.placements)
    weight = ts.randn(expected.shape, dtype=ts.float64)
    wanted = ts.autograd.grad((expected * weight).sum(), whole)
    found = ts.autograd.grad((got * _like(got, weight)).sum(), given)
    for one, other, x in zip(found, wanted, given, strict=True):
        assert isinstance(one, DTensor) and one.shape == x.shape, where
        assert one.to_local().shape == one._spec.local_shape(), (where, one.placements)
        assert ts.allclose(one.full_tensor(), other, atol=1e-10), (where, "gradient", one.placements)


def main() -> None:
    dist.init_process_group()
    n = dist.get_world_size()
    mesh = init_device_mesh("cpu", (n,) if n == 2 else (2, 2))
    seed, every = int(sys.argv[1]), int(sys.argv[2])
    warnings.simplefilter("ignore")
    tried = []
    for number, (name, function, shapes) in enumerate(CASES):
        if n == 4 and (seed + number) % min(every, 3):
            continue
        combinations = list(itertools.product(*(choices(len(s)) for s in shapes)))
        if n == 2:
            step = 1 if every == 1 else every * (1 + len(combinations) // 40)
            picks = [[[p] for p in one] for one in combinations[(seed + number) % min(step, len(combinations)) :: step]]
        else:
            pairs = [list(itertools.product(choices(len(s)), repeat=2)) for s in shapes]
            picks = [
                [p[(seed + 7 * number + 5 * k + 11 * i * k) % len(p)] for i, p in enumerate(pairs)]
                for k in range(12 if every == 1 else 1)
            ]
        tried += [(name, function, shapes, mesh, one) for one in picks]
    for case in tried:
        check(*case)
    if dist.get_rank() == 0:
        print(f"{len(tried)} cases; fallbacks {fallbacks()}")
    dist.destroy_process_group()


main()
