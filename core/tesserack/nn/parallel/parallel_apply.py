"""Several modules at once, one thread each."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import tesserack as ts

__all__ = ["parallel_apply"]


def parallel_apply(
    modules: Sequence[Any], inputs: Sequence[Any], kwargs_tup: Sequence[Any] | None = None, devices: Any = None
) -> list[Any]:
    """``module(*input, **kwargs)`` of each row, in threads of their own; the first error is raised here.

    ``AssertionError`` unless there is an input, and a device if they are given, for every module.

    >>> import tesserack as ts
    >>> [y.item() for y in parallel_apply([ts.exp, ts.sqrt], [ts.zeros(()), ts.ones(())])]
    [1.0, 1.0]
    """
    named = kwargs_tup if kwargs_tup is not None else [{}] * len(modules)
    for what, given in (("inputs", inputs), ("kwargs_tup", named), ("devices", devices)):
        if given is not None and len(given) != len(modules):
            raise AssertionError(f"parallel_apply: expected {len(modules)} {what}, one per module, got {len(given)}")
    results: list[Any] = [None] * len(modules)
    recording = ts.is_grad_enabled()

    def run(k: int) -> None:
        try:
            given = inputs[k] if isinstance(inputs[k], (list, tuple)) else (inputs[k],)
            with ts.set_grad_enabled(recording):
                results[k] = modules[k](*given, **named[k])
        except BaseException as error:
            results[k] = _Failure(error)

    if len(modules) == 1:
        run(0)
    else:
        threads = [threading.Thread(target=run, args=(k,)) for k in range(len(modules))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for result in results:
        if isinstance(result, _Failure):
            raise result.error
    return results


class _Failure:
    def __init__(self, error: BaseException) -> None:
        self.error = error
