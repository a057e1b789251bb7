"""Sample calls made real: tensors of a dtype and memory layout on a device, and the operator called on them.

>>> import tesserack as ts
>>> from tesserack.testing import cases, samples
>>> sample = samples.samples("add")[0]
>>> args, kwargs = cases.build(sample, ts.float32, "cpu", "flipped")
>>> cases.call("add", args, kwargs).shape
tesserack.Size([2, 3])
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

import tesserack as ts
from tesserack.ops.registry import operators, public_functions
from tesserack.testing.samples import Input, Sample, dtypes, records

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "DTYPES",
    "FLOATING",
    "LAYOUTS",
    "build",
    "call",
    "claims",
    "expand",
    "functional_name",
    "is_floating",
    "leaves",
    "rounded",
    "suits",
    "tensor",
    "values",
]

FLOATING = ("float64", "float32", "bfloat16", "float16")
SIGNED = ("int64", "int32", "int16", "int8")
DTYPES = (*FLOATING, *SIGNED, "uint8", "bool")
_GROUPS = {
    "all": set(DTYPES),
    "floating": set(FLOATING),
    "numeric": set(DTYPES) - {"bool"},
    "signed": {*FLOATING, *SIGNED},
    "integral": {*SIGNED, "uint8", "bool"},
    "integer": {*SIGNED, "uint8"},
    "exact": {"float32", "float64"},
}
# How a tensor of given values may lie in memory: rows first, columns first, every other element, backwards.
LAYOUTS = ("contiguous", "transposed", "stepped", "flipped")


def is_floating(dtype: str) -> bool:
    """Whether the dtype of this name is one that gradients flow in."""
    return dtype in FLOATING


def claims(name: str, sample: Sample, dtype: str) -> bool:
    """Whether the operator should accept the sample at this dtype."""
    return dtype in _GROUPS[dtypes(name)] & _GROUPS[sample.only]


def suits(sample: Sample, dtype: str) -> bool:
    """Whether the sample makes sense at this dtype."""
    return dtype in _GROUPS[sample.only]


def build(sample: Sample, dtype: ts.dtype, device: Any, layout: str = "contiguous") -> tuple[Any, Any]:
    """The arguments of the call."""
    return sample.map(lambda item: tensor(item, dtype, device, layout))


def tensor(item: Input, dtype: ts.dtype, device: Any, layout: str = "contiguous") -> ts.Tensor:
    """One tensor: floats are rounded down to integers, and those shifted to be natural or taken odd or even."""
    array = item.array
    if not item.varies:
        dtype = ts.bool if array.dtype.kind == "b" else ts.int64
    elif not dtype.is_floating_point:
        array = _whole(array, dtype == ts.uint8, dtype == ts.bool)
    if layout == "expanded":
        shared = _shared(item)
        return _plain(array[shared], dtype, device).expand(array.shape) if shared else _plain(array, dtype, device)
    return _LAYOUT[layout if array.ndim else "contiguous"](array, dtype, device)


def _whole(array: NDArray[Any], unsigned: bool, truth: bool) -> NDArray[Any]:
    array = np.floor(array).astype(np.int64)
    if unsigned and array.size:
        array = array - min(0, array.min())
    return array % 2 if truth else array


def rounded(item: Input, dtype: str) -> NDArray[Any]:
    """The numbers that :func:`tensor` stores, as float64, int64 or bool, worked out without any device."""
    array = item.array
    if not item.varies:
        return array.astype(bool if array.dtype.kind == "b" else np.int64)
    if dtype == "bfloat16":
        bits = array.astype(np.float32).view(np.uint32).astype(np.uint64)
        even = (bits + 0x7FFF + (bits >> np.uint64(16) & np.uint64(1))) & np.uint64(0xFFFF0000)
        kept = np.where(np.isfinite(array), even, bits & np.uint64(0xFFFF0000))
        return np.asarray(kept.astype(np.uint32).view(np.float32).astype(np.float64))
    if is_floating(dtype):
        with np.errstate(over="ignore"):
            return array.astype(dtype).astype(np.float64)
    whole = _whole(array, dtype == "uint8", dtype == "bool")
    return whole.astype(bool) if dtype == "bool" else whole


def expand(sample: Sample) -> Sample | None:
    """The sample with tensors that repeat along their first dimension, fit for the layout "expanded"; None without
    one that can."""

    def repeat(item: Input) -> Input:
        shared = _shared(item)
        array = np.broadcast_to(item.array[shared], item.array.shape) if shared else item.array
        return Input(array, item.varies, item.grad)

    if not any(_shared(item) for item in sample.inputs()):
        return None
    args, kwargs = sample.map(repeat)
    return Sample(args, kwargs, sample.grad, sample.only)


def _shared(item: Input) -> tuple[slice, ...] | None:
    """Where the part lies that a tensor repeats when it is expanded; None for those that are kept as they are."""
    along = next((dim for dim, size in enumerate(item.array.shape) if size > 1), None)
    if not item.varies or along is None or item.array.size == 0:
        return None
    return (*[slice(None)] * along, slice(0, 1))


def _plain(array: NDArray[Any], dtype: ts.dtype, device: Any) -> ts.Tensor:
    made = ts.from_numpy(array.copy()) if array.size and array.ndim else ts.tensor(array.tolist(), dtype=dtype)
    return made.to(dtype).to(device).reshape(array.shape)


def _transposed(array: NDArray[Any], dtype: ts.dtype, device: Any) -> ts.Tensor:
    return _plain(np.ascontiguousarray(array.T), dtype, device).permute(*reversed(range(array.ndim)))


def _stepped(array: NDArray[Any], dtype: ts.dtype, device: Any) -> ts.Tensor:
    return _plain(np.repeat(array, 2, axis=-1), dtype, device)[..., 1::2]


def _flipped(array: NDArray[Any], dtype: ts.dtype, device: Any) -> ts.Tensor:
    return _plain(np.ascontiguousarray(array[..., ::-1]), dtype, device)[..., ::-1]


_LAYOUT = {"contiguous": _plain, "transposed": _transposed, "stepped": _stepped, "flipped": _flipped}


def call(name: str, args: Any, kwargs: Any) -> Any:
    """Calls the operator of this full name as a user would: the function, or the method where there is no function."""
    record = records()[name]
    base = record["base"]
    if record["namespaces"] and base not in operators():
        return public_functions(record["namespaces"][0])[record["python_name"]](*args, **kwargs)
    if record["function"] or record["namespaces"]:
        return operators()[record["python_name"]](*args, **kwargs)
    return getattr(args[0], base)(*args[1:], **kwargs)


def functional_name(record: dict[str, Any]) -> str:
    """The operator that an in-place or out= form varies: "add_" and "add.out" are forms of "add"."""
    base, _, overload = record["name"].partition(".")
    if record["variant"] == "inplace":
        base = base.removesuffix("_")
    else:
        overload = overload.removesuffix("out").removesuffix("_")
    return f"{base}.{overload}" if overload else str(base)


def leaves(result: Any) -> list[Any]:
    """The tensors and numbers of a result, flat."""
    return [leaf for item in result for leaf in leaves(item)] if isinstance(result, tuple | list) else [result]


def values(tensor: Any) -> NDArray[Any]:
    """A result as float64, int64 or bool numbers."""
    if not isinstance(tensor, ts.Tensor):
        return np.asarray(tensor)
    tensor = tensor.detach().cpu().resolve_conj().resolve_neg()
    kind = ts.float64 if tensor.dtype.is_floating_point else ts.bool if tensor.dtype == ts.bool else ts.int64
    return np.array(tensor.to(kind).numpy())
