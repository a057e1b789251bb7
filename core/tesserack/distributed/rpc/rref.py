"""References to values in other processes."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from tesserack.distributed.rpc._agent import Later, called
from tesserack.distributed.rpc._current import current
from tesserack.distributed.rpc._references import Fork, Held, Number, dropped
from tesserack.distributed.rpc._workers import WorkerInfo
from tesserack.distributed.rpc.api import called_at, rpc_async, rpc_sync
from tesserack.distributed.rpc.constants import UNSET_RPC_TIMEOUT
from tesserack.distributed.rpc.rref_proxy import RRefProxy
from tesserack.utils.futures import Future

__all__ = ["RRef", "remote"]

T = TypeVar("T")


class RRef(Generic[T]):
    """A value that lies in the process of its owner, here or elsewhere; references travel between workers, it does not.

    Made of a value, this worker is the owner; :func:`~tesserack.distributed.rpc.remote` makes one of a value that is
    computed elsewhere. The owner keeps it as long as some worker has a reference.

    >>> from tesserack.distributed import rpc
    >>> from tesserack.distributed.rpc._begin import alone
    >>> with alone():
    ...     kept = rpc.RRef([1, 2])
    ...     kept.is_owner(), kept.local_value(), kept.rpc_sync().count(2)
    (True, [1, 2], 1)
    """

    _agent: Any
    _owner: WorkerInfo
    _value: Number
    _held: Held | None
    _fork: Number | None
    _known: Future[Any]
    _names: set[str]  # methods that the value has

    def __init__(self, value: T, type_hint: Any = None) -> None:
        agent = current()
        held = Held()
        held.future.set_result(value)
        self._is(agent, agent.me, agent.references.number(), held, None, held.future)

    def _is(self, agent: Any, owner: WorkerInfo, value: Number, held: Any, fork: Any, known: Future[Any]) -> None:
        self._agent, self._owner, self._value = agent, owner, value
        self._held, self._fork, self._known, self._names = held, fork, known, set()

    @classmethod
    def _own(cls, agent: Any, value: Number, held: Held) -> RRef[Any]:
        made = RRef.__new__(RRef)
        made._is(agent, agent.me, value, held, None, held.future)
        return made

    @classmethod
    def _of_other(cls, agent: Any, owner: WorkerInfo, value: Number, fork: Number, known: Future[Any]) -> RRef[Any]:
        made = RRef.__new__(RRef)
        made._is(agent, owner, value, None, fork, known)
        return made

    def __del__(self) -> None:
        if getattr(self, "_fork", None) is not None:
            agent, owner, value, fork, known = self._agent, self._owner, self._value, self._fork, self._known

            def tell(_: Any) -> None:
                agent.call(owner, dropped, (value, fork), {})

            agent.later(lambda: known.add_done_callback(tell))

    def _forked(self) -> Fork:
        """A new reference, on its way to another worker."""
        references = self._agent.references
        number = references.number()
        if self._held is not None:
            references.keep(self._value, self._held, number)
            return Fork(self._owner, self._value, number, None)
        references.parent(number, self)
        return Fork(self._owner, self._value, number, self._agent.me)

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise RuntimeError("Can not pickle rref in python pickler, rref can only be pickled when using RPC")

    # --- who has it ---------------------------------------------------------------------------------------------------

    def owner(self) -> WorkerInfo:
        """The worker in whose process the value is."""
        return self._owner

    def owner_name(self) -> str:
        """Its name."""
        return self._owner.name

    def is_owner(self) -> bool:
        """Whether that is this one."""
        return self._held is not None

    def confirmed_by_owner(self) -> bool:
        """Whether the owner knows of this reference."""
        return self._held is not None or (self._known.done() and self._known._error is None)

    def __repr__(self) -> str:
        if self._held is not None:
            return f"OwnerRRef({self._value!r})"
        return f"UserRRef(RRefId = {self._value!r}, ForkId = {self._fork!r})"

    # --- what it is ---------------------------------------------------------------------------------------------------

    def local_value(self) -> T:
        """The value itself, waited for where it is being made. ``RuntimeError`` if this worker is not the owner."""
        if self._held is None:
            raise RuntimeError(
                f"For {self!r}, can't call localValue() on user {self._agent.me!r}. Call it on owner {self._owner!r}"
            )
        return self._held.future.wait()  # type: ignore[no-any-return]

    def to_here(self, timeout: float = UNSET_RPC_TIMEOUT) -> T:
        """The value, or a copy if it lies elsewhere; ``timeout`` in seconds.

        Raises:
            RuntimeError: where it does not come in time, or its making took too long.
        """
        if self._held is not None:
            return self.local_value()
        if self._known.done() and "set timeout" in str(self._known._error):
            raise RuntimeError(
                "RRef creation via rpc.remote() timed out, and it is possible that the RRef on the owner node does "
                "not exist."
            )
        return called_at(self._owner, _fetched, (self._value,), {}, timeout).wait()  # type: ignore[no-any-return]

    def _get_type(self, timeout: float = UNSET_RPC_TIMEOUT, blocking: bool = True) -> Any:
        """The value's class, or a future of it."""
        future = called_at(self._owner, _type_of, (self,), {}, timeout)
        return future.wait() if blocking else future

    def _check_has(self, name: str, timeout: float) -> None:
        """``AttributeError`` if the value has no such method."""
        if name not in self._names:
            missing = called_at(self._owner, _lacks, (self, name), {}, timeout).wait()
            if missing:
                raise AttributeError(missing)
            self._names.add(name)

    def _get_future(self) -> Future[Any]:
        """Done when the value was made."""
        return self._known

    def backward(self, dist_autograd_ctx_id: int = -1, retain_graph: bool = False) -> None:
        """Run the backward pass of a value that is a tensor, in its owner's process: of a context of
        ``distributed.autograd``, or, for -1, of that process alone."""
        called_at(self._owner, _backward, (self, dist_autograd_ctx_id, retain_graph), {}, UNSET_RPC_TIMEOUT).wait()

    # --- calls of its methods -----------------------------------------------------------------------------------------

    def rpc_sync(self, timeout: float = UNSET_RPC_TIMEOUT) -> Any:
        """The value's methods, each run by its owner and waited for: ``rref.rpc_sync().size()``."""
        return RRefProxy(self, rpc_sync, timeout)

    def rpc_async(self, timeout: float = UNSET_RPC_TIMEOUT) -> Any:
        """The value's methods, each giving a future."""
        return RRefProxy(self, rpc_async, timeout)

    def remote(self, timeout: float = UNSET_RPC_TIMEOUT) -> Any:
        """The value's methods, each giving a reference to its result."""
        return RRefProxy(self, remote, timeout)


