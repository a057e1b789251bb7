"""Calls that use each kernel a card may have beside the required ones: named by the kernel, as the card would have it.

A call is made twice, on the card and on the cpu, whose operands hold the same numbers in float64.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import tesserack as ts
from tesserack import nn
from tesserack.testing.conformance.own import linalg
from tesserack.testing.conformance.own.given import Given

__all__ = ["CALLS", "Call"]

F: Any = nn.functional
Run = Callable[[Given], Any]


@dataclass(frozen=True)
class Call:
    """What is called, by words that say which form. ``alike``: the cpu computes in the same dtype, not in float64;
    ``dtypes`` beside float32."""

    what: str
    run: Run
    alike: bool = False
    dtypes: tuple[str, ...] = ("float64",)


def _both(what: str, run: Run, **more: Any) -> tuple[Call, Call]:
    """A call, and its gradients by all operands that want one."""
    return Call(what, run, **more), Call(f"{what}, gradients", lambda g: g.gradients(run(g)), **more)


_HALVES = ("float64", "float16", "bfloat16")
_INTEGERS = ("int64", "int32", "uint8")


# --- pictures ---------------------------------------------------------------------------------------------------------


def _sampled(mode: str, padding: str, corners: bool, solid: bool = False) -> tuple[Call, Call]:
    def run(g: Given) -> Any:
        shape, grid = ((2, 3, 4, 5, 6), (2, 3, 5, 2, 3)) if solid else ((2, 3, 9, 7), (2, 5, 13, 2))
        # Places of sixteenths: none lies where a nearest or reflected one is a matter of rounding.
        places = g.wrap(np.random.default_rng(2).integers(-21, 22, grid) / 16 + 1 / 64)
        return F.grid_sample(g(*shape), places, mode, padding, corners)

    kind = f"{mode}, {padding}, {'corners aligned' if corners else 'corners apart'}{', of volumes' * solid}"
    return _both(kind, run)


_SAMPLED = (
    *_sampled("bilinear", "zeros", False),
    *_sampled("bilinear", "reflection", True),
    *_sampled("nearest", "border", False),
    *_sampled("nearest", "reflection", True),
    *_sampled("bicubic", "zeros", True),
    *_sampled("bicubic", "border", False),
    *_sampled("bilinear", "border", True, True),
)


def _conv(what: str, shape: tuple[int, ...], weight: tuple[int, ...], **options: Any) -> tuple[Call, Call]:
    return _both(what, lambda g: F.conv2d(g(*shape), g(*weight), g(weight[0]), **options), dtypes=_HALVES)


_CONVOLUTIONS = (
    *_conv("3 x 3", (2, 5, 11, 13), (7, 5, 3, 3), padding=1),
    *_conv("stride 2, dilation 2", (1, 4, 17, 15), (6, 4, 3, 2), stride=2, dilation=2, padding=(2, 1)),
    *_conv("groups", (2, 6, 9, 8), (9, 2, 3, 3), groups=3),
    *_conv("groups, dilation 2", (1, 6, 11, 9), (4, 3, 3, 3), groups=2, dilation=2),
    *_conv("depthwise", (2, 19, 12, 10), (19, 1, 3, 3), groups=19, padding=1, stride=2),
    *_conv("1 x 1", (2, 33, 5, 6), (17, 33, 1, 1)),
    *_both("of lines", lambda g: F.conv1d(g(2, 3, 40), g(4, 3, 5), None, 2, 2)),
    *_both("of volumes", lambda g: F.conv3d(g(1, 2, 5, 6, 4), g(3, 2, 2, 3, 2), padding=1)),
    *_both("transposed", lambda g: F.conv_transpose2d(g(2, 4, 5, 6), g(4, 3, 3, 3), None, 2, 1, 1)),
)
_POOLS = (
    *_both("3 x 2, stride 2", lambda g: F.avg_pool2d(g(2, 5, 11, 14), (3, 2), 2)),
    *_both("padded, not counted", lambda g: F.avg_pool2d(g(1, 3, 9, 8), 3, 2, 1, count_include_pad=False)),
    *_both("beyond the edge, by a divisor", lambda g: F.avg_pool2d(g(1, 3, 10, 9), 3, 2, 1, True, divisor_override=5)),
    *_both("7 x 7", lambda g: F.avg_pool2d(g(1, 9, 21, 17), 7, 3)),
)


def _largest(positions: bool) -> tuple[Call, Call]:
    pool: Any = F.max_pool2d_with_indices if positions else ts._native._operator_function("_max_pool2d_values")
    return (
        Call("padded", lambda g: pool(g.distinct(2, 5, 11, 14).detach(), (3, 2), 2, 1), dtypes=_HALVES),
        Call("dilated", lambda g: pool(g.distinct(1, 4, 13, 9).detach(), 3, 2, 1, 2, True)),
    )


_MAXIMA = _both("gradients of maxima", lambda g: F.max_pool2d(g.distinct(2, 3, 12, 10), 3, 2, 1))


# --- rows -------------------------------------------------------------------------------------------------------------


def _rows(run: Callable[[Any], Any]) -> tuple[Call, ...]:
    return (
        *_both("rows of 37", lambda g: run(g(5, 37, scale=9))),
        *_both("rows of 1,025", lambda g: run(g(3, 1025, scale=9)), dtypes=_HALVES),
        *_both("one element", lambda g: run(g(4, 1))),
    )


_SOFTMAX = (
    *_rows(lambda x: x.softmax(-1)),
    *_both("columns", lambda g: g(7, 33, 5).softmax(1)),
    Call("far from zero", lambda g: (g(3, 70) * 10 + 512).softmax(-1)),
    Call("masked", lambda g: g(3, 70).masked_fill(g.mask(3, 70), -float("inf")).softmax(-1)),
)
_LOG_SOFTMAX = (
    *_rows(lambda x: x.log_softmax(-1)),
    *_both("columns", lambda g: g(7, 33, 5).log_softmax(1)),
    Call("far from zero", lambda g: (g(3, 70) * 10 + 512).log_softmax(-1)),
)


def _moments(name: str) -> tuple[Call, ...]:
    def run(x: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(ts, name)(x, *args, **kwargs)

    return (
        Call("all of 1,025", lambda g: run(g(5, 205))),
        Call("rows, correction 0", lambda g: run(g(7, 129), -1, correction=0)),
        Call("columns", lambda g: run(g(130, 9), 0, keepdim=True)),
        Call("far from zero", lambda g: run(g(3, 700) + 512, -1)),
    )


_NORMS = (
    *_both("rows of 67", lambda g: F.layer_norm(g(9, 67), (67,), g(67), g(67)), dtypes=_HALVES),
    *_both("two dims, nothing to scale with", lambda g: F.layer_norm(g(3, 17, 65), (17, 65))),
    Call("far from zero", lambda g: F.layer_norm(g(3, 300) + 512, (300,))),
)


def _batch(training: bool) -> tuple[Call, Call]:
    def run(g: Given) -> Any:
        mean, var = g.fixed(5), g.fixed(5, positive=True)
        return F.batch_norm(g(4, 5, 9, 7), mean, var, g(5), g(5), training, 0.3)

    return _both("training" if training else "as learned", run)


def _statistics(g: Given) -> Any:
    mean, var = g.fixed(5), g.fixed(5, positive=True)
    F.batch_norm(g(4, 5, 9, 7), mean, var, training=True, momentum=0.3)
    return mean, var


_LOSSES = (
    *_both("mean", lambda g: F.nll_loss(g(33, 10), g.index(10, 33))),
    *_both("weights, one ignored", lambda g: F.nll_loss(g(33, 10), g.index(10, 33), g.fixed(10), ignore_index=3)),
    *_both("each, of pictures", lambda g: F.nll_loss(g(2, 5, 4, 3), g.index(5, 2, 4, 3), reduction="none")),
    *_both("weights, of pictures", lambda g: F.nll_loss(g(3, 4, 7), g.index(4, 3, 7), g.fixed(4), ignore_index=1)),
    *_both("sum", lambda g: F.nll_loss(g(1030, 3), g.index(3, 1030), reduction="sum")),
)


def _alignments(g: Given) -> Any:
    targets = g.index(9, 5, 11) + 1
    targets[:, 3] = targets[:, 2]  # labels that repeat have a blank between them
    lengths = [30, 27, 30, 12, 29], [11, 5, 1, 11, 9]
    return F.ctc_loss(g(30, 5, 10).log_softmax(-1), targets, *lengths, reduction="none")


_ALIGNMENTS = (
    *_both("5 of 30 steps", _alignments),
    *_both(
        "another blank, mean, none infinite",
        lambda g: F.ctc_loss(
            g(9, 3, 6).log_softmax(-1), g.index(5, 3, 6), [9, 4, 9], [4, 6, 0], blank=5, zero_infinity=True
        ),
    ),
)


def _attention(what: str, queries: int, keys: int, **options: Any) -> tuple[Call, Call]:
    def run(g: Given) -> Any:
        q, k, v = g(2, 3, queries, 16), g(2, 3, keys, 16), g(2, 3, keys, 24)
        mask = g.fixed(queries, keys) if options.get("bias") else None
        return F.scaled_dot_product_attention(q, k, v, mask, is_causal="causal" in what)

    return _both(what, run)


_ATTENTION = (
    *_attention("70 of 130", 70, 130),
    *_attention("causal 129", 129, 129),
    *_attention("with a bias, 33 of 65", 33, 65, bias=True),
    *_attention("one of 300", 1, 300),
)


# --- tables -----------------------------------------------------------------------------------------------------------

_TABLES = (
    *_both("rows that repeat", lambda g: F.embedding(g.index(13, 5, 40), g(13, 33)), dtypes=_HALVES),
    *_both("one is no row", lambda g: F.embedding(g.index(13, 200), g(13, 8), 4)),
)


def _bags(mode: str, **options: Any) -> tuple[Call, Call]:
    def run(g: Given) -> Any:
        weights = g(40) if options.get("weighed") else None
        starts = g.wrap_whole([0, 7, 7, 20, 39])
        padding = options.get("padding")
        return F.embedding_bag(
            g.index(13, 40), g.distinct(13, 17), starts, mode=mode, per_sample_weights=weights, padding_idx=padding
        )

    return _both(f"{mode}{', weighed' * bool(options.get('weighed'))}, an empty bag", run)


_SUMS = (*_bags("sum"), *_bags("sum", weighed=True), *_bags("mean"), *_bags("mean", padding=3))


def _distances(p: float, rows: tuple[int, int], width: int) -> tuple[Call, Call]:
    return _both(
        f"p = {p:g}, {rows[0]} and {rows[1]} rows of {width}",
        lambda g: ts.cdist(g(*rows[:1], width), g(rows[1], width), p, compute_mode="donot_use_mm_for_euclid_dist"),
    )


_DISTANCES = tuple(
    c for p in (0.0, 1.0, 2.0, 3.0, float("inf")) for c in _distances(p, (7, 19), 5)[: 1 if p == 0 else 2]
) + (*_distances(2.0, (33, 65), 130), *_both("batches", lambda g: ts.cdist(g(3, 1, 9, 4), g(2, 6, 4), 1.5)))


def _pairs(p: float, rows: int, width: int) -> tuple[Call, Call]:
    return _both(f"p = {p:g}, {rows} rows of {width}", lambda g: F.pdist(g(rows, width), p))


_PAIRS = (
    *_pairs(0.0, 19, 6)[:1],
    *(call for p in (1.0, 2.0, 3.0, float("inf")) for call in _pairs(p, 19, 6)),
    *_pairs(2.0, 70, 130),
)


def _sparse(g: Given) -> Any:
    dense = g(9, 130)
    zeros = ts.zeros_like(dense)
    matrix = ts.where(g.mask(9, 130), zeros, dense.detach())
    matrix[4] = 0
    return matrix.to_sparse_csr() @ g(130, 21).detach()


_STORED = (
    *("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float6_e2m3fn", "float6_e3m2fn"),
    *("float4_e2m1fn", "float4_e2m1fn_x2", "int4", "int4_x2", "uint4", "uint4_x2"),
)


def _stored(x: Any, name: str) -> Any:
    """A matrix in a dtype for storage; of packed ones two columns to an element, the first in the lower half."""
    narrow = x.to(getattr(ts, name.removesuffix("_x2")))
    if not name.endswith("_x2"):
        return narrow
    codes = narrow.view(ts.uint8)
    return (codes[:, ::2] | codes[:, 1::2] << 4).view(getattr(ts, name))


def _by_blocks(g: Given, name: str = "float8_e4m3fn") -> Any:
    """Numbers that a dtype for storage holds, each block of 32 with its scale."""
    from tesserack.nn._scaled_mm import ScalingType, scaled_mm

    a, b = (g.wrap(np.random.default_rng(k).integers(-8, 9, (n, 96)) / 4.0) for k, n in ((1, 5), (2, 17)))
    scales = [g.wrap(2.0 ** np.random.default_rng(k + 5).integers(-3, 4, (n, 3))) for k, n in ((1, 5), (2, 17))]
    block = ScalingType.BlockWise1x32
    stored = [_stored(x.detach().float(), name) for x in (a, b)]
    few = [s.detach().float().to(ts.float8_e8m0fnu) for s in scales]
    return scaled_mm(stored[0], stored[1].t(), few[0], block, few[1], block, output_dtype=ts.float32)


# --- steps of optimizers ----------------------------------------------------------------------------------------------


def _steps(make: Callable[[Any], Any]) -> Run:
    def run(g: Given) -> Any:
        weights = [ts.nn.Parameter(g(33, 5).detach()), ts.nn.Parameter(g(1027).detach())]
        optimizer = make(weights)
        for _ in range(3):
            for w in weights:
                w.grad = g(*w.shape).detach()
            optimizer.step()
        return [w.detach() for w in weights]

    return run


_ADAM = (
    Call("three steps", _steps(lambda w: ts.optim.Adam(w, 0.1))),
    Call(
        "decay, the largest kept", _steps(lambda w: ts.optim.Adam(w, 0.1, (0.8, 0.9), weight_decay=0.3, amsgrad=True))
    ),
    Call("decay apart", _steps(lambda w: ts.optim.AdamW(w, 0.1, weight_decay=0.3))),
)


def _clipped(p: float, most: float) -> Run:
    """Gradients of a list, of sizes that leave a tail, no longer than ``most`` together."""

    def run(g: Given) -> Any:
        weights = [ts.nn.Parameter(g(*shape).detach()) for shape in ((33, 5), (1027,), (1,))]
        for w in weights:
            w.grad = g(*w.shape).detach()
        norm = ts.nn.utils.clip_grad_norm_(weights, most, p)
        return [norm.detach(), *(w.grad for w in weights)]

    return run


_CLIPPED = (Call("to 0.5", _clipped(2.0, 0.5)), Call("left as they are", _clipped(2.0, 1e4)))
_SGD = (
    Call("three steps", _steps(lambda w: ts.optim.SGD(w, 0.1))),
    Call("momentum, decay", _steps(lambda w: ts.optim.SGD(w, 0.1, 0.9, 0.2, 0.3))),
    Call("Nesterov", _steps(lambda w: ts.optim.SGD(w, 0.1, 0.9, nesterov=True))),
)


# --- order, places, numbers -------------------------------------------------------------------------------------------


def _whole(run: Callable[..., Any], *shapes: tuple[int, ...]) -> Run:
    """Of integers with many that are equal."""
    return lambda g: run(*(g.integers(-9, 30, *shape) for shape in shapes))


_SEARCHES = (
    Call("left of equals", lambda g: ts.searchsorted(g.fixed(70).sort().values, g.fixed(5, 41))),
    Call("right of equals", lambda g: ts.searchsorted(*_lines(g), right=True)),
    Call("bucketize", lambda g: ts.bucketize(g.fixed(300), g.fixed(9).sort().values)),
)


def _lines(g: Given) -> tuple[Any, Any]:
    return g.integers(0, 9, 4, 130).sort(1).values, g.integers(-1, 11, 4, 33)


def _mirrored(g: Given, rows: int, width: int) -> Any:
    """The second half of spectra of real numbers, from the first."""
    x = ts.view_as_complex(g(rows, width, 2).detach().contiguous())
    mirror: Any = ts._native._operator_function("_mirror_spectrum_")
    return ts.view_as_real(mirror(x, [1], True))


def _complex(run: Callable[[Any], Any], *shape: int) -> Run:
    """Of complex numbers near the circle, whose products are not too large."""

    def turned(g: Given) -> Any:
        angles = g(*shape).detach() * 3
        return ts.view_as_real(run(ts.polar(angles.sin() * 0.25 + 1, angles)))

    return turned


def _order(n: int, g: Given) -> Any:
    return ts.randperm(n, device=g.device)


def _draw(run: Callable[[Any, ts.dtype], Any], *dtypes: str) -> Call:
    return Call("1,027 of them", lambda g: run(g.device, g.dtype), alike=True, dtypes=dtypes)


_SPECTRA = (
    *(("fft", 3, 64), ("ifft", 19, 30), ("fft", 1, 77), ("ifft", 2, 13), ("fft", 2, 34), ("fft", 1, 4096)),
    *(("rfft", 5, 48), ("rfft", 2, 35), ("ihfft", 3, 10), ("irfft", 5, 48), ("irfft", 2, 35), ("hfft", 3, 10)),
)


def _transformed(g: Given, name: str, rows: int, n: int) -> Any:
    if name in ("rfft", "ihfft"):
        return ts.view_as_real(getattr(ts.fft, name)(g(rows, n).detach()))
    half = name in ("irfft", "hfft")
    shape = rows, n // 2 + 1 if half else n
    found = getattr(ts.fft, name)(ts.complex(g(*shape).detach(), g(*shape).detach()), n)
    return found if half else ts.view_as_real(found)


_WEIGHED = (
    _draw(lambda d, t: ts.multinomial(ts.arange(1.0, 40, device=d, dtype=t), 300, True)),
    _draw(lambda d, t: ts.multinomial(ts.arange(1.0, 400, device=d, dtype=t), 300)),
)

CALLS: dict[str, tuple[Call, ...]] = {
    "grid_sample": _SAMPLED[::2],
    "grid_sample_backward": _SAMPLED[1::2],
    "convolution": _CONVOLUTIONS[::2],
    "convolution_backward_input": _CONVOLUTIONS[1::2],
    "convolution_backward_weight": _CONVOLUTIONS[1::2],
    "avg_pool2d": _POOLS[::2],
    "avg_pool2d_backward": _POOLS[1::2],
    "max_pool2d_values": _largest(False),
    "max_pool2d_with_indices": _largest(True),
    "max_pool2d_backward": _MAXIMA,
    "softmax": _SOFTMAX,
    "softmax_backward": _SOFTMAX,
    "log_softmax": _LOG_SOFTMAX,
    "log_softmax_backward": _LOG_SOFTMAX,
    "var_mean": _moments("var_mean"),
    "std_mean": _moments("std_mean"),
    "native_layer_norm": _NORMS,
    "native_layer_norm_backward": _NORMS,
    "native_batch_norm": (*_batch(True), *_batch(False), Call("running statistics", _statistics)),
    "native_batch_norm_backward": (*_batch(True), *_batch(False)),
    "nll_loss_forward": _LOSSES[::2],
    "nll_loss_backward": _LOSSES[1::2],
    "ctc_loss": _ALIGNMENTS[::2],
    "ctc_loss_backward": _ALIGNMENTS[1::2],
    "attention_blocks": _ATTENTION,
    "attention_blocks_backward": _ATTENTION,
    "scaled_dot_product_attention": _ATTENTION,
    "linear": _both("17 x 70 by 70 x 33", lambda g: F.linear(g(17, 70), g(33, 70), g(33)), dtypes=_HALVES),
    "lstm_steps": _both("two layers", lambda g: linalg.recurrent(g, 2)),
    "lstm_steps_backward": _both("one layer", lambda g: linalg.recurrent(g, 1)),
    "embedding": _TABLES[::2],
    "embedding_backward": _TABLES[1::2],
    "bag_sums": _SUMS[::2],
    "bag_sums_backward": _SUMS[1::2],
    "bag_maxima": _bags("max"),
    "cdist": _DISTANCES,
    "cdist_backward": _DISTANCES,
    "pdist": _PAIRS,
    "pdist_backward": _PAIRS,
    "fft_rows": tuple(
        Call(f"{name}, {rows} x {n}", functools.partial(_transformed, name=name, rows=rows, n=n))
        for name, rows, n in _SPECTRA
    ),
    "csr_mm": (Call("9 x 130 by 130 x 21, an empty row", _sparse),),
    "scaled_matmul": tuple(
        Call(f"{name}, blocks of 32", functools.partial(_by_blocks, name=name), dtypes=()) for name in _STORED
    ),
    "adam_step_": _ADAM,
    "sgd_step_": _SGD,
    "list_norms": _CLIPPED,
    "list_scale_": _CLIPPED,
    "cat": (
        Call("three, of other sizes", lambda g: ts.cat([g(5, 3, 7), g(5, 40, 7), g(5, 1, 7)], 1), dtypes=_HALVES),
        Call("transposed", lambda g: ts.cat([g(33, 5).t(), g(5, 65)], 1)),
    ),
    "index_add_": (
        Call("places that repeat", lambda g: g(7, 33).detach().index_add_(0, g.index(7, 200), g(200, 33), alpha=2)),
    ),
    "index_select": (Call("columns", lambda g: g(5, 70, 3).index_select(1, g.index(70, 130)), dtypes=_HALVES),),
    "nonzero": (Call("5 x 205", lambda g: ts.nonzero(g.mask(5, 205))), Call("none", lambda g: (g(70) * 0).nonzero())),
    "topk": (
        Call("7 of 130", lambda g: ts.topk(g.distinct(5, 130), 7), dtypes=_HALVES),
        Call("the smallest 40 of 1,100", lambda g: ts.topk(g.distinct(2, 1100), 40, largest=False)),
    ),
    "rank_positions": (
        Call("medians", lambda g: ts.median(g.distinct(5, 131), 1)),
        Call("kthvalue", lambda g: ts.kthvalue(g.distinct(3, 1100), 77)),
    ),
    "searchsorted": _SEARCHES,
    "count_integers": (
        Call("counts", _whole(lambda x: ts.bincount(x.abs().reshape(-1), minlength=41), (1100,)), dtypes=()),
        Call("weighed", lambda g: ts.bincount(g.index(13, 1100), g.fixed(1100))),
    ),
    "runs": (
        Call("unique", _whole(lambda x: ts.unique(x, return_inverse=True, return_counts=True), (1100,)), dtypes=()),
        Call("in a row", _whole(lambda x: ts.unique_consecutive(x // 13, return_counts=True), (900,)), dtypes=()),
    ),
    "tril": (Call("below", lambda g: g(3, 17, 33).tril(-2)), Call("beyond", lambda g: g(40, 9).tril(12))),
    "triu": (Call("above", lambda g: g(3, 17, 33).triu(2)), Call("beyond", lambda g: g(40, 9).triu(-12))),
    "triangle_indices": (
        Call("lower", lambda g: ts.tril_indices(17, 33, 1, device=g.device), dtypes=()),
        Call("upper", lambda g: ts.triu_indices(33, 17, -3, device=g.device), dtypes=()),
    ),
    "gcd": (
        Call("gcd", _whole(ts.gcd, (40, 33), (33,)), dtypes=()),
        Call("lcm", _whole(ts.lcm, (40, 33), (33,)), dtypes=()),
    ),
    "frexp": (Call("of all sizes", lambda g: ts.frexp(g(1100) * 2.0 ** g.integers(-60, 60, 1100).to(g.dtype))),),
    "nextafter": (Call("both ways", lambda g: ts.nextafter(g(1100), g(1100)), alike=True),),
    "mirror_spectrum": (Call("lines of 70", lambda g: _mirrored(g, 3, 70)), Call("31", lambda g: _mirrored(g, 5, 31))),
    "addmm": _both("17 x 70 by 70 x 33", lambda g: ts.addmm(g(33), g(17, 70), g(70, 33), beta=0.5, alpha=2)),
    "baddbmm": _both("3 of 9 x 33 by 33 x 5", lambda g: ts.baddbmm(g(3, 9, 5), g(3, 9, 33), g(3, 33, 5), alpha=0.5)),
    "rand_fill": (_draw(lambda d, t: ts.rand(1027, device=d, dtype=t), "float64", "float16", "bfloat16"),),
    "randn_fill": (_draw(lambda d, t: ts.randn(1027, device=d, dtype=t), "float64"),),
    "randint_fill": (
        _draw(lambda d, t: ts.randint(-5, 1000, (1027,), device=d)),
        _draw(lambda d, t: ts.randperm(1027, device=d)),
        *_WEIGHED,
    ),
    "check_weights": _WEIGHED,
    "random_order": tuple(
        Call(f"of {n}", functools.partial(_order, n), alike=True, dtypes=()) for n in (1, 1027, 70_001)
    ),
    "complex_product": (
        Call("along lines", _complex(lambda x: x.prod(1), 5, 33)),
        Call("between", _complex(lambda x: x.prod(1), 3, 8, 70)),
    ),
    "complex_running_product": (
        Call("along lines", _complex(lambda x: x.cumprod(1), 5, 33)),
        Call("between", _complex(lambda x: x.cumprod(1), 3, 8, 70)),
    ),
    "native_dropout": (
        Call("three tenths", lambda g: F.dropout(g(5, 205), 0.3), alike=True),
        Call("gradients", lambda g: g.gradients(F.dropout(g(5, 205), 0.3)), alike=True),
    ),
    **{name: tuple(Call(what, run) for what, run in calls.items()) for name, calls in linalg.CALLS.items()},
}
