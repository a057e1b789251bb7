"""What PyTorch has under names that mean nothing in Tesserack: its own switches, devices and internals.

Here, functions whose calls PyTorch takes in more forms than Tesserack.
"""

from __future__ import annotations

from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack._tensor.assertions import _assert
from tesserack._tensor.conditions import (
    _check,
    _check_index,
    _check_is_size,
    _check_not_implemented,
    _check_tensor_all,
    _check_tensor_all_with,
    _check_type,
    _check_value,
    _check_with,
)
from tesserack.amp._scaling import _amp_foreach_non_finite_check_and_unscale_, _amp_update_scale_
from tesserack.compat import _names
from tesserack.compat._old_forms import functions
from tesserack.compat.shims._norms import batch_norm, embedding, group_norm, instance_norm, layer_norm
from tesserack.compat.shims._parts import (
    _add_relu,
    _aminmax,
    _assert_scalar,
    _assert_tensor_metadata,
    _dim_arange,
    _grouped_mm,
    _int_mm,
    _is_functional_tensor,
    _log_softmax,
    _log_softmax_backward_data,
    _masked_softmax,
    _native_batch_norm_legit,
    _nested_from_padded,
    _nested_from_padded_and_nested_example,
    _nested_tensor_from_mask,
    _nnpack_available,
    _shape_as_tensor,
    _softmax,
    _softmax_backward_data,
    _unique,
    _unique2,
    _unsafe_masked_index,
    _unsafe_masked_index_put_accumulate,
    _weight_norm,
    read_vitals,
    set_vital,
    vitals_enabled,
)
from tesserack.nn.quantized.tensor import (
    _make_per_channel_quantized_tensor,
    _make_per_tensor_quantized_tensor,
    dequantize,
    per_channel_affine,
    per_channel_affine_float_qparams,
    per_channel_symmetric,
    per_tensor_affine,
    per_tensor_symmetric,
    qint8,
    qint32,
    qscheme,
    quantize_per_channel,
    quantize_per_tensor,
    quint2x4,
    quint4x2,
    quint8,
)
from tesserack.serialization._objects import load, save, use_names

__all__ = [
    "_add_relu",
    "_aminmax",
    "_amp_foreach_non_finite_check_and_unscale_",
    "_amp_update_scale_",
    "_assert",
    "_assert_scalar",
    "_assert_tensor_metadata",
    "_check",
    "_check_index",
    "_check_is_size",
    "_check_not_implemented",
    "_check_tensor_all",
    "_check_tensor_all_with",
    "_check_type",
    "_check_value",
    "_check_with",
    "_dim_arange",
    "_grouped_mm",
    "_int_mm",
    "_is_functional_tensor",
    "_log_softmax",
    "_log_softmax_backward_data",
    "_make_per_channel_quantized_tensor",
    "_make_per_tensor_quantized_tensor",
    "_masked_softmax",
    "_native_batch_norm_legit",
    "_nested_from_padded",
    "_nested_from_padded_and_nested_example",
    "_nested_tensor_from_mask",
    "_nnpack_available",
    "_shape_as_tensor",
    "_softmax",
    "_softmax_backward_data",
    "_unique",
    "_unique2",
    "_unsafe_masked_index",
    "_unsafe_masked_index_put_accumulate",
    "_weight_norm",
    "add",
    "addbmm",
    "addcdiv",
    "addcmul",
    "addmm",
    "addmv",
    "addr",
    "baddbmm",
    "batch_norm",
    "dequantize",
    "eig",
    "embedding",
    "group_norm",
    "instance_norm",
    "layer_norm",
    "load",
    "lstsq",
    "matrix_rank",
    "norm",
    "per_channel_affine",
    "per_channel_affine_float_qparams",
    "per_channel_symmetric",
    "per_tensor_affine",
    "per_tensor_symmetric",
    "qint8",
    "qint32",
    "qscheme",
    "quantize_per_channel",
    "quantize_per_tensor",
    "quint2x4",
    "quint4x2",
    "quint8",
    "read_vitals",
    "save",
    "set_vital",
    "solve",
    "sub",
    "symeig",
    "vitals_enabled",
    "where",
]

use_names(_names.names)

# What PyTorch was built with.
has_lapack = has_openmp = has_spectral = True
has_mkl = False
legacy_contiguous_format = ts.contiguous_format
_OLD = functions()
add, sub, addcmul, addcdiv = _OLD["add"], _OLD["sub"], _OLD["addcmul"], _OLD["addcdiv"]
eig, lstsq, matrix_rank, solve, symeig = (_OLD[name] for name in ("eig", "lstsq", "matrix_rank", "solve", "symeig"))
addmm, addbmm, baddbmm, addmv, addr = (_OLD[name] for name in ("addmm", "addbmm", "baddbmm", "addmv", "addr"))


def norm(
    input: Any, p: Any = "fro", dim: Any = None, keepdim: bool = False, out: Tensor | None = None, dtype: Any = None
) -> Any:
    """:func:`tesserack.norm`, with ``out`` and all arguments by position."""
    given = {} if out is None else {"out": out}
    return ts.norm(input, p, dim, keepdim, dtype=dtype, **given)


def where(condition: Any, *args: Any, **kwargs: Any) -> Any:
    """:func:`tesserack.where`, by a condition of dtype uint8 too."""
    if isinstance(condition, Tensor) and condition.dtype is ts.uint8:
        condition = condition.bool()
    return ts.where(condition, *args, **kwargs)


def _assert_async(input: Any, assert_msg: str = "") -> None:
    """At once, where PyTorch leaves it to the device: ``RuntimeError`` unless the one element is true.

    Without data, on "meta", there is nothing to ask.
    """
    if not getattr(input, "is_meta", False) and not bool(input):
        raise RuntimeError(assert_msg or "Expected Tensor with single nonzero value, but got zero")


def _disable_dynamo(fn: Any = None, recursive: bool = True) -> Any:
    """The function as it is, or a decorator that gives it back: nothing is compiled."""
    return (lambda each: each) if fn is None else fn
