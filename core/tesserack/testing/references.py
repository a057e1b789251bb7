"""What operators mean, in NumPy and SciPy: one expression each, evaluated in float64 (or int64, or bool).

>>> import numpy as np
>>> from tesserack.testing.references import REFERENCES
>>> REFERENCES["relu"](np.array([-1.0, 2.0]))
array([0., 2.])
"""

# mypy: disable-error-code="no-untyped-call,no-untyped-def,no-any-return"
from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.linalg
import scipy.special as sp

__all__ = ["REFERENCES"]

Reference = Callable[..., Any]


def _polygamma(n: int, x: Any) -> Any:
    """SciPy's, which knows positive arguments only, and the recurrence for the others."""
    x, moved = np.asarray(x, dtype=np.float64), np.zeros(())
    for _ in range(8):
        left = x <= 0
        with np.errstate(divide="ignore"):
            moved = moved - np.where(left, (-1.0) ** n * sp.factorial(n) / np.where(left, x, 1.0) ** (n + 1), 0.0)
        x = np.where(left, x + 1, x)
    return sp.polygamma(n, x) + moved


def _axis(x: Any, dim: Any) -> Any:
    if dim is None or x.ndim == 0 or (isinstance(dim, list) and not dim):
        return None
    return tuple(dim) if isinstance(dim, list) else dim


def _over(fn: Callable[..., Any], **fixed: Any) -> Reference:
    """A NumPy reduction by dim and keepdim."""

    def reduce(x: Any, dim: Any = None, keepdim: bool = False) -> Any:
        return fn(x, axis=_axis(x, dim), keepdims=keepdim, **fixed)

    return reduce


def _first_of(fn: Callable[..., Any]) -> Reference:
    """A reduction along one dim that also says where."""
    where = {np.max: np.argmax, np.min: np.argmin}[fn]

    def reduce(x: Any, dim: int, keepdim: bool = False) -> Any:
        axis = _axis(x, dim)
        at = where(x, axis=axis, keepdims=keepdim)
        return fn(x, axis=axis, keepdims=keepdim), at

    return reduce


def _position(fn: Callable[..., Any]) -> Reference:
    return lambda x, dim=None, keepdim=False: fn(x, axis=_axis(x, dim), keepdims=keepdim)


def _scan(fn: Callable[..., Any]) -> Reference:
    return lambda x, dim: fn(x, axis=dim) if x.ndim else x


def _moment(fn: Callable[..., Any]) -> Reference:
    def moment(x: Any, dim: Any = None, unbiased: Any = True, keepdim: bool = False, correction: Any = None) -> Any:
        if isinstance(dim, bool):
            dim, unbiased = None, dim
        return fn(x, axis=_axis(x, dim), ddof=float(unbiased) if correction is None else correction, keepdims=keepdim)

    return moment


def _moment_and_mean(fn: Callable[..., Any]) -> Reference:
    def both(x: Any, dim: Any = None, unbiased: Any = True, keepdim: bool = False, correction: Any = None) -> Any:
        axis = None if isinstance(dim, bool) else dim
        spread = _moment(fn)(x, dim, unbiased, keepdim, correction)
        return spread, np.mean(x, axis=_axis(x, axis), keepdims=keepdim)

    return both


def _softmax(fn: Callable[..., Any], sign: int = 1) -> Reference:
    return lambda x, dim: fn(sign * x, axis=dim if x.ndim else None)


def _cross(a: Any, b: Any, dim: int = -1) -> Any:
    x, y = np.broadcast_arrays(a, b)
    return np.cross(x, y, axis=dim)


def _scatter_add(x: Any, dim: Any, index: Any, src: Any) -> Any:
    return _scatter(x, dim, index, src, how="add")


def _index_add(x: Any, dim: Any, index: Any, source: Any, alpha: Any = 1) -> Any:
    return _along(x, dim, index, source, how="add", alpha=alpha)


def _reduced(terms: Any, reduction: str) -> Any:
    reduce: dict[str, Callable[[Any], Any]] = {"none": np.asarray, "mean": np.mean, "sum": np.sum}
    return reduce[reduction](terms)


def _smooth_l1(x: Any, y: Any, reduction: str = "mean", beta: float = 1.0) -> Any:
    d = np.abs(x - y)
    return _reduced(np.where(d < beta, d * d / (2 * beta), d - beta / 2), reduction)


