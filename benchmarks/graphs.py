"""Programs that were traced: against PyTorch's traces as rows, and, where this file is run, against our own eager.

``python benchmarks/graphs.py`` prints the CPU time of a run of the graph over that of the same program in eager: the
median of pairs that alternate in this process, and the quarters around it.
"""

from __future__ import annotations

import statistics
import time
import timeit
import warnings
from collections.abc import Callable
from typing import Any

from models import build_gpt
from rows import row


def traced(fw: Any, program: Any, *args: Any) -> Callable[[], Any]:
    """The program's trace, called without gradients."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        graph = fw.jit.trace(program, args, check_trace=False)

    def run() -> Any:
        with fw.no_grad():
            return graph(*args)

    return run


def chain(x: Any) -> Any:
    """Eight pointwise operators."""
    y = (x * 2 + 1).relu() * x - 0.5
    return (y.abs() + x) * 0.25


def _chain(fw: Any, device: str, n: int) -> tuple[Any, Any]:
    return chain, fw.randn(n, device=device)


def _gpt(fw: Any, device: str) -> tuple[Any, Any]:
    model = build_gpt(fw.nn, 64, 6).to(device).eval()
    return model, fw.randint(0, 1000, (1, 16), device=device)


@row("traced: chain of 8, 4M elements", "run()", limit=0.9)
def chain_large(fw: Any, device: str) -> dict[str, Any]:
    program, x = _chain(fw, device, 4_000_000)
    return {"run": traced(fw, program, x)}


@row("traced: chain of 8, 64 elements", "run()", limit=0.5)
def chain_small(fw: Any, device: str) -> dict[str, Any]:
    program, x = _chain(fw, device, 64)
    return {"run": traced(fw, program, x)}


@row("traced: GPT, 6 layers of 64, 1 x 16 tokens", "run()", limit=0.6)
def gpt(fw: Any, device: str) -> dict[str, Any]:
    model, tokens = _gpt(fw, device)
    return {"run": traced(fw, model, tokens)}


def _pairs(eager: Callable[[], Any], graph: Callable[[], Any], seconds: float) -> list[float]:
    """Graph over eager, pair by pair."""
    for f in (eager, graph) * 3:
        f()
    calls = max(1, int(0.002 / min(timeit.repeat(eager, number=1, repeat=5))))
    ratios: list[float] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(ratios) < 5:
        times = []
        for f in (graph, eager):
            begin = time.process_time()
            for _ in range(calls):
                f()
            times.append(time.process_time() - begin)
        ratios.append(times[0] / times[1])
    return ratios


def main() -> None:
    """Prints the ratios."""
    import tesserack as ts

    ts.set_num_threads(1)
    ts.manual_seed(0)
    cases = {
        "chain of 8, 4M": (*_chain(ts, "cpu", 4_000_000), 6.0),
        "chain of 8, 64": (*_chain(ts, "cpu", 64), 3.0),
        "GPT 6x64, 1x16": (*_gpt(ts, "cpu"), 4.0),
    }
    for name, (program, x, seconds) in cases.items():

        def eager(program: Any = program, x: Any = x) -> Any:
            with ts.no_grad():
                return program(x)

        low, middle, high = statistics.quantiles(_pairs(eager, traced(ts, program, x), seconds), n=4)
        print(f"{name:20s} {middle:.3f}  ({low:.3f} to {high:.3f})")


if __name__ == "__main__":
    main()
