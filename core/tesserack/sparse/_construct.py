"""Sparse tensors made of indices and values, and the checks of their invariants."""

from __future__ import annotations

from typing import Any

import tesserack as ts
from tesserack import Tensor, _native
from tesserack.sparse._parts import BLOCKED, COLUMNS, COMPRESSED, build

__all__ = [
    "check_sparse_tensor_invariants",
    "sparse_bsc_tensor",
    "sparse_bsr_tensor",
    "sparse_compressed_tensor",
    "sparse_coo_tensor",
    "sparse_csc_tensor",
    "sparse_csr_tensor",
]

_checking = False


class check_sparse_tensor_invariants:
    """Whether every sparse tensor that is made is checked: a context manager, and a decorator of functions.

    >>> import tesserack as ts
    >>> with ts.sparse.check_sparse_tensor_invariants():
    ...     ts.sparse_coo_tensor([[0, 5]], [1.0, 2.0], (3,))
    Traceback (most recent call last):
    ...
    RuntimeError: size is inconsistent with indices: for dim 0, size is 3 but found index 5
    """

    def __init__(self, enable: bool = True) -> None:
        self.state = enable
        self.saved_state: bool | None = None

    @staticmethod
    def is_enabled() -> bool:
        """Whether tensors are checked."""
        return _checking

    @staticmethod
    def enable() -> None:
        """Check them from now on."""
        global _checking
        _checking = True

    @staticmethod
    def disable() -> None:
        """Check them no more."""
        global _checking
        _checking = False

    def __enter__(self) -> check_sparse_tensor_invariants:
        global _checking
        if self.saved_state is not None:
            raise RuntimeError(
                "This context manager instance is already activated. Use a different context manager instance for "
                "context nesting."
            )
        self.saved_state, _checking = _checking, self.state
        return self

    def __exit__(self, *exc: object) -> None:
        global _checking
        if self.saved_state is not None:
            _checking, self.saved_state = self.saved_state, None

    def __call__(self, mth: Any) -> Any:
        import functools

        @functools.wraps(mth)
        def checked(*args: Any, **kwargs: Any) -> Any:
            with check_sparse_tensor_invariants(self.state):
                return mth(*args, **kwargs)

        return checked


def _wants_check(check_invariants: bool | None) -> bool:
    return _checking if check_invariants is None else check_invariants


def _tensor(data: Any, dtype: Any, device: Any) -> Tensor:
    if isinstance(data, Tensor):
        return data.to(device or data.device, dtype or data.dtype)
    return ts.tensor(data, dtype=dtype, device=device)


def _indices(data: Any, device: Any) -> Tensor:
    indices = data if isinstance(data, Tensor) else ts.tensor(data, device=device)
    if indices.numel() == 0 and indices.dtype.is_floating_point:
        indices = indices.to(ts.int64)
    if indices.dtype.is_complex:
        raise RuntimeError(f"indices must be an int64 tensor, but got {indices.dtype}")
    return indices.to(device) if device is not None else indices


