"""Time the rows in two frameworks side by side and print the ratios.

Two long-lived workers, one per framework, take turns on each row (A B A B ...), so that a machine that slows down slows
both. The ratio of a row is the median over the pairs of A's time over B's.

    python benchmarks/run.py                        # tesserack against torch, one thread
    python benchmarks/run.py --threads 1 2          # all that is measured of a processor, a file per number of threads
    python benchmarks/run.py --threads 2 --family kernels
    python benchmarks/run.py --row 'a + b*' --pairs 15
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import platform
import re
import statistics
import sys
import time
from pathlib import Path

from rows import FAMILIES, Row, all_rows
from turns import HERE, Result, Worker, measure_row


def readable(seconds: float, memory: bool) -> str:
    if memory:
        return f"{seconds / 2**20:.0f} MiB"
    for unit, scale in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if seconds * scale >= 1:
            return f"{seconds * scale:.3g} {unit}"
    return f"{seconds * 1e9:.0f} ns"


def print_table(results: list[Result], title: str, names: tuple[str, str]) -> None:
    """One table of every row: times, ratio with its spread, limit, A's time over the machine's, verdict."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title)
    for column in ("family", "row"):
        table.add_column(column)
    for column in (*names, "ratio", "spread", "limit", "of machine", ""):
        table.add_column(column, justify="right", no_wrap=True)
    verdicts = {None: "", True: "[green]ok[/]", False: "[red]over[/]"}
    for result in results:
        row, limit = result.row, "" if result.row.limit is None else f"{result.row.limit:.2f}"
        if result.error:
            cells = ["", "", "", "", limit, "", "[red]failed[/]"]
        else:
            spread = f"{min(result.ratios):.3f}-{max(result.ratios):.3f}"
            times = [readable(result.seconds(side), row.memory) for side in (0, 1)]
            machine = "" if result.of_machine is None else f"{result.of_machine:.2f}"
            cells = [*times, f"{result.ratio:.3f}", spread, limit, machine, verdicts[result.within]]
        table.add_row(row.family, row.name.replace("[", "\\["), *cells)
    console = Console(width=None if sys.stdout.isatty() else 140)
    console.print(table)
    for result in results:
        if result.error:
            console.print(f"{result.row.name}: {result.error}", markup=False, highlight=False)


def print_means(results: list[Result]) -> None:
    """The geometric mean of every family's ratios."""
    for family in dict.fromkeys(result.row.family for result in results):
        ratios = [result.ratio for result in results if result.row.family == family and not result.error]
        if ratios:
            print(f"{family}: geometric mean {statistics.geometric_mean(ratios):.3f} of {len(ratios)} rows")


def processor() -> str:
    """The processor's name, with its family and model where the name is one that several go by."""
    fields: dict[str, str] = {}
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        fields.setdefault(name.strip(), value.strip())
    if "model name" not in fields:
        return platform.processor()
    return f"{fields['model name']}, family {fields.get('cpu family', '?')} model {fields.get('model', '?')}"


def result_path(threads: int) -> Path:
    """Where a run's figures go: named after the day, the processor and the number of threads."""
    name = re.sub(r"\W+", "-", re.sub(r"\((R|TM)\)|Processor|family|model|[0-9]+-Core", "", processor())).strip("-")
    return HERE / "results" / f"{time.strftime('%Y-%m-%d')}-{name.lower()}-{threads}-threads.json"


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
    parser.add_argument("--threads", type=int, nargs="+", default=[1], help="numbers of threads, one after another")
    parser.add_argument("--pairs", type=int, default=7, help="timed pairs per row")
    parser.add_argument("--seconds", type=float, default=0.1, help="time of one measurement")
    parser.add_argument("--family", nargs="+", choices=FAMILIES, default=list(FAMILIES))
    parser.add_argument("--row", default="*", help="pattern of row names")
    parser.add_argument("--json", type=Path, help="where to write the result (with a single number of threads)")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a row misses its limit or fails")
    return parser.parse_args()


def run(rows: list[Row], arguments: argparse.Namespace, threads: int) -> bool:
    """Measure the rows with so many threads, print the table, write the file; whether all keep their limits."""
    first, second = arguments.frameworks
    workers = Worker(first, arguments.device, threads), Worker(second, "cpu", threads)
    results = []
    for number, row in enumerate(rows, 1):
        print(f"[{number}/{len(rows)}] {row.family}: {row.name}", file=sys.stderr, flush=True)
        results.append(measure_row(row, workers, arguments.pairs, arguments.seconds))
    title = f"{first} {workers[0].version} against {second} {workers[1].version}, {threads} thread(s)"
    print_table(results, title, (first, second))
    print_means(results)
    path = arguments.json or result_path(threads)
    write_json(path, results, workers, threads)
    print(path)
    for worker in workers:
        worker.close()
    return not any(result.error or result.within is False for result in results)


def main() -> int:
    arguments = parse_arguments()
    rows = [r for r in all_rows().values() if r.family in arguments.family and fnmatch.fnmatch(r.name, arguments.row)]
    kept = [run(rows, arguments, threads) for threads in arguments.threads]
    return int(arguments.check and not all(kept))


if __name__ == "__main__":
    sys.exit(main())
