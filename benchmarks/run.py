"""Time the rows in two frameworks side by side and print the ratios.

Two long-lived workers, one per framework, take turns on each row (A B A B ...), so that a machine that slows down slows
both. The ratio of a row is the median over the pairs of A's time over B's.

    python benchmarks/run.py                        # tesserack against torch, one thread
    python benchmarks/run.py --threads 2 --family kernels
    python benchmarks/run.py --row 'a + b*' --pairs 15
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rows import FAMILIES, Row, all_rows

HERE = Path(__file__).resolve().parent
SETTLE_SECONDS = 0.01  # lets the other worker's threads stop spinning


class WorkerError(Exception):
    """A row that a worker could not time."""


class Worker:
    """A subprocess that times rows in one framework; started again if a row kills it."""

    def __init__(self, framework: str, device: str, threads: int) -> None:
        self.framework = framework
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

    def measure(self, row: str, seconds: float) -> float:
        """Seconds per call of a row's statement, or the bytes of a row of memory."""
        assert self.process.stdin is not None
        time.sleep(SETTLE_SECONDS)
        try:
            self.process.stdin.write(json.dumps({"row": row, "seconds": seconds}) + "\n")
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

    @property
    def ratios(self) -> list[float]:
        return [a / b for a, b in self.pairs]

    @property
    def ratio(self) -> float:
        return statistics.median(self.ratios)

    def seconds(self, side: int) -> float:
        return statistics.median(pair[side] for pair in self.pairs)

    @property
    def within(self) -> bool | None:
        """Whether the ratio keeps the row's limit; None where there is no limit or no measurement."""
        if self.row.limit is None:
            return None
        return not self.error and self.ratio <= self.row.limit

    def as_json(self) -> dict[str, Any]:
        data: dict[str, Any] = {"family": self.row.family, "row": self.row.name, "limit": self.row.limit}
        if self.error:
            return {**data, "error": self.error}
        unit = "bytes" if self.row.memory else "seconds"
        return {**data, "ratio": self.ratio, unit: [self.seconds(0), self.seconds(1)], "pairs": self.pairs}


def measure_row(row: Row, workers: tuple[Worker, Worker], pairs: int, seconds: float) -> Result:
    """Time one row, the workers in turns; the first pair warms up and is not kept."""
    result = Result(row)
    try:
        for index in range(2 if row.memory else pairs + 1):
            if row.memory:
                for worker in workers:
                    worker.restart()
            first, second = (worker.measure(row.name, seconds) for worker in workers)
            if index > 0:
                result.pairs.append((first, second))
    except WorkerError as error:
        result.error = str(error)
    return result


def readable(seconds: float, memory: bool) -> str:
    if memory:
        return f"{seconds / 2**20:.0f} MiB"
    for unit, scale in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if seconds * scale >= 1:
            return f"{seconds * scale:.3g} {unit}"
    return f"{seconds * 1e9:.0f} ns"


def print_table(results: list[Result], title: str, names: tuple[str, str]) -> None:
    """One table of every row: times, ratio with its spread, limit, verdict."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title)
    for column in ("family", "row"):
        table.add_column(column)
    for column in (*names, "ratio", "spread", "limit", ""):
        table.add_column(column, justify="right", no_wrap=True)
    verdicts = {None: "", True: "[green]ok[/]", False: "[red]over[/]"}
    for result in results:
        row, limit = result.row, "" if result.row.limit is None else f"{result.row.limit:.2f}"
        if result.error:
            cells = ["", "", "", "", limit, "[red]failed[/]"]
        else:
            spread = f"{min(result.ratios):.3f}-{max(result.ratios):.3f}"
            times = [readable(result.seconds(side), row.memory) for side in (0, 1)]
            cells = [*times, f"{result.ratio:.3f}", spread, limit, verdicts[result.within]]
        table.add_row(row.family, row.name.replace("[", "\\["), *cells)
    console = Console(width=None if sys.stdout.isatty() else 140)
    console.print(table)
    for result in results:
        if result.error:
            console.print(f"{result.row.name}: {result.error}", markup=False, highlight=False)


def processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()


def write_json(path: Path, results: list[Result], workers: tuple[Worker, Worker], threads: int) -> None:
    path.parent.mkdir(exist_ok=True)
    data = {
        "time": time.strftime("%Y-%m-%dT%H:%M:%S"),
        "processor": processor(),
        "cores": os.cpu_count(),
        "load": os.getloadavg(),
        "python": platform.python_version(),
        "threads": threads,
        "frameworks": [[worker.framework, worker.version] for worker in workers],
        "rows": [result.as_json() for result in results],
    }
    path.write_text(json.dumps(data, indent=1) + "\n")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--frameworks", nargs=2, default=["tesserack", "torch"], metavar=("A", "B"))
    parser.add_argument("--device", default="cpu", help="device of framework A; B runs on the cpu")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--pairs", type=int, default=7, help="timed pairs per row")
    parser.add_argument("--seconds", type=float, default=0.1, help="time of one measurement")
    parser.add_argument("--family", nargs="+", choices=FAMILIES, default=list(FAMILIES))
    parser.add_argument("--row", default="*", help="pattern of row names")
    parser.add_argument("--json", type=Path, help="where to write the result")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a row misses its limit or fails")
    return parser.parse_args()


def main() -> int:
    arguments = parse_arguments()
    rows = [r for r in all_rows().values() if r.family in arguments.family and fnmatch.fnmatch(r.name, arguments.row)]
    first, second = arguments.frameworks
    workers = Worker(first, arguments.device, arguments.threads), Worker(second, "cpu", arguments.threads)
    results = []
    for number, row in enumerate(rows, 1):
        print(f"[{number}/{len(rows)}] {row.family}: {row.name}", file=sys.stderr, flush=True)
        results.append(measure_row(row, workers, arguments.pairs, arguments.seconds))
    title = f"{first} {workers[0].version} against {second} {workers[1].version}, {arguments.threads} thread(s)"
    print_table(results, title, (first, second))
    path = arguments.json or HERE / "results" / time.strftime(f"%Y%m%d-%H%M%S-threads{arguments.threads}.json")
    write_json(path, results, workers, arguments.threads)
    print(path)
    for worker in workers:
        worker.close()
    failed = any(result.error or result.within is False for result in results)
    return int(arguments.check and failed)


if __name__ == "__main__":
    sys.exit(main())
