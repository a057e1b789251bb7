"""Functions that make nested tensors of the jagged layout."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.nested._strided import StridedNestedTensor, from_rows, wrap_rows
from tesserack.nested._tensor import NestedTensor, wrap

__all__ = ["as_nested_tensor", "masked_select", "narrow", "nested_tensor", "nested_tensor_from_jagged"]


def _check_layout(op: str, layout: Any, what: str = "tensors") -> None:
    if layout is not ts.jagged:
        raise RuntimeError(f"{op}: Specified layout is unsupported for nested {what}: {layout}; try "
                           "layout=tesserack.jagged")  # fmt: skip


def _is_strided(layout: Any) -> bool:
    return layout is None or layout is ts.strided


def _strided(tensors: list[Tensor], dtype: Any = None, device: Any = None) -> StridedNestedTensor:
    """The nested tensor of the strided layout of a list, a copy that keeps gradients."""
    for k, t in enumerate(tensors):
        if t.dim() != tensors[0].dim():
            raise RuntimeError(f"nested_tensor: All Tensors given to nested_tensor must have the same dimension. Found "
                               f"dimension {t.dim()} for Tensor at index {k} and dimension {tensors[0].dim()} for "
                               "Tensor at index 0.")  # fmt: skip
    first = tensors[0] if tensors else ts.empty(0)
    dtype, device = first.dtype if dtype is None else dtype, first.device if device is None else device
    made = from_rows([t.to(device=device, dtype=dtype) for t in tensors])
    return made if tensors else wrap_rows(made.values().to(device=device, dtype=dtype), (), 0)


def _ragged_dim(tensors: list[Tensor]) -> int:
    """The dimension, counted with the batch, in which the tensors differ; 1 if in none."""
    first = tensors[0].shape
    ragged = [d + 1 for d in range(len(first)) if any(t.shape[d] != first[d] for t in tensors)]
    if len(ragged) > 1:
        raise RuntimeError(
            "Cannot represent given tensor list as a nested tensor with the jagged layout. Note that the jagged layout "
            "only allows for a single ragged dimension. For example: (B, *, D_0, D_1, ..., D_N), with ragged * dim."
        )
    return ragged[0] if ragged else 1


def _same(tensors: list[Tensor], what: str, of: Any) -> None:
    if len({of(t) for t in tensors}) != 1:
        raise RuntimeError(f"When constructing a nested tensor, all tensors in list must {what}")


def from_list(
    tensors: list[Tensor], dtype: Any = None, device: Any = None, ragged_idx: int | None = None
) -> NestedTensor:
    """The nested tensor of a list, a copy that keeps gradients. ``RuntimeError`` if they do not go together."""
    if not tensors:
        raise RuntimeError("Cannot construct a nested tensor from an empty tensor list")
    _same(tensors, "have the same dtype", lambda t: t.dtype)
    _same(tensors, "be on the same device", lambda t: str(t.device))
    _same(tensors, "have the same dim", lambda t: t.dim())
    if tensors[0].dim() == 0:
        raise RuntimeError("Cannot construct a nested tensor from a list of zero-dim tensors")
    ragged = _ragged_dim(tensors) if ragged_idx is None else ragged_idx
    values = ts.cat(tensors, dim=ragged - 1).to(device=device, dtype=dtype)
    sizes = [t.shape[ragged - 1] for t in tensors]
    starts = [0]
    for size in sizes:
        starts.append(starts[-1] + size)
    offsets = ts.tensor(starts, dtype=ts.int64, device=values.device)
    return wrap(values, offsets, None, ragged, {"min_seqlen": min(sizes), "max_seqlen": max(sizes)})


def nested_tensor(
    tensor_list: Sequence[Any],
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Any:
    """A leaf with copies of the tensors, which have as many dims.

    In the layout ``tesserack.jagged`` they differ in the size of one dimension at most; in ``tesserack.strided``, the
    default, in any. ``RuntimeError`` for tensors that do not go together.

    >>> import tesserack as ts
    >>> nt = ts.nested.nested_tensor([ts.ones(2, 3), ts.ones(4, 3)], layout=ts.jagged)
    >>> nt.values().shape, nt.offsets()
    (tesserack.Size([6, 3]), tensor([0, 2, 6]))
    """
    tensors = [t if isinstance(t, Tensor) else ts.as_tensor(t) for t in tensor_list]
    if not _is_strided(layout):
        _check_layout("nested_tensor", layout)
    with ts.no_grad():
        if _is_strided(layout):
            rows = _strided([t.detach() for t in tensors], dtype, device)
            if pin_memory:
                rows = wrap_rows(rows.values().pin_memory(), rows._places, rows._row_dims)
            return rows.detach().requires_grad_(requires_grad)
        made = from_list([t.detach() for t in tensors], dtype, device)
        if pin_memory:
            made = wrap(made.values().pin_memory(), made._offsets, None, made._ragged_idx, made._metadata_cache)
    return made.requires_grad_(requires_grad)


def as_nested_tensor(ts: Any, dtype: Any = None, device: Any = None, layout: Any = None) -> Any:
    """The nested tensor of a list, whose gradients go on to it, or of a dense tensor's elements, a view.

    A nested tensor is returned itself, in the dtype and on the device asked for.

    >>> import tesserack
    >>> a = tesserack.ones(3, requires_grad=True)
    >>> nt = tesserack.nested.as_nested_tensor([a, tesserack.ones(5)], layout=tesserack.jagged)
    >>> nt.values().sum().backward()
    >>> a.grad
    tensor([1., 1., 1.])
    """
    is_list = isinstance(ts, (list, tuple)) and all(isinstance(t, Tensor) for t in ts)
    if not isinstance(ts, Tensor) and not is_list:
        raise TypeError(
            "as_nested_tensor(): Expected first argument to be a tensor or a list / tuple of tensors, got "
            f"{type(ts).__name__}"
        )
    if isinstance(ts, Tensor) and not ts.is_nested and ts.dim() < 2:
        raise RuntimeError("as_nested_tensor(): Expected tensor argument to have dim() > 1")
    if isinstance(ts, (NestedTensor, StridedNestedTensor)):
        if (layout is None and isinstance(ts, NestedTensor)) or layout not in (None, ts.layout):
            raise RuntimeError(
                f"as_nested_tensor(): Converting between nested tensor layouts is not supported; try layout={ts.layout}"
            )
        return ts.to(device=device, dtype=dtype)
    if _is_strided(layout):
        return _strided(list(ts.unbind() if isinstance(ts, Tensor) else ts), dtype, device)
    _check_layout("as_nested_tensor", layout)
    return _of_dense(ts, dtype, device) if isinstance(ts, Tensor) else from_list(list(ts), dtype, device)


def _of_dense(dense: Tensor, dtype: Any, device: Any) -> NestedTensor:
    values = dense.contiguous().flatten(0, 1).to(device=device, dtype=dtype)
    rows, length = dense.shape[:2]
    offsets = ts.arange(rows + 1, device=values.device) * length
    return wrap(values, offsets, None, 1, {"min_seqlen": length, "max_seqlen": length})


def nested_tensor_from_jagged(
    values: Tensor,
    offsets: Tensor | None = None,
    lengths: Tensor | None = None,
    jagged_dim: int | None = None,
    min_seqlen: int | None = None,
    max_seqlen: int | None = None,
) -> NestedTensor:
    """The nested tensor over ``values``, a view: element k is ``offsets[k]`` to ``offsets[k + 1]`` of its packed dim.

    With ``lengths`` too, each ends so much after its start; with them alone, one follows another. ``jagged_dim`` is
    the packed dimension, counted with the batch. ``min_seqlen`` and ``max_seqlen`` save looking for them.

    >>> import tesserack as ts
    >>> nt = ts.nested.nested_tensor_from_jagged(ts.arange(5), ts.tensor([0, 2, 5]))
    >>> nt.unbind()
    (tensor([0, 1]), tensor([2, 3, 4]))
    """
    if not isinstance(values, Tensor) or isinstance(values, NestedTensor):
        raise TypeError(f"nested_tensor_from_jagged: expected values as a dense Tensor, got {type(values).__name__}")
    if offsets is None:
        if lengths is None:
            raise RuntimeError("nested_tensor_from_jagged(): At least one of offsets or lengths is required.")
        offsets = ts.nn.functional.pad(lengths.cumsum(0), (1, 0))
        lengths = None
    dim = 1 if jagged_dim is None else jagged_dim
    if dim < 1:
        raise ValueError(f"Expected jagged_dim >=1, but got {dim}.")
    if dim > values.dim():
        raise IndexError(f"nested_tensor_from_jagged: expected jagged_dim in 1..{values.dim()}, got {dim}")
    _check_parts(values, offsets, lengths, dim)
    known = {"min_seqlen": min_seqlen, "max_seqlen": max_seqlen}
    return wrap(values, offsets, lengths, dim, {key: n for key, n in known.items() if n is not None})


def _check_parts(values: Tensor, offsets: Tensor, lengths: Tensor | None, dim: int) -> None:
    op = "nested_tensor_from_jagged"
    for name, part in (("offsets", offsets), ("lengths", lengths)):
        if part is None:
            continue
        if part.dtype not in (ts.int64, ts.int32) or part.dim() != 1:
            raise RuntimeError(f"{op}: expected {name} as a 1-d tensor of int64, got {part.dtype} of {part.dim()} dims")
        if part.device != values.device:
            raise RuntimeError(f"{op}: expected {name} on the device of values, {values.device}, got {part.device}")
    if not offsets.shape[0]:
        raise RuntimeError(f"{op}: expected B + 1 offsets, got none")
    if lengths is not None and lengths.shape[0] != offsets.shape[0] - 1:
        raise RuntimeError(
            f"{op}: expected offsets one more than lengths, got {offsets.shape[0]} and {lengths.shape[0]}"
        )
    if offsets.is_meta:
        return
    starts = offsets.tolist()
    ends = starts[1:] if lengths is None else [s + n for s, n in zip(starts, lengths.tolist(), strict=False)]
    total = values.shape[dim - 1]
    if any(s < 0 or e < s or e > total for s, e in zip(starts, ends, strict=False)):
        raise RuntimeError(f"{op}: offsets and lengths do not match the ragged dimension: expected rows within its "
                           f"{total}, got {list(zip(starts, ends, strict=False))}")  # fmt: skip


def narrow(tensor: Tensor, dim: int, start: int | Tensor, length: int | Tensor, layout: Any = None) -> NestedTensor:
    """A view of a dense tensor (B, S, ...) with ``length`` places from ``start`` of dim 1, ints or B of them.

    >>> import tesserack as ts
    >>> x = ts.arange(6).view(2, 3)
    >>> ts.nested.narrow(x, 1, ts.tensor([0, 1]), ts.tensor([1, 2]), layout=ts.jagged).unbind()
    [tensor([0]), tensor([4, 5])]
    """
    for name, given in (("start", start), ("length", length)):
        if not isinstance(given, (int, Tensor)):
            raise RuntimeError(f"{name} must be an integer or a tensor, got {type(given).__name__}")
    _check_layout("narrow", layout, "narrow")
    if dim != 1:
        raise RuntimeError(f"jagged layout only supports dim=1, got {dim}")
    if tensor.dim() < 2:
        raise RuntimeError(f"narrow: tensor must at least be 2D for the nested narrow op to work, got {tensor.dim()}D")
    rows, width = tensor.shape[:2]
    starts, counts = _each(start, rows, tensor.device), _each(length, rows, tensor.device)
    base = width * ts.arange(rows, device=tensor.device)
    begins, sizes = starts.tolist(), counts.tolist()
    if any(s < 0 or n < 0 or s + n > width for s, n in zip(begins, sizes, strict=True)):
        raise RuntimeError(f"narrow: expected start + length within dim 1 of size {width}, got {begins} and {sizes}")
    cache = {"min_seqlen": min(sizes, default=0), "max_seqlen": max(sizes, default=0)}
    values = tensor.view(-1, *tensor.shape[2:])
    offsets = ts.cat([base + starts, (base + starts + counts)[-1:]])
    ends = [k * width + s + n for k, (s, n) in enumerate(zip(begins, sizes, strict=True))]
    if all(e == k * width + s for k, (e, s) in enumerate(zip(ends[:-1], begins[1:], strict=True), 1)):
        first = begins[0] if begins else 0
        return wrap(values[first : ends[-1] if ends else 0], offsets - first, None, 1, cache)
    return wrap(values, offsets, counts, 1, cache)


def _each(given: int | Tensor, rows: int, device: Any) -> Tensor:
    one = given if isinstance(given, Tensor) else ts.tensor([given], device=device)
    if one.dim() > 1 or one.numel() not in (1, rows):
        raise RuntimeError(
            "When constructing a jagged nested tensor using narrow(), your start and length must be Tensors that "
            f"broadcast to input.shape[0], {rows}, got shape {tuple(one.shape)}"
        )
    return one.expand(rows).to(ts.int64)


def masked_select(tensor: Tensor, mask: Tensor) -> NestedTensor:
    """The elements of a dense tensor where the mask, broadcast to it, is true: a row for each row of its last dim.

    >>> import tesserack as ts
    >>> nt = ts.nested.masked_select(ts.tensor([[1, 2], [3, 4]]), ts.tensor([[True, True], [False, True]]))
    >>> nt.unbind()
    (tensor([1, 2]), tensor([4]))
    """
    for name, given in (("tensor", tensor), ("mask", mask)):
        if given.layout is not ts.strided:
            raise RuntimeError(f"torch.nested.masked_select requires a strided {name}, given {given.layout}")
    values = tensor.masked_select(mask)
    lengths = mask.expand(tensor.shape).sum(dim=tensor.dim() - 1).view(-1)
    return wrap(values, ts.nn.functional.pad(lengths.cumsum(0), (1, 0)))
