"""Parameters that are gathered and reduced together: whole while a module computes, divided else.

What is computed with comes out of a recorded function whose gradient reduces over ranks, so that autograd itself knows
when a gradient is complete. Operators keep no whole parameter for backward but a note of which it was: its memory is
freed after forward, and there again, gathered anew, when backward asks.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tesserack as ts
from tesserack import Tensor
from tesserack.autograd.function import Function, once_differentiable
from tesserack.autograd.graph import innermost_hooks, saved_tensors_hooks
from tesserack.distributed.fsdp._layouts import Layout
from tesserack.distributed.fsdp._leaves import as_leaf_gradient, local_of, spec_like
from tesserack.distributed.fsdp._places import Place
from tesserack.distributed.fsdp._ranks import Ranks, chunk_sizes

__all__ = ["Kept", "ParamGroup", "Passed", "watching"]


class _Part(NamedTuple):
    """Instead of a saved tensor: where in the memory of a group it was, and which values that had."""

    group: ParamGroup
    at: int
    geometry: tuple[Any, Any, int]
    versions: tuple[int, ...]
    spec: Any = None  # of a DTensor, whose part on this rank was there


_memories: dict[int, tuple[weakref.ref[ParamGroup], int]] = {}  # of whole parameters that are there now


def _pack(tensor: Tensor, others: Callable[[Tensor], Any] | None) -> Any:
    spec = getattr(tensor, "_spec", None)
    local = tensor if spec is None else local_of(tensor)
    found = _memories.get(local._storage_id())
    group = found[0]() if found is not None else None
    if found is not None and group is not None:
        memory = group.memories[found[1]]
        plain = local.dtype == memory.dtype and not local.is_conj() and not local.is_neg()
        if plain and type(local) in (Tensor, ts.nn.Parameter):
            geometry = tuple(local.shape), local.stride(), local.storage_offset()
            return _Part(group, found[1], geometry, group.versions, spec)
    return others(tensor) if others is not None else tensor


class watching(saved_tensors_hooks):
    """Context: operators recorded within keep notes of whole parameters instead of their memory."""

    def __init__(self) -> None:
        outer = innermost_hooks()
        pack = None if outer is None else outer.pack_hook
        unpack = None if outer is None else outer.unpack_hook

        def get(kept: Any) -> Tensor:
            if isinstance(kept, _Part):
                return kept.group.saved(kept)
            return unpack(kept) if unpack is not None else kept

        super().__init__(lambda tensor: _pack(tensor, pack), get)


class _Gathered(Function):
    """Whole parameters, from leaves; gradients are reduced over ranks and divided."""

    @staticmethod
    def forward(ctx: Any, group: ParamGroup, *leaves: Tensor) -> Any:
        ctx.group = group
        ctx.set_materialize_grads(False)
        outputs = tuple(group.layout.outer(at, full.detach()) for at, full in enumerate(group.fulls))
        frozen = [o for o, needs in zip(outputs, group.layout.needs_grad(), strict=True) if not needs]
        ctx.mark_non_differentiable(*frozen)
        return outputs

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Any) -> Any:
        layout = ctx.group.layout
        return (None, *ctx.group.reduced([layout.inner(at, grad) for at, grad in enumerate(grads)]))


class Passed(Function):
    """Inputs of a module as they are; their gradients tell that its backward is over."""

    @staticmethod
    def forward(ctx: Any, tell: Callable[[], None], *inputs: Tensor) -> Any:
        ctx.tell = tell
        ctx.set_materialize_grads(False)
        return tuple(each.view_as(each) for each in inputs)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        ctx.tell()
        return (None, *grads)


class Kept:
    """Between forward and backward, larger parts than a rank's own, so that fewer ranks need gather them."""

    def __init__(self, ranks: Ranks) -> None:
        self.ranks = ranks
        self._parts: list[tuple[tuple[int, ...], Tensor]] = []
        self._versions: tuple[int, ...] = ()

    def holds(self, versions: tuple[int, ...]) -> bool:
        """Whether there are parts of these values."""
        return bool(self._parts) and self._versions == versions

    def _sizes(self, count: int) -> list[int]:
        return chunk_sizes(count, self.ranks.parts)

    def keep(self, fulls: Sequence[Tensor], versions: tuple[int, ...]) -> None:
        """Keep parts of these; of none, forget what there is."""
        mine = self.ranks.part
        self._versions = versions
        self._parts = [(tuple(f.shape), f.reshape(-1).split(self._sizes(f.numel()))[mine].clone()) for f in fulls]

    def gather(self, async_op: bool) -> tuple[list[Tensor], list[Tensor], Callable[[], None]]:
        """As :meth:`Layout.gather`."""
        fulls = [ts.empty(shape, dtype=part.dtype, device=part.device) for shape, part in self._parts]
        works = [
            self.ranks.gather(list(full.view(-1).split(self._sizes(full.numel()))), part, async_op)
            for full, (_, part) in zip(fulls, self._parts, strict=True)
        ]

        def finish() -> None:
            for work in works:
                if work is not None:
                    work.wait()

        return fulls, fulls, finish


