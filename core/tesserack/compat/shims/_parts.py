"""Parts of operators that PyTorch shows at its top level: what programs take from there in functions of their own."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.nn.functional import grouped_mm

__all__: list[str] = []


def _inner(op: str, grad: Tensor, output: Tensor, input_dtype: Any) -> None:
    if not isinstance(input_dtype, ts.dtype):
        raise TypeError(
            f"{op}(): argument 'input_dtype' (position 4) must be torch.dtype, not {type(input_dtype).__name__}"
        )
    if grad.shape != output.shape:
        raise RuntimeError(f"{op}: expected grad_output and output of one shape, got {grad.shape} and {output.shape}")


def _softmax_backward_data(grad_output: Tensor, output: Tensor, dim: int, input_dtype: Any) -> Tensor:
    """The gradient of softmax by its result, in ``input_dtype``.

    >>> import tesserack as ts
    >>> _softmax_backward_data(ts.tensor([1.0, 0.0]), ts.tensor([0.5, 0.5]), 0, ts.float32).tolist()
    [0.25, -0.25]
    """
    _inner("_softmax_backward_data", grad_output, output, input_dtype)
    product = grad_output * output
    return (product - output * product.sum(dim, keepdim=True)).to(input_dtype)


def _log_softmax_backward_data(grad_output: Tensor, output: Tensor, dim: int, input_dtype: Any) -> Tensor:
    """The gradient of log_softmax by its result, in ``input_dtype``."""
    _inner("_log_softmax_backward_data", grad_output, output, input_dtype)
    return (grad_output - output.exp() * grad_output.sum(dim, keepdim=True)).to(input_dtype)


def _softmax(input: Tensor, dim: int, half_to_float: bool) -> Tensor:
    """Softmax, of float16 in float32 if asked."""
    return ts.softmax(input, dim, dtype=ts.float32 if half_to_float else None)


def _log_softmax(input: Tensor, dim: int, half_to_float: bool) -> Tensor:
    """Its logarithm."""
    return ts.log_softmax(input, dim, dtype=ts.float32 if half_to_float else None)


def _grouped_mm(
    input: Tensor, mat2: Tensor, offs: Tensor | None = None, bias: Tensor | None = None, out_dtype: Any = None
) -> Tensor:
    """:func:`tesserack.nn.functional.grouped_mm`, by position."""
    return grouped_mm(input, mat2, offs=offs, bias=bias, out_dtype=out_dtype)


def _int_mm(input: Tensor, mat2: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The product of int8 matrices (m, k) and (k, n), summed in int32. ``RuntimeError`` for other dtypes and shapes.

    >>> import tesserack as ts
    >>> _int_mm(ts.full((1, 2), 100, dtype=ts.int8), ts.full((2, 1), 100, dtype=ts.int8)).tolist()
    [[20000]]
    """
    if input.dtype != ts.int8 or mat2.dtype != ts.int8:
        raise RuntimeError(f"_int_mm: expected int8 matrices, got {input.dtype} and {mat2.dtype}")
    if out is not None and out.dtype != ts.int32:
        raise RuntimeError(f"_int_mm: expected out of dtype int32, got {out.dtype}")
    product = ts.mm(input.to(ts.int32), mat2.to(ts.int32))
    return product if out is None else out.resize_(product.shape).copy_(product)


def _weight_norm(v: Tensor, g: Tensor, dim: int = 0) -> Tensor:
    """``v`` with the norms that ``g`` says, over all dims but ``dim``; over all for -1."""
    if dim == -1:
        return v * (g / v.norm())
    others = [d for d in range(v.ndim) if d != dim]
    return v * (g / v.norm(2, others, keepdim=True))


def _shape_as_tensor(input: Tensor) -> Tensor:
    """The sizes, as int64 on the cpu."""
    return ts.tensor(list(input.shape), dtype=ts.int64, device="cpu")


def _dim_arange(like: Tensor, dim: int) -> Tensor:
    """The positions along a dim."""
    return ts.arange(like.shape[dim], device=like.device)