def _huber(x: Any, y: Any, reduction: str = "mean", delta: float = 1.0) -> Any:
    d = np.abs(x - y)
    return _reduced(np.where(d < delta, d * d / 2, delta * (d - delta / 2)), reduction)


def _layer_norm(x: Any, shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Any:
    axes = tuple(range(x.ndim - len(shape), x.ndim))
    y = (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + eps)
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


def _batch_norm(x, mean, var, weight=None, bias=None, training=False, momentum=0.1, eps=1e-5) -> Any:
    shape = [1, -1, *[1] * (x.ndim - 2)]
    if training or mean is None:
        axes = (0, *range(2, x.ndim))
        mean, var = x.mean(axes), x.var(axes)
    y = (x - mean.reshape(shape)) / np.sqrt(var.reshape(shape) + eps)
    y = y if weight is None else y * weight.reshape(shape)
    return y if bias is None else y + bias.reshape(shape)


def _attention(q, k, v, mask=None, dropout_p=0.0, is_causal=False, scale=None) -> Any:
    scores = q @ np.swapaxes(k, -1, -2) * (1 / np.sqrt(q.shape[-1]) if scale is None else scale)
    if is_causal:
        mask = np.tri(*scores.shape[-2:], dtype=bool)
    if mask is not None:
        scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask
    return sp.softmax(scores, axis=-1) @ v


def _conv2d(x, w, b=None, stride=1, padding=0, dilation=1, groups=1) -> Any:
    """Cross-correlation by its definition, one output at a time."""
    single = x.ndim == 3
    x = x[None] if single else x
    pads = (padding, padding) if isinstance(padding, int) else padding
    x = np.pad(x, [(0, 0), (0, 0), *((p, p) for p in pads)])
    span = [dilation * (k - 1) + 1 for k in w.shape[2:]]
    size = [(n - s) // stride + 1 for n, s in zip(x.shape[2:], span, strict=True)]
    out = np.zeros((x.shape[0], w.shape[0], *size))
    per = w.shape[0] // groups
    for o, i, j in np.ndindex(w.shape[0], *size):
        first = o // per * w.shape[1]
        rows = slice(i * stride, i * stride + span[0], dilation)
        cols = slice(j * stride, j * stride + span[1], dilation)
        out[:, o, i, j] = (x[:, first : first + w.shape[1], rows, cols] * w[o]).sum((1, 2, 3))
    out = out if b is None else out + b.reshape(-1, 1, 1)
    return out[0] if single else out


def _scatter(x, dim, index, source, how="set", **_: Any) -> Any:
    out = x.copy()
    for at in np.ndindex(index.shape):
        to = (*at[: dim % x.ndim], index[at], *at[dim % x.ndim + 1 :]) if x.ndim else ()
        value = source[at] if isinstance(source, np.ndarray) else source
        out[to] = value if how == "set" else out[to] + value
    return out


def _along(x, dim, index, source, how="set", alpha=1) -> Any:
    out = x.copy()
    view, source = np.moveaxis(out, dim, 0), np.asarray(source)
    parts = np.moveaxis(source, dim, 0) if source.ndim else [source] * len(index)
    for i, part in zip(index, parts, strict=True):
        view[i] = view[i] + alpha * part if how == "add" else part
    return out


def _gather(x, dim, index) -> Any:
    out = np.zeros(index.shape, x.dtype)
    for at in np.ndindex(index.shape):
        out[at] = x[(*at[: dim % x.ndim], index[at], *at[dim % x.ndim + 1 :])] if x.ndim else x
    return out


def _chunk(x, chunks, dim=0) -> Any:
    step = -(-x.shape[dim] // chunks)
    return np.split(x, range(step, x.shape[dim], step), dim)


def _pieces(x, sizes, dim=0) -> Any:
    return np.split(x, np.cumsum(sizes)[:-1], dim)


def _order(x, dim=-1, descending=False) -> Any:
    if not x.ndim:
        return np.int64(0)
    return np.flip(np.argsort(x, dim, kind="stable"), dim) if descending else np.argsort(x, dim, kind="stable")


def _sort(x, dim=-1, descending=False) -> Any:
    order = _order(x, dim, descending)
    return (np.take_along_axis(x, order, dim) if x.ndim else x), order


def _topk(x, k, dim=-1, largest=True) -> Any:
    order = np.take(_order(x, dim, largest), range(k), dim)
    return np.take_along_axis(x, order, dim), order


def _lower_median(x, dim=None, keepdim=False) -> Any:
    if dim is None or not x.ndim:
        value = np.sort(x, axis=None)[(x.size - 1) // 2]
        return value if dim is None else (value, np.int64(0))
    at = np.take(_order(x, dim), [(x.shape[dim] - 1) // 2], dim)
    both = np.take_along_axis(x, at, dim), at
    return both if keepdim else tuple(np.squeeze(b, dim) for b in both)


def _norm(x, p=2, dim=None, keepdim=False) -> Any:
    axis, p = _axis(x, dim), 2 if p == "fro" else p
    if p == np.inf:
        return np.max(np.abs(x), axis=axis, keepdims=keepdim)
    if p == 0:
        return np.sum(x != 0, axis=axis, keepdims=keepdim)
    return np.sum(np.abs(x) ** p, axis=axis, keepdims=keepdim) ** (1 / p)


def _clamp(x, min=None, max=None) -> Any:
    x = x if min is None else np.maximum(x, min)
    return x if max is None else np.minimum(x, max)


def _divide(x, y, rounding_mode=None) -> Any:
    if rounding_mode == "floor":
        return np.floor_divide(x, y)
    quotient = np.true_divide(x, y)
    return quotient if rounding_mode is None else np.trunc(quotient)


def _angle(x: Any) -> Any:
    """Of real numbers pi left of zero and 0 elsewhere, as PyTorch: minus zero lies on the right."""
    if np.iscomplexobj(x):
        return np.angle(x)
    return np.where(np.isnan(x), np.nan, np.where(x < 0, np.pi, 0.0))


# PyTorch's rules for NaN, which are not NumPy's.
def _sign(x) -> Any:
    return (x > 0).astype(int) - (x < 0)


def _heaviside(x, values) -> Any:
    return np.where(x == 0, values, x > 0)


def _glu(x, dim=-1) -> Any:
    a, b = np.split(x, 2, dim)
    return a * sp.expit(b)


def _gelu(x, approximate="none") -> Any:
    if approximate == "tanh":
        return x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
    return x * sp.ndtr(x)


_POINTWISE: dict[str, Reference] = {
    **{
        n: getattr(np, n)
        for n in (
            "exp",
            "exp2",
            "expm1",
            "log",
            "log2",
            "log10",
            "log1p",
            "sqrt",
            "sin",
            "cos",
            "tan",
            "sinh",
            "cosh",
            "tanh",
        )
    },
    **{n: getattr(np, f"arc{n[1:]}") for n in ("asin", "acos", "atan", "asinh", "acosh", "atanh", "atan2")},
    **{
        n: getattr(np, n)
        for n in ("floor", "ceil", "trunc", "abs", "square", "sinc", "maximum", "minimum", "fmax", "fmin", "hypot")
    },
    **{
        n: getattr(np, n)
        for n in ("copysign", "logaddexp", "logaddexp2", "fmod", "isnan", "isinf", "isfinite", "signbit")
    },
    **{
        n: getattr(np, n)
        for n in ("logical_and", "logical_or", "logical_xor", "logical_not", "bitwise_and", "bitwise_or")
    },
    **{
        n: getattr(np, n)
        for n in ("bitwise_xor", "bitwise_not", "isposinf", "isneginf", "deg2rad", "rad2deg", "floor_divide")
    },
    **{n: getattr(sp, n) for n in ("erf", "erfc", "erfinv", "digamma", "xlogy")},
    "i0": lambda x: np.where(np.isinf(x), np.inf, sp.i0(x)),
    "polygamma": _polygamma,
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "bitwise_left_shift": np.left_shift,
    "bitwise_right_shift": np.right_shift,
    "lgamma": lambda x: np.where(np.isinf(x), np.inf, sp.gammaln(x)),
    "heaviside": _heaviside,
    "sigmoid": sp.expit,
    "logit_exact": sp.logit,
    "sign": _sign,
    "sgn": _sign,
    "angle": _angle,
    "isreal": np.isreal,
    "conj_physical": np.positive,
    "mul": np.multiply,
    "positive": np.positive,
    "neg": np.negative,
    "reciprocal": lambda x: 1 / x,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "frac": lambda x: x - np.trunc(x),
    "round": np.round,
    "round.decimals": lambda x, decimals: np.round(x, decimals),
    "add": lambda x, y, alpha=1: np.add(x, np.multiply(alpha, y)),
    "sub": lambda x, y, alpha=1: np.subtract(x, np.multiply(alpha, y)),
    "rsub": lambda x, y, alpha=1: np.subtract(y, np.multiply(alpha, x)),
    "div": np.true_divide,
    "div.mode": _divide,
    "remainder": np.mod,
    "pow": np.power,
    "float_power": lambda x, y: np.float_power(x, y),
    "clamp": _clamp,
    "clamp_min": np.maximum,
    "clamp_max": np.minimum,
    "addcmul": lambda x, a, b, value=1: x + value * a * b,
    "lerp": lambda x, end, weight: x + weight * (end - x),
    "nan_to_num": lambda x, nan=0.0, posinf=None, neginf=None: np.nan_to_num(x, True, nan, posinf, neginf),
    "logit": lambda x, eps=None: sp.logit(x if eps is None else np.clip(x, eps, 1 - eps)),
    "where.self": np.where,
    "masked_fill": lambda x, mask, value: np.where(mask, value, x),
    "isclose": np.isclose,
    "allclose": np.allclose,
    "equal": np.array_equal,
    "relu": lambda x: np.maximum(x, 0),
    "relu6": lambda x: np.clip(x, 0, 6),
    "leaky_relu": lambda x, slope=0.01: np.where(x > 0, x, slope * x),
    "threshold": lambda x, threshold, value: np.where(x > threshold, x, value),
    "hardtanh": lambda x, lo=-1, hi=1: np.clip(x, lo, hi),
    "elu": lambda x, alpha=1, scale=1, inner=1: scale * np.where(x > 0, x, alpha * np.expm1(inner * x)),
    "selu": lambda x: 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * np.expm1(x)),
    "celu": lambda x, alpha=1.0: np.where(x > 0, x, alpha * np.expm1(x / alpha)),
    "silu": lambda x: x * sp.expit(x),
    "mish": lambda x: x * np.tanh(np.logaddexp(0, x)),
    "softplus": lambda x, beta=1, threshold=20: np.where(x * beta > threshold, x, np.logaddexp(0, beta * x) / beta),
    "log_sigmoid": sp.log_expit,
    "gelu": _gelu,
    "glu": _glu,
    "hardsigmoid": lambda x: np.clip(x + 3, 0, 6) / 6,
    "hardswish": lambda x: x * np.clip(x + 3, 0, 6) / 6,
    "softsign": lambda x: x / (1 + np.abs(x)),
    "tanhshrink": lambda x: x - np.tanh(x),
    "softshrink": lambda x, lambd=0.5: np.sign(x) * np.maximum(np.abs(x) - lambd, 0),
    "hardshrink": lambda x, lambd=0.5: np.where(np.abs(x) <= lambd, 0, x),
}

_REDUCTIONS: dict[str, Reference] = {
    **{f"{name}{over}": _over(getattr(np, name)) for name in ("sum", "mean") for over in ("", ".dim")},
    **{f"{name}{over}": _over(getattr(np, name)) for name in ("any", "all") for over in ("", ".dims")},
    "prod": _over(np.prod),
    "prod.dim_int": _over(np.prod),
    "amax": _over(np.max),
    "amin": _over(np.min),
    "max": np.max,
    "min": np.min,
    "max.dim": _first_of(np.max),
    "min.dim": _first_of(np.min),
    "max.other": np.maximum,
    "min.other": np.minimum,
    "argmax": _position(np.argmax),
    "argmin": _position(np.argmin),
    "aminmax": lambda x, dim=None, keepdim=False: (np.min(x, dim, keepdims=keepdim), np.max(x, dim, keepdims=keepdim)),
    "count_nonzero": lambda x, dim=None: np.count_nonzero(x, axis=_axis(x, dim)),
    "nansum": _over(np.nansum),
    "nanmean": _over(np.nanmean),
    "trace": lambda x: np.trace(x),
    "logsumexp": _over(sp.logsumexp),
    **{f"{n}{o}": _moment(getattr(np, n)) for n in ("var", "std") for o in ("", ".dim", ".correction")},
    **{f"{n}_mean{o}": _moment_and_mean(getattr(np, n)) for n in ("var", "std") for o in ("", ".dim", ".correction")},
    "linalg_vector_norm": _norm,
    "norm": _norm,
    "norm.name": _norm,
    "cumsum": _scan(np.cumsum),
    "cumprod": _scan(np.cumprod),
    "logcumsumexp": _scan(np.logaddexp.accumulate),
    "softmax": _softmax(sp.softmax),
    "log_softmax": _softmax(sp.log_softmax),
    "softmin": _softmax(sp.softmax, -1),
    "median": _lower_median,
    "median.dim": _lower_median,
    "nanmedian": _lower_median,
    "nanmedian.dim": _lower_median,
    "sort": _sort,
    "argsort": _order,
    "topk": _topk,
    "msort": lambda x: np.sort(x, 0),
}


def _rank(a: Any, tol: float | None = None, atol: float | None = None) -> Any:
    least = tol if atol is None else atol
    return np.linalg.matrix_rank(a, tol=least) if a.size else np.zeros(a.shape[:-2], dtype=np.int64)


def _vander(x: Any, n: int | None = None, increasing: bool = False, N: int | None = None) -> Any:
    powers = np.arange(n or N or x.shape[-1])
    return x[..., None] ** (powers if increasing else powers[::-1])


_LINALG: dict[str, Reference] = {
    **dict.fromkeys(("linalg_det", "det"), np.linalg.det),
    **dict.fromkeys(("linalg_slogdet", "slogdet"), lambda a: tuple(np.linalg.slogdet(a))),
    "linalg_svdvals": lambda a: np.linalg.svd(a, compute_uv=False) if a.size else np.zeros((0,)),
    "linalg_pinv.atol_rtol_float": lambda a, atol=0.0, rtol=1e-15: np.linalg.pinv(
        a, max(rtol, atol / np.linalg.norm(a, 2)) if a.ndim == 2 and a.size else rtol
    ),
    "linalg_pinv": np.linalg.pinv,
    **dict.fromkeys(("linalg_matrix_rank.atol_rtol_float", "linalg_matrix_rank"), _rank),
    **dict.fromkeys(("linalg_matrix_power", "matrix_power"), np.linalg.matrix_power),
    **dict.fromkeys(("linalg_matrix_exp", "matrix_exp"), lambda a: scipy.linalg.expm(a) if a.size else a),
    "linalg_multi_dot": np.linalg.multi_dot,
    "linalg_vander": lambda x, N=None: _vander(x, N, True),
    "vander": _vander,
    "linalg_vecdot": lambda x, y, dim=-1: (x * y).sum(dim),
    "linalg_matmul": np.matmul,
}

_PRODUCTS: dict[str, Reference] = {
    **dict.fromkeys(("matmul", "mm", "bmm", "mv"), np.matmul),
    "dot": np.dot,
    "vdot": np.vdot,
    "inner": np.inner,
    "outer": np.outer,
    "kron": np.kron,
    "addmm": lambda c, a, b, beta=1, alpha=1: beta * c + alpha * (a @ b),
    "baddbmm": lambda c, a, b, beta=1, alpha=1: beta * c + alpha * (a @ b),
    "addmv": lambda c, a, b, beta=1, alpha=1: beta * c + alpha * (a @ b),
    "addr": lambda c, a, b, beta=1, alpha=1: beta * c + alpha * np.outer(a, b),
    "addbmm": lambda c, a, b, beta=1, alpha=1: beta * c + alpha * (a @ b).sum(0),
    "linear": lambda x, w, b=None: x @ w.T if b is None else x @ w.T + b,
    "einsum": lambda equation, tensors: np.einsum(equation, *tensors),
    "tensordot": lambda a, b, dims=2: np.tensordot(a, b, dims),
    "tensordot.dims": lambda a, b, left, right: np.tensordot(a, b, (left, right)),
    "linalg_cross": _cross,
    "scaled_dot_product_attention": _attention,
    "layer_norm": _layer_norm,
    "batch_norm": _batch_norm,
    "conv2d": _conv2d,
    "mse_loss": lambda x, y, reduction="mean": _reduced((x - y) ** 2, reduction),
    "l1_loss": lambda x, y, reduction="mean": _reduced(np.abs(x - y), reduction),
    "smooth_l1_loss": _smooth_l1,
    "huber_loss": _huber,
}

_ARRANGED: dict[str, Reference] = {
    **{name: lambda parts, dim=0: np.concatenate(parts, dim) for name in ("cat", "concat", "concatenate")},
    "stack": lambda parts, dim=0: np.stack(parts, dim),
    "hstack": np.hstack,
    "vstack": np.vstack,
    "row_stack": np.vstack,
    "dstack": np.dstack,
    "column_stack": np.column_stack,
    "clone": np.array,
    "contiguous": np.array,
    "flip": lambda x, dims: np.flip(x, dims),
    "fliplr": np.fliplr,
    "flipud": np.flipud,
    "rot90": lambda x, k=1, dims=(0, 1): np.rot90(x, k, dims),
    "roll": lambda x, shifts, dims=None: np.roll(x, shifts, dims),
    "tile": np.tile,
    "repeat": np.tile,
    "tril": np.tril,
    "triu": np.triu,
    "gather": _gather,
    "index_select": lambda x, dim, index: np.take(x, index, dim) if x.ndim else x,
    "take": lambda x, index: np.take(x, index),
    "take_along_dim": lambda x, index, dim=None: np.take_along_axis(x, index, dim),
    "scatter.src": _scatter,
    "scatter_.src": _scatter,
    "scatter.value": _scatter,
    "scatter_.value": _scatter,
    "scatter_add": _scatter_add,
    "scatter_add_": _scatter_add,
    **dict.fromkeys(("index_add", "index_add_"), _index_add),
    **dict.fromkeys(("index_copy", "index_copy_", "index_fill.int_Scalar", "index_fill_.int_Scalar"), _along),
    **dict.fromkeys(("index_fill.int_Tensor", "index_fill_.int_Tensor"), _along),
    "masked_select": lambda x, mask: x[np.broadcast_to(mask, x.shape)],
    "nonzero": np.argwhere,
    "argwhere": np.argwhere,
    "where": np.nonzero,
    "reshape": np.reshape,
    "view": np.reshape,
    "permute": np.transpose,
    "unsqueeze": np.expand_dims,
    **{
        name: lambda x, a, b: np.swapaxes(x, a, b) if x.ndim else x
        for name in ("transpose.int", "swapaxes", "swapdims")
    },
    "t": np.transpose,
    "squeeze": np.squeeze,
    "ravel": np.ravel,
    "diagonal": np.diagonal,
    **{f"{n}.{o}": np.moveaxis for n in ("movedim", "moveaxis") for o in ("int", "intlist")},
    "broadcast_to": np.broadcast_to,
    "split.sizes": _pieces,
    "split_with_sizes": _pieces,
    "tensor_split.sections": np.array_split,
    "tensor_split.indices": np.array_split,
    "chunk": _chunk,
    "select.int": lambda x, dim, index: np.take(x, index, dim),
    "unbind": lambda x, dim=0: list(np.moveaxis(x, dim, 0)),
    "meshgrid": lambda parts, indexing="ij": np.meshgrid(*parts, indexing=indexing),
    "broadcast_tensors": lambda parts: np.broadcast_arrays(*parts),
    "atleast_1d": np.atleast_1d,
    "atleast_2d": np.atleast_2d,
    "atleast_3d": np.atleast_3d,
    "arange": np.arange,
    "arange.start": np.arange,
    "arange.start_step": np.arange,
    "linspace": np.linspace,
    "logspace": lambda a, b, n, base=10.0: np.logspace(a, b, n, base=base),
    "eye": np.eye,
    "eye.m": np.eye,
    "zeros": np.zeros,
    "ones": np.ones,
    "full": np.full,
    "zeros_like": np.zeros_like,
    "ones_like": np.ones_like,
    "full_like": np.full_like,
    "copy_": lambda x, y: np.broadcast_to(y, x.shape),
    "fill_": np.full_like,
    "fill_.Tensor": np.full_like,
    "zero_": np.zeros_like,
    "tril_indices": lambda row, col, offset=0: np.stack(np.tril_indices(row, offset, col)),
    "triu_indices": lambda row, col, offset=0: np.stack(np.triu_indices(row, offset, col)),
    "bincount": lambda x, weights=None, minlength=0: np.bincount(x, weights, minlength),
    "isin.Tensor_Tensor": lambda a, b, invert=False: np.isin(a, b, invert=invert),
    "isin.Tensor_Scalar": np.isin,
    "isin.Scalar_Tensor": np.isin,
    "repeat_interleave.self_int": np.repeat,
    "repeat_interleave.self_Tensor": np.repeat,
    "combinations": lambda x, r=2, with_replacement=False: np.array(
        list((itertools.combinations_with_replacement if with_replacement else itertools.combinations)(x, r))
    ).reshape((-1, r) if r else (0,)),
    "cartesian_prod": lambda parts: (
        parts[0] if len(parts) == 1 else np.array(list(itertools.product(*parts))).reshape(-1, len(parts))
    ),
    "embedding": lambda index, weight, padding_idx=None: weight[index],
}

# A reference for each operator that has an independent one, by full name.
REFERENCES: dict[str, Reference] = _POINTWISE | _REDUCTIONS | _LINALG | _PRODUCTS | _ARRANGED
