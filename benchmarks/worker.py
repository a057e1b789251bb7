"""One framework in one process: times the rows it is asked for.

Started as ``worker.py FRAMEWORK DEVICE THREADS``. Every request is a line of JSON on standard input,
``{"row": name, "seconds": budget}``; every answer a line ``{"seconds": per call}``, for a row of memory
``{"bytes": at most}``, or ``{"error": message}``. With ``"limit": true`` what is timed is not the row but its cost.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
import timeit
from pathlib import Path
from typing import Any

from limits import limit_row, scale
from rows import Row, all_rows

REPEAT_SECONDS = 0.002  # an inner loop long enough that reading the clock costs nothing


class Prepared:
    """A row set up in this process, its inner loop calibrated."""

    def __init__(self, fw: Any, device: str, row: Row) -> None:
        fw.manual_seed(0)
        names = row.setup(fw, device)
        # timeit stops the garbage collector, programs do not.
        self.timer = timeit.Timer(row.statement, "import gc; gc.enable()", globals=names)
        self.row = row
        self.calls = self._calibrate()

    def _calibrate(self) -> int:
        calls = 1
        self.timer.timeit(1)
        while (seconds := self.timer.timeit(calls)) < REPEAT_SECONDS:
            calls = max(calls + 1, min(10 * calls, int(1.1 * calls * REPEAT_SECONDS / max(seconds, 1e-9))))
        return calls

    def measure(self, budget: float) -> float:
        """Seconds per call: the least over as many repeats as the budget holds, three at least."""
        end = time.perf_counter() + budget
        best = min(self.timer.timeit(self.calls) for _ in range(3))
        while time.perf_counter() < end:
            best = min(best, self.timer.timeit(self.calls))
        return best / self.calls


def status_bytes(field: str) -> int:
    """A number of the kernel's about this process: VmRSS is what it holds, VmHWM the most it ever held."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line.split()[1] for line in lines if line.startswith(field + ":")))


def peak_memory(fw: Any, device: str, name: str) -> int:
    """What setting a row up and running it three times adds to the process at most; once per process."""
    row = all_rows()[name]
    # Loads what the first operations load: libraries, which one framework maps when it is imported.
    image = fw.ones(1, 64, 32, 32, device=device)
    fw.nn.functional.conv2d(image, fw.ones(64, 64, 3, 3, device=device), stride=2) + 1
    _ = fw.optim.SGD  # one framework imports it when it is first named
    Path("/proc/self/clear_refs").write_text("5")  # the most is counted from here
    before = status_bytes("VmRSS")
    fw.manual_seed(0)
    names = row.setup(fw, device)
    for _ in range(3):
        exec(row.statement, dict(names))
    return status_bytes("VmHWM") - before


def serve(fw: Any, device: str, answers: Any) -> None:
    """Answer requests until standard input closes."""
    prepared: Prepared | None = None
    for line in sys.stdin:
        request = json.loads(line)
        answer: dict[str, float | str]
        try:
            row = all_rows()[request["row"]]
            if row.memory:
                print(json.dumps({"bytes": peak_memory(fw, device, request["row"])}), file=answers, flush=True)
                continue
            times = 1.0
            if request.get("limit") and (cost := row.cost):
                row, times = limit_row(cost), scale(cost)
            if prepared is None or prepared.row.name != row.name:
                prepared = None  # frees the last row's tensors first
                prepared = Prepared(fw, device, row)
            answer = {"seconds": times * prepared.measure(request["seconds"])}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)


def main() -> None:
    framework, device, threads = sys.argv[1:]
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a framework prints must not mix with the answers
    fw = importlib.import_module(framework)
    fw.set_num_threads(int(threads))
    print(json.dumps({"version": fw.__version__}), file=answers, flush=True)
    serve(fw, device, answers)


if __name__ == "__main__":
    main()
