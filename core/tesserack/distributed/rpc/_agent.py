"""Calls of functions in other processes: what goes out, what comes in, and the end of both."""

from __future__ import annotations

import contextlib
import queue
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any, NamedTuple

import tesserack as ts
from tesserack import Tensor
from tesserack.distributed.autograd import _contexts as contexts
from tesserack.distributed.rpc._devices import packed, unpacked
from tesserack.distributed.rpc._links import Doors, Link
from tesserack.distributed.rpc._meeting import Meeting
from tesserack.distributed.rpc._references import References
from tesserack.distributed.rpc._workers import WorkerInfo
from tesserack.distributed.rpc.functions import is_asynchronous
from tesserack.distributed.rpc.internal import PythonUDF, as_remote, deserialize, raised, serialize
from tesserack.distributed.rpc.options import TensorPipeRpcBackendOptions
from tesserack.utils.futures import Future

__all__ = ["Agent", "Later", "called"]


class Answer(Future[Any]):
    """A result that comes from elsewhere. What waits for it by ``then`` has a thread of its own: it may call too."""

    def _call_back(self, callbacks: list[Callable[[Future[Any]], None]]) -> None:
        if callbacks:
            threading.Thread(target=super()._call_back, args=(callbacks,), name="rpc", daemon=True).start()


class Later(NamedTuple):
    """What a function returns whose result is a future's."""

    future: Future[Any]


class _Pending(NamedTuple):
    answer: Answer
    to: WorkerInfo
    limit: float  # seconds
    end: float


