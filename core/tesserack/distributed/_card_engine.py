"""An engine whose tensors stay on a card: each collective is queued on a stream that the group's has to itself."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import tesserack as ts
from tesserack import Tensor, _native
from tesserack.backends._info import DTYPES
from tesserack.distributed._card_table import AVERAGE, DECLINED, KINDS, Collective, Table
from tesserack.distributed._card_watch import Watch
from tesserack.distributed._card_work import CardWork
from tesserack.distributed._engine import Call, Engine
from tesserack.distributed._errors import DistBackendError
from tesserack.distributed._reduce_op import RedOpType
from tesserack.distributed._work import Work

__all__ = ["CardEngine"]

_REDUCTIONS = {
    RedOpType.SUM.value: 0,
    RedOpType.PRODUCT.value: 1,
    RedOpType.MAX.value: 2,
    RedOpType.MIN.value: 3,
    RedOpType.AVG.value: AVERAGE,
}


def _joined(parts: Sequence[Tensor]) -> Tensor | None:
    """One tensor of what lies one after the other in the same memory, None where it does not."""
    places = [_native._handle_of(part) for part in parts if part.numel()]
    sizes = [part.numel() * part.element_size() for part in parts if part.numel()]
    for (one, at), size, (other, then) in zip(places, sizes, places[1:], strict=False):
        if one != other or at + size != then:
            return None
    first = next((part for part in parts if part.numel()), parts[0])
    return first.as_strided((sum(part.numel() for part in parts),), (1,))


class CardEngine(Engine):
    """What the card's communicator declines, as every rank's does, goes through the host."""

    def __init__(self, made: Any, device: Any, table: Table, context: Any, handle: Any) -> None:
        super().__init__(made.rank(), made.size())
        self.device = device
        self.name = f"{device.type}'s"
        self._made, self._table, self._context, self._handle = made, table, context, handle
        self.stream = ts.Stream(device)
        self._watch = Watch(made, device, table, context, handle)
        self._sequence = 0

    # --- order --------------------------------------------------------------------------------------------------------

    def run(self, job: Callable[[], Any], call: Call, text: str, async_op: bool, result: Any) -> Work | None:
        """Queue a collective after what the caller's stream was given; that waits for it at once, or by the work."""
        self._watch.check()
        here = ts.current_stream(self.device)
        self.stream.wait_stream(here)
        watched, event = self._watch.begin(call, text), None
        try:
            with self.stream:
                job()
            event = self.stream.record_event()
        except Exception:
            self._watch.check()  # says more where it has ended what was under way
            raise
        finally:
            watched.append(event)
        work = CardWork(self.device, self.stream, event, result, self._watch)
        if async_op:
            return work
        work.wait()
        return None

    def close(self) -> None:
        """After all that was given is done."""
        if not self._watch.failed:
            self.stream.synchronize()
        if self._watch.close():
            self._table.close(self._context, self._handle)

    def abort(self, reason: str) -> None:
        self._watch.fail(reason)

    # --- one call -----------------------------------------------------------------------------------------------------

    def _do(self, kind: str, source: Any, target: Any, count: int, op: int | None = None, **fields: Any) -> bool:
        """Whether the card's communicator took it."""
        like = source if source is not None else target
        dtype = str(like.dtype).rpartition(".")[2]
        reduction = 0 if op is None else _REDUCTIONS.get(op, -1)
        whole = not like.is_floating_point() and not like.is_complex()
        if reduction < 0 or dtype not in DTYPES or (reduction == AVERAGE and whole):
            return False
        number = DTYPES.index(dtype)
        if not self._table.collectives >> KINDS.index(kind) & 1 or not self._table.dtypes >> number & 1:
            return False
        for name in ("counts", "gotten"):
            if fields.get(name) is not None:
                fields[name] = (ctypes.c_int64 * self.size)(*fields[name])
        for name, tensor in (("src", source), ("dst", target)):
            if tensor is not None:
                _native._record_stream(tensor, self.stream)
                fields[name], fields[f"{name}_offset"] = _native._handle_of(tensor)
        self._sequence += 1
        given = Collective(
            ctypes.sizeof(Collective),
            _native._host_table(),
            KINDS.index(kind),
            reduction=reduction,
            dtype=number,
            sequence=self._sequence,
            count=count,
            stream=self.stream.stream_id or None,
            **fields,
        )
        status = int(self._table.collective(self._context, self._handle, ctypes.byref(given)))
        if status not in (0, DECLINED):
            raise DistBackendError(f"{kind}: {_native._take_last_error() or f'the communicator gave status {status}'}")
        return status == 0

    def _staged(self, name: str, written: Sequence[Tensor], *arguments: Any) -> None:
        """By the host's communicator, with copies."""
        copies: dict[int, Tensor] = {}

        def there(given: Any) -> Any:
            if isinstance(given, Tensor):
                return copies.setdefault(id(given), given.cpu())
            return [there(each) for each in given] if isinstance(given, (list, tuple)) else given

        host = [argument if isinstance(argument, Call) else there(argument) for argument in arguments]
        for tensor in written[:1]:
            _native._note_fallback(name, tensor)
        self._made.in_order(lambda: getattr(self._made.engine, name)(*host))
        for tensor in written:
            tensor.copy_(copies[id(tensor)])

    # --- collectives --------------------------------------------------------------------------------------------------

    def broadcast(self, tensor: Any, root: int, call: Call) -> None:
        if not self._do("broadcast", tensor, tensor, tensor.numel(), peer=root):
            self._staged("broadcast", [tensor], tensor, root, call)

    def all_reduce(self, source: Any, target: Any, op: int, call: Call) -> None:
        if not self._do("all_reduce", source, target, source.numel(), op):
            self._staged("all_reduce", [target], source, target, op, call)

    def reduce(self, source: Any, target: Any, op: int, root: int, call: Call) -> None:
        to = target if self.rank == root else None
        if not self._do("reduce", source, to, source.numel(), op, peer=root):
            self._staged("reduce", [target] if self.rank == root else [], source, target, op, root, call)

    def all_gather(self, source: Any, targets: Sequence[Any], call: Call) -> None:
        counts = [t.numel() for t in targets]
        uneven = counts if len(set(counts)) > 1 else None
        if not self._into("all_gather", targets, source, source.numel(), counts=uneven):
            self._staged("all_gather", targets, source, targets, call)

    def gather(self, source: Any, targets: Sequence[Any], counts: Sequence[int], root: int, call: Call) -> None:
        if not self._into("gather", targets, source, source.numel(), peer=root):
            self._staged("gather", targets, source, targets, counts, root, call)

    def scatter(self, sources: Sequence[Any], target: Any, counts: Sequence[int], root: int, call: Call) -> None:
        if not self._do("scatter", self._from(sources), target, target.numel(), peer=root):
            self._staged("scatter", [target], sources, target, counts, root, call)

    def reduce_scatter(self, sources: Sequence[Any], target: Any, op: int, call: Call) -> None:
        counts = [t.numel() for t in sources]
        uneven = counts if len(set(counts)) > 1 else None
        if not self._do("reduce_scatter", self._from(sources), target, target.numel(), op, counts=uneven):
            self._staged("reduce_scatter", [target], sources, target, op, call)

    def all_to_all(self, sources: Sequence[Any], targets: Sequence[Any], call: Call) -> None:
        given, gotten = ([t.numel() for t in tensors] for tensors in (sources, targets))
        numbers = {"counts": given, "gotten": gotten}
        if not self._into("all_to_all", targets, self._from(sources), sum(given), **numbers):
            self._staged("all_to_all", targets, sources, targets, call)

    def _from(self, sources: Sequence[Tensor]) -> Tensor | None:
        """All parts in one; None of none."""
        if not sources:
            return None
        whole = _joined(sources)
        return ts.cat([part.reshape(-1) for part in sources]) if whole is None else whole

    def _into(self, kind: str, targets: Sequence[Tensor], source: Any, count: int, **fields: Any) -> bool:
        """A call that fills all parts at once."""
        if not targets:
            return self._do(kind, source, None, count, **fields)
        whole = _joined(targets)
        if whole is not None:
            return self._do(kind, source, whole, count, **fields)
        sizes = [part.numel() for part in targets]
        whole = ts.empty(sum(sizes), dtype=source.dtype, device=self.device)
        taken = self._do(kind, source, whole, count, **fields)
        if taken:
            for part, got in zip(targets, whole.split(sizes), strict=True):
                part.copy_(got.view(part.shape))
        return taken
