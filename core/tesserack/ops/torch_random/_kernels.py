"""Kernels at a dispatch key of their own: the random operators, filled from PyTorch's streams."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import tesserack as ts
from tesserack import Tensor
from tesserack.library import dispatch
from tesserack.ops.torch_random import _draws
from tesserack.ops.torch_random._engine import Stream

__all__ = ["register"]

_DIGITS = {ts.float64: 53, ts.float32: 24, ts.float16: 11, ts.bfloat16: 8}
Draw = Callable[[Stream, int], Any]


def _name(dtype: Any) -> str:
    return str(dtype).rpartition(".")[2]


def _memory_order(t: Tensor) -> list[int]:
    """The dims from the widest stride to the narrowest."""
    strides = t.stride()
    return sorted(range(t.dim()), key=lambda d: -strides[d])


def _fill(target: Tensor, generator: Any, draw: Draw) -> Tensor:
    """Write draws into a tensor, in the order of its memory."""
    with Stream(generator, target.device) as stream:
        values = draw(stream, target.numel())
    if target.dtype in (ts.float16, ts.bfloat16):
        values = np.asarray(values, np.float32)
    seen = target.detach().permute(_memory_order(target))
    seen.copy_(ts.from_numpy(np.ascontiguousarray(values)).reshape(seen.shape))
    return target


# --- fillers: these write numbers, and check nothing ------------------------------------------------------------------


def _uniform(out: Tensor, low: float = 0.0, high: float = 1.0, generator: Any = None) -> Tensor:
    if out.is_complex():
        _uniform(ts.view_as_real(out.detach()), low, high, generator)
        return out
    _fill(out, generator, lambda stream, n: _draws.uniform(stream, n, _name(out.dtype), low, high))
    if out.dtype in (ts.float16, ts.bfloat16) and low < high:  # rounded up to the end, which is not part of it
        out.masked_fill_(out >= ts.tensor(high, dtype=out.dtype, device=out.device), low)
    return out


def _normal(out: Tensor, mean: float = 0.0, std: float = 1.0, generator: Any = None) -> Tensor:
    if out.is_complex():
        _normal(ts.view_as_real(out.detach()), mean, std * math.sqrt(0.5), generator)
        return out
    name, dense = _name(out.dtype), out.is_contiguous()
    return _fill(out, generator, lambda stream, n: _draws.normal(stream, n, name, mean, std, dense))


def _limit(dtype: Any) -> int:
    if dtype is ts.bool:
        return 1
    return 1 << _DIGITS[dtype] if dtype in _DIGITS else int(ts.iinfo(dtype).max)


def _naturals(out: Tensor, generator: Any = None) -> Tensor:
    return _fill(out, generator, lambda stream, n: _draws.naturals(stream, n, _name(out.dtype), _limit(out.dtype)))


def _integers(out: Tensor, low: int, high: int | None, generator: Any = None) -> Tensor:
    span = (_limit(out.dtype) + 1 if high is None else high) - low
    return _fill(out, generator, lambda stream, n: _draws.integers(stream, n, low, span))


def _bernoulli_by(out: Tensor, p: Tensor, generator: Any = None) -> Tensor:
    """With the probabilities that stand in a tensor, which is broadcast."""
    odds = (p if p.dtype is ts.float64 else p.float()).detach().cpu().expand(out.shape)
    seen = odds.permute(_memory_order(out)).numpy().reshape(-1)
    return _fill(out, generator, lambda stream, n: _draws.bernoulli(stream, n, seen))


def _doubles(draw: Callable[..., Any]) -> Callable[..., Tensor]:
    """The filler of a distribution that is drawn in float64, by its own parameters."""

    def fill(out: Tensor, *parameters: Any) -> Tensor:
        *own, generator = parameters
        return _fill(out, generator, lambda stream, n: draw(stream, n, *own))

    return fill


_bernoulli_at, _exponential = _doubles(_draws.bernoulli), _doubles(_draws.exponential)

_IN_PLACE: dict[str, Callable[..., Tensor]] = {
    "uniform_": _uniform,
    "normal_": _normal,
    "random_": _naturals,
    "random_.to": lambda out, to, generator: _integers(out, 0, to, generator),
    "random_.from": _integers,
    "exponential_": _exponential,
    "log_normal_": _doubles(_draws.log_normal),
    "cauchy_": _doubles(_draws.cauchy),
    "geometric_": _doubles(_draws.geometric),
    "bernoulli_": _bernoulli_at,
    "bernoulli_.Tensor": _bernoulli_by,
}


def _in_place(fill: Callable[..., Tensor]) -> Callable[..., Any]:
    """An operator in place: its checks and its gradient are its own, its numbers are written over."""

    def kernel(call: Any, self: Tensor, *arguments: Any) -> Any:
        with _kept_position(arguments[-1], self):
            result = call.redispatch(self, *arguments)
        if not self.is_meta and self.numel():
            with ts.no_grad():
                fill(self, *arguments)
        return result

    return kernel


@contextlib.contextmanager
def _kept_position(generator: Any, like: Tensor) -> Iterator[None]:
    """What is drawn within does not count."""
    if like.is_meta:
        yield
        return
    owner = ts.random.default_generator(like.device) if generator is None else generator
    position = owner._position()
    yield
    owner._set_position(*position)


# --- new tensors ---------------------------------------------------------------------------------------------------


def _factory(op: str, draw: Callable[..., Any], sized: int) -> Callable[..., Any]:
    """A factory: the arguments before the generator, of which number ``sized`` is the shape."""

    def kernel(call: Any, *arguments: Any) -> Any:
        own, (generator, dtype, device, requires_grad) = arguments[: sized + 1], arguments[sized + 1 : sized + 5]
        if device is not None and ts.device(device).type == "meta":
            return call.redispatch(*arguments)
        size = own[sized] if isinstance(own[sized], (list, tuple)) else (own[sized],)
        default = ts.int64 if op.startswith("randint") or op == "randperm" else ts.get_default_dtype()
        out = ts.empty(size, dtype=dtype or default, device=device)
        with ts.no_grad():
            draw(out, *(own if op == "randperm" else own[:sized]), generator=generator)
        return out.requires_grad_() if requires_grad else out

    return kernel


def _out(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """The form with ``out=`` of a factory."""

    def into(call: Any, *arguments: Any) -> Any:
        *rest, out = arguments
        rest[-3] = rest[-3] or out.dtype
        drawn = kernel(call, *rest[:-2], out.device, False)
        return out.resize_(drawn.shape).copy_(drawn)

    return into


def _randperm(out: Tensor, n: int, generator: Any) -> None:
    _fill(out, generator, lambda stream, _: _draws.order(stream, n))


def _randint(out: Tensor, low: int, high: int, generator: Any = None) -> None:
    if low >= high:
        raise RuntimeError(f"randint: expects 'from' to be less than 'to', but got from={low} >= to={high}")
    _integers(out, low, high, generator)


_FACTORIES: dict[str, tuple[int, Callable[..., Any]]] = {
    "rand": (0, _uniform),
    "randn": (0, _normal),
    "randint": (1, lambda out, high, generator: _randint(out, 0, high, generator)),
    "randint.low": (2, _randint),
    "randperm": (0, _randperm),
    "normal.float_float": (2, _normal),
}


def _like(draw: Callable[..., Any], own: int) -> Callable[..., Any]:
    """``rand_like`` and its like: ``own`` arguments, then the options of ``empty_like``."""

    def kernel(call: Any, self: Tensor, *arguments: Any) -> Any:
        dtype, device, requires_grad, memory_format = arguments[own:]
        options = {} if memory_format is None else {"memory_format": memory_format}
        out = ts.empty_like(self.detach(), dtype=dtype, device=device, **options)
        if out.is_meta:
            return call.redispatch(self, *arguments)
        with ts.no_grad():
            draw(out, *arguments[:own])
        return out.requires_grad_() if requires_grad else out

    return kernel


def _normal_of(call: Any, mean: Any, std: Any, generator: Any) -> Tensor:
    if isinstance(std, Tensor) and bool((std < 0).any()):
        raise RuntimeError("normal: expects all elements of std >= 0.0")
    shape = ts.broadcast_shapes(*(x.shape for x in (mean, std) if isinstance(x, Tensor)))
    like = mean if isinstance(mean, Tensor) else std
    with ts.no_grad():
        drawn = ts.empty(shape, dtype=like.dtype, device=like.device)
        return _normal(drawn, generator=generator).mul_(std).add_(mean)


def _bernoulli(call: Any, self: Tensor, *arguments: Any) -> Any:
    """By the probabilities in self, or one number for all."""
    *p, generator = arguments
    with _kept_position(generator, self):
        result = call.redispatch(self, *arguments)
    if not self.is_meta and self.numel():
        with ts.no_grad():
            fill: Any = _bernoulli_at if p else _bernoulli_by
            fill(result, *(p or [self]), generator)
    return result


def _multinomial(call: Any, self: Tensor, count: int, replacement: bool, generator: Any) -> Any:
    with _kept_position(generator, self):
        checked = call.redispatch(self, count, replacement, generator)  # for its checks, and the form of its result
    if checked.is_meta or checked.numel() == 0:
        return checked
    weights = self.detach()
    if not replacement or count == 1:
        race = weights / _exponential(ts.empty_like(weights), 1.0, generator)
        return race.argmax(-1, keepdim=True) if count == 1 else race.topk(count)[1]
    return checked.copy_(_with_replacement(weights, count, generator).reshape(checked.shape))


def _with_replacement(weights: Tensor, count: int, generator: Any) -> Tensor:
    """The first category whose cumulative share reaches a uniform number, row by row."""
    rows = weights.cpu().reshape(-1, weights.shape[-1])
    shares = (rows if rows.dtype is ts.float64 else rows.float()).numpy().cumsum(axis=1)
    shares = shares / shares[:, -1:]
    shares[:, -1] = 1
    with Stream(generator, weights.device) as stream:
        u = stream.doubles(len(shares) * count).reshape(len(shares), count)
    found = [np.searchsorted(row.astype(np.float64), draws, side="left") for row, draws in zip(shares, u, strict=True)]
    return ts.from_numpy(np.stack(found).astype(np.int64))


# --- dropout -------------------------------------------------------------------------------------------------------


def _noise(out: Tensor, p: float) -> Tensor:
    """1 / (1 - p) where an element is kept, else 0."""
    with ts.no_grad():
        return _bernoulli_at(out, 1 - p, None).div_(1 - p)


def _native_dropout(call: Any, input: Tensor, p: float) -> Any:
    if not 0 <= p < 1 or input.numel() == 0 or input.is_meta or not input.is_floating_point():
        return call.redispatch(input, p)
    noise = _noise(ts.empty_like(input.detach()), p)
    return input * noise, noise != 0


def _channels(call: Any, input: Tensor, p: float, training: bool, inplace: bool) -> Any:
    """Whole channels: of an input without a batch, but PyTorch takes three dims of ``dropout2d`` for a batch."""
    spatial = int(call.op[-2])
    if (
        not training
        or not 0 < p < 1
        or input.numel() == 0
        or input.is_meta
        or input.dim() not in (spatial + 1, spatial + 2)
    ):
        return call.redispatch(input, p, training, inplace)
    lead = 2 if input.dim() == spatial + 2 or spatial == 2 else 1
    shape = (*input.shape[:lead], *[1] * (input.dim() - lead))
    noise = _noise(ts.empty(shape, dtype=input.dtype, device=input.device), p)
    return input.mul_(noise) if inplace else input * noise


# --- registration --------------------------------------------------------------------------------------------------


def register(name: str) -> None:
    """Register the key and its kernels."""
    key = dispatch.register_key(name, before="Autograd")
    kernels: dict[str, Callable[..., Any]] = {
        **{op: _in_place(fill) for op, fill in _IN_PLACE.items()},
        **dict.fromkeys(("bernoulli", "bernoulli.p"), _bernoulli),
        "rand_like": _like(_uniform, 0),
        "randn_like": _like(_normal, 0),
        "randint_like": _like(lambda out, high: _randint(out, 0, high), 1),
        "randint_like.low_dtype": _like(_randint, 2),
        **dict.fromkeys(("normal.Tensor_float", "normal.float_Tensor", "normal.Tensor_Tensor"), _normal_of),
        "multinomial": _multinomial,
        "native_dropout": _native_dropout,
        **dict.fromkeys(("dropout1d", "dropout2d", "dropout3d"), _channels),
    }
    for op, (sized, draw) in _FACTORIES.items():
        kernels[op] = _factory(op, draw, sized)
        kernels[f"{op}_out" if "." in op else f"{op}.out"] = _out(kernels[op])
    for op, kernel in kernels.items():
        key.kernel(op)(kernel)