def sparse_coo_tensor(
    indices: Any = None,
    values: Any = None,
    size: Any = None,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
    check_invariants: bool | None = None,
    is_coalesced: bool | None = None,
) -> Tensor:
    """A sparse tensor in coordinates: ``values[k]`` stands at ``indices[:, k]``; equal places add up.

    Args:
        indices: integers (sparse_dim, nnz); without them, or with a size in their place, there are no elements.
        values: (nnz, *dense sizes).
        size: the shape, sparse_dim + dense dims; inferred from the largest indices if None.
        is_coalesced: promise that the indices are unique and in order.

    Raises:
        RuntimeError: shapes that do not fit each other; with invariants checked (or without a size) indices outside.

    >>> import tesserack as ts
    >>> ts.sparse_coo_tensor([[0, 1], [2, 0]], [3.0, 4.0], (2, 3)).to_dense()
    tensor([[0., 0., 3.],
            [4., 0., 0.]])
    """
    if indices is None and values is None and size is not None:
        indices, size = size, None
    if indices is None:
        raise TypeError("sparse_coo_tensor: expected indices and values, or a size, got neither")
    if values is None or (isinstance(values, (ts.Size, tuple)) and size is None and _is_shape(indices)):
        # sparse_coo_tensor(size): without elements
        shape = tuple(indices)
        empty = ts.zeros((len(shape), 0), dtype=ts.int64, device=device)
        zeros = ts.zeros((0,), dtype=dtype, device=device)
        made = build(ts.sparse_coo, (empty,), zeros, shape, 0, True)
        return made.requires_grad_() if requires_grad else made
    held = _tensor(values, dtype, device)
    at = _indices(indices, held.device).to(held.device, ts.int64)
    if at.dim() == 1 and at.numel() == 0 and held.numel() == 0:
        at = at.reshape(1, 0)
    if at.dim() != 2:
        raise RuntimeError(f"indices must be sparse_dim x nnz, but got: {list(at.shape)}")
    if held.dim() == 0:
        held = held.reshape(1)
    if at.shape[1] != held.shape[0]:
        raise RuntimeError(
            f"indices and values must have same nnz, but got nnz from indices: {at.shape[1]}, "
            f"nnz from values: {held.shape[0]}"
        )
    dense_dim = held.dim() - 1
    if size is None:
        shape = _inferred(at, held)
    else:
        shape = tuple(int(extent) for extent in size)
        _check_coo_shape(at, held, shape)
        if _wants_check(check_invariants):
            _check_inside(at, shape)
    if is_coalesced and _wants_check(check_invariants):
        _check_coalesced(at, shape)
    flag = bool(is_coalesced) or at.shape[1] < 2
    made = build(ts.sparse_coo, (at.detach(),), held, shape, dense_dim, flag)
    return made.requires_grad_() if requires_grad else made


def _is_shape(value: Any) -> bool:
    return isinstance(value, (ts.Size, tuple, list)) and all(isinstance(item, int) for item in value)


def _inferred(at: Tensor, values: Tensor) -> tuple[int, ...]:
    if at.shape[1] == 0:
        extents = [0] * at.shape[0]
    else:
        lowest = at.amin(1).tolist()
        for dim, low in enumerate(lowest):
            if low < 0:
                raise RuntimeError(f"found negative index {low} for dim {dim}")
        extents = [high + 1 for high in at.amax(1).tolist()]
    return (*extents, *values.shape[1:])


def _check_coo_shape(at: Tensor, values: Tensor, shape: tuple[int, ...]) -> None:
    dense_dim = values.dim() - 1
    if at.shape[0] + dense_dim != len(shape):
        raise RuntimeError(
            f"number of dimensions must be sparse_dim ({at.shape[0]}) + dense_dim ({dense_dim}), but got {len(shape)}"
        )
    for extent in shape:
        if extent < 0:
            raise RuntimeError(f"sparse_coo_tensor: expected sizes that are not negative, got {shape}")
    if tuple(values.shape[1:]) != shape[at.shape[0] :]:
        raise RuntimeError(
            f"values has incorrect size, expected {[at.shape[1], *shape[at.shape[0] :]]}, got {list(values.shape)}"
        )


def _check_inside(at: Tensor, shape: tuple[int, ...]) -> None:
    if at.numel() == 0:
        return
    for dim, (low, high) in enumerate(zip(at.amin(1).tolist(), at.amax(1).tolist(), strict=True)):
        if low < 0:
            raise RuntimeError(f"found negative index {low} for dim {dim}")
        if high >= shape[dim]:
            raise RuntimeError(
                f"size is inconsistent with indices: for dim {dim}, size is {shape[dim]} but found index {high}"
            )


def _check_coalesced(at: Tensor, shape: tuple[int, ...]) -> None:
    from tesserack.sparse._parts import flat_positions

    flat = flat_positions(at, shape[: at.shape[0]])
    if flat.numel() > 1 and not bool((flat.diff() > 0).all()):
        raise RuntimeError("cannot set is_coalesced to true if indices correspond to uncoalesced COO tensor")


# --- compressed ------------------------------------------------------------------------------------------------------