def called(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What a function of the program's returns, with futures as :class:`Later` where it is marked so."""
    result = func(*args, **kwargs)
    if not is_asynchronous(func):
        return result
    if not isinstance(result, Future):
        raise RuntimeError(
            "Functions decorated with @rpc.async_function must return a torch.futures.Future object, but got "
            f"{type(result)}"
        )
    return Later(result)


class Agent:
    """One worker among others: ``call`` runs a function there, threads here run what others ask for."""

    def __init__(self, meeting: Meeting, options: TensorPipeRpcBackendOptions, reference: Any) -> None:
        self.options, self.meeting = options, meeting
        self.references = References(self, reference)
        self._lock = threading.Condition()
        self._pending: dict[int, _Pending] = {}
        self._links: dict[int, Link] = {}
        self._connecting = threading.Lock()
        self._number = self._running = self._handled = 0
        self._ends: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._open = threading.Event()
        self._doors = Doors(meeting.hosts, meeting.word, self._serve)
        try:
            meeting.introduce(self._doors.port)
        except BaseException:
            self._doors.close()
            raise
        self.me = meeting.me
        contexts.begin(self.me.id)
        threading.Thread(target=self._watch, name="rpc", daemon=True).start()

    def get_worker_infos(self) -> list[WorkerInfo]:
        """All workers, in the order of their numbers."""
        return list(self.meeting.workers)

    def open(self) -> None:
        """From now on calls are taken."""
        self._open.set()

    # --- calls of ours ------------------------------------------------------------------------------------------------

    def call(self, to: WorkerInfo, func: Callable[..., Any], args: Any, kwargs: Any, timeout: float = 0.0) -> Answer:
        """The result that is to come of ``func(*args, **kwargs)`` in a worker; ``timeout`` in seconds, 0 for any."""
        body, tensors = serialize(PythonUDF(func, tuple(args), dict(kwargs or {})))
        devices = self.options.device_maps.get(to.name, {})
        sent = packed(tensors, devices, to)
        note = contexts.outgoing(to.id, tensors)
        answer, end = Answer(), time.monotonic() + timeout if timeout else float("inf")
        with self._lock:
            self._number += 1
            number = self._number
            self._pending[number] = _Pending(answer, to, timeout, end)
        if timeout:
            self._ends.put(None)  # look at the times again
        message = ("call", number, body, sent, note, {there: here for here, there in devices.items()})
        if to == self.me:
            threading.Thread(
                target=self._handle, args=(self.me, message, self._answered), name="rpc", daemon=True
            ).start()
            return answer
        try:
            self._link(to).send(message)
        except OSError as error:
            self._fail(number, RuntimeError(f"rpc: {to!r} cannot be reached: {error}"))
        return answer

    def _link(self, to: WorkerInfo) -> Link:
        with self._connecting:
            link = self._links.get(to.id)
            if link is None:
                hosts, port = self.meeting.places[to.id]
                link = self._links[to.id] = Link.towards(hosts, port, self.meeting.word, self.me.id)
                threading.Thread(target=self._listen, args=(link, to), name="rpc", daemon=True).start()
            return link

    def _listen(self, link: Link, to: WorkerInfo) -> None:
        """Take answers until the other end is gone."""
        try:
            while True:
                self._answered(link.receive())
        except OSError:
            pass
        with self._lock:
            left = [number for number, waiting in self._pending.items() if waiting.to == to]
        for number in left:
            self._fail(number, RuntimeError(f"rpc: {to!r} ended, or left, before it answered"))

    def _answered(self, message: Any) -> None:
        number, failed, body, sent, note = message
        with self._lock:
            waiting = self._pending.get(number)
        if waiting is None:  # its time was over
            return
        try:
            tensors = contexts.incoming(waiting.to.id, note, unpacked(sent))
            result = deserialize(body, tensors)
        except BaseException as error:
            failed, result = True, as_remote(error, self.me)
        self._settle(number, raised(result) if failed else result, failed)

    def _fail(self, number: int, error: BaseException) -> None:
        self._settle(number, error, True)

    def _settle(self, number: int, result: Any, failed: bool) -> None:
        with self._lock:
            waiting = self._pending.pop(number, None)
            self._lock.notify_all()
        if waiting is not None:
            (waiting.answer.set_exception if failed else waiting.answer.set_result)(result)

    def _watch(self) -> None:
        """End calls whose time is over, and send what is said of references that nobody holds any more."""
        while True:
            with self._lock:
                next_end = min((waiting.end for waiting in self._pending.values()), default=float("inf"))
            try:
                wait = None if next_end == float("inf") else max(next_end - time.monotonic(), 0.001)
                asked = self._ends.get(timeout=wait)
            except queue.Empty:
                asked = None
            if asked is False:
                return
            if asked is not None:
                asked()
            now = time.monotonic()
            with self._lock:
                over = [(n, waiting.limit) for n, waiting in self._pending.items() if waiting.end <= now]
            for number, limit in over:
                milliseconds = int(limit * 1000)
                self._fail(number, RuntimeError(
                    f"RPC ran for more than set timeout ({milliseconds} ms) and will now be marked with an error"
                ))  # fmt: skip

    def later(self, what: Callable[[], None]) -> None:
        """Have another thread do something short: from where nothing may be locked."""
        self._ends.put(what)

    # --- calls of others ----------------------------------------------------------------------------------------------

    def _serve(self, link: Link, caller: int) -> None:
        self._open.wait()  # others may be through with the beginning before us
        worker = self.meeting.worker(caller)
        while True:
            message = link.receive()
            threading.Thread(
                target=self._handle, args=(worker, message, link.send), name=f"rpc of {worker.name}", daemon=True
            ).start()

    def _handle(self, caller: WorkerInfo, message: Any, reply: Callable[[Any], None]) -> None:
        _, number, body, sent, note, devices = message
        with self._lock:
            self._running += 1

        def done(future: Future[Any]) -> None:
            try:
                self._reply(caller, number, future, note, devices, reply)
            finally:
                with self._lock:
                    self._running -= 1
                    self._handled += 1
                    self._lock.notify_all()

        future: Future[Any] = Future()
        try:
            with contexts.within(note):
                tensors = contexts.incoming(caller.id, note, unpacked(sent))
                result = called(*deserialize(body, tensors))
        except BaseException as error:
            text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
            print(f"On {self.me!r}, called by {caller!r}:\n{text}", file=sys.stderr)
            future.set_exception(error)
        else:
            if isinstance(result, Later):
                future = result.future
            else:
                future.set_result(result)
        future.add_done_callback(done)

    def _reply(
        self,
        caller: WorkerInfo,
        number: int,
        future: Future[Any],
        note: Any,
        devices: dict[ts.device, ts.device],
        reply: Any,
    ) -> None:
        try:
            body, tensors = serialize(future.value())
            sent = packed(tensors, devices, caller)
            with contexts.within(note):
                answer = (number, False, body, sent, contexts.outgoing(caller.id, tensors))
        except BaseException as error:
            none: list[Tensor] = []
            answer = (number, True, serialize(as_remote(error, self.me))[0], packed(none, {}, caller), None)
        with contextlib.suppress(OSError):  # the caller is gone
            reply(answer)

    # --- the end ------------------------------------------------------------------------------------------------------

    def leave(self, graceful: bool, timeout: float) -> None:
        """Take part no more; where graceful, when all are through with their calls.

        Raises:
            RuntimeError: where others did not come to their end within ``timeout`` seconds, 0 for any number.
        """
        try:
            if graceful:
                self.meeting.all_end(timeout)
                self._until_quiet(timeout)
        finally:
            self._ends.put(False)
            self._doors.close()
            for link in list(self._links.values()):
                link.close()
            contexts.end()
            if graceful:
                self.meeting.part()

    def _is_quiet(self) -> bool:
        return not self._pending and not self._running

    def _until_quiet(self, timeout: float) -> None:
        """Until in two rounds in a row no worker had a call under way, and none was made between them."""
        end = time.monotonic() + timeout if timeout else float("inf")
        before: list[str] = []
        for turn in range(1 << 30):
            with self._lock:
                if not self._lock.wait_for(self._is_quiet, min(end - time.monotonic(), 1e6)):
                    waits = sorted({repr(waiting.to) for waiting in self._pending.values()})
                    raise RuntimeError(
                        f"rpc.shutdown: after {timeout:g} s calls are still under way, to {', '.join(waits) or 'here'}"
                    )
                mine = f"{self._number} {self._handled}"
            now = self.meeting.exchange(f"turn{turn}", mine, end)
            if now == before:
                return
            before = now
