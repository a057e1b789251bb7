"""Functions of ``torch`` that a program replaces, as profilers and tracers do, for what calls them in PyTorch.

Functions of ``torch.nn.functional`` call those of ``torch`` there, and here the operators. Where one of ``torch`` is
replaced, that of ``torch.nn.functional`` calls it from then on, until it is put back.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

import tesserack
from tesserack._native import Operator
from tesserack.compat._overridable import plain
from tesserack.nn import functional

__all__ = ["follow"]

_Call = Callable[..., Any]
_KINDS = {"none": 0, "mean": 1, "sum": 2}
_WAYS = {"bilinear": 0, "nearest": 1, "bicubic": 2}
_BAGS = {"sum": 0, "mean": 1, "max": 2}
_EDGES = {"zeros": 0, "border": 1, "reflection": 2}


def _batch_norm(call: _Call, own: _Call) -> _Call:
    def batch_norm(
        input: Any,
        running_mean: Any,
        running_var: Any,
        weight: Any = None,
        bias: Any = None,
        training: bool = False,
        momentum: float = 0.1,
        eps: float = 1e-5,
    ) -> Any:
        return call(input, weight, bias, running_mean, running_var, training, momentum, eps, True)

    return batch_norm


def _instance_norm(call: _Call, own: _Call) -> _Call:
    def instance_norm(
        input: Any,
        running_mean: Any = None,
        running_var: Any = None,
        weight: Any = None,
        bias: Any = None,
        use_input_stats: bool = True,
        momentum: float = 0.1,
        eps: float = 1e-5,
    ) -> Any:
        return call(input, weight, bias, running_mean, running_var, use_input_stats, momentum, eps, True)

    return instance_norm


def _layer_norm(call: _Call, own: _Call) -> _Call:
    def layer_norm(input: Any, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Any:
        return call(input, normalized_shape, weight, bias, eps, True)

    return layer_norm


def _group_norm(call: _Call, own: _Call) -> _Call:
    def group_norm(input: Any, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Any:
        return call(input, num_groups, weight, bias, eps, True)

    return group_norm


def _rms_norm(call: _Call, own: _Call) -> _Call:
    def rms_norm(input: Any, normalized_shape: Any, weight: Any = None, eps: float | None = None) -> Any:
        return call(input, normalized_shape, weight, eps)

    return rms_norm


def _embedding(call: _Call, own: _Call) -> _Call:
    def embedding(
        input: Any,
        weight: Any,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
    ) -> Any:
        if max_norm is not None:
            own(input, weight.detach(), None, max_norm, norm_type)  # for the rows that it makes shorter
        padding = -1 if padding_idx is None else padding_idx % weight.shape[0]
        return call(weight, input, padding, scale_grad_by_freq, sparse)

    return embedding


def _embedding_bag(call: _Call, own: _Call) -> _Call:
    def embedding_bag(
        input: Any,
        weight: Any,
        offsets: Any = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        per_sample_weights: Any = None,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
    ) -> Any:
        if max_norm is not None or mode not in _BAGS or (offsets is None) != (input.dim() == 2):
            options = (max_norm, norm_type, scale_grad_by_freq, mode, sparse, per_sample_weights)
            return own(input, weight, offsets, *options, include_last_offset, padding_idx)
        if offsets is None:
            offsets = tesserack.arange(0, input.numel(), input.shape[1], dtype=input.dtype, device=input.device)
            input = input.reshape(-1)
            per_sample_weights = None if per_sample_weights is None else per_sample_weights.reshape(-1)
        options = (scale_grad_by_freq, _BAGS[mode], sparse, per_sample_weights, include_last_offset, padding_idx)
        return call(weight, input, offsets, *options)[0]

    return embedding_bag


def _rrelu(call: _Call, own: _Call) -> _Call:
    def rrelu(
        input: Any, lower: float = 1.0 / 8, upper: float = 1.0 / 3, training: bool = False, inplace: bool = False
    ) -> Any:
        return own(input, lower, upper, training, True) if inplace else call(input, lower, upper, training)

    return rrelu


def _max_pool3d(call: _Call, own: _Call) -> _Call:
    def max_pool3d(
        input: Any,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> Any:
        if return_indices:
            return own(input, kernel_size, stride, padding, dilation, ceil_mode, True)
        return call(input, kernel_size, [] if stride is None else stride, padding, dilation, ceil_mode)

    return max_pool3d


def _adaptive_max_pool1d(call: _Call, own: _Call) -> _Call:
    def adaptive_max_pool1d(input: Any, output_size: Any, return_indices: bool = False) -> Any:
        found = call(input, output_size)
        return found if return_indices else found[0]

    return adaptive_max_pool1d


def _ctc_loss(call: _Call, own: _Call) -> _Call:
    def ctc_loss(
        log_probs: Any,
        targets: Any,
        input_lengths: Any,
        target_lengths: Any,
        blank: int = 0,
        reduction: str = "mean",
        zero_infinity: bool = False,
    ) -> Any:
        kind = _KINDS[reduction]
        return call(log_probs, targets, input_lengths, target_lengths, blank, kind, zero_infinity)

    return ctc_loss


def _grid_sample(call: _Call, own: _Call) -> _Call:
    def grid_sample(
        input: Any, grid: Any, mode: str = "bilinear", padding_mode: str = "zeros", align_corners: bool | None = None
    ) -> Any:
        if mode not in _WAYS or padding_mode not in _EDGES or align_corners is None:
            return own(input, grid, mode, padding_mode, align_corners)  # which says what is wrong, or warns
        return call(input, grid, _WAYS[mode], _EDGES[padding_mode], align_corners)

    return grid_sample


def _affine_grid(call: _Call, own: _Call) -> _Call:
    def affine_grid(theta: Any, size: Any, align_corners: bool | None = None) -> Any:
        return own(theta, size) if align_corners is None else call(theta, size, align_corners)

    return affine_grid


# By the function of torch: that of torch.nn.functional, and how it calls.
_CALLERS: dict[str, tuple[str, Callable[[_Call, _Call], _Call]]] = {
    "batch_norm": ("batch_norm", _batch_norm),
    "instance_norm": ("instance_norm", _instance_norm),
    "layer_norm": ("layer_norm", _layer_norm),
    "group_norm": ("group_norm", _group_norm),
    "rms_norm": ("rms_norm", _rms_norm),
    "embedding": ("embedding", _embedding),
    "embedding_bag": ("embedding_bag", _embedding_bag),
    "rrelu": ("rrelu", _rrelu),
    "max_pool3d": ("max_pool3d", _max_pool3d),
    "adaptive_max_pool1d": ("adaptive_max_pool1d", _adaptive_max_pool1d),
    "ctc_loss": ("ctc_loss", _ctc_loss),
    "grid_sampler": ("grid_sample", _grid_sample),
    "affine_grid_generator": ("affine_grid", _affine_grid),
}
# What recurrent layers call of torch._VF, and here of the package.
_RECURRENT = frozenset(
    ("gru", "gru_cell", "lstm", "lstm_cell", "rnn_relu", "rnn_relu_cell", "rnn_tanh", "rnn_tanh_cell")
)
_own: dict[str, tuple[Any, Any]] = {}  # by the function of torch: what it was, and that of torch.nn.functional
_now: dict[str, Any] = {}  # what stands in torch
_calling: dict[str, _Call] = {}  # what calls it, for torch.nn.functional


class _Within(threading.local):
    """The functions whose replacements this thread is in."""

    def __init__(self) -> None:
        self.names: set[str] = set()


_within = _Within()


def _once(name: str, calling: _Call, own: _Call) -> _Call:
    """What calls the replacement, and is itself again within that: some of torch come back to torch.nn.functional."""

    @functools.wraps(calling)
    def call(*args: Any, **kwargs: Any) -> Any:
        if name in _within.names:
            return own(*args, **kwargs)
        _within.names.add(name)
        try:
            return calling(*args, **kwargs)
        finally:
            _within.names.discard(name)

    return call


def follow(module: str, name: str, was: Any, value: Any) -> str:
    """After ``module.name`` was replaced or put back: the function of ``torch.nn.functional`` that is another since."""
    if module == "torch._VF" and name in _RECURRENT:
        setattr(tesserack, name, value)
    if module != "torch" or name not in _CALLERS:
        return ""
    shown, make = _CALLERS[name]
    found = plain(vars(functional).get(shown))
    if name not in _own:
        if not _is_ours(found):
            return ""  # replaced before
        _own[name] = plain(was), found
        _calling[name] = _once(name, make(lambda *args: _now[name](*args), found), found)
    before, own = _own[name]
    _now[name] = value
    if found is not own and found is not _calling[name]:
        return ""  # replaced too
    setattr(functional, shown, own if plain(value) is before else _calling[name])
    return shown


def _is_ours(function: Any) -> bool:
    """Whether nobody has replaced it; what wraps another says that it is from the same module."""
    where = getattr(function, "__globals__", {}).get("__name__", "")
    return isinstance(function, Operator) or where.startswith("tesserack.nn")
