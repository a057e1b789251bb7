"""Several parameters as one flat vector, of which every rank has a part."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from typing import Any

import tesserack as ts
from tesserack import Tensor, nn
from tesserack.distributed.fsdp._group import ParamGroup
from tesserack.distributed.fsdp._layouts import Flat, Whole
from tesserack.distributed.fsdp._places import Place
from tesserack.distributed.fsdp._prefixes import FLAT_PARAM
from tesserack.distributed.fsdp._ranks import Ranks

__all__ = ["FlatGroup", "FlatParameter", "flat_group"]


class FlatParameter(nn.Parameter):
    """This rank's part of several parameters, end to end."""


class Elsewhere(Tensor):
    """What a module has under a parameter's name while the parameter lies divided: its shape, dtype and device, and an
    error for whatever needs its elements."""

    @staticmethod
    def __new__(cls, whole: Whole, device: Any) -> Elsewhere:
        made: Elsewhere = Tensor._make_wrapper_subclass(cls, whole.shape, dtype=whole.dtype, device=device)
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise RuntimeError(
            f"{func}: the parameter lies divided over ranks, and is whole only in its module's forward and within "
            "FullyShardedDataParallel.summon_full_params"
        )

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return f"Elsewhere({tuple(self.shape)}, dtype={self.dtype})"


class FlatGroup(ParamGroup):
    """Parameters in a flat layout. Between computations modules have their parts under their names, or none and the
    wrapped module has a :class:`FlatParameter`."""

    layout: Flat

    def __init__(self, layout: Flat, places: Sequence[Sequence[Place]], owner: Any, names: Sequence[str]) -> None:
        super().__init__(layout, places)
        self.owner, self.names = owner, list(names)
        self.outlines = [Elsewhere(whole, layout.device) for whole in layout.wholes]

    @property
    def by_parameter(self) -> bool:
        """Whether modules have parts of their own."""
        return self.layout.by_parameter

    def put_whole(self, values: Sequence[Any]) -> None:
        if self.by_parameter:
            super().put_whole(values)
            return
        for places, value in zip(self.places, values, strict=True):
            for module, name in places:
                module.__dict__[name] = value

    def put_divided(self) -> None:
        if self.by_parameter:
            super().put_divided()
            return
        for places, outline in zip(self.places, self.outlines, strict=True):
            for module, name in places:
                module._parameters.pop(name, None)
                module.__dict__[name] = outline
        self.owner._parameters[FLAT_PARAM] = self.layout.leaves[0]

    def take_replaced(self) -> None:
        """Nothing: the parts are views of one memory, which whole parameters are written to by :meth:`hide`."""

    def retake(self) -> None:
        """After a conversion, which gave each leaf memory of its own: lie in one memory again."""
        layout = self.layout
        with ts.no_grad():
            first = layout.leaves[0].detach()
            if not self.by_parameter:
                layout.part = first
            else:
                layout.part = ts.zeros(layout.each, dtype=first.dtype, device=first.device)
                for at, leaf in enumerate(layout.leaves):
                    own = layout.own(layout.part, at)
                    own.copy_(leaf.detach())
                    leaf.data = own
        layout.wholes = [whole._replace(dtype=first.dtype) for whole in layout.wholes]
        if layout.part.device.type != "cpu":
            layout.device = layout.part.device
        self.outlines = [Elsewhere(whole, layout.device) for whole in layout.wholes]
        self.put_divided()

    # --- whole parameters outside of computation ------------------------------------------------------------------

    def expose(self, keep: bool = True, to_host: bool = False, with_grads: bool = False) -> None:
        """Let the modules have whole parameters, in the dtype of their parts; unless ``keep``, only take part."""
        self.reshard()
        computing, self.layout.param_dtype = self.layout.param_dtype, None
        try:
            self.unshard()
        finally:
            self.layout.param_dtype = computing
        grads = self._whole_grads() if with_grads else None
        if not keep:
            self.reshard()
            return
        if not self.by_parameter:
            self.owner._parameters.pop(FLAT_PARAM, None)
        for at, (places, full) in enumerate(zip(self.places, self.fulls, strict=True)):
            value = nn.Parameter(full.cpu() if to_host else full, requires_grad=self.layout.wholes[at].requires_grad)
            if grads is not None:
                value.grad = grads[at]
            for module, name in places:
                module.__dict__.pop(name, None)
                module._parameters[name] = value

    def hide(self, write_back: bool) -> None:
        """Let the modules have the divided parameters again, with what was written to the whole ones."""
        if not self.is_whole:
            return
        if write_back:
            self._write_back()
        self.reshard()

    def _write_back(self) -> None:
        with ts.no_grad():
            self._write_parts()

    def _write_parts(self) -> None:
        layout = self.layout
        for places, full in zip(self.places, self.fulls, strict=True):
            value = places[0][0]._parameters[places[0][1]]
            if value.data_ptr() != full.data_ptr():
                full.copy_(value)
            grad = value.grad
            if grad is not None and self.by_parameter:
                self._write_grad(self.places.index(places), grad)
        begin = layout.ranks.part * layout.each
        mine = self.memories[0][begin : begin + layout.each] if layout.ranks.parts > 1 else self.memories[0]
        if mine.data_ptr() != layout.part.data_ptr():
            layout.part.copy_(mine)

    def _write_grad(self, at: int, grad: Tensor) -> None:
        layout, leaf = self.layout, self.layout.leaves[at]
        first, last = layout.span(at)
        offset = layout.ranks.part * layout.each + first - layout.starts[at]
        mine = grad.reshape(-1)[offset : offset + last - first] if last > first else grad.reshape(-1)[:0]
        if leaf.grad is not None:
            leaf.grad.copy_(mine.view(leaf.shape))

    def _whole_grads(self) -> list[Tensor | None]:
        if not self.by_parameter:
            raise NotImplementedError("with_grads=True requires use_orig_params=True")
        mine = ts.zeros_like(self.layout.part)
        for at, leaf in enumerate(self.layout.leaves):
            if leaf.grad is not None:
                self.layout.own(mine, at).copy_(leaf.grad)
        return self.gathered(mine)  # type: ignore[return-value]

    def gathered(self, mine: Tensor) -> list[Tensor]:
        """Whole tensors of what has this rank's part laid out as the parameters are."""
        layout = self.layout
        if layout.ranks.parts == 1:
            return layout.views(mine)
        whole = ts.empty(layout.each * layout.ranks.parts, dtype=mine.dtype, device=mine.device)
        layout.ranks.gather(list(whole.chunk(layout.ranks.parts)), mine, False)
        return layout.views(whole)

    def divided(self, wholes: Sequence[Tensor | None]) -> Tensor:
        """This rank's part of whole tensors; zeros where there is none."""
        layout = self.layout
        dtype = next((w.dtype for w in wholes if w is not None), layout.part.dtype)
        mine = ts.zeros(layout.each, dtype=dtype, device=layout.part.device)
        base = layout.ranks.part * layout.each
        for at, whole in enumerate(wholes):
            first, last = layout.span(at)
            if whole is None or last <= first:
                continue
            offset = base + first - layout.starts[at]
            mine[first:last].copy_(whole.reshape(-1)[offset : offset + last - first])
        return mine