def _aminmax(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    """Least and greatest elements."""
    return ts.aminmax(input, dim=dim, keepdim=keepdim)


def _unique(input: Tensor, sorted: bool = True, return_inverse: bool = False) -> tuple[Tensor, Tensor]:
    """Different elements, and where each element is among them, or nothing."""
    found: Any = ts.unique(input, sorted=sorted, return_inverse=return_inverse)
    return found if return_inverse else (found, input.new_empty(0, dtype=ts.int64))


def _unique2(
    input: Tensor, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    """The same, and how often each is there, or nothing."""
    values, *rest = ts.unique(input, sorted=sorted, return_inverse=True, return_counts=True)
    empty = input.new_empty(0, dtype=ts.int64)
    inverse, counts = (x if wanted else empty for x, wanted in zip(rest, (return_inverse, return_counts), strict=True))
    return values, inverse, counts


def _is_functional_tensor(input: Tensor) -> bool:
    """Always False: nothing is rewritten while it runs."""
    return False


def _assert_scalar(condition: Any, message: str) -> None:
    """``RuntimeError`` unless the number is true."""
    if not condition:
        raise RuntimeError(message)


def _assert_tensor_metadata(
    a: Tensor,
    size: Sequence[int] | None = None,
    stride: Sequence[int] | None = None,
    dtype: Any = None,
    *,
    device: Any = None,
    layout: Any = None,
) -> None:
    """``RuntimeError`` where a tensor is not as described."""
    wanted: dict[str, tuple[Any, Any]] = {
        "sizes": (size, tuple(a.shape)),
        "strides": (stride, a.stride() if a.layout is ts.strided else None),
        "dtype": (dtype, a.dtype),
        "device": (None if device is None else ts.device(device), a.device),
        "layout": (layout, a.layout),
    }
    for what, (want, got) in wanted.items():
        want = tuple(want) if isinstance(want, (list, tuple)) else want
        if want is not None and want != got:
            raise RuntimeError(f"Tensor {what} mismatch! Expected: {want}, Got: {got}")


def _nested_tensor_from_mask(t: Tensor, mask: Tensor, mask_check: bool = True) -> Tensor:
    """The rows of ``t`` where the (B, L) ``mask`` is True: from the left, which is looked at."""
    if mask.dtype != ts.bool or t.shape[:2] != mask.shape:
        raise RuntimeError(
            "_nested_tensor_from_mask: expected a mask of bool of the first two sizes of the tensor, "
            f"got one of {mask.dtype} and sizes {tuple(mask.shape)} for sizes {tuple(t.shape)}"
        )
    lengths = mask.sum(1)
    if mask_check and not mask.equal(ts.arange(mask.shape[1], device=mask.device) < lengths.unsqueeze(1)):
        raise RuntimeError("_nested_tensor_from_mask: expected the mask to be left-aligned, its True before its False")
    nested: Tensor = ts.nested.as_nested_tensor([row[:n] for row, n in zip(t.unbind(), lengths.tolist(), strict=True)])
    return nested


def _nested_from_padded(padded: Tensor, cpu_nested_shape_example: Tensor, fuse_transform_0213: bool = False) -> Tensor:
    """The parts of the rows that have the sizes given; dims 1 and 2 are exchanged, and the last two one, if asked."""
    dense = padded.transpose(1, 2).flatten(2, 3) if fuse_transform_0213 else padded
    sizes = cpu_nested_shape_example.tolist()
    parts = [row[tuple(map(slice, size))] for row, size in zip(dense.unbind(), sizes, strict=True)]
    nested: Tensor = ts.nested.as_nested_tensor(parts)
    return nested


def _nested_from_padded_and_nested_example(padded: Tensor, nt_example: Tensor) -> Tensor:
    """The parts of the rows that have the sizes of those of a nested tensor."""
    return _nested_from_padded(padded, ts.tensor([row.shape for row in nt_example.unbind()]))


def _masked_softmax(input: Tensor, mask: Tensor, dim: int | None = None, mask_type: int | None = None) -> Tensor:
    """Softmax of scores (B, heads, L, L) where ``mask`` is False.

    ``mask_type``: 0 for a mask (L, L), 1 for one (B, L), 2 for one of the scores' shape.
    """
    if mask_type == 1 and mask.ndim == 2:
        mask = mask.reshape(mask.shape[0], *(1,) * (input.ndim - 2), mask.shape[1])
    return ts.softmax(input.masked_fill(mask, float("-inf")), input.ndim - 1 if dim is None else dim)


def _add_relu(input: Tensor, other: Tensor, *, alpha: float = 1, out: Tensor | None = None) -> Tensor:
    """The sum where it is above zero."""
    found = ts.relu(ts.add(input, other, alpha=alpha))
    return found if out is None else out.resize_(found.shape).copy_(found)


def _unsafe_masked_index(self: Tensor, mask: Tensor, indices: Sequence[Tensor | None], fill: float) -> Tensor:
    """``self[indices]`` where the mask is set, ``fill`` elsewhere; there, indices may lie outside.

    >>> import tesserack as ts
    >>> _unsafe_masked_index(ts.arange(3), ts.tensor([True, False]), [ts.tensor([1, 9])], -1).tolist()
    [1, -1]
    """
    return self[_within(self, mask, indices)].masked_fill(~mask, fill)


def _unsafe_masked_index_put_accumulate(
    self: Tensor, mask: Tensor, indices: Sequence[Tensor | None], values: Tensor
) -> Tensor:
    """``self`` with values added at indices where the mask is set."""
    return self.index_put(_within(self, mask, indices), values.masked_fill(~mask, 0), accumulate=True)


def _within(self: Tensor, mask: Tensor, indices: Sequence[Tensor | None]) -> tuple[Any, ...]:
    # Where the mask is not set an index is the first one: masks and indices broadcast.
    return tuple(slice(None) if each is None else each.masked_fill(~mask, 0) for each in indices)


def _native_batch_norm_legit(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, *statistics_and_numbers: Any
) -> tuple[Tensor, Tensor, Tensor]:
    """:func:`tesserack.native_batch_norm`: running mean and variance, training, momentum, eps; or the last three."""
    given = statistics_and_numbers
    if given and isinstance(given[0], bool):
        given = (None, None, *given)
    result: tuple[Tensor, Tensor, Tensor] = ts.native_batch_norm(input, weight, bias, *given)
    return result


def _nnpack_available() -> bool:
    return False


_vitals: dict[str, dict[str, str]] = {}


def vitals_enabled() -> bool:
    """Whether programs' vitals are kept: where ``TORCH_VITAL`` is set."""
    return os.environ.get("TORCH_VITAL", "").lower() in ("1", "on", "true")


def set_vital(vital: str, attr: str, value: str) -> bool:
    """Keep an attribute of a vital, where they are kept."""
    if not vitals_enabled():
        return False
    _vitals.setdefault(vital, {})[attr] = str(value)
    return True


def read_vitals() -> str:
    """What is kept, one attribute a line."""
    lines = (f"[{vital}.{name}]\t\t {value}" for vital, kept in _vitals.items() for name, value in kept.items())
    return "\n".join(lines)