def sparse_compressed_tensor(
    compressed_indices: Any,
    plain_indices: Any,
    values: Any,
    size: Any = None,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
    check_invariants: bool | None = None,
) -> Tensor:
    """A sparse tensor whose rows (csr, bsr) or columns (csc, bsc) are compressed: row r has the elements
    ``compressed_indices[r]`` to ``compressed_indices[r + 1]``, standing in the columns ``plain_indices``.

    Args:
        compressed_indices: int32 or int64 (*batch, rows + 1).
        plain_indices: (*batch, nnz), of the same dtype.
        values: (*batch, nnz, *block, *dense sizes); block is there for bsr and bsc.
        size: (*batch, rows, columns, *dense sizes); inferred if None.
        layout: ``sparse_csr``, ``sparse_csc``, ``sparse_bsr`` or ``sparse_bsc``.

    Raises:
        RuntimeError: parts that do not fit each other, or with invariants checked no such tensor.

    >>> import tesserack as ts
    >>> ts.sparse_csr_tensor([0, 1, 2], [2, 0], [3.0, 4.0], (2, 3)).to_dense()
    tensor([[0., 0., 3.],
            [4., 0., 0.]])
    """
    if layout not in COMPRESSED:
        raise RuntimeError(
            f"sparse_compressed_tensor: expected a compressed sparse layout (sparse_csr, sparse_csc, sparse_bsr or "
            f"sparse_bsc), got {layout}"
        )
    held = _tensor(values, dtype, device)
    compressed, plain = (_indices(part, held.device) for part in (compressed_indices, plain_indices))
    if compressed.dtype not in (ts.int32, ts.int64) or compressed.dtype is not plain.dtype:
        raise RuntimeError(
            f"compressed_indices and plain_indices must be an int32 or int64 tensor and of one dtype, but got "
            f"{compressed.dtype} and {plain.dtype}"
        )
    if compressed.dim() < 1 or compressed.dim() != plain.dim():
        raise RuntimeError(
            f"compressed_indices and plain_indices dimensionalities must be equal and not 0, but got "
            f"{compressed.dim()} and {plain.dim()}"
        )
    batch_dim = compressed.dim() - 1
    block_dim = 2 if layout in BLOCKED else 0
    dense_dim = held.dim() - batch_dim - 1 - block_dim
    if dense_dim < 0:
        raise RuntimeError(
            f"values must have dimensionality > sum of batch and block dimensionalities "
            f"(={batch_dim} + {block_dim}), but got {held.dim()}"
        )
    block = (held.shape[batch_dim + 1], held.shape[batch_dim + 2]) if block_dim else (1, 1)
    shape = (
        _inferred_compressed(compressed, plain, held, layout, block, dense_dim)
        if size is None
        else tuple(int(extent) for extent in size)
    )
    _check_compressed_shape(compressed, plain, held, shape, layout, block, dense_dim)
    if _wants_check(check_invariants):
        _check_compressed(compressed, plain, shape, layout, block, dense_dim)
    made = build(layout, (compressed.detach(), plain.detach()), held, shape, dense_dim, True)
    return made.requires_grad_() if requires_grad else made


