"""What the machine at hand can do: how long it takes for the bytes and the products that a row cannot do without.

Two measure it that are not measured themselves: NumPy, in as many threads as the frameworks have, and the framework
that is compared with. The faster of the two is the machine's limit.

    python benchmarks/limits.py --threads 2
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from rows import Cost, Row
from threadpoolctl import threadpool_limits

PRODUCT = 2048  # rows and columns of the products that the rate of products is taken from
PRODUCT_FLOPS = 2 * PRODUCT**3
MIB = 1 << 20


def _copied(cost: Cost) -> int:
    """Elements of float32 whose copy moves as many bytes."""
    return (cost.read + cost.written) // 8


def limit_row(cost: Cost) -> Row:
    """A statement of the same cost that does nothing else, to be timed in a framework."""

    def product(fw: Any, device: str) -> dict[str, Any]:
        a, b = (fw.randn(PRODUCT, PRODUCT, device=device).to(getattr(fw, cost.dtype)) for _ in range(2))
        return {"a": a, "b": b}

    def copy(fw: Any, device: str) -> dict[str, Any]:
        source = fw.ones(_copied(cost), device=device)
        return {"source": source, "target": fw.zeros_like(source)}

    def read(fw: Any, device: str) -> dict[str, Any]:
        return {"source": fw.ones(cost.read // 4, device=device)}

    if cost.flops:
        return Row("limits", f"limit {cost}", "a @ b", product, None)
    if cost.written:
        return Row("limits", f"limit {cost}", "target.copy_(source)", copy, None)
    return Row("limits", f"limit {cost}", "source.sum()", read, None)


def scale(cost: Cost) -> float:
    """How many times the statement of :func:`limit_row` makes up the cost."""
    return cost.flops / PRODUCT_FLOPS if cost.flops else 1.0


def in_threads(call: Callable[[int], object], threads: int, seconds: float) -> float:
    """Seconds that ``threads`` calls side by side take, least of those that fit; each calls several times in a row."""
    calls = 4

    def repeat(index: int) -> None:
        for _ in range(calls):
            call(index)

    best, end = float("inf"), time.perf_counter() + seconds
    with ThreadPoolExecutor(threads) as pool:
        while best == float("inf") or time.perf_counter() < end:
            start = time.perf_counter()
            list(pool.map(repeat, range(threads)))
            best = min(best, (time.perf_counter() - start) / calls)
    return best


def numpy_seconds(cost: Cost, threads: int, seconds: float) -> float:
    """What NumPy takes to copy, read or multiply as much; infinity for a dtype that it does not have."""
    if cost.flops:
        if cost.dtype not in ("float32", "float64"):
            return float("inf")
        a, b = (np.ones((PRODUCT, PRODUCT), cost.dtype) for _ in range(2))
        with threadpool_limits(threads):  # the library has threads of its own
            return in_threads(lambda _: a @ b, 1, seconds) * cost.flops / PRODUCT_FLOPS
    elements = _copied(cost) if cost.written else cost.read // 4
    sources = np.array_split(np.ones(elements, np.float32), threads)
    if not cost.written:
        return in_threads(lambda index: sources[index].max(), threads, seconds)
    targets = np.array_split(np.zeros(elements, np.float32), threads)
    return in_threads(lambda index: np.copyto(targets[index], sources[index]), threads, seconds)


def main() -> None:
    """Print what NumPy gets from the memory and the processor."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--threads", type=int, default=1)
    threads = parser.parse_args().threads
    for mib in (1, 16, 256):
        for name, cost in (("copy", Cost(read=mib * MIB, written=mib * MIB)), ("read", Cost(read=2 * mib * MIB))):
            seconds = numpy_seconds(cost, threads, 0.5)
            rate = (cost.read + cost.written) / seconds / 1e9
            print(f"{name} {mib if cost.written else 2 * mib:4d} MiB: {rate:7.1f} GB/s, {seconds * 1e3:.3f} ms")
    seconds = numpy_seconds(Cost(flops=PRODUCT_FLOPS), threads, 1.0)
    print(f"product {PRODUCT} float32: {PRODUCT_FLOPS / seconds / 1e9:7.1f} GFLOP/s, {seconds * 1e3:.3f} ms")


if __name__ == "__main__":
    main()
