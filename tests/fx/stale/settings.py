"""What a thread or a process is set to."""

from __future__ import annotations

import contextvars
import sys
import warnings
import weakref
from collections.abc import Callable

import tesserack as ts
from tesserack._tensor.overrides import TorchFunctionMode
from tesserack.aten.modes import TorchDispatchMode

from tests.fx.stale.cases import CASES, Case, case


def entered(context, function, **options):
    return Case(function, context.__enter__, lambda: context.__exit__(None, None, None), **options)


class Sevenfold(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        return result * 7 if func is ts.relu else result


class Counting(TorchDispatchMode):
    calls = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        Counting.calls += 1
        return func(*args, **(kwargs or {}))


W = ts.ones(2, requires_grad=True)
THREADS, LIMIT = ts.get_num_threads(), sys.getrecursionlimit()
SETTINGS: dict[str, Callable[[], Case]] = {
    "no_grad": lambda: entered(ts.no_grad(), lambda x: x * W),
    "inference_mode": lambda: entered(ts.inference_mode(), lambda x: x * W + ts.ones(2)),
    "grad mode that is asked": lambda: entered(ts.no_grad(), lambda x: x * (2 if ts.is_grad_enabled() else 5)),
    "autocast": lambda: entered(ts.autocast("cpu", ts.bfloat16), lambda x: x @ x),
    "autocast and gradients": lambda: entered(ts.autocast("cpu", ts.bfloat16), lambda x: x @ W),
    "dtype of autocast": lambda: Case(
        lambda x: x.to(ts.get_autocast_dtype("cpu")), lambda: ts.set_autocast_dtype("cpu", ts.float16),
        lambda: ts.set_autocast_dtype("cpu", ts.bfloat16),
    ),
    "default dtype": lambda: Case(
        lambda x: x + ts.ones(2), lambda: ts.set_default_dtype(ts.float64), lambda: ts.set_default_dtype(ts.float32)
    ),
    "default device": lambda: Case(
        lambda x: ts.ones(2), lambda: ts.set_default_device("meta"), lambda: ts.set_default_device(None)
    ),
    "device as a context": lambda: entered(ts.device("meta"), lambda x: ts.ones(2)),
    "deterministic": lambda: Case(
        lambda x: x * (2 if ts.are_deterministic_algorithms_enabled() else 5),
        lambda: ts.use_deterministic_algorithms(True), lambda: ts.use_deterministic_algorithms(False), captured=False,
    ),
    "threads": lambda: Case(
        lambda x: x * ts.get_num_threads(), lambda: ts.set_num_threads(THREADS + 1),
        lambda: ts.set_num_threads(THREADS), captured=False,
    ),
    "precision of products": lambda: Case(
        lambda x: x * len(ts.get_float32_matmul_precision()), lambda: ts.set_float32_matmul_precision("high"),
        lambda: ts.set_float32_matmul_precision("highest"), captured=False,
    ),
    "seed": lambda: Case(lambda x: x * (ts.initial_seed() % 7), lambda: ts.manual_seed(5), captured=False),
    "anomaly mode": lambda: entered(
        ts.autograd.set_detect_anomaly(True), lambda x: x * (2 if ts.is_anomaly_enabled() else 5), captured=False
    ),
    "mode above": lambda: entered(Sevenfold(), lambda x: ts.relu(x)),
    "filters of warnings": lambda: Case(
        lambda x: (warnings.warn("odd", stacklevel=1), x)[1], lambda: warnings.simplefilter("error"),
        warnings.resetwarnings, captured=False,
    ),
    "limit of recursion": lambda: Case(
        lambda x: x * sys.getrecursionlimit(), lambda: sys.setrecursionlimit(LIMIT + 1),
        lambda: sys.setrecursionlimit(LIMIT), captured=False,
    ),
}  # fmt: skip
for _name, _make in SETTINGS.items():
    CASES[f"settings: {_name}"] = _make


@case
def a_context_variable():
    held = contextvars.ContextVar("held", default=2.0)
    return Case(lambda x: x * held.get(), lambda: held.set(7.0))


@case
def a_weak_reference():
    class Own:
        pass

    alive = [Own()]
    found = weakref.ref(alive[0])
    return Case(lambda x: x * (2 if found() is not None else 5), alive.clear, captured=False)
