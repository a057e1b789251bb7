"""A rank fails at a named point of the group's life: ``points.py POINT HOW RANK SECONDS FILE``. Runs on each rank.

Writes when it failed to FILE; the others print what they are told, and how much later, or EARLY where they gave up
before.
"""

import functools
import os
import signal
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import tesserack as ts
from tesserack import distributed as dist
from tesserack.distributed import _local, _native_engine, _tcp, _tcp_store, _world

POINT, HOW, RANK, SECONDS, FILE = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4]), Path(sys.argv[5])
ME = int(os.environ["RANK"])


def fail() -> None:
    FILE.with_suffix(".partial").write_text(str(time.time()))
    FILE.with_suffix(".partial").replace(FILE)
    if HOW == "raising":
        raise ValueError("planted")
    if HOW == "leaving":
        os._exit(3)
    os.kill(os.getpid(), signal.SIGKILL if HOW == "killed" else signal.SIGSTOP)


def before(owner: Any, name: str) -> None:
    """Fail where this is called."""
    whole: Callable[..., Any] = getattr(owner, name)

    @functools.wraps(whole)
    def failing(*args: Any, **kwargs: Any) -> Any:
        setattr(owner, name, whole)
        fail()
        return whole(*args, **kwargs)

    setattr(owner, name, failing)


def at_key(end: str, op: str) -> None:
    """Fail where the store is asked for a key of that ending."""
    whole = dist.TCPStore._run

    def failing(self: Any, asked: str, keys: list[str], values: list[bytes], timeout: float) -> list[bytes]:
        if asked == op and keys and keys[0].endswith(end):
            dist.TCPStore._run = whole
            fail()
        return whole(self, asked, keys, values, timeout)

    dist.TCPStore._run = failing


#: Where a rank may fail, by name.
POINTS: dict[str, Callable[[], None]] = {
    "start": fail,
    "store": lambda: before(_tcp_store.TCPStore, "__init__"),
    "joined": lambda: before(_tcp_store.TCPStore, "add"),
    "gathering": lambda: before(_world, "gather"),
    "verdict of all": lambda: at_key("world0/verdict", "set" if ME == 0 else "get"),
    "address": lambda: at_key("/address", "set" if ME == 0 else "get"),
    "handing": lambda: before(_local, "_hand_out"),
    "verdict": lambda: at_key("engine/verdict", "set" if ME == 0 else "get"),
    "mapped": lambda: before(_local._native, "_LocalGroup"),
    "listening": lambda: before(_tcp, "listening"),
    "told": lambda: at_key(f"/rank{ME}", "set"),
    "word": lambda: at_key("/word", "get"),
    "calling": lambda: before(_tcp._Mesh, "_call"),
    "answering": lambda: before(_tcp._Mesh, "_answer"),
    "meshed": lambda: before(_tcp._Mesh, "on_this_machine"),
    "made": lambda: before(_world, "prepare"),
    "first": lambda: before(dist, "all_reduce"),  # small tensors reach the engine without Python
    "closing": lambda: before(_native_engine.NativeEngine, "close"),
}


def main() -> None:
    if ME == RANK:
        POINTS[POINT]()
    try:
        dist.init_process_group(timeout=timedelta(seconds=SECONDS))
        x = ts.ones(4)
        for _ in range(3):
            dist.all_reduce(x)
        group = dist.new_group()
        dist.all_reduce(x, group=group)
        if POINT == "closing" and ME == RANK:
            dist.destroy_process_group(group)
        dist.all_reduce(x)
    except dist.DistError as error:
        if not FILE.exists():
            print("EARLY", flush=True)
            raise
        print(f"TOLD {ME} after {time.time() - float(FILE.read_text()):.2f} s: {error}", flush=True)
        raise SystemExit(7) from None
    dist.destroy_process_group()


main()
