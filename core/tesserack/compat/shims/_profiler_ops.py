"""``torch.ops.profiler``: named ranges that are entered and left by calls."""

from __future__ import annotations

from tesserack.utils.profiler import record_function

__all__: list[str] = []


def _record_function_enter_new(name: str, args: str | None = None) -> record_function:
    return record_function(name, args).__enter__()


_record_function_enter = _record_function_enter_new


def _record_function_exit(record: record_function) -> None:
    record.__exit__(None, None, None)