def flat_group(
    places: dict[Any, list[Place]],
    owner: Any,
    names: Sequence[str],
    ranks: Ranks,
    *,
    by_parameter: bool,
    to_host: bool,
) -> FlatGroup:
    """Make one vector of parameters, keep this rank's part, and let the modules have it.

    ``ValueError`` for parameters of several dtypes, and unless ``by_parameter`` for some that need gradients beside
    some that do not.
    """
    parameters = list(places)
    dtypes = {p.dtype for p in parameters}
    if len(dtypes) > 1:
        raise ValueError(f"Must flatten tensors with uniform dtype but got {', '.join(sorted(map(str, dtypes)))}")
    if not by_parameter and len({p.requires_grad for p in parameters}) > 1:
        raise ValueError("Must flatten tensors with uniform requires_grad when use_orig_params=False")
    wholes = [Whole(tuple(p.shape), p.dtype, p.requires_grad) for p in parameters]
    starts, total = [], 0
    for parameter in parameters:
        starts.append(total)
        total += parameter.numel()
    device = parameters[0].device
    each = max(1, math.ceil(total / ranks.parts))
    part = ts.zeros(each, dtype=parameters[0].dtype, device="cpu" if to_host else device)
    layout = Flat(ranks, wholes, part, starts, device)
    layout.by_parameter = by_parameter
    group = FlatGroup(layout, list(places.values()), owner, names)
    with ts.no_grad():
        part.copy_(group.divided([p.detach() for p in parameters]))
        layout.leaves = [FlatParameter(part, requires_grad=parameters[0].requires_grad)]
        if by_parameter:
            for at, parameter in enumerate(parameters):
                parameter.data = layout.own(part, at)
            layout.leaves = parameters
    group.sharded = list(layout.leaves)
    group.put_divided()
    return group


@contextlib.contextmanager
def exposed(
    groups: Sequence[FlatGroup], write_back: bool, keep: bool = True, to_host: bool = False, with_grads: bool = False
) -> Iterator[None]:
    """A context in which modules have whole parameters."""
    for group in groups:
        group.expose(keep, to_host, with_grads)
    try:
        yield
    finally:
        for group in groups:
            group.hide(write_back)
