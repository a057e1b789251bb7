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
from functools import partial
from typing import Any

from models import build_gpt
from rows import row


def trace(fw: Any, program: Any, *args: Any) -> Any:
    """The program's trace."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return fw.jit.trace(program, args, check_trace=False)


def without_gradients(fw: Any, program: Callable[..., Any], *args: Any) -> Callable[[], Any]:
    """A call of it."""

    def run() -> Any:
        with fw.no_grad():
            return program(*args)

    return run


def traced(fw: Any, program: Any, *args: Any) -> Callable[[], Any]:
    """A call of the program's trace."""
    return without_gradients(fw, trace(fw, program, *args), *args)


def chain(x: Any) -> Any:
    """Eight pointwise operators."""
    y = (x * 2 + 1).relu() * x - 0.5
    return (y.abs() + x) * 0.25


def _chain(fw: Any, device: str, n: int) -> tuple[Any, Any]:
    return chain, fw.randn(n, device=device)


def _gpt(fw: Any, device: str) -> tuple[Any, Any]:
    model = build_gpt(fw.nn, 64, 6).to(device).eval()
    return model, fw.randint(0, 1000, (1, 16), device=device)


def training_step(
    fw: Any, device: str, optimize: bool = True, compiled: bool = False, shape: tuple[int, int] = (1, 16)
) -> Callable[[], Any]:
    """A step of a small GPT on fixed tokens: forward, backward and, if asked, AdamW; two have been made.

    ``compiled``: the model is, which leaves the loss and the optimizer to Python; PyTorch runs it as it is.
    """
    fw.manual_seed(0)
    model = build_gpt(fw.nn, 64, 6).to(device).train()
    run = fw.compile(model) if compiled and fw.__name__ == "tesserack" else model
    tokens = fw.randint(0, 1000, shape, device=device)
    optimizer = fw.optim.AdamW(model.parameters(), lr=1e-3)

    def step() -> Any:
        optimizer.zero_grad()
        loss = fw.nn.functional.cross_entropy(run(tokens).flatten(0, 1), tokens.flatten())
        loss.backward()
        if optimize:
            optimizer.step()
        return loss.detach()

    step(), step()  # its state is there
    return step


def traced_step(fw: Any, device: str, optimize: bool = True) -> Callable[[], Any]:
    """The same as one graph where the framework has graphs of backward passes; PyTorch runs it as it is."""
    step = training_step(fw, device, optimize)
    return trace(fw, step) if fw.__name__ == "tesserack" else step


@row("traced: AdamW step of GPT, 6 layers of 64, 1 x 16 tokens (PyTorch: eager)", "run()", limit=0.6)
def gpt_step(fw: Any, device: str) -> dict[str, Any]:
    return {"run": traced_step(fw, device)}


@row("compiled: forward and backward of GPT, 6 layers of 64, 1 x 16 tokens (PyTorch: eager)", "run()", limit=0.6)
def gpt_compiled(fw: Any, device: str) -> dict[str, Any]:
    step = training_step(fw, device, optimize=False, compiled=True)
    for _ in range(4):  # by then the backward pass is planned
        step()
    return {"run": step}


def whole_step(fw: Any, device: str, compiled: bool = True) -> Callable[[], Any]:
    """A whole step as one compiled function, gradients clipped; PyTorch runs it as it is."""
    fw.manual_seed(0)
    model = build_gpt(fw.nn, 64, 6).to(device).train()
    tokens = fw.randint(0, 1000, (1, 16), device=device)
    optimizer = fw.optim.AdamW(model.parameters(), lr=1e-3)

    def step() -> Any:
        optimizer.zero_grad()
        loss = fw.nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
        loss.backward()
        fw.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.detach()

    run = fw.compile(step, fullgraph=True) if compiled and fw.__name__ == "tesserack" else step
    for _ in range(5):  # by then the backward pass is planned
        run()
    return run


@row("compiled: whole AdamW step of GPT, clipped, 6 layers of 64, 1 x 16 tokens (PyTorch: eager)", "run()", limit=0.6)
def gpt_whole_step(fw: Any, device: str) -> dict[str, Any]:
    return {"run": whole_step(fw, device)}


def compiled_chain(fw: Any, device: str) -> Callable[[], Any]:
    """A chain of 8 on 64 elements, compiled; PyTorch runs it as it is."""
    program, x = _chain(fw, device, 64)
    call = fw.compile(program) if fw.__name__ == "tesserack" else program
    run = without_gradients(fw, call, x)
    for _ in range(5):
        run()
    return run


@row("compiled: chain of 8, 64 elements (PyTorch: eager)", "run()", limit=0.25)
def chain_called(fw: Any, device: str) -> dict[str, Any]:
    return {"run": compiled_chain(fw, device)}


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


def _alone(runner: Any, captured: Any, x: Any) -> Any:
    return runner.run((x,), captured)


def _show(what: str, ratios: list[float]) -> None:
    low, middle, high = statistics.quantiles(ratios, n=4)
    print(f"{what:36s} {middle:.3f}  ({low:.3f} to {high:.3f})")


def main() -> None:
    """Prints the ratios."""
    import tesserack as ts
    from tesserack import _native

    ts.set_num_threads(1)
    ts.manual_seed(0)
    cases = {
        "chain of 8, 4M": (*_chain(ts, "cpu", 4_000_000), 6.0),
        "chain of 8, 64": (*_chain(ts, "cpu", 64), 3.0),
        "GPT 6x64, 1x16": (*_gpt(ts, "cpu"), 4.0),
    }
    for name, (program, x, seconds) in cases.items():
        graph = trace(ts, program, x)
        level = graph.graph._native.outer_level()
        runner, captured = _native._GraphRunner(level), level.captured
        eager = without_gradients(ts, program, x)
        runs = {name: graph, f"{name}, the graph alone": partial(_alone, runner, captured)}
        for what, run in runs.items():
            _show(what, _pairs(eager, without_gradients(ts, run, x), seconds))
    for what, optimize in {"GPT 6x64, forward and backward": False, "GPT 6x64, AdamW step": True}.items():
        _show(what, _pairs(training_step(ts, "cpu", optimize), traced_step(ts, "cpu", optimize), 4.0))
    for shape in ((1, 16), (8, 64)):
        eager, compiled = (training_step(ts, "cpu", False, compiled, shape) for compiled in (False, True))
        _show("compiled GPT 6x64, {}x{}, and back".format(*shape), _pairs(eager, compiled, 4.0))
    _show("compiled whole step, clipped", _pairs(whole_step(ts, "cpu", False), whole_step(ts, "cpu"), 4.0))
    program, x = _chain(ts, "cpu", 64)
    _show("compiled chain of 8, 64", _pairs(without_gradients(ts, program, x), compiled_chain(ts, "cpu"), 2.0))


if __name__ == "__main__":
    main()
