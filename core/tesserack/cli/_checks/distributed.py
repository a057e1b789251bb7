"""Would ranks find each other here, and how fast would they talk? Asked by ``tesserack doctor --distributed``.

Alone, it looks at this machine and starts two ranks on it. Under a launcher (``srun``, ``mpiexec``, ``tesserack launch
-m tesserack doctor --distributed``) the ranks meet and compare machines, versions, clocks and connections.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from tesserack.plugins import Finding

__all__ = ["check", "measured"]

_SIZES = (1024, 16 << 20)  # bytes of the sums that are timed: for latency, and for bandwidth
_PATIENCE = 60.0  # seconds
_CLOCKS = 0.1  # seconds that clocks may differ before logs of ranks are hard to line up


def check() -> Iterator[Finding]:
    """All checks: of this machine on every rank's own, of the ranks together on the first."""
    yield from _names()
    yield from _sockets()
    yield from _memory()
    if _started():
        yield from _together()
    else:
        yield from _pairs()


def _started() -> bool:
    from tesserack.distributed._rendezvous import launched

    found = launched(os.environ)
    return found is not None and found[1] > 1


def _names() -> Iterator[Finding]:
    name, master = socket.gethostname(), os.environ.get("MASTER_ADDR")
    try:
        found = sorted({str(entry[4][0]) for entry in socket.getaddrinfo(name, None)})
    except OSError as error:
        yield Finding("warning", "names", f"this machine's own name {name!r} does not resolve: {error}", "/etc/hosts")
    else:
        alone = all(address.startswith("127.") or address == "::1" for address in found)
        cure = "give it its address in /etc/hosts or DNS, where ranks are on several machines" if alone else ""
        yield Finding("info" if alone else "ok", "names", f"{name} is {', '.join(found)}", cure)
    if master:
        try:
            told = sorted({str(entry[4][0]) for entry in socket.getaddrinfo(master, None)})
            yield Finding("ok", "names", f"MASTER_ADDR={master} is {', '.join(told)}")
        except OSError as error:
            yield Finding("error", "names", f"MASTER_ADDR={master} does not resolve: {error}", "set it to an address")


