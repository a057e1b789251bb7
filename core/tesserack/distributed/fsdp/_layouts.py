"""How parameters are divided among ranks: each along a dim, or several as one flat vector."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tesserack as ts
from tesserack import Tensor
from tesserack.distributed.fsdp._leaves import local_of, spec_like
from tesserack.distributed.fsdp._ranks import Ranks, chunk_sizes

__all__ = ["Divided", "Flat", "Layout", "Whole"]

# Parameters below this many bytes travel joined: a copy of them is cheaper than a collective of their own.
JOINED_BELOW = 1 << 18
Finish = Callable[[], None]


class Whole(NamedTuple):
    """A parameter as the module knows it."""

    shape: tuple[int, ...]
    dtype: Any
    requires_grad: bool
    dim: int = 0  #: along which it is divided
    spec: Any = None  #: of a ``DTensor`` that the module has for it, whose part on this rank it is


class Layout(ABC):
    """Parameters of a module, divided among ranks: ``leaves`` are what this rank keeps of them."""

    def __init__(self, ranks: Ranks, wholes: Sequence[Whole], device: Any) -> None:
        self.ranks, self.wholes, self.device = ranks, list(wholes), device
        self.leaves: list[Any] = []
        self.param_dtype: Any = None  # of computation, where it is another
        self.reduce_dtype: Any = None

    def full_dtype(self, at: int) -> Any:
        """The dtype of a whole parameter while it is computed with."""
        own = self.wholes[at].dtype
        return self.param_dtype if self.param_dtype is not None and own.is_floating_point else own

    @abstractmethod
    def gather(self, async_op: bool) -> tuple[list[Tensor], list[Tensor], Finish]:
        """Memory for the whole parameters, the parameters in it, and what ends the gathering."""

    @abstractmethod
    def reduce(self, grads: Sequence[Tensor | None]) -> list[Tensor | None]:
        """The parts of gradients that belong to ``leaves``, averaged over ranks; as their leaf in dtype and device."""

    def outer(self, at: int, full: Tensor) -> Any:
        """A whole parameter as its module has it: one that is cut over another mesh too is a ``DTensor`` there."""
        spec = self.wholes[at].spec
        return full if spec is None else spec_like(spec, full)

    def inner(self, at: int, grad: Any) -> Any:
        """The gradient of what :meth:`outer` gives, as one of the whole parameter on this rank."""
        spec = self.wholes[at].spec
        if spec is None or grad is None:
            return grad
        return grad.redistribute(placements=spec.placements)._local_tensor

    def needs_grad(self) -> list[bool]:
        """Of the whole parameters."""
        return [leaf.requires_grad for leaf in self.leaves]

    def own_gradient(self, at: int, grad: Tensor) -> Tensor:
        """A gradient as it is reduced and kept until then."""
        return grad.to(self.reduce_dtype or grad.dtype)


def _pieces(full: Tensor, dim: int, sizes: Sequence[int]) -> list[Tensor]:
    return list(full.split(list(sizes), dim))


class Divided(Layout):
    """Each parameter along a dim, as ``chunk`` divides it: rank k has part k, of which the last may be empty."""

    def __init__(self, ranks: Ranks, wholes: Sequence[Whole], leaves: Sequence[Any], device: Any) -> None:
        super().__init__(ranks, wholes, device)
        self.leaves = list(leaves)
        self.partial: dict[int, Tensor] = {}  # reduced over parts but not over copies yet

    def sizes(self, at: int) -> list[int]:
        """Lengths of the parts of a parameter."""
        whole = self.wholes[at]
        return chunk_sizes(whole.shape[whole.dim] if whole.shape else 1, self.ranks.parts)

    def _direct(self, at: int) -> bool:
        whole = self.wholes[at]
        return whole.dim == 0 and math.prod(whole.shape) * self.full_dtype(at).itemsize >= JOINED_BELOW

    def gather(self, async_op: bool) -> tuple[list[Tensor], list[Tensor], Finish]:
        fulls: list[Tensor] = []
        joined: dict[Any, list[tuple[int, Tensor]]] = {}
        works, ends = [], []
        given: list[Tensor] = []  # to be let go here, not by the thread that sends it
        for at, leaf in enumerate(self.leaves):
            dtype, whole = self.full_dtype(at), self.wholes[at]
            mine = local_of(leaf).detach().to(device=self.device, dtype=dtype)
            if self.ranks.parts == 1:
                fulls.append(mine.view(whole.shape))
                continue
            full = ts.empty(whole.shape, dtype=dtype, device=self.device)
            fulls.append(full)
            if self._direct(at):
                given.append(mine)
                works.append(self.ranks.gather(_pieces(full, 0, self.sizes(at)), mine, async_op))
            else:
                joined.setdefault(dtype, []).append((at, mine))
        for members in joined.values():
            given.append(ts.cat([tensor.reshape(-1) for _, tensor in members]))
            work, end = self._gather_joined(given[-1], [at for at, _ in members], fulls, async_op)
            works.append(work)
            ends.append(end)

        def finish() -> None:
            for work in works:
                if work is not None:
                    work.wait()
            for end in ends:
                end()
            given.clear()

        return fulls, fulls, finish

    def _gather_joined(
        self, mine: Tensor, members: Sequence[int], fulls: Sequence[Tensor], async_op: bool
    ) -> tuple[Any, Finish]:
        pieces = [self._pieces_of(fulls[at], at) for at in members]
        counts = [sum(each[k].numel() for each in pieces) for k in range(self.ranks.parts)]
        got = [ts.empty(count, dtype=mine.dtype, device=self.device) for count in counts]
        work = self.ranks.gather(got, mine, async_op)

        def end() -> None:
            for k, data in enumerate(got):
                parts = data.split([each[k].numel() for each in pieces])
                for each, part in zip(pieces, parts, strict=True):
                    each[k].copy_(part.view(each[k].shape))
            got.clear()

        return work, end

    def _pieces_of(self, full: Tensor, at: int) -> list[Tensor]:
        full = full.view(1) if not full.ndim else full
        return _pieces(full, self.wholes[at].dim, self.sizes(at))

    def reduce(self, grads: Sequence[Tensor | None]) -> list[Tensor | None]:
        reduced: list[Tensor | None] = [None] * len(self.leaves)
        joined: dict[Any, list[tuple[int, list[Tensor]]]] = {}
        for at, grad in enumerate(grads):
            if grad is None:
                continue
            grad = self.own_gradient(at, grad)
            pieces = self._pieces_of(grad.detach(), at)
            if self._direct(at):
                reduced[at] = self._kept(at, self.ranks.reduce(pieces))
            else:
                joined.setdefault(grad.dtype, []).append((at, pieces))
        for members in joined.values():
            parts = [ts.cat([pieces[k].reshape(-1) for _, pieces in members]) for k in range(self.ranks.parts)]
            mine = self.ranks.reduce(parts)
            shapes = [pieces[self.ranks.part].shape for _, pieces in members]
            for (at, _), part, shape in zip(members, mine.split([math.prod(s) for s in shapes]), shapes, strict=True):
                reduced[at] = self._kept(at, part.view(shape))
        return reduced

    def _kept(self, at: int, part: Tensor) -> Tensor | None:
        """A part of a gradient as its leaf's; None while it is to be added to what comes later."""
        leaf = local_of(self.leaves[at])
        waits = self.ranks.replicate is not None and not self.ranks.all_reduces
        before = self.partial.pop(at, None)
        if before is not None and not waits:
            before = self.ranks.reduce_copies(before)
        part = part if before is None else part + before
        if waits:
            self.partial[at] = part
            return None
        part = part.view(leaf.shape).to(device=leaf.device, dtype=leaf.dtype)
        # A slice of what was joined would keep all of it.
        return part.clone() if part.numel() * part.element_size() < part.untyped_storage().nbytes() else part


