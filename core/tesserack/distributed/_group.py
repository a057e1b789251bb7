"""Groups of ranks: who belongs to one, what carries its collectives, and in which order they run."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import tesserack as ts
from tesserack import Tensor, _native
from tesserack.distributed._engine import Call, Engine, QuickCalls
from tesserack.distributed._errors import DistBackendError
from tesserack.distributed._memory import shape_text
from tesserack.distributed._recorder import Recorder, dump_where_asked
from tesserack.distributed._work import Runner, Work

__all__ = ["ProcessGroup", "user_line"]

NOTHING = contextlib.nullcontext()
PROFILED = {"all_to_all_single": "all_to_all"}  # what PyTorch's profiler calls by another name


def user_line() -> str:
    """``file.py:12`` of the innermost line that is not of this package."""
    frame: Any = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "tesserack":
        frame = frame.f_back
    return "" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"


def refuse_traced(op: str) -> None:
    """``RuntimeError`` where a program is being traced: the graph would leave the communication out."""
    if _native._is_tracing():
        raise RuntimeError(
            f"{op}: expected no trace, since this is no operator and the graph would leave it out; call "
            "ops._c10d_functional, which are operators"
        )


class ProcessGroup:
    """Some ranks of the world, numbered anew from 0.

    Collectives run in the order in which they are called, at once in the caller's thread or, asynchronous ones, in a
    thread of the group. Messages have threads of their own, one for each direction and rank, so that a send that waits
    keeps nothing back.
    """

    def __init__(
        self, engine: Engine, store: Any, ranks: Sequence[int], name: str, backend: str, timeout: timedelta
    ) -> None:
        self.engine, self.store, self.ranks = engine, store, tuple(ranks)
        self.group_name, self.backend_name, self.timeout = name, backend, timeout
        self.group_desc = name
        self.cards: dict[Any, Engine] = {}  # what carries collectives of a device's tensors
        self.splits: dict[str, int] = {}  # groups made of this one, by their ranks
        self.recorder = Recorder()
        engine.prepare(self.recorder)
        self._collectives = Runner(f"collectives of {name}")
        self._letters: dict[tuple[str, int], Runner] = {}
        self._lock = threading.RLock()

    def carrier(self, tensor: Any) -> Engine:
        """What carries a collective of one: its card's own communicator, which all ranks have, or the host's."""
        if not self.engine.joins_cards or not isinstance(tensor, Tensor) or tensor.device.type == "cpu":
            return self.engine
        from tesserack.distributed._cards import carrier

        return carrier(self, tensor.device)

    def in_order(self, job: Callable[[], Any]) -> None:
        """Do something with the host's communicator, after what that was given before."""
        if self._collectives.idle:
            with self._lock:
                job()
        else:
            self._collectives.submit(job).wait()

    def rank(self) -> int:
        """This process's number in the group."""
        return self.engine.rank

    def size(self) -> int:
        """How many ranks the group has."""
        return self.engine.size

    def name(self) -> str:
        """The communicator's name."""
        return self.backend_name

    def __repr__(self) -> str:
        return f"ProcessGroup({self.group_name!r}, rank {self.rank()} of {self.size()}, {self.engine.name})"

    def __reduce__(self) -> Any:
        raise TypeError(
            "ProcessGroup: a group belongs to its process and cannot be pickled; make it in each with new_group"
        )

    def group_rank(self, rank: int, op: str = "get_group_rank") -> int:
        """The group's number of a rank of the world. ``ValueError`` where it is not a member."""
        try:
            return self.ranks.index(rank)
        except ValueError:
            raise ValueError(
                f"{op}: Global rank {rank} is not part of group {self!r}, whose ranks are {self.ranks}"
            ) from None

    def next_split(self, key: str) -> str:
        """A name for a group made of this one, the same on each of its ranks."""
        self.splits[key] = self.splits.get(key, 0) + 1
        return f"{self.group_name}/{key}/{self.splits[key]}"

    @property
    def timeout(self) -> timedelta:
        """How long its calls wait where they do not say it themselves."""
        return self._timeout

    @timeout.setter
    def timeout(self, timeout: timedelta) -> None:
        self._timeout, self.seconds = timeout, timeout.total_seconds()

    def quick(self) -> QuickCalls | None:
        """What does common calls at once, while nothing else is under way."""
        return self.engine.quick if self._collectives._under_way == 0 else None

    def told(self, error: BaseException) -> BaseException:
        """What a call raises that was done at once, written down where traces are asked for."""
        dump_where_asked()
        return DistBackendError(str(error)) if type(error) is RuntimeError else error

    def call(self, timeout: timedelta | float | None = None) -> Call:
        """What a collective called here says of itself."""
        if timeout is None:
            return Call(self.seconds, user_line())
        return Call(timeout.total_seconds() if isinstance(timeout, timedelta) else float(timeout), user_line())

    def profiled(self, op: str, of: Tensor | None) -> contextlib.AbstractContextManager[None]:
        """An event of the profiler, where one records, by PyTorch's name: ``gloo:all_reduce``."""
        profiler: Any = sys.modules.get("tesserack.utils.profiler._record")
        if profiler is None or not profiler._active:
            return NOTHING
        shapes = [] if of is None else [list(of.shape)]
        name = f"{self.backend_name}:{PROFILED.get(op, op)}"
        event: contextlib.AbstractContextManager[None] = profiler.communicating(name, shapes)
        return event

    def begun(self, op: str, call: Call, of: Tensor | None, shape: str) -> int:
        """Write down that a collective was called; its entry."""
        refuse_traced(op)
        return self.recorder.begin(op, shape or ("" if of is None else shape_text(of)), call.where)

    def run(
        self,
        op: str,
        call: Call,
        job: Callable[[], Any],
        async_op: bool,
        result: Any,
        of: Tensor | None = None,
        shape: str = "",
        carrier: Engine | None = None,
    ) -> Work | None:
        """Do a collective after those before it: now, or by itself. ``of``, or ``shape`` as text, is what it is of."""
        entry = self.begun(op, call, of, shape)
        event = self.profiled(op, of)

        def noted() -> Any:
            with self.recorder.written(entry), event:
                return job()

        if carrier is not None and carrier.device is not None:
            text = f"{op} of {shape or ('' if of is None else shape_text(of))}"
            work_of_card: Work | None = carrier.run(noted, call, text, async_op, result)
            return work_of_card
        if not async_op and self._collectives.idle:
            with self._lock:
                noted()
            return None
        work = self._collectives.submit(noted, result)
        if async_op:
            return work
        work.wait()
        return None

    def post(
        self, op: str, peer: int, job: Callable[[], Any], async_op: bool, result: Any, tensor: Tensor
    ) -> Work | int:
        """Do a send or receive after those before it in the same direction."""
        refuse_traced(op)
        direction = "to" if op == "send" else "from"
        of = f"{shape_text(tensor)} {direction} {'any rank' if peer < 0 else f'rank {peer}'}"
        entry = self.recorder.begin(op, of, user_line(), kind="message")
        event = self.profiled("send" if op == "send" else "recvAnySource" if peer < 0 else "recv", tensor)

        def noted() -> Any:
            with self.recorder.written(entry), event:
                return job()

        runner = self._letters.get((op, peer))
        if not async_op and (runner is None or runner.idle):
            given = noted()
            return given if isinstance(given, int) else -1
        if runner is None:
            runner = self._letters.setdefault((op, peer), Runner(f"{op} {peer} of {self.group_name}"))
        work = runner.submit(noted, result)
        if async_op:
            return work
        work.wait()
        return work.source_rank()

    def _get_backend(self, device: Any = None) -> ProcessGroup:
        """What carries the collectives of a device's tensors: all of them are this group's."""
        return self

    def supports_tensor_alloc(self, device: Any) -> bool:
        """Whether :meth:`allocate_tensor` gives memory of a device that collectives are faster with."""
        return self.engine.allocates and ts.device(device).type == "cpu"

    def allocate_tensor(self, size: int, *, dtype: Any, device: Any) -> Tensor:
        """A tensor of ``size`` elements in memory that the ranks of one machine share, which :func:`all_reduce` works
        on where it is. Every rank of the group calls this with the same size, and may then reduce what lies in it: its
        own elements are a rank's alone otherwise. A process forked from this one sees it too, unlike other tensors.
        """
        if not self.supports_tensor_alloc(device):
            raise RuntimeError(
                f"allocate_tensor: expected a communicator that shares memory of {device}, got {self.engine.name}; ask "
                "supports_tensor_alloc, and take empty() elsewhere"
            )
        found: list[Tensor] = []
        size_of = max(1, size) * dtype.itemsize
        call = self.call()
        self.run("allocate_tensor", call, lambda: found.append(self.engine.allocate(size_of, call)), False, None)
        return found[0].view(dtype)[:size]

    def close(self) -> None:
        """Finish what is under way and give the communicator up."""
        for engine in self.cards.values():
            if engine is not self.engine:
                engine.close()
        for runner in (self._collectives, *self._letters.values()):
            runner.close()
        self.engine.close()

    def abort(self, reason: str = "the group was aborted") -> None:
        """End what is under way on every rank, with an error."""
        for engine in (*self.cards.values(), self.engine):
            engine.abort(reason)
