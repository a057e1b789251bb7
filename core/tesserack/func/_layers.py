"""The batching rules of layers and losses: one call for all entries, of parameters that all share or of their own."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import tesserack as ts
from tesserack.func._aligned import elementwise, padded, refuse, spread
from tesserack.func._batched import Batched, Unbatchable, bottom, is_batched
from tesserack.ops.registry import operators

__all__ = ["LAYERS"]


def _scaled(x: Batched, weight: Any, bias: Any) -> Batched:
    """Times a weight, plus a bias, of the last dims of every entry."""
    x = x if weight is None else elementwise("mul", (x, weight), {})
    return x if bias is None else elementwise("add", (x, bias), {})


def _last_dims(name: str, x: Any, shape: Any, weight: Any = None, bias: Any = None, eps: Any = None) -> Batched:
    """Normalisation over the last dims."""
    more = () if eps is None and name == "rms_norm" else (1e-5 if eps is None else eps,)
    norm = operators()[name]
    if is_batched(x) and not is_batched(weight) and not is_batched(bias):
        return Batched(norm(x.value, shape, weight, *((bias,) if name == "layer_norm" else ()), *more))
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    if any(v is not None and tuple(v.shape) != shape for v in (weight, bias)):
        raise Unbatchable(name)  # which the operator refuses
    plain = norm(x.value if is_batched(x) else x, shape, None, *((None,) if name == "layer_norm" else ()), *more)
    if is_batched(x):
        return _scaled(Batched(plain), weight, bias)
    count = next(len(v.value) for v in (weight, bias) if is_batched(v))
    return _scaled(Batched(plain.expand(count, *plain.shape)), weight, bias)


def _rms_norm(x: Any, shape: Any, weight: Any = None, eps: Any = None) -> Batched:
    return _last_dims("rms_norm", x, shape, weight, None, eps)


def _images(name: str, dims: int, x: Any, *args: Any, **kwargs: Any) -> Batched:
    """A layer of images (N, C, ...) or (C, ...) by parameters that are the same for every entry."""
    if not is_batched(x) or any(is_batched(v) for v in (*args, *kwargs.values())):
        raise Unbatchable(name)
    if x.ndim == dims + 1:
        return Batched(operators()[name](x.value, *args, **kwargs))
    found = operators()[name](x.value.flatten(0, 1), *args, **kwargs) if x.ndim == dims + 2 else refuse(name)
    return Batched(found.unflatten(0, tuple(x.value.shape[:2])))


def _convolution(name: str, dims: int, input: Any, weight: Any, bias: Any = None, *args: Any, **kwargs: Any) -> Batched:
    """By weights that are the same for every entry, or of every entry's own."""
    if is_batched(weight):
        return _convolution_by_own(name, dims, input, weight, bias, *args, **kwargs)
    shared = None if is_batched(bias) else bias
    made: Any = _images(name, dims, input, weight, shared, *args, **kwargs) if is_batched(input) else None
    if shared is bias:
        return Batched(made.value)
    channels = Batched(bias.value.reshape(*bias.value.shape, *(1,) * dims))
    if made is None:
        made = operators()[name](input, weight, None, *args, **kwargs)
    return elementwise("add", (made, channels), {})