class Flat(Layout):
    """Parameters of one dtype end to end, padded, in equal parts. ``leaves`` are the part of the whole vector, or what
    lies in it of each parameter (``by_parameter``)."""

    def __init__(self, ranks: Ranks, wholes: Sequence[Whole], part: Tensor, starts: Sequence[int], device: Any) -> None:
        super().__init__(ranks, wholes, device)
        self.part, self.starts = part, list(starts)
        self.by_parameter = False

    def needs_grad(self) -> list[bool]:
        if self.by_parameter:
            return super().needs_grad()
        return [whole.requires_grad and self.leaves[0].requires_grad for whole in self.wholes]

    @property
    def each(self) -> int:
        """Elements of a part."""
        return self.part.numel()

    def span(self, at: int) -> tuple[int, int]:
        """Where in this rank's part a parameter's elements lie."""
        begin, base = self.starts[at], self.ranks.part * self.each
        end = begin + math.prod(self.wholes[at].shape)
        first, last = (min(max(n - base, 0), self.each) for n in (begin, end))
        return first, last

    def views(self, whole: Tensor) -> list[Tensor]:
        """The parameters in the whole vector."""
        return [
            whole[begin : begin + math.prod(each.shape)].view(each.shape)
            for begin, each in zip(self.starts, self.wholes, strict=True)
        ]

    def gather(self, async_op: bool) -> tuple[list[Tensor], list[Tensor], Finish]:
        mine = self.part.detach().to(device=self.device, dtype=self.full_dtype(0))
        if self.ranks.parts == 1:
            return [mine], self.views(mine), lambda: None
        whole = ts.empty(self.each * self.ranks.parts, dtype=mine.dtype, device=self.device)
        work = self.ranks.gather(list(whole.chunk(self.ranks.parts)), mine, async_op)

        def finish() -> None:
            if work is not None:
                work.wait()

        return [whole], self.views(whole), finish

    def reduce(self, grads: Sequence[Tensor | None]) -> list[Tensor | None]:
        first = next(grad for grad in grads if grad is not None)
        dtype = self.reduce_dtype or first.dtype
        whole = ts.zeros(self.each * self.ranks.parts, dtype=dtype, device=self.device)
        for view, grad in zip(self.views(whole), grads, strict=True):
            if grad is not None:
                view.copy_(grad)
        mine = self.ranks.reduce(list(whole.chunk(self.ranks.parts)))
        mine = mine.to(device=self.part.device, dtype=self.part.dtype)
        if not self.by_parameter:
            return [mine]
        return [
            None if grad is None else self.own(mine, at).view(self.leaves[at].shape) for at, grad in enumerate(grads)
        ]

    def own(self, part: Tensor, at: int) -> Tensor:
        """What lies of a parameter in a part: in the parameter's shape where that is all, else in one dim."""
        first, last = self.span(at)
        mine = part[first:last]
        return mine.view(self.wholes[at].shape) if self.ranks.parts == 1 else mine
