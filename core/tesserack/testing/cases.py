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
from tesserack._registry import operators, public_functions
from tesserack.testing.samples import Input, Sample, dtypes, records

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["DTYPES", "LAYOUTS", "build", "call", "claims", "is_floating", "leaves", "suits", "tensor", "values"]

FLOATING = ("float64", "float32", "bfloat16", "float16")
SIGNED = ("int64", "int32", "int16", "int8")
DTYPES = (*FLOATING, *SIGNED, "uint8", "bool")
_GROUPS = {
    "all": set(DTYPES),
    "floating": set(FLOATING),
    "numeric": set(DTYPES) - {"bool"},
    "signed": {*FLOATING, *SIGNED},
    "integral": {*SIGNED, "uint8", "bool"},
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
        array = np.floor(array).astype(np.int64)
        if dtype == ts.uint8 and array.size:
            array = array - min(0, array.min())
        array = array % 2 if dtype == ts.bool else array
    return _LAYOUT[layout if array.ndim else "contiguous"](array, dtype, device)


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


def leaves(result: Any) -> list[Any]:
    """The tensors and numbers of a result, flat."""
    return [leaf for item in result for leaf in leaves(item)] if isinstance(result, tuple | list) else [result]


def values(tensor: Any) -> NDArray[Any]:
    """A result as float64, int64 or bool numbers."""
    if not isinstance(tensor, ts.Tensor):
        return np.asarray(tensor)
    tensor = tensor.detach().cpu()
    kind = ts.float64 if tensor.dtype.is_floating_point else ts.bool if tensor.dtype == ts.bool else ts.int64
    return np.array(tensor.to(kind).numpy())