def _convolution_by_own(
    name: str, dims: int, input: Any, weight: Any, bias: Any, *args: Any, **kwargs: Any
) -> Batched:  # fmt: skip
    """The weights of all entries are further channels, in groups of their own where the images are an entry's too."""
    convolve, transposed = operators()[name], "transpose" in name
    names = ("stride", "padding", *(("output_padding", "groups", "dilation") if transposed else ("dilation", "groups")))
    how: dict[str, Any] = dict(zip(names, args, strict=False)) | kwargs
    groups, count = how.get("groups", 1), len(weight.value)
    sizes: tuple[int, ...]
    if input.ndim not in (dims + 1, dims + 2) or weight.ndim != dims + 2 or groups < 1 or weight.shape[0] % groups:
        raise Unbatchable(name)  # which the operator refuses
    channels, out = (
        (weight.shape[0], weight.shape[1] * groups) if transposed else (weight.shape[1] * groups, weight.shape[0])
    )
    if input.shape[-dims - 1] != channels or (bias is not None and bias.shape != (out,)):
        raise Unbatchable(name)
    beside = None if bias is None else bias.value if is_batched(bias) else bias.expand(count, out)
    if is_batched(input):
        x, filters = input.value.movedim(0, -dims - 2).flatten(-dims - 2, -dims - 1), weight.value.flatten(0, 1)
        how["groups"], sizes = groups * count, (count, out)
    else:  # each group of the image's channels meets its filters of all entries
        by_group = weight.value.unflatten(1, (groups, -1)).transpose(0, 1).flatten(0, 2)
        x, filters = input, weight.value.transpose(0, 1).flatten(1, 2) if transposed else by_group
        sizes = (groups, count, out // groups)
        beside = None if beside is None else beside.unflatten(1, (groups, -1)).transpose(0, 1)
    found = convolve(x, filters, None if beside is None else beside.flatten(), **how).unflatten(-dims - 1, sizes)
    if len(sizes) == 3:
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


def _channels(name: str, x: Any, how: tuple[Any, ...], weight: Any, bias: Any) -> Batched:
    """Normalisation of every sample, then each channel's weight and bias. ``how``: before and after these two."""
    before, after = how
    own = [v for v in (weight, bias) if is_batched(v)]
    if is_batched(x) and not own:
        return _samples(name, x, *before, weight, bias, *after)
    if x.ndim < 2 or any(v is not None and tuple(v.shape) != (x.shape[1],) for v in (weight, bias)):
        raise Unbatchable(name)  # which the operator refuses
    if is_batched(x):
        return _affine(_samples(name, x, *before, None, None, *after), weight, bias)
    plain = operators()[name](x, *before, None, None, *after)
    return _affine(Batched(plain.expand(len(own[0].value), *plain.shape)), weight, bias)


def _group_norm(x: Any, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Batched:
    return _channels("group_norm", x, ((num_groups,), (eps,)), weight, bias)


def _instance_norm(
    x: Any, running_mean: Any = None, running_var: Any = None, weight: Any = None, bias: Any = None,
    use_input_stats: bool = True, momentum: float = 0.1, eps: float = 1e-5,
) -> Batched:  # fmt: skip
    if running_mean is not None or running_var is not None:
        raise Unbatchable("instance_norm")
    return _channels("instance_norm", x, ((None, None), (use_input_stats, momentum, eps)), weight, bias)


def _embedding(input: Any, weight: Any, padding_idx: int | None = None) -> Batched:
    """Rows of what all share, or of each entry's own table."""
    if not is_batched(weight):
        return Batched(operators()["embedding"](input.value, weight, padding_idx))
    if weight.ndim != 2 or not bottom(input).numel():
        raise Unbatchable("embedding")
    tables, rows = weight.value, weight.shape[0]
    if is_batched(input):
        at = input.value
        if is_batched(at) or at.is_meta or bool((at.min() < 0) | (at.max() >= rows)):
            raise Unbatchable("embedding")  # which the operator refuses
        first = ts.arange(0, len(tables) * rows, rows, device=at.device).view(-1, *(1,) * (at.ndim - 1))
        found = operators()["embedding"](at + first, tables.flatten(0, 1))
    else:
        at, found = input, tables.index_select(1, input.flatten()).unflatten(1, input.shape)
    if padding_idx is not None:  # nothing goes back to its row
        found = ts.where((at == padding_idx % rows).unsqueeze(-1), found.detach(), found)
    return Batched(found)


def _attention(query: Any, key: Any, value: Any, attn_mask: Any = None, *args: Any, **kwargs: Any) -> Batched:
    """Entries are further leading dims."""
    three = (query, key, value)
    if not all(is_batched(x) and x.ndim == query.ndim for x in three) or kwargs.get("dropout_p", args and args[0]):
        raise Unbatchable("attention")
    if attn_mask is not None:
        attn_mask = padded(attn_mask, query.ndim)
    return Batched(operators()["scaled_dot_product_attention"](*(x.value for x in three), attn_mask, *args, **kwargs))


def _prelu(x: Any, weight: Any) -> Batched:
    """By one slope, or one of each channel."""
    if weight.ndim != 1 or (len(weight) != 1 and (x.ndim < 2 or len(weight) != x.shape[1])):
        raise Unbatchable("prelu")
    if x.ndim == 0:
        raise Unbatchable("prelu")
    shape = (-1, *(1,) * (max(x.ndim - 2, 0) if len(weight) != 1 else 0))
    slope: Any = Batched(weight.value.view(len(weight.value), *shape)) if is_batched(weight) else weight.view(shape)
    # Of what is above zero nothing goes back to the slope, were it infinite.
    below = elementwise("clamp", (x,), {"max": 0}) if is_batched(x) else x.clamp(max=0)
    above = elementwise("gt", (x, 0), {}) if is_batched(x) else x > 0
    return elementwise("where", (above, x, elementwise("mul", (below, slope), {})), {})


def _reduced(each: Batched, reduction: str) -> Batched:
    """The loss of every entry, of its elements."""
    if reduction == "none" or not each.ndim:
        return each
    if reduction not in ("mean", "sum"):
        raise Unbatchable(reduction)
    whole = each.value.flatten(1)
    return Batched(whole.mean(1) if reduction == "mean" else whole.sum(1))


def _loss(name: str, input: Any, target: Any, *args: Any, **kwargs: Any) -> Batched:
    """Of pairs of elements, where nothing has to be spread."""
    bound = inspect.signature(operators()[name]).bind(input, target, *args, **kwargs)
    bound.apply_defaults()
    given = bound.arguments
    reduction, given["reduction"] = given["reduction"], "none"
    tensors: list[Any] = [v for v in given.values() if isinstance(v, ts.Tensor)]
    if reduction not in ("none", "mean", "sum") or any(v.shape != input.shape for v in tensors):
        raise Unbatchable(name)
    count = next(len(v.value) for v in tensors if is_batched(v))
    whole = {k: spread(v, count) for k, v in given.items()}
    return _reduced(Batched(operators()[name](**whole)), reduction)


def _classes(
    name: str, input: Any, target: Any, weight: Any = None, ignore_index: int = -100, reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Batched:  # fmt: skip
    """Of scores (N, C, ...) or (C), and classes (N, ...) or ()."""
    of_classes = not target.dtype.is_floating_point and target.ndim == max(input.ndim - 1, 0)
    if is_batched(weight) or not of_classes or not input.ndim or reduction not in ("none", "mean", "sum"):
        raise Unbatchable(name)
    count = next(len(v.value) for v in (input, target) if is_batched(v))
    scores, classes = spread(input, count), spread(target, count)
    if input.ndim > 1:
        scores, classes = scores.flatten(0, 1), classes.flatten(0, 1)
    smoothing = {"label_smoothing": label_smoothing} if name == "cross_entropy" else {}
    each = operators()[name](scores, classes, weight, ignore_index=ignore_index, reduction="none", **smoothing)
    if input.ndim > 1:
        each, classes = each.unflatten(0, (count, -1)), classes.unflatten(0, (count, -1))
    if reduction != "mean":
        return _reduced(Batched(each), reduction)
    counts = classes != ignore_index
    if weight is not None:
        counts = ts.where(counts, weight[ts.where(counts, classes, 0)], 0)
    total = each.flatten(1).sum(1) if each.ndim > 1 else each
    return Batched(total / (counts.flatten(1).sum(1) if counts.ndim > 1 else counts).to(total.dtype))


LAYERS: dict[str, Callable[..., Any]] = {
    "layer_norm": functools.partial(_last_dims, "layer_norm"),
    "rms_norm": _rms_norm,
    "group_norm": _group_norm,
    "instance_norm": _instance_norm,
    "embedding": _embedding,
    "scaled_dot_product_attention": _attention,
    "prelu": _prelu,
    **{
        name: functools.partial(_loss, name)
        for name in (
            "binary_cross_entropy",
            "binary_cross_entropy_with_logits",
            "huber_loss",
            "kl_div",
            "l1_loss",
            "mse_loss",
            "poisson_nll_loss",
            "smooth_l1_loss",
            "soft_margin_loss",
        )
    },
    **{name: functools.partial(_classes, name) for name in ("cross_entropy", "nll_loss")},
    "batch_norm": _batch_norm,
    **{
        f"{kind}{d}d": functools.partial(_convolution, f"{kind}{d}d", d)
        for kind in ("conv", "conv_transpose")
        for d in (1, 2, 3)
    },
    **{
        f"{kind}_pool{d}d": functools.partial(_images, f"{kind}_pool{d}d", d)
        for kind in ("max", "avg", "adaptive_avg")
        for d in (1, 2)
    },
    "fold": functools.partial(_images, "fold", 1),
    "interpolate": functools.partial(_samples, "interpolate"),
}
