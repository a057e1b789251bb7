"""The two workers, which take turns on a row, and what comes of it."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from limits import numpy_seconds
from rows import Row

HERE = Path(__file__).resolve().parent
SETTLE_SECONDS = 0.01  # lets the other worker's threads stop spinning
LIMIT_EVERY = 3  # pairs to a measurement of the machine
NEAR_THE_MACHINE = 1.1  # of the machine's time for a row's cost: what is left is not worth more work


class WorkerError(Exception):
    """A row that a worker could not time."""


class Worker:
    """A subprocess that times rows in one framework; started again if a row kills it."""

    def __init__(self, framework: str, device: str, threads: int) -> None:
        self.framework, self.threads = framework, threads
        self.command = [sys.executable, str(HERE / "worker.py"), framework, device, str(threads)]
        names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
        self.environment = {**os.environ, **dict.fromkeys(names, str(threads))}
        self._start()

    def _start(self) -> None:
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(self.command, stdin=pipe, stdout=pipe, text=True, env=self.environment)
        hello = self._read()
        self.version = str(hello["version"])

    def _read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise WorkerError(f"{self.framework}: the worker ended with status {self.process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def measure(self, row: str, seconds: float, limit: bool = False) -> float:
        """Seconds per call of a row's statement or of its cost alone, or the bytes of a row of memory."""
        assert self.process.stdin is not None
        time.sleep(SETTLE_SECONDS)
        try:
            self.process.stdin.write(json.dumps({"row": row, "seconds": seconds, "limit": limit}) + "\n")
            self.process.stdin.flush()
            answer = self._read()
        except (OSError, WorkerError) as error:
            self._start()
            raise WorkerError(str(error)) from None
        if "error" in answer:
            raise WorkerError(f"{self.framework}: {answer['error']}")
        return float(answer["bytes"] if "bytes" in answer else answer["seconds"])

    def restart(self) -> None:
        """A fresh process, which holds nothing yet."""
        self.close()
        self._start()

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


@dataclass
class Result:
    """A row's times, pair by pair."""

    row: Row
    pairs: list[tuple[float, float]] = field(default_factory=list)
    error: str = ""
    machines: list[float] = field(default_factory=list)  # seconds the machine took for the row's cost, turn by turn

    @property
    def ratios(self) -> list[float]:
        return [a / b for a, b in self.pairs]

    @property
    def ratio(self) -> float:
        return statistics.median(self.ratios)

    def seconds(self, side: int) -> float:
        return statistics.median(pair[side] for pair in self.pairs)

    @property
    def machine(self) -> float | None:
        """Seconds the machine takes for the row's cost: taken as the times are, since a neighbour slows both."""
        return statistics.median(self.machines) if self.machines else None

    @property
    def of_machine(self) -> float | None:
        """A's time over the machine's."""
        return None if self.machine is None or self.error else self.seconds(0) / self.machine

    @property
    def within(self) -> bool | None:
        """Whether the ratio keeps the row's limit, or A is as fast as the machine; None where there is no limit."""
        if self.row.limit is None:
            return None
        if self.error:
            return False
        return self.ratio <= self.row.limit or (self.of_machine is not None and self.of_machine <= NEAR_THE_MACHINE)

    def as_json(self) -> dict[str, Any]:
        data: dict[str, Any] = {"family": self.row.family, "row": self.row.name, "limit": self.row.limit}
        if self.error:
            return {**data, "error": self.error}
        unit = "bytes" if self.row.memory else "seconds"
        data |= {"ratio": self.ratio, unit: [self.seconds(0), self.seconds(1)], "pairs": self.pairs}
        if not self.machines:
            return data
        return {**data, "machine": self.machine, "machines": self.machines, "of machine": self.of_machine}


def machine_seconds(row: Row, worker: Worker, seconds: float) -> float:
    """What the row's cost takes: the faster of NumPy and the framework compared with."""
    assert row.cost is not None
    return min(worker.measure(row.name, seconds, limit=True), numpy_seconds(row.cost, worker.threads, seconds))


def measure_row(row: Row, workers: tuple[Worker, Worker], pairs: int, seconds: float) -> Result:
    """Time one row, the workers in turns; the first pair warms up and is not kept."""
    result = Result(row)
    try:
        for index in range(2 if row.memory else pairs + 1):
            if row.memory or row.fresh:
                for worker in workers:
                    worker.restart()
            first, second = (worker.measure(row.name, seconds) for worker in workers)
            if index > 0:
                result.pairs.append((first, second))
            if row.cost is not None and (row.fresh or index % LIMIT_EVERY == 1):
                result.machines.append(machine_seconds(row, workers[1], seconds))
    except WorkerError as error:
        result.error = str(error)
    return result