def _sockets() -> Iterator[Finding]:
    from tesserack.distributed import DistError
    from tesserack.distributed._sockets import addresses

    try:
        places = addresses(os.environ.get("MASTER_ADDR"))
    except DistError as error:
        yield Finding("error", "network", str(error), "name another interface, or none")
        return
    for place in places:
        family = socket.AF_INET6 if ":" in place else socket.AF_INET
        try:
            with socket.socket(family) as listener:
                listener.bind((place, 0))
                listener.listen()
                with socket.create_connection(listener.getsockname()[:2], timeout=5.0):
                    yield Finding("ok", "network", f"other ranks are given {place}, which answers")
        except OSError as error:
            cure = "name another interface by TESSERACK_SOCKET_IFNAME, or open the firewall for ranks"
            yield Finding("error", "network", f"nothing can be reached at {place}: {error}", cure)
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY:
        most = max(0, (soft - 64) // 3)
        level = "ok" if most >= 64 else "warning"
        told = f"{soft} open files: over TCP up to {most} ranks in a group"
        yield Finding(level, "limits", told, "" if level == "ok" else "ulimit -n 4096")


def _memory() -> Iterator[Finding]:
    try:
        descriptor = os.memfd_create("tesserack-doctor", os.MFD_CLOEXEC)
        try:
            os.ftruncate(descriptor, 1 << 20)
            with mmap.mmap(descriptor, 1 << 20) as memory:
                memory[-1:] = b"x"
        finally:
            os.close(descriptor)
        os.close(os.pidfd_open(os.getpid()))
    except (AttributeError, OSError) as error:
        yield Finding(
            "warning", "shared memory", f"not to be had: {error}; ranks of one machine take TCP", "a newer kernel"
        )
    else:
        yield Finding("ok", "shared memory", "there, and the end of a process is seen")


def measured() -> dict[str, float]:
    """Seconds of an all_reduce by its bytes, in the world that there is: the median of some."""
    import tesserack as ts
    from tesserack import distributed as dist

    found = {}
    for size in _SIZES:
        data, times = ts.ones(size // 4), []
        dist.barrier()
        for _ in range(50 if size < 1 << 20 else 5):
            began = time.perf_counter()
            dist.all_reduce(data)
            times.append(time.perf_counter() - began)
            data.fill_(1.0)
        found[str(size)] = sorted(times)[len(times) // 2]
    return found


def _speed(engine: str, ranks: int, times: dict[str, float]) -> Finding:
    small, large = (times[str(size)] for size in _SIZES)
    told = f"{ranks} ranks by {engine}: all_reduce of 1 KiB {small * 1e6:.0f} µs, of 16 MiB {large * 1e3:.1f} ms"
    return Finding("ok", "speed", f"{told} ({_SIZES[1] / large / 1e9:.2f} GB/s)")


_PAIR = """
import json, os
from datetime import timedelta
from tesserack import distributed as dist
from tesserack.cli._checks.distributed import measured
dist.init_process_group(os.environ["TRIED"], init_method="file://" + os.environ["PLACE"], world_size=2,
                        rank=int(os.environ["NUMBER"]), timeout=timedelta(seconds=30))
times = measured()
if dist.get_rank() == 0:
    print(json.dumps(times))
dist.destroy_process_group()
"""


def _pairs() -> Iterator[Finding]:
    """Two ranks on this machine, by each of the ways."""
    import tempfile

    for engine in ("local", "tcp"):
        with tempfile.TemporaryDirectory() as folder:
            told = {"TRIED": engine, "PLACE": folder + "/store", "OMP_NUM_THREADS": "1"}
            both = [
                subprocess.Popen(
                    [sys.executable, "-c", _PAIR],
                    env={**os.environ, **told, "NUMBER": str(number)},
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                )
                for number in range(2)
            ]
            try:
                output, errors = both[0].communicate(timeout=_PATIENCE)
                both[1].communicate(timeout=_PATIENCE)
                yield _speed(engine, 2, json.loads(output))
            except (subprocess.TimeoutExpired, ValueError) as error:
                last = (errors.strip().splitlines() or [""])[-1] if isinstance(error, ValueError) else str(error)
                yield Finding("error", "speed", f"two ranks by {engine} came to nothing: {last}", "see the message")
            finally:
                for process in both:
                    with contextlib.suppress(OSError):
                        process.kill()


def _together() -> Iterator[Finding]:
    """What the ranks of a launcher say of each other: on the first of them."""
    from tesserack import distributed as dist

    try:
        dist.init_process_group(timeout=timedelta(seconds=_PATIENCE))
    except Exception as error:
        yield Finding("error", "ranks", f"they do not meet: {error}", "see the message")
        return
    try:
        facts: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(facts, _facts())
        offsets = _clocks()
        times = measured()
        if dist.get_rank() == 0:
            yield from _compared(facts, offsets)
            yield _speed(dist.group.WORLD.engine.name, len(facts), times)
    except dist.DistError as error:
        yield Finding("error", "ranks", str(error), "see the message")
    finally:
        dist.destroy_process_group()


def _facts() -> dict[str, str]:
    import tesserack as ts

    limits = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    python = ".".join(map(str, sys.version_info[:3]))
    return {"host": socket.gethostname(), "tesserack": ts.__version__, "python": python, "open files": str(limits)}


def _clocks() -> list[float]:
    """How far each rank's clock is ahead of the first one's, on the first: by the quickest of some questions."""
    import tesserack as ts
    from tesserack import distributed as dist

    me, offsets = dist.get_rank(), [0.0]
    for other in range(1, dist.get_world_size()):
        best = (float("inf"), 0.0)
        for _ in range(8):
            told = ts.zeros(1, dtype=ts.float64)
            if me == 0:
                began = time.time()
                dist.send(told, other)
                dist.recv(told, other)
                ended = time.time()
                best = min(best, (ended - began, told.item() - (began + ended) / 2))
            elif me == other:
                dist.recv(told, 0)
                dist.send(told.fill_(time.time()), 0)
        offsets.append(best[1])
    return offsets


def _compared(facts: list[dict[str, str]], offsets: list[float]) -> Iterator[Finding]:
    hosts = list(dict.fromkeys(fact["host"] for fact in facts))
    yield Finding("ok", "ranks", f"{len(facts)} ranks on {len(hosts)} machines met: {', '.join(hosts)}")
    for what in ("tesserack", "python"):
        found = {fact[what] for fact in facts}
        if len(found) > 1:
            told = ", ".join(f"rank {k} {fact[what]}" for k, fact in enumerate(facts))
            yield Finding("error" if what == "tesserack" else "warning", "versions", f"{what}: {told}", "install one")
        else:
            yield Finding("ok", "versions", f"{what} {found.pop()} on all")
    most = max(offsets, key=abs)
    told = f"that of rank {offsets.index(most)} is {most * 1e3:+.1f} ms from rank 0's, the furthest"
    late = abs(most) > _CLOCKS
    yield Finding(
        "warning" if late else "ok", "clocks", told, "set them by NTP: logs and traces tell times" if late else ""
    )
