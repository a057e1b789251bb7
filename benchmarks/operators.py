"""Operators that were slow once: each is to stay below PyTorch's time, or at what the memory delivers."""

from __future__ import annotations

from typing import Any

from kernels import FOUR_MILLION, MAP
from rows import Cost, Setup, row


def _functional(fw: Any, device: str) -> dict[str, Any]:
    return {"F": fw.nn.functional, "fw": fw, "a": fw.randn(FOUR_MILLION, device=device)}


for _statement in (
    "a.clone()",
    "F.gelu(a)",
    "F.gelu(a, approximate='tanh')",
    "F.elu(a)",
    "F.selu(a)",
    "F.celu(a)",
    "F.silu(a)",
    "F.softplus(a)",
    "F.mish(a)",
    "F.hardswish(a)",
    "F.hardsigmoid(a)",
    "a.erf()",
    "fw.special.erfc(a)",
    "a.cumsum(0)",
):
    # These do nothing but move 32 MiB, as much as the last cache of many processors holds: a bare loop of loads and
    # stores in two threads takes 0.39 to 0.60 ms for it on an EPYC of family 25 model 17, by where the pages lie.
    _moves = _statement in ("a.clone()", "F.hardswish(a)", "F.hardsigmoid(a)")
    row(f"{_statement}, 4M", _statement, limit=0.8, cost=MAP, fresh=_moves)(_functional)


def _attention(shape: tuple[int, ...], dtype: str, requires_grad: bool = False) -> Setup:
    def setup(fw: Any, device: str) -> dict[str, Any]:
        q, k, v = (
            fw.randn(*shape, device=device).to(getattr(fw, dtype)).requires_grad_(requires_grad) for _ in range(3)
        )
        return {
            "attend": fw.nn.functional.scaled_dot_product_attention,
            "q": q,
            "k": k,
            "v": v,
            "grad": fw.autograd.grad,
        }

    setup.__module__ = __name__
    return setup


_CAUSAL = "attend(q, k, v, is_causal=True)"
row("attention 8x512x64, causal", _CAUSAL, limit=0.8)(_attention((8, 512, 64), "float32"))
row("attention 1x8x512x64, causal", _CAUSAL, limit=0.8)(_attention((1, 8, 512, 64), "float32"))
_PRODUCTS = Cost(flops=2 * 2 * 8 * 512 * 512 * 64)
row("attention 1x8x512x64", "attend(q, k, v)", limit=0.8, cost=_PRODUCTS)(_attention((1, 8, 512, 64), "float32"))
row("attention 1x8x512x64, causal, bfloat16", _CAUSAL, limit=0.8)(_attention((1, 8, 512, 64), "bfloat16"))
row("attention 1x8x512x64, causal, gradients", f"grad({_CAUSAL}.sum(), (q, k, v))", limit=0.8)(
    _attention((1, 8, 512, 64), "float32", True)
)


@row(
    "embedding 8192 of 50000x256",
    "embedding(at, table)",
    limit=0.8,
    cost=Cost(read=4 * 8192 * 256, written=4 * 8192 * 256),
)
def embedding(fw: Any, device: str) -> dict[str, Any]:
    at = fw.randint(0, 50000, (8192,), device=device)
    return {"embedding": fw.nn.functional.embedding, "at": at, "table": fw.randn(50000, 256, device=device)}


@row("x[:, index], 4096x1024 by 512", "x[:, index]", limit=0.8, cost=Cost(read=4 * 4096 * 1024, written=4 * 4096 * 512))
def index_columns(fw: Any, device: str) -> dict[str, Any]:
    return {"x": fw.randn(4096, 1024, device=device), "index": fw.randint(0, 1024, (512,), device=device)}