class ParamGroup:
    """Parameters by the places where modules have them, and their layout over ranks."""

    def __init__(self, layout: Layout, places: Sequence[Sequence[Place]], sharded: Sequence[Any] | None = None) -> None:
        self.layout, self.places = layout, [list(each) for each in places]
        # What modules hold while the parameters are divided, by parameter.
        self.sharded: list[Any] = list(layout.leaves if sharded is None else sharded)
        self.memories: list[Tensor] = []
        self.fulls: list[Tensor] = []
        self.versions: tuple[int, ...] = ()
        self.syncs = self.reshards_after_backward = self.unshards_in_backward = True
        self.fills_unused = False
        self.in_backward = False
        self.keeps: Kept | None = None  # between forward and backward: larger parts, of fewer ranks
        self.pending: Callable[[], None] | None = None
        self.waiting: dict[int, Tensor] = {}  # whole gradients that are not reduced yet
        self.on_backward: Callable[[], None] = lambda: None
        self.registered = False
        self.awaits: set[str] = set()  # what tells that the module's backward is over

    # --- whole and divided ----------------------------------------------------------------------------------------

    @property
    def is_whole(self) -> bool:
        """Whether the whole parameters are in memory, or coming."""
        return bool(self.memories)

    def unshard(self, async_op: bool = False) -> None:
        """Gather the parameters, unless they are there and what they were gathered of has not changed since."""
        if self.is_whole and self.versions != self.leaf_versions():
            self.reshard()
        if not self.is_whole:
            self.take_replaced()
        if self.is_whole:
            if not async_op:
                self.wait()
            return
        with ts.no_grad():
            if self.keeps is not None and self.keeps.holds(self.leaf_versions()):
                memories, fulls, finish = self.keeps.gather(async_op)
            else:
                memories, fulls, finish = self.layout.gather(async_op)
        self.memories, self.fulls, self.pending = memories, fulls, finish
        self.versions = self.leaf_versions()
        me = weakref.ref(self)
        for at, memory in enumerate(memories):
            _memories[memory._storage_id()] = me, at
        if not async_op:
            self.wait()

    def take_replaced(self) -> None:
        """What has been put in the place of divided parameters since, as ``load_state_dict(assign=True)`` does, is what
        is gathered now. ``RuntimeError`` for what is not divided likewise."""
        now = [places[0][0]._parameters.get(places[0][1]) for places in self.places]
        if all(mine is known for mine, known in zip(now, self.sharded, strict=True)):
            return
        for at, (mine, known) in enumerate(zip(now, self.sharded, strict=True)):
            if local_of(mine).shape != local_of(known).shape or type(mine) is not type(known):
                module, name = self.places[at][0]
                raise RuntimeError(
                    f"{type(module).__name__}.{name}: expected a parameter divided over ranks as before, in parts of "
                    f"shape {tuple(local_of(known).shape)}, got {type(mine).__name__} of shape {tuple(mine.shape)}"
                )
        for places, mine in zip(self.places, now, strict=True):
            for module, name in places:
                module._parameters[name] = mine
        self.adopt(now)

    def adopt(self, leaves: Sequence[Any]) -> None:
        """These are the divided parameters from now on."""
        for at, leaf in enumerate(leaves):
            self.layout.wholes[at] = self.layout.wholes[at]._replace(dtype=leaf.dtype, requires_grad=leaf.requires_grad)
            local = local_of(leaf)
            if local.device.type not in ("meta", "cpu"):
                self.layout.device = local.device
        self.layout.leaves, self.sharded = list(leaves), list(leaves)

    def leaf_versions(self) -> tuple[int, ...]:
        """How often each leaf was changed."""
        return tuple(local_of(leaf)._version for leaf in self.layout.leaves)

    def wait(self) -> None:
        """Until the parameters are there."""
        pending, self.pending = self.pending, None
        if pending is not None:
            with ts.no_grad():
                pending()

    def register(self) -> None:
        """Let the modules compute with whole parameters."""
        self.wait()
        leaves = self.layout.leaves
        if ts.is_grad_enabled() and any(leaf.requires_grad for leaf in leaves):
            self.put_whole(_Gathered.apply(self, *leaves))
        else:
            self.put_whole([self.layout.outer(at, full) for at, full in enumerate(self.fulls)])
        self.registered = True

    def reshard(self, *, for_backward: bool = False) -> None:
        """Let the modules have the divided parameters, and free the whole ones."""
        if not self.is_whole:
            return
        self.wait()
        if self.keeps is not None:
            self.keeps.keep(self.fulls if for_backward else [], self.versions)
        self.put_divided()
        for memory in self.memories:
            _memories.pop(memory._storage_id(), None)
        self.memories, self.fulls, self.registered = [], [], False

    def put_back(self) -> None:
        """Let the modules have the divided parameters, which are what is trained and saved; the memory stays."""
        if self.registered:
            self.put_divided()
            self.registered = False

    def put_divided(self) -> None:
        """Let the modules have the divided parameters."""
        self.put_whole(self.sharded)

    def put_whole(self, values: Sequence[Any]) -> None:
        """Let the modules have these."""
        for places, value in zip(self.places, values, strict=True):
            for module, name in places:
                module._parameters[name] = value

    def saved(self, part: _Part) -> Tensor:
        """What an operator had kept for backward."""
        if not self.is_whole:
            self.unshard()
        self.wait()
        if part.versions != self.versions:
            raise RuntimeError(
                "one of the variables needed for gradient computation has been modified by an inplace operation: a "
                "parameter sharded over ranks was changed between forward and backward, by an optimizer's step perhaps"
            )
        local = self.memories[part.at].detach().as_strided(*part.geometry)
        return local if part.spec is None else spec_like(part.spec, local)

    # --- backward -------------------------------------------------------------------------------------------------

    def before_backward(self) -> None:
        """The module's backward begins: have its parameters, and let it compute with them once more."""
        if self.in_backward or not self.unshards_in_backward:
            return
        self.in_backward = True
        self.unshard()
        with ts.enable_grad():
            self.register()

    def came(self, what: str) -> None:
        """A sign that the module's backward is over."""
        self.awaits.discard(what)
        if not self.awaits:
            self.after_backward()

    def after_backward(self) -> None:
        """The module's backward is over."""
        self.in_backward = False
        if self.reshards_after_backward:
            self.reshard()
        else:
            self.put_back()

    def reduced(self, grads: Sequence[Tensor | None]) -> list[Any]:
        """Gradients of the leaves, from those of the whole parameters; none while they are not to be reduced."""
        self.on_backward()
        with ts.no_grad():
            given = self._with_waiting(grads)
            if self.syncs:
                found = self.layout.reduce(given) if any(g is not None for g in given) else []
            else:
                self.waiting = {at: grad for at, grad in enumerate(given) if grad is not None}
                found = []
        self.came("gradients")
        if not found:
            return [None] * len(self.layout.leaves)
        return [
            None if grad is None else as_leaf_gradient(leaf, grad)
            for leaf, grad in zip(self.layout.leaves, found, strict=True)
        ]

    def _with_waiting(self, grads: Sequence[Tensor | None]) -> list[Tensor | None]:
        waiting, self.waiting = self.waiting, {}
        given: list[Tensor | None] = []
        for at, grad in enumerate(grads):
            before = waiting.get(at)
            if grad is None and before is None and self.fills_unused and self.layout.wholes[at].requires_grad:
                grad = ts.zeros(
                    self.layout.wholes[at].shape, dtype=self.layout.full_dtype(at), device=self.layout.device
                )
            if grad is not None and (before is not None or not self.syncs):
                grad = self.layout.own_gradient(at, grad)
            given.append(before if grad is None else grad if before is None else before + grad)
        return given

    def flush(self) -> None:
        """Reduce what is left of backwards that did not, where this one did not come by here."""
        if not self.waiting or not self.syncs:
            return
        found = self.reduced([None] * len(self.places))
        for leaf, grad in zip(self.layout.leaves, found, strict=True):
            if grad is not None:
                leaf.grad = grad if leaf.grad is None else leaf.grad + grad

    def forget(self) -> None:
        """Give up an iteration that failed."""
        self.waiting, self.in_backward = {}, False
        self.reshard()
