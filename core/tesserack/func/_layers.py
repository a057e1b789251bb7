"""The batching rules of layers and losses: one call for all entries, of parameters that all share or of their own."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from tesserack.func._aligned import elementwise, is_batched, refuse
from tesserack.func._batched import Batched, Unbatchable
from tesserack.ops.registry import operators

__all__ = ["LAYERS"]


def _fixed(name: str, x: Any, *args: Any, **kwargs: Any) -> Batched:
    """Over the last dims by parameters that are the same for every entry."""
    if not is_batched(x) or any(is_batched(v) for v in (*args, *kwargs.values())):
        raise Unbatchable(name)
    return Batched(operators()[name](x.value, *args, **kwargs))


def _images(name: str, dims: int, x: Any, *args: Any, **kwargs: Any) -> Batched:
    """A layer of images (N, C, ...) or (C, ...) by parameters that are the same for every entry."""
    if not is_batched(x) or any(is_batched(v) for v in (*args, *kwargs.values())):
        raise Unbatchable(name)
    if x.ndim == dims + 1:
        return Batched(operators()[name](x.value, *args, **kwargs))
    found = operators()[name](x.value.flatten(0, 1), *args, **kwargs) if x.ndim == dims + 2 else refuse(name)
    return Batched(found.unflatten(0, tuple(x.value.shape[:2])))


def _convolution(
    name: str, dims: int, input: Any, weight: Any, bias: Any = None,
    stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1,
) -> Batched:  # fmt: skip
    """By weights that are the same for every entry, or of every entry's own."""
    how = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    if is_batched(weight):
        return _convolution_by_own(name, dims, input, weight, bias, how)
    shared = None if is_batched(bias) else bias
    made: Any = _images(name, dims, input, weight, shared, **how) if is_batched(input) else None
    if shared is bias:
        return Batched(made.value)
    channels = Batched(bias.value.reshape(*bias.value.shape, *(1,) * dims))
    return elementwise("add", (operators()[name](input, weight, **how) if made is None else made, channels), {})


def _convolution_by_own(name: str, dims: int, input: Any, weight: Any, bias: Any, how: dict[str, Any]) -> Batched:
    """The weights of all entries are further channels, in groups of their own where the images are an entry's too."""
    groups, (count, out) = how["groups"], weight.value.shape[:2]
    fits = input.ndim in (dims + 1, dims + 2) and weight.ndim == dims + 2 and groups > 0 and out % groups == 0
    if not fits or input.shape[-dims - 1] != groups * weight.shape[1] or (bias is not None and bias.shape != (out,)):
        raise Unbatchable(name)  # which the operator refuses
    x, filters, beside = input, weight.value, bias
    if bias is not None:
        beside = bias.value if is_batched(bias) else bias.expand(count, out)
    if is_batched(input):
        x, how = input.value.movedim(0, -dims - 2).flatten(-dims - 2, -dims - 1), how | {"groups": groups * count}
        sizes: tuple[int, ...] = (count, out)
    else:  # each group of the image's channels meets its filters of all entries
        sizes = (groups, count, out // groups)
        filters, beside = (
            None if v is None else v.unflatten(1, (groups, -1)).transpose(0, 1) for v in (filters, beside)
        )
    lead = len(sizes)
    beside = None if beside is None else beside.flatten()
    found = operators()[name](x, filters.flatten(0, lead - 1), beside, **how).unflatten(-dims - 1, sizes)
    if lead == 3:
        found = found.transpose(-dims - 3, -dims - 2).flatten(-dims - 2, -dims - 1)
    return Batched(found.movedim(-dims - 2, 0))


def _affine(x: Batched, weight: Any, bias: Any) -> Batched:
    """Times a weight, plus a bias, of each channel, dim 1 of every entry."""
    for name, vector in (("mul", weight), ("add", bias)):
        if vector is not None:
            shape = (-1, *(1 for _ in range(x.ndim - 2)))
            beside = (
                Batched(vector.value.reshape(len(vector.value), *shape)) if is_batched(vector) else vector.view(shape)
            )
            x = elementwise(name, (x, beside), {})
    return x


def _batch_norm(
    input: Any, running_mean: Any = None, running_var: Any = None, weight: Any = None, bias: Any = None,
    training: bool = False, momentum: float = 0.1, eps: float = 1e-5,
) -> Batched:  # fmt: skip
    """By statistics that are the same for every entry, or of every entry's own: then its channels are further ones."""
    if input.ndim < 2:
        raise Unbatchable("batch_norm")  # which the operator refuses
    norm, statistics = operators()["batch_norm"], (running_mean, running_var)
    if not is_batched(input):
        if any(is_batched(s) for s in statistics):
            raise Unbatchable("batch_norm")
        made = norm(input, *statistics, None, None, training, momentum, eps)
        return _affine(
            Batched(made.expand(len((weight if is_batched(weight) else bias).value), *made.shape)), weight, bias
        )
    x = input.value
    if not training and not any(is_batched(v) for v in (*statistics, weight, bias)):
        return Batched(norm(x.flatten(0, 1), *statistics, weight, bias, False, momentum, eps).unflatten(0, x.shape[:2]))
    if any(s is not None and not (is_batched(s) and s.value.is_contiguous()) for s in statistics):
        raise Unbatchable("batch_norm")  # what is not contiguous would be written to as a copy
    given = [None if s is None else s.value.view(-1) for s in statistics]
    made = norm(x.movedim(0, 1).flatten(1, 2), *given, None, None, training, momentum, eps)
    return _affine(Batched(made.unflatten(1, (x.shape[0], x.shape[2])).movedim(1, 0)), weight, bias)


def _samples(name: str, x: Any, *args: Any, **kwargs: Any) -> Batched:
    """What does the same to every sample, by parameters that are the same for every entry: more samples."""
    if not is_batched(x) or x.ndim < 2 or any(is_batched(v) for v in (*args, *kwargs.values())):
        raise Unbatchable(name)
    return Batched(operators()[name](x.value.flatten(0, 1), *args, **kwargs).unflatten(0, x.value.shape[:2]))


LAYERS: dict[str, Callable[..., Any]] = {
    "layer_norm": functools.partial(_fixed, "layer_norm"),
    "rms_norm": functools.partial(_fixed, "rms_norm"),
    **{name: functools.partial(_samples, name) for name in ("group_norm", "instance_norm")},
    "batch_norm": _batch_norm,
    **{f"conv{d}d": functools.partial(_convolution, f"conv{d}d", d) for d in (1, 2, 3)},
    **{f"conv_transpose{d}d": functools.partial(_images, f"conv_transpose{d}d", d) for d in (1, 2, 3)},
    **{f"{kind}_pool2d": functools.partial(_images, f"{kind}_pool2d", 2) for kind in ("max", "avg", "adaptive_avg")},
}