@row(
    "depthwise conv2d 3x3 8x128x28x28",
    "conv2d(x, w, padding=1, groups=128)",
    limit=0.8,
    cost=Cost(read=4 * 8 * 128 * 28 * 28, written=4 * 8 * 128 * 28 * 28),
)
def depthwise(fw: Any, device: str) -> dict[str, Any]:
    x, w = fw.randn(8, 128, 28, 28, device=device), fw.randn(128, 1, 3, 3, device=device)
    return {"conv2d": fw.nn.functional.conv2d, "x": x, "w": w}


@row(
    "max_pool2d 16x64x56x56",
    "max_pool2d(x, 2)",
    limit=0.8,
    cost=Cost(read=4 * 16 * 64 * 56 * 56, written=16 * 64 * 56 * 56),
)
def max_pool(fw: Any, device: str) -> dict[str, Any]:
    return {"max_pool2d": fw.nn.functional.max_pool2d, "x": fw.randn(16, 64, 56, 56, device=device)}


@row("randperm 1M", "fw.randperm(1000000, device=device)", limit=0.8)
def randperm(fw: Any, device: str) -> dict[str, Any]:
    return {"fw": fw, "device": device}


@row("gcd 1M of int64", "fw.gcd(a, b)", limit=0.8)
def gcd(fw: Any, device: str) -> dict[str, Any]:
    a, b = (fw.randint(1, 1000000, (1000000,), device=device) for _ in range(2))
    return {"fw": fw, "a": a, "b": b}


def _square(fw: Any, device: str) -> dict[str, Any]:
    return {"fw": fw, "a": fw.randn(1024, 1024, device=device)}


for _statement in ("a.topk(10, 0)", "a.topk(10, 1)", "a.kthvalue(500)", "a.median(1)", "a.median()"):
    row(f"{_statement}, 1024x1024", _statement, limit=0.8)(_square)


@row("searchsorted 1M in 100000", "fw.searchsorted(edges, x)", limit=0.8)
def searchsorted(fw: Any, device: str) -> dict[str, Any]:
    edges = fw.randn(100000, device=device).sort()[0]
    return {"fw": fw, "edges": edges, "x": fw.randn(1000000, device=device)}


@row("bincount 1M in 1000", "x.bincount()", limit=0.8, cost=Cost(read=8 * 1000000))
def bincount(fw: Any, device: str) -> dict[str, Any]:
    return {"x": fw.randint(0, 1000, (1000000,), device=device)}


def _in_the_caches(fw: Any, device: str) -> dict[str, Any]:
    a = fw.randn(512, 512, device=device)
    return {"fw": fw, "F": fw.nn.functional, "device": device, "a": a, "p": a.abs() + 0.1, "d": a.double()}


for _statement in (
    "fw.trapz(a)",
    "a.diff()",
    "a.prod()",
    "a.cummax(1)",
    "a.cummax(0)",
    "a.t().cumsum(1)",
    "fw.nan_to_num(a)",
    "fw.float_power(p, a)",
    "d.sin()",
    "d.erf()",
    "d @ d[0]",
    "d.t() @ d[0]",
    "fw.randint(0, 10, (512, 512), device=device)",
    "F.pad(a.view(4, 16, 64, 64), (2, 2, 2, 2), mode='reflect')",
    "F.pad(a.view(4, 16, 64, 64), (2, 2, 2, 2), mode='replicate')",
):
    row(f"{_statement}, 256K", _statement, limit=1.2)(_in_the_caches)


def _cubes(fw: Any, device: str) -> dict[str, Any]:
    x = fw.randn(46, 46, 47, device=device)
    return {"fw": fw, "x": x, "k": (x * 100).long(), "h": x.bfloat16(), "z": fw.complex(x, x)}


for _statement in (
    "x.cumsum(0)",
    "k.cumsum(0)",
    "k.cumsum(2)",
    "x[:, :, ::2].sum()",
    "fw.aminmax(x[:, :, ::2])",
    "z.sum(2)",
    "h.norm()",
    "k.argmax(2)",
    "k.mode(2)",
    "fw.erfinv(x.double())",
):
    row(f"{_statement}, 99K", _statement, limit=1.3)(_cubes)


