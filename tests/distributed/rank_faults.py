"""Ranks that nobody watches, one of which fails at a named point: what the others are told, and when.

``python tests/distributed/rank_faults.py [POINT ...]`` runs each way to fail at each point, on each rank.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

PROGRAM = Path(__file__).parent / "programs" / "points.py"
SECONDS = (5.0, 30.0, 120.0)  # the ranks' timeout; a longer one where they were too slow to come to the failure
WAYS = ("killed", "stopped", "raising", "leaving")
#: Points by the engine that passes them, and the ranks (of three) that do.
POINTS: dict[str, tuple[tuple[str, ...], tuple[int, ...]]] = {
    "start": (("local", "tcp"), (0, 1)),
    "store": (("local", "tcp"), (0, 1)),
    "joined": (("local", "tcp"), (0, 1)),
    "gathering": (("local", "tcp"), (0, 1)),
    "verdict of all": (("local",), (0, 1)),
    "address": (("local",), (0, 1)),
    "handing": (("local",), (0,)),
    "verdict": (("local",), (0, 1)),
    "mapped": (("local",), (0, 1)),
    "listening": (("tcp",), (0, 1)),
    "told": (("tcp",), (0, 1)),
    "word": (("tcp",), (0, 1)),
    "calling": (("tcp",), (1, 2)),
    "answering": (("tcp",), (0, 1)),
    "meshed": (("tcp",), (0, 1)),
    "made": (("local", "tcp"), (0, 1)),
    "first": (("local", "tcp"), (0, 1)),
    "closing": (("local", "tcp"), (0, 1)),
}


class Case(NamedTuple):
    point: str
    how: str
    engine: str
    rank: int


CASES = [
    Case(point, how, engine, rank)
    for point, (engines, ranks) in POINTS.items()
    for how, engine, rank in itertools.product(WAYS, engines, ranks)
]


class Outcome(NamedTuple):
    seconds: dict[int, float]  #: from the failure, by the ranks that were told
    shown: str
    left: list[str]  #: processes, sockets and files that are still there
    failed: bool  #: whether the rank came to its point


def run(case: Case, ranks: int = 3) -> Outcome:
    """What came of a case."""
    for timeout in SECONDS:
        outcome = _run(case, ranks, timeout)
        assert outcome.failed, f"no rank passes the point {case.point!r} with {case.engine}:\n{outcome.shown}"
        if outcome.seconds and "EARLY" not in outcome.shown:
            break
    return outcome


def _run(case: Case, ranks: int, timeout: float) -> Outcome:
    """The rank that is stopped is killed in the end."""
    with tempfile.TemporaryDirectory() as folder, socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        probe.close()
        temporary = Path(folder) / "tmp"
        temporary.mkdir()
        told = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": ranks, "TMPDIR": temporary}
        told |= {"TESSERACK_COMM": case.engine, "OMP_NUM_THREADS": 1, "FAULT_RUN": folder}
        environment = os.environ | {key: str(value) for key, value in told.items()}
        words = [sys.executable, str(PROGRAM), case.point, case.how, case.rank, timeout, Path(folder) / "failed"]
        processes = [
            subprocess.Popen(
                [str(word) for word in words],
                env=environment | {"RANK": str(rank)},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            for rank in range(ranks)
        ]
        try:
            shown = [p.communicate(timeout=300 + 2 * timeout)[0] for k, p in enumerate(processes) if k != case.rank]
        finally:
            for process in processes:
                process.kill()
        processes[case.rank].communicate()
        text = "".join(shown)
        seconds = {int(rank): float(after) for rank, after in re.findall(r"TOLD (\d+) after (\S+) s", text)}
        left = [f"process {p}" for p in marked(f"FAULT_RUN={folder}")]
        left += [f"port {port}"] * listening(port)
        left += [str(f) for f in temporary.iterdir()]
        return Outcome(seconds, text, left, (Path(folder) / "failed").exists())


def marked(variable: str) -> list[str]:
    """Processes whose environment has this."""
    found = []
    for process in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if process.name.isdigit() and variable.encode() in (process / "environ").read_bytes().split(b"\0"):
                found.append(f"{process.name} {(process / 'cmdline').read_text().replace(chr(0), ' ')}")
    return found


def survivors(shown: str, folder: Path) -> list[str]:
    """What ranks of ``surviving.py`` say of a failure; the whole job has ended just now."""
    told = [line for line in shown.splitlines() if re.search("RANK [0-9]+ (TOLD|BEGAN AGAIN)", line)]
    if not (folder / "failed").exists():
        return [*told, "ENDED before any failure"]
    return [*told, f"ENDED after {time.time() - float((folder / 'failed').read_text()):.2f} s"]


def listening(port: int) -> bool:
    """Whether something listens there on the loopback."""
    rows = Path("/proc/net/tcp").read_text().splitlines()[1:]
    return any(int(row.split()[1].rpartition(":")[2], 16) == port and row.split()[3] == "0A" for row in rows)


def main(points: list[str]) -> None:
    for case in CASES:
        if points and case.point not in points:
            continue
        began = time.monotonic()
        outcome = run(case)
        late = [s for s in outcome.seconds.values() if s > SECONDS[0] + 2]
        verdict = "ok" if len(outcome.seconds) == 2 and not late and not outcome.left else "BAD"
        told = " | ".join(line for line in outcome.shown.splitlines() if line.startswith("TOLD"))
        print(verdict, *case, outcome.seconds, f"{time.monotonic() - began:.1f} s", told, *outcome.left, flush=True)
        if verdict != "ok":
            print(outcome.shown)


if __name__ == "__main__":
    main(sys.argv[1:])
