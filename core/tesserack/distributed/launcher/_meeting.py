"""How the launchers of several machines agree on who is there, and learn of each other's failures."""

from __future__ import annotations

import contextlib
import functools
import os
import socket
import sys
import threading
import time
import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import Any, NamedTuple

from tesserack.distributed._errors import DistError, DistNetworkError
from tesserack.distributed._tcp_store import TCPStore
from tesserack.distributed.launcher._members import Members
from tesserack.distributed.launcher._options import LaunchConfig
from tesserack.distributed.launcher._ports import free_port

__all__ = ["JobEnded", "Meeting", "Place"]

HEARD = 5.0  # seconds that the keeper of the store waits for others to hear of an end
_PAUSE = 0.05


class Place(NamedTuple):
    """Where a machine stands in an attempt. No host and port 0: as configured."""

    node: int
    nodes: int
    first: int  #: rank
    size: int  #: of the world
    host: str = ""
    port: int = 0


class JobEnded(Exception):
    """The others have come to the end while this machine waited for a place."""


class Meeting:
    """``static``: machines know their numbers. ``c10d``: they come to an endpoint, any number within the bounds, and
    meet again when ranks of any of them fail, when one comes and when one is gone.

    ``asked`` is looked at while this waits: not 0 ends the wait by ``SystemExit``.
    """

    def __init__(self, config: LaunchConfig, asked: Callable[[], int] = lambda: 0) -> None:
        self._config, self._asked = config, asked
        self._store: Any = None
        self._round = 0
        self.restarts = 0  #: after failures
        self._name = f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:6]}"
        self._beating = threading.Event()
        self._looked, self._gone, self._waits = 0.0, False, False
        self._heard: dict[str, tuple[int, int]] = {}  # by machine: its beats, and how often they were the same
        if config.rdzv_backend == "etcd":
            raise DistError("launch: expected --rdzv-backend static or c10d, got etcd")
        if config.rdzv_backend == "c10d":
            self._store = self._connected()
            alive = config.keep_alive_interval * config.keep_alive_attempts
            self._store.set_timeout(timedelta(seconds=max(30.0, alive)))  # of an answer: the keeper may be stopped
            threading.Thread(target=self._beat, args=(self._store.clone(),), daemon=True).start()

    def __enter__(self) -> Meeting:
        return self

    def __exit__(self, *raised: Any) -> None:
        if self._store is not None:
            if raised[0] is not None:
                with contextlib.suppress(DistError):
                    self.leave(f"{self._name} has left")
            self._beating.set()
        self._store = None

    def _connected(self) -> TCPStore:
        endpoint = self._config.rdzv_endpoint or "127.0.0.1:0"
        host, _, port = endpoint.rpartition(":")
        host, number = (host, int(port)) if host else (endpoint, 29400)
        bound = timedelta(seconds=self._config.rdzv_timeout)
        if self._config.keeps_store is not False:
            try:  # who listens there first keeps the store
                return TCPStore(host, number, is_master=True, timeout=bound, wait_for_workers=False)
            except (DistNetworkError, OSError):
                if self._config.keeps_store:
                    raise
        return TCPStore(host, number, timeout=bound)

    # --- what all see -----------------------------------------------------------------------------------------------

    def _key(self, name: str) -> str:
        return f"{self._config.rdzv_id}/{name}"

    def _members(self) -> Members:
        return self._change(lambda members: None)

    def _change(self, change: Callable[[Members], Any]) -> Members:
        """What the job's members are after a change, which is made to what others have made of them meanwhile."""
        key = self._key("members")
        before: bytes = self._store.compare_set(key, "", Members().text())
        while True:
            members = Members.read(before)
            change(members)
            after = members.text().encode()
            if after == before:
                return members
            found: bytes = self._store.compare_set(key, before, after)
            if found == after:
                return members
            before = found

    def _beat(self, store: Any) -> None:
        """That this launcher lives, in a thread of its own."""
        with contextlib.suppress(DistError):
            while not self._beating.is_set():
                store.add(self._key(f"beats/{self._name}"), 1)
                self._beating.wait(self._config.keep_alive_interval)

    def _look(self) -> Members:
        """The members, without those that have not been heard of. ``DistError`` where the job has ended."""
        members = self._members()
        if time.monotonic() - self._looked >= self._config.keep_alive_interval:
            self._looked = time.monotonic()
            for name in [n for n in members.present if n != self._name and self._silent(n)]:
                members = self._change(functools.partial(Members.leave, name=name, why=f"{name} does not answer"))
        if members.ended:
            self.leave("")
            raise DistError(f"launch: {members.ended}")
        return members

    def _silent(self, name: str) -> bool:
        """Whether it has not beaten between as many looks as it may. Looks are counted, since clocks go on in sleep."""
        beats = int(self._store.add(self._key(f"beats/{name}"), 0))
        before, times = self._heard.get(name, (-1, 0))
        self._heard[name] = (beats, times + 1 if beats == before else 0)
        return self._heard[name][1] > self._config.keep_alive_attempts

    # --- an attempt -------------------------------------------------------------------------------------------------

    def join(self) -> Place:
        """This machine's place in the next attempt. ``DistError`` where too few come in time, ``JobEnded`` where the
        others have come to the end without it."""
        config = self._config
        if self._store is None:
            if config.node_rank >= config.max_nodes:
                raise DistError(f"launch: expected --node-rank below {config.max_nodes}, got {config.node_rank}")
            per, nodes = config.nproc_per_node, config.max_nodes
            return Place(config.node_rank, nodes, config.node_rank * per, nodes * per)
        end = time.monotonic() + config.rdzv_timeout
        while True:
            members = self._gathered(end)
            self._round, self.restarts = members.round, members.restarts
            node = members.members.index(self._name)
            if (where := self._where(node, end)) is not None:
                break
        ranks = [members.present[name] for name in members.members]
        return Place(node, len(ranks), sum(ranks[:node]), sum(ranks), *where)

    def _gathered(self, end: float) -> Members:
        """The members of a round with this machine, once they are enough and the last call is over."""
        config = self._config
        enough: tuple[int, float] | None = None  # the round that has so many, since when
        while True:
            self._look()
            members = self._change(lambda m: m.come(self._name, config.nproc_per_node, config.max_nodes))
            if members.closed and self._name in members.members:
                return members
            now, count = time.monotonic(), len(members.members)
            if self._name in members.members and count >= config.min_nodes:
                if enough is None or enough[0] != members.round:
                    enough = (members.round, now)
                # Who has met before waits for nobody else: one that comes later begins a round.
                all_here = members.round > 0 and set(members.present) <= set(members.members)
                if all_here or count >= config.max_nodes or now - enough[1] >= config.last_call:
                    self._change(functools.partial(Members.close, number=members.round))
                    continue
            self._wait(end, members)

    def _wait(self, end: float, members: Members) -> None:
        config = self._config
        if self._name not in members.members:
            if members.all_done():
                raise JobEnded
            if not self._waits:
                self._waits, count = True, len(members.members)
                machines = f"{count} machine{' is' if count == 1 else 's are'}"
                print(f"tesserack launch: {machines} at work; waiting for a place", file=sys.stderr, flush=True)
        if time.monotonic() > end:
            count = len(members.members)
            if self._name not in members.members:
                raise DistError(
                    f"launch: {count} machines are at work; no place came free in {config.rdzv_timeout:g} s"
                )
            raise DistError(f"launch: {count} of {config.min_nodes} machines came within {config.rdzv_timeout:g} s")
        if self._asked():
            raise SystemExit(128 + self._asked())
        time.sleep(_PAUSE)

    def _where(self, node: int, end: float) -> tuple[str, int] | None:
        """Where ranks meet, which the first machine says; None where it is gone meanwhile."""
        key = self._key(f"{self._round}/host")
        if node == 0:
            self._store.set(key, f"{_own_address(self._config)} {free_port()}")
        while not self._store.check([key]):
            members = self._look()
            if members.round != self._round:
                return None
            self._wait(end, members)
        host, port = self._store.get(key).decode().split()
        return host, int(port)

    def over(self) -> str:
        """Why the attempt is over for all, if it is. ``DistError`` where another machine has given up."""
        if self._store is None:
            return ""
        members = self._look()
        return members.why if members.round != self._round else ""

    def failed(self, why: str) -> bool:
        """Ranks here have failed. Whether all are to begin again."""
        most = self._config.max_restarts
        if self._store is None:
            self.restarts += 1
            return self.restarts <= most
        members = self._change(lambda m: m.fail(self._name, self._round, why, most))
        self.restarts = members.restarts
        return not members.ended

    def leaving(self) -> None:
        """This machine goes as soon as its ranks have ended: that is no failure of the others'."""
        if self._store is not None:
            self._change(lambda members: self._go(members, f"{self._name} has left", False))

    def _go(self, members: Members, why: str, gone: bool) -> None:
        others = any(name != self._name for name in members.present)
        members.leave(self._name, why, gone)
        if self._store._server is not None and others and not members.all_done():
            members.ended = members.ended or f"{self._name} has left, which kept the store"

    def leave(self, why: str) -> None:
        """This machine is gone; the others go on without it, but for the keeper of the store."""
        if self._store is None or self._gone:
            return
        self._gone = True
        self._change(lambda members: self._go(members, why, True))
        if self._store._server is not None:
            self._until_gone(HEARD)

    def _until_gone(self, seconds: float) -> None:
        """The store ends with its keeper: wait until all others are gone."""
        end = time.monotonic() + seconds
        while set(self._members().present) - {self._name} and time.monotonic() < end:
            time.sleep(0.02)

    def done(self) -> bool:
        """This machine's ranks have ended well; the keeper of the store stays until all have. False where all begin
        again, since others have failed meanwhile."""
        if self._store is None:
            return True

        def change(members: Members) -> None:
            if self._name in members.members and members.round == self._round:
                members.done.append(self._name)

        members, end = self._change(change), time.monotonic() + self._config.rdzv_timeout
        if self._name not in members.done:
            return False
        while self._store._server is not None and not members.all_done() and time.monotonic() < end:
            if self._asked():
                break
            time.sleep(_PAUSE)
            members = self._look()
        self.leave("")
        return True


def _own_address(config: LaunchConfig) -> str:
    host = config.rdzv_endpoint.rpartition(":")[0]
    if host in ("", "localhost", "127.0.0.1"):
        return host or "127.0.0.1"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:  # no datagram is sent
        probe.connect((host, 9))
        return str(probe.getsockname()[0])