@row("bincount, 16 numbers below 1,000", "fw.bincount(k)", limit=1.0)
def few_in_many_bins(fw: Any, device: str) -> dict[str, Any]:
    return {"fw": fw, "k": fw.arange(16, device=device) * 60}


@row("group_norm 8x64x32x32, gradients", "grad(group_norm(x, 8, w, b), (x, w, b), g)", limit=1.2)
def group_norm(fw: Any, device: str) -> dict[str, Any]:
    x, w, b = (fw.randn(*s, device=device, requires_grad=True) for s in ((8, 64, 32, 32), (64,), (64,)))
    names = {"x": x, "w": w, "b": b, "g": fw.randn(8, 64, 32, 32, device=device)}
    return names | {"grad": fw.autograd.grad, "group_norm": fw.nn.functional.group_norm}


def _rows_of_points(p: float) -> Setup:
    def setup(fw: Any, device: str) -> dict[str, Any]:
        x = fw.randn(500, 64, device=device).requires_grad_(True)
        return {"F": fw.nn.functional, "x": x, "p": p, "grad": fw.autograd.grad, "fw": fw}

    setup.__module__ = __name__
    return setup


row("pdist 500x64", "F.pdist(x, p)", limit=1)(_rows_of_points(2.0))
row("pdist 500x64, gradient", "grad(F.pdist(x, p).sum(), x)", limit=1)(_rows_of_points(2.0))
row("cdist 500x500x64, p=1", "fw.cdist(x, x, p)", limit=0.8)(_rows_of_points(1.0))
row("cdist 500x500x64, p=1, gradient", "grad(fw.cdist(x, x, p).sum(), x)", limit=0.8)(_rows_of_points(1.0))


def _values(*shapes: tuple[int, ...], dtype: str = "float32") -> Setup:
    def setup(fw: Any, device: str) -> dict[str, Any]:
        kind = getattr(fw, dtype)
        if dtype.startswith(("int", "uint")):
            values = [fw.randint(0, 100, shape, device=device).to(kind) for shape in shapes]
        else:
            values = [fw.randn(*shape, device=device).to(kind) for shape in shapes]
        return {"F": fw.nn.functional, "fw": fw, **dict(zip("abc", values, strict=False))}

    setup.__module__ = __name__
    return setup


_SQUARE, _IMAGE = (256, 256), (2, 16, 48, 48)
row("products of rows, int64", "fw.einsum('ij,ij->i', a, b)", limit=1.3)(_values(_SQUARE, _SQUARE, dtype="int64"))
row("bmm 1000x4x4, bfloat16", "fw.bmm(a, b)", limit=1.3)(_values((1000, 4, 4), (1000, 4, 4), dtype="bfloat16"))
row("bmm 64x128x128, float16", "fw.bmm(a, b)", limit=1.3)(_values((64, 128, 128), (64, 128, 128), dtype="float16"))
row("lgamma 256x256", "a.lgamma()", limit=1.8)(_values(_SQUARE))
row("neg 256x256, bfloat16", "a.neg()", limit=1.3)(_values(_SQUARE, dtype="bfloat16"))
row("amax 256x1024, uint8", "a.amax(1)", limit=1.3)(_values((256, 1024), dtype="uint8"))
row("softmax of columns, 2048x2048", "a.softmax(0)", limit=1.1)(_values((2048, 2048)))
row("conv 1x1 of 48x48", "F.conv2d(a, b)", limit=1.3)(_values(_IMAGE, (32, 16, 1, 1)))
row("bilinear 48x48 to 96x96", "F.interpolate(a, scale_factor=2, mode='bilinear')", limit=1.3)(_values(_IMAGE))
row("reflection of 48x48", "F.pad(a, (3, 3, 3, 3), mode='reflect')", limit=1.5)(_values(_IMAGE))
