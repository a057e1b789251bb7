"""What the processor and the memory at hand can do: the limits beside which ratios are to be read. One thread.

python benchmarks/limits.py
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import tesserack as ts


def best_of(call: Callable[[], object], repeats: int = 30) -> float:
    """The least processor time of this thread for one call, in seconds."""
    best = float("inf")
    for _ in range(repeats):
        start = time.thread_time()
        call()
        best = min(best, time.thread_time() - start)
    return best


def main() -> None:
    """Print bandwidths of copies and the rate of float32 and bfloat16 products."""
    ts.set_num_threads(1)
    for mib in (1, 16, 256):
        source = np.ones(mib << 18, np.float32)
        target = np.empty_like(source)
        seconds = best_of(lambda s=source, t=target: np.copyto(t, s))  # type: ignore[misc]
        print(f"copy {mib:4d} MiB: {2 * source.nbytes / seconds / 1e9:7.1f} GB/s, {seconds * 1e3:.3f} ms")
    for dtype in ("float32", "bfloat16"):
        a, b = (ts.randn(1024, 1024).to(getattr(ts, dtype)) for _ in range(2))
        seconds = best_of(lambda x=a, y=b: x @ y)  # type: ignore[misc]
        print(f"matmul 1024 {dtype}: {2 * 1024**3 / seconds / 1e9:7.1f} GFLOP/s, {seconds * 1e3:.3f} ms")


if __name__ == "__main__":
    main()
