"""``python -m tesserack_cpu.tune``: measures who multiplies matrices of float32 quickest on this machine.

Own tiles, oneDNN and OpenBLAS take turns on products of every class (how both matrices lie, sizes, one thread or all).
Where a library takes less than 0.95 of the time of own tiles, later processes use it; the choice is kept in the folder
of compiled kernels (``TESSERACK_KERNEL_CACHE``), under the name of the processor. It is never measured while a program
runs, so that products have the same bits in every process until the next tuning. ``TESSERACK_CPU_PRODUCTS`` set to
``own``, ``onednn`` or ``openblas`` overrides the choice for all; ``--forget`` takes it back.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["Product", "choose", "kept_choice", "main"]

ENGINES = ("own", "onednn", "openblas")
SIZES = (32, 128, 512, 1536)  # one of each class of matmul/engines.cpp
LAYOUTS = ("nn", "nt", "tn")  # t: columns are contiguous
MARGIN = 0.95  # of the time of own tiles: noise is no reason


class Product(NamedTuple):
    """A class of products, named by one in it."""

    layout: str
    m: int
    n: int
    k: int
    threads: int

    def line(self, engine: str) -> str:
        """As the backend reads it."""
        return f"float32 {self.layout} {self.m} {self.n} {self.k} {self.threads} {engine}"


def choose(rounds: Sequence[Sequence[float]]) -> str:
    """The engine to take after rounds of times, a time for each engine; the medians of ratios decide.

    >>> choose([(1.0, 0.99, 0.5), (1.0, 0.98, 0.6), (2.0, 2.1, 1.0)]), choose([(1.0, 0.97, 1.2)])
    ('openblas', 'own')
    """
    ratios = [statistics.median(times[i] / times[0] for times in rounds) for i in range(len(ENGINES))]
    best = min(range(len(ENGINES)), key=ratios.__getitem__)
    return ENGINES[best] if ratios[best] < MARGIN else "own"


class _Worker:
    """A process that multiplies by one engine."""

    def __init__(self, engine: str, threads: int) -> None:
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tesserack_cpu.tune", "--worker", str(threads)],
            env={**os.environ, "TESSERACK_CPU_PRODUCTS": engine},
            stdin=pipe,
            stdout=pipe,
            text=True,
        )

    def seconds(self, product: Product, budget: float) -> float:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps([*product, budget]) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise RuntimeError(f"tune: the worker ended with status {self.process.wait()}")
        return float(json.loads(answer))

    def close(self) -> None:
        self.process.communicate()


def _work(threads: int) -> None:
    import tesserack as ts

    ts.set_num_threads(threads)
    clock = time.thread_time if threads == 1 else time.perf_counter
    for line in sys.stdin:
        layout, m, n, k, _, budget = json.loads(line)
        a = ts.randn(m, k, device="cpu") if layout[0] == "n" else ts.randn(k, m, device="cpu").t()
        b = ts.randn(k, n, device="cpu") if layout[1] == "n" else ts.randn(n, k, device="cpu").t()
        _ = a @ b
        best, end = float("inf"), time.perf_counter() + budget
        calls = max(1, int(2e6 / (m * n * k)))
        while best == float("inf") or time.perf_counter() < end:
            start = clock()
            for _ in range(calls):
                _ = a @ b
            best = min(best, (clock() - start) / calls)
        print(json.dumps(best), flush=True)


def _measure(threads: int, sizes: Sequence[int], rounds: int, budget: float) -> dict[Product, str]:
    workers = [_Worker(engine, threads) for engine in ENGINES]
    chosen = {}
    try:
        for layout, m, n, k in itertools.product(LAYOUTS, sizes, sizes, sizes):
            product = Product(layout, m, n, k, threads)
            times = [[worker.seconds(product, budget) for worker in workers] for _ in range(rounds)]
            chosen[product] = choose(times)
            shown = ", ".join(f"{engine} {statistics.median(t[i] for t in times) * 1e6:.0f} us"
                              for i, engine in enumerate(ENGINES))  # fmt: skip
            print(f"{layout} {m} x {k} x {n}, {threads} threads: {chosen[product]} ({shown})", flush=True)
    finally:
        for worker in workers:
            worker.close()
    return chosen


def _key() -> str:
    """The name under which ``matmul/engines.cpp`` asks."""
    import tesserack as ts
    from tesserack.backends._kernel_cache import KernelCache

    return KernelCache.key("cpu products 1", ts.backends.properties("cpu")["name"])


def kept_choice() -> list[str]:
    """The lines that are kept for this processor."""
    from tesserack.backends._kernel_cache import KernelCache

    kept = KernelCache().get(_key())
    return kept.decode().splitlines() if kept else []


def _keep(lines: Sequence[str]) -> None:
    from tesserack.backends._kernel_cache import KernelCache

    cache = KernelCache()
    if cache.folder is None:
        raise SystemExit("tune: TESSERACK_KERNEL_CACHE is empty: there is no folder to keep the choice in")
    cache.put(_key(), "".join(line + "\n" for line in lines).encode())
    if kept_choice() != [*lines]:
        raise SystemExit(f"tune: the choice could not be written to {cache.folder}")


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"expected 1 or more, got {number}")
    return number


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and keep, or forget."""
    parser = argparse.ArgumentParser(prog="python -m tesserack_cpu.tune", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--threads", type=_positive, nargs="+", help="default: 1, and all that there are")
    parser.add_argument("--sizes", type=_positive, nargs="+", default=SIZES, help="one of each class to be measured")
    parser.add_argument("--rounds", type=_positive, default=3, help="turns of each engine (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=0.01, help="of each turn (default: %(default)s)")
    parser.add_argument("--forget", action="store_true", help="own tiles everywhere again")
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    if arguments.worker:
        _work(arguments.worker)
        return 0
    if arguments.forget:
        _keep([])
        return 0
    available = len(os.sched_getaffinity(0))
    chosen: dict[Product, str] = {}
    for threads in arguments.threads or sorted({1, available}):
        chosen |= _measure(threads, arguments.sizes, arguments.rounds, arguments.seconds)
    lines = [product.line(engine) for product, engine in chosen.items() if engine != "own"]
    _keep(lines)
    print(f"{len(lines)} of {len(chosen)} classes of products go to a library; kept for processes to come")
    return 0


if __name__ == "__main__":
    sys.exit(main())