def remote(to: Any, func: Any, args: Any = None, kwargs: Any = None, timeout: float = UNSET_RPC_TIMEOUT) -> RRef[Any]:
    """A reference to what ``func(*args, **kwargs)`` returns in the worker ``to``, at once.

    What goes wrong there is raised by ``to_here``. ``RuntimeError`` for a worker that there is not.

    >>> from tesserack.distributed.rpc._begin import alone
    >>> with alone() as name:
    ...     remote(name, pow, args=(2, 5)).to_here()
    32
    """
    if not callable(func):
        raise TypeError(f"rpc: expected a function, got {type(func).__name__}")
    agent = current()
    owner, value = agent.meeting.worker(to), agent.references.number()
    fork = agent.references.number()
    given = (value, fork, func, tuple(args or ()), dict(kwargs or {}))
    if owner == agent.me:
        held = Held()
        agent.references.keep(value, held, fork)
        called_at(owner, _made, given, {}, timeout).add_done_callback(lambda _: agent.references.drop(value, fork))
        return RRef._own(agent, value, held)
    known = called_at(owner, _made, given, {}, timeout)
    return RRef._of_other(agent, owner, value, fork, known)


# What one worker asks of another.


def _made(value: Number, fork: Number, func: Any, args: Any, kwargs: Any) -> Any:
    """Compute a value of ours that another worker has a reference to."""
    references = current().references
    held = references.held(value)
    references.keep(value, held, fork)
    try:
        result = called(func, args, kwargs)
    except BaseException as error:
        held.future.set_exception(error)
        return None
    if not isinstance(result, Later):
        held.future.set_result(result)
        return None

    def finish(done: Future[Any]) -> None:
        try:
            held.future.set_result(done.value())
        except BaseException as error:
            held.future.set_exception(error)

    result.future.add_done_callback(finish)
    return Later(held.future.then(lambda _: None))


def _fetched(value: Number) -> Later:
    return Later(current().references.held(value).future)


def _type_of(reference: RRef[Any]) -> Any:
    return type(reference.local_value())


def _lacks(reference: RRef[Any], name: str) -> str:
    value = reference.local_value()
    return "" if hasattr(value, name) else f"{type(value).__name__!r} object has no attribute {name!r}"


def _backward(reference: RRef[Any], context: int, retain_graph: bool) -> None:
    from tesserack.distributed.autograd._backward import backward

    root: Any = reference.local_value()
    if context == -1:
        root.backward(retain_graph=retain_graph)
    else:
        backward(context, [root], retain_graph)
