"""What ``pickle`` makes of tensors. Files are the business of ``tesserack.save``, which needs no pickle to be read."""

from __future__ import annotations

from tesserack import _native
from tesserack._native import Tensor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from tesserack._native import dtype

__all__ = ["reduce_tensor"]


def reduce_tensor(tensor: Tensor) -> tuple[Any, ...]:
    """The ``__reduce_ex__`` of a tensor: its class, values, layout, device, requires_grad mark and attributes.

    Memory that two tensors share is written twice, and history is left behind: what comes back is a leaf.
    """
    strides = tensor.stride()
    order = sorted(range(tensor.dim()), key=lambda d: -strides[d])
    dense = tensor.detach().permute(order)
    state = None if type(tensor) is Tensor and not tensor.__dict__ else dict(tensor.__dict__)
    raw = None if tensor.is_meta else _raw_bytes(dense)
    place = (str(tensor.device), tensor.dtype, tuple(dense.shape), tuple(order))
    return rebuild_tensor, (type(tensor), raw, *place, tensor.requires_grad, state)


def _raw_bytes(dense: Tensor) -> bytes:
    if dense.numel() == 0:
        return b""
    return dense.cpu().contiguous().view(-1).view(_native.uint8).numpy().tobytes()  # type: ignore[no-any-return]


def rebuild_tensor(
    kind: type[Tensor],
    raw: bytes | None,
    device: str,
    dtype: dtype,
    sizes: tuple[int, ...],
    order: tuple[int, ...],
    requires_grad: bool,
    state: dict[str, Any] | None,
) -> Tensor:
    """The tensor that :func:`reduce_tensor` took apart. Raises ``BackendUnavailableError`` without its device."""
    from tesserack import empty, frombuffer

    if raw:
        dense = frombuffer(bytearray(raw), dtype=dtype).view(sizes)
        if device != "cpu":
            dense = dense.to(device)
    else:
        dense = empty(sizes, dtype=dtype, device=device)
    values = dense.permute([order.index(d) for d in range(len(order))])
    result = Tensor._make_subclass(kind, values.detach(), requires_grad)
    if state:
        result.__dict__.update(state)
    return result
