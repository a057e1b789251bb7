"""Timing one statement."""

from __future__ import annotations

import time
import timeit
from collections.abc import Callable
from typing import Any

import tesserack
from tesserack.utils.benchmark.measurement import Language, Measurement, TaskSpec

__all__ = ["Timer", "timer"]


def timer() -> float:
    """Seconds, when all work given to the default device is done."""
    tesserack.synchronize()
    return time.perf_counter()


class Timer:
    """Measures a statement of Python as ``timeit`` does, on a number of threads and with devices waited for.

    >>> found = Timer("x + x", "x = 1").timeit(1000)
    >>> found.number_per_run, found.median > 0
    (1000, True)
    """

    def __init__(
        self,
        stmt: str = "pass",
        setup: str = "pass",
        global_setup: str = "",
        timer: Callable[[], float] = timer,
        globals: dict[str, Any] | None = None,
        label: str | None = None,
        sub_label: str | None = None,
        description: str | None = None,
        env: str | None = None,
        num_threads: int = 1,
        language: Language | str = Language.PYTHON,
    ) -> None:
        if language not in (Language.PYTHON, "py", "python"):
            raise ValueError("Timer: statements of C++ are not compiled; time a Python function that calls them")
        import textwrap

        stmt, setup = textwrap.dedent(stmt).strip(), textwrap.dedent(setup).strip()
        self._spec = TaskSpec(stmt, setup, label, sub_label, description, env, num_threads)
        names = {"torch": tesserack, "tesserack": tesserack, **(globals or {})}
        self._timer = timeit.Timer(stmt, setup, timer=timer, globals=names)

    def _run(self, number: int) -> float:
        before = tesserack.get_num_threads()
        tesserack.set_num_threads(self._spec.num_threads)
        try:
            return max(self._timer.timeit(number), 1e-9)
        finally:
            tesserack.set_num_threads(before)

    def timeit(self, number: int = 1_000_000) -> Measurement:
        """One measurement of ``number`` runs, after a few to warm up."""
        self._run(max(number // 100, 2))
        return Measurement(number, [self._run(number)], self._spec)

    def repeat(self, repeat: int = -1, number: int = -1) -> Any:
        """``NotImplementedError``, as PyTorch's; use :meth:`blocked_autorange`."""
        raise NotImplementedError("Timer.repeat: use blocked_autorange")

    def _block_size(self, min_run_time: float) -> int:
        number = 1
        while True:
            taken = self._run(number)
            if taken >= min(min_run_time / 1000, 1e-3) or number >= 10**9:
                return number
            number *= 10

    def blocked_autorange(
        self, callback: Callable[[int, float], Any] | None = None, min_run_time: float = 0.2
    ) -> Measurement:
        """Blocks of as many runs as can be timed well, until ``min_run_time`` seconds are over."""
        number = self._block_size(min_run_time)
        times: list[float] = []
        while sum(times) < min_run_time:
            times.append(self._run(number))
            if callback is not None:
                callback(number, times[-1])
        return Measurement(number, times, self._spec)

    def adaptive_autorange(
        self, threshold: float = 0.1, *, min_run_time: float = 0.01, max_run_time: float = 10.0, callback: Any = None
    ) -> Measurement:
        """As :meth:`blocked_autorange`, until the quartiles lie within ``threshold`` of the median."""
        number = self._block_size(min_run_time)
        times: list[float] = []
        while sum(times) < max_run_time:
            times.append(self._run(number))
            found = Measurement(number, times, self._spec)
            if sum(times) >= min_run_time and len(times) > 3 and found.iqr / found.median < threshold:
                break
        return Measurement(number, times, self._spec)
