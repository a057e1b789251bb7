"""A bucket of gradients: one buffer, which ranks of one machine share, and where in it each gradient is made."""

from __future__ import annotations

from typing import Any

import tesserack as ts
from tesserack import Tensor, _native
from tesserack.distributed._coalesced import may_be_part
from tesserack.distributed._errors import DistBackendError

__all__ = ["Bucket", "grad_held", "held"]

#: Gradients of fewer bytes are copied: where they are made, memory comes from places of a thread's own.
HOME_BYTES = (128 << 10) + 1


def held(tensor: Tensor) -> Tensor:
    """What this rank holds of a tensor: itself, or its part of a DTensor."""
    part: Tensor = tensor.__dict__.get("_local_tensor", tensor)
    return part.detach()


def grad_held(parameter: Tensor) -> Tensor:
    """What this rank holds of a parameter's gradient, which lies as the parameter does."""
    grad: Any = parameter.grad
    if "_local_tensor" in parameter.__dict__ and grad.placements != parameter.placements:  # type: ignore[attr-defined]
        grad = grad.redistribute(placements=parameter.placements)  # type: ignore[attr-defined]
    part = held(grad)
    return part.to_dense() if part.layout is not ts.strided else part


def _give_grad(parameter: Any, view: Tensor, as_view: bool) -> None:
    """Make a reduced gradient the parameter's."""
    spec = parameter.__dict__.get("_spec")
    alike = parameter.grad is not None and parameter.grad.layout is ts.strided
    if alike and not as_view and (spec is None or parameter.grad.placements == spec.placements):
        held(parameter.grad).copy_(view)
    else:
        given = view if as_view else view.clone()
        parameter.grad = given if spec is None else type(parameter)(given, spec)


class Bucket:
    """Some parameters, and one buffer for their gradients.

    Where the group's ranks share memory (``group``; every rank makes its bucket) and some gradient is large, the buffer
    is of that: it is reduced where it is, and large gradients are made in it, each in its home, and not copied. A home
    is taken as long as a gradient lives in it. Whoever keeps one is left with it: the bucket goes on with a buffer of
    its own.
    """

    def __init__(self, parameters: list[Tensor], group: Any = None) -> None:
        self.parameters = parameters
        self._sizes = [held(p).numel() for p in parameters]
        self._homes: list[Any] = [None] * len(parameters)
        self.shared = False
        self.buffer = self._allocated(group)
        self._divide()
        if self.shared:
            self._offer_homes()
        self.pending = 0
        self.future: Any = None
        self.reduced: dict[int, Tensor] = {}  # gradients that are reduced where they are, by place
        self.at_home: set[int] = set()  # places of those that lie in the buffer

    def _allocated(self, group: Any) -> Tensor:
        like, size = held(self.parameters[0]), sum(self._sizes)
        large = max(self._sizes) * like.element_size() >= HOME_BYTES
        if large and group is not None and type(like) is Tensor and group.supports_tensor_alloc(like.device):
            try:
                shared: Tensor = group.allocate_tensor(size, dtype=like.dtype, device=like.device)
            except DistBackendError:  # no room for it here; the next collective tells of whatever else it may be
                return like.new_zeros(size)
            self.shared = True
            return shared
        return like.new_zeros(size)

    def _divide(self) -> None:
        parts = self.buffer.split(self._sizes)
        # A gradient lies as its parameter does, where the parameter fills its memory without a gap.
        self.views = [
            part.as_strided(p.shape, p.stride(), part.storage_offset()) if _is_dense(p) else part.view(p.shape)
            for part, p in zip(parts, map(held, self.parameters), strict=True)
        ]

    def _offer_homes(self) -> None:
        for k, (parameter, part) in enumerate(zip(self.parameters, self.buffer.split(self._sizes), strict=True)):
            if part.numel() * part.element_size() >= HOME_BYTES and "_local_tensor" not in parameter.__dict__:
                self._homes[k] = _native._offer_home(parameter, part)

    def replace(self, buffer: Tensor) -> None:
        """Go on with another buffer of the same size."""
        self.forget_homes()
        self.buffer, self.shared = buffer, False
        self.at_home.clear()
        self._divide()

    def forget_homes(self) -> None:
        """Have gradients made wherever there is memory."""
        for home in self._homes:
            if home is not None:
                _native._withdraw_home(home)
        self._homes = [None] * len(self.parameters)

    def leave(self) -> None:
        """Go on with a buffer of one's own, since somebody keeps what lies in this one."""
        self.replace(self.buffer.clone())

    def is_at_home(self, k: int) -> bool:
        """Whether what lies in a parameter's home is its gradient."""
        grad, view = self.parameters[k].grad, self.views[k]
        return grad is not None and grad.data_ptr() == view.data_ptr() and may_be_part(grad, view)

    def is_kept(self, k: int) -> bool:
        """Whether something lies in a parameter's home."""
        return self._homes[k] is not None and bool(_native._is_home_taken(self._homes[k]))

    def clear(self) -> None:
        """Zeros everywhere, but for gradients that somebody keeps."""
        if any(map(self.is_kept, range(len(self.parameters)))):
            self.leave()
        self.buffer.zero_()
        self.forget()

    def forget(self) -> None:
        """Begin again with all gradients."""
        self.reduced.clear()
        self.at_home.clear()

    def fill(self, k: int) -> None:
        """Bring a parameter's gradient, or zeros, to its place in the buffer."""
        parameter, view = self.parameters[k], self.views[k]
        if parameter.grad is None:
            view.zero_()
        elif parameter.grad is not view:
            view.copy_(grad_held(parameter))

    def give(self, used: set[int] | None, as_views: bool) -> None:
        """Make what was reduced the parameters' gradients. ``used``: by which rank ever, None: all."""
        for k, (parameter, view) in enumerate(zip(self.parameters, self.views, strict=True)):
            if k in self.reduced or (used is not None and id(parameter) not in used):
                continue  # it is there already, or no rank used it: what was there stays
            if k in self.at_home and not as_views:
                _native._increment_version(parameter.grad)
            else:
                _give_grad(parameter, view, as_views)
        self.forget()


def _is_dense(tensor: Tensor) -> bool:
    reach = 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.numel() > 0 and reach == tensor.numel() and all(s > 0 for s in tensor.stride())