def _extents(shape: tuple[int, ...], layout: Any, block: tuple[int, int], dense_dim: int) -> tuple[int, int]:
    """How many compressed and plain indices there can be."""
    at = len(shape) - dense_dim - 2
    rows, columns = (n // b if b else 0 for n, b in zip(shape[at : at + 2], block, strict=True))
    return (columns, rows) if layout in COLUMNS else (rows, columns)


def _inferred_compressed(
    compressed: Tensor, plain: Tensor, values: Tensor, layout: Any, block: tuple[int, int], dense_dim: int
) -> tuple[int, ...]:
    outer = compressed.shape[-1] - 1
    inner = int(plain.max()) + 1 if plain.numel() else 0
    rows, columns = (inner, outer) if layout in COLUMNS else (outer, inner)
    dense = values.shape[values.dim() - dense_dim :]
    return (*compressed.shape[:-1], rows * block[0], columns * block[1], *dense)


def _check_compressed_shape(
    compressed: Tensor,
    plain: Tensor,
    values: Tensor,
    shape: tuple[int, ...],
    layout: Any,
    block: tuple[int, int],
    dense_dim: int,
) -> None:
    batch_dim = compressed.dim() - 1
    if len(shape) != batch_dim + 2 + dense_dim:
        raise RuntimeError(
            f"tensor dimensionality must be sum of batch, base, and dense dimensionalities "
            f"(={batch_dim} + 2 + {dense_dim}) but got {len(shape)}"
        )
    batch = shape[:batch_dim]
    if not tuple(compressed.shape[:-1]) == tuple(plain.shape[:-1]) == tuple(values.shape[:batch_dim]) == batch:
        raise RuntimeError(
            f"all batch dimensions of compressed_indices ({list(compressed.shape[:-1])}), plain_indices "
            f"({list(plain.shape[:-1])}), and values ({list(values.shape[:batch_dim])}) must be equal to tensor batch "
            f"dimensions ({list(batch)})"
        )
    extents = shape[batch_dim : batch_dim + 2]
    if any(n % b if b else n for n, b in zip(extents, block, strict=True)):  # blocks of no rows: where there are none
        raise RuntimeError(
            f"tensor shape[{batch_dim}:{batch_dim + 2}] (={list(shape[batch_dim : batch_dim + 2])}) must be divisible "
            f"with blocksize {list(block)} as defined by values shape"
        )
    outer, _ = _extents(shape, layout, block, dense_dim)
    if compressed.shape[-1] != outer + 1:
        raise RuntimeError(
            f"compressed_indices.shape[-1] must be equal to the number of compressed dimensions + 1 (={outer + 1}), "
            f"but got {compressed.shape[-1]}"
        )
    if plain.shape[-1] != values.shape[batch_dim] and (plain.shape[-1] or values.numel()):
        raise RuntimeError(
            f"plain_indices.shape[-1] must be equal to nnz (={values.shape[batch_dim]}) as defined by "
            f"values.shape[{batch_dim}], but got {plain.shape[-1]}"
        )
    if tuple(values.shape[values.dim() - dense_dim :]) != shape[len(shape) - dense_dim :]:
        raise RuntimeError(
            f"values.shape[{values.dim() - dense_dim}:] must be equal to the dense dimensions "
            f"{list(shape[len(shape) - dense_dim :])}, but got {list(values.shape[values.dim() - dense_dim :])}"
        )


def _check_compressed(
    compressed: Tensor, plain: Tensor, shape: tuple[int, ...], layout: Any, block: tuple[int, int], dense_dim: int
) -> None:
    _, inner = _extents(shape, layout, block, dense_dim)
    names = ("ccol_indices", "row_indices") if layout in COLUMNS else ("crow_indices", "col_indices")
    if compressed.numel() and bool((compressed[..., 0] != 0).any()):
        raise RuntimeError(f"`{names[0]}[..., 0] == 0` is not satisfied.")
    if compressed.numel() and bool((compressed[..., -1] != plain.shape[-1]).any()):
        raise RuntimeError(f"`{names[0]}[..., -1] == nnz` is not satisfied.")
    steps = compressed.diff(dim=-1)
    if steps.numel() and bool(((steps < 0) | (steps > inner)).any()):
        raise RuntimeError(
            f"`0 <= {names[0]}[..., 1:] - {names[0]}[..., :-1] <= {'nrows' if layout in COLUMNS else 'ncols'}` is not "
            "satisfied."
        )
    if plain.numel() == 0:
        return
    if bool(((plain < 0) | (plain >= inner)).any()):
        raise RuntimeError(f"`0 <= {names[1]} < {'nrows' if layout in COLUMNS else 'ncols'}` is not satisfied.")
    from tesserack.sparse._parts import expand_compressed

    same_row = expand_compressed(compressed).diff(dim=-1) == 0
    if bool((same_row & (plain.diff(dim=-1) <= 0)).any()):
        raise RuntimeError(
            f"`{names[1]}[..., {names[0]}[..., i - 1]:{names[0]}[..., i]] for all i = 1, ..., "
            f"{'ncols' if layout in COLUMNS else 'nrows'} are sorted and distinct along the last dimension values` is "
            "not satisfied."
        )


def _of_layout(name: str, layout: Any, first: str, second: str) -> Any:
    def function(*args: Any, **options: Any) -> Tensor:
        options.pop("layout", None)
        named = [options.pop(key) for key in (first, second) if key in options]
        return sparse_compressed_tensor(*args, *named, layout=layout, **options)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"``sparse_compressed_tensor({first}, {second}, values, size=None)`` of the layout {layout}."
    return function


sparse_csr_tensor = _of_layout("sparse_csr_tensor", _native.sparse_csr, "crow_indices", "col_indices")
sparse_csc_tensor = _of_layout("sparse_csc_tensor", _native.sparse_csc, "ccol_indices", "row_indices")
sparse_bsr_tensor = _of_layout("sparse_bsr_tensor", _native.sparse_bsr, "crow_indices", "col_indices")
sparse_bsc_tensor = _of_layout("sparse_bsc_tensor", _native.sparse_bsc, "ccol_indices", "row_indices")
