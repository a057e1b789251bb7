"""``record``, around the main function of a program that is launched: the launcher tells what a rank has raised."""

from __future__ import annotations

import functools
import json
import os
import time
import traceback
from collections.abc import Callable
from typing import Any

__all__ = ["ChildFailedError", "ErrorHandler", "get_error_handler", "record"]


class ChildFailedError(Exception):
    """Ranks that failed, by number, of a program with a name."""

    def __init__(self, name: str, failures: dict[int, Any]) -> None:
        self.name, self.failures = name, failures
        super().__init__(f"{name} failed on ranks {sorted(failures)}: {failures}")


class ErrorHandler:
    """Writes what a rank raised to the file that ``TORCHELASTIC_ERROR_FILE`` names, if it names one."""

    def initialize(self) -> None:
        """Before the function begins: there is nothing to do."""

    def record_exception(self, e: BaseException) -> None:
        """Write an exception with its stack."""
        if path := os.environ.get("TORCHELASTIC_ERROR_FILE"):
            told = {"py_callstack": traceback.format_exc(), "timestamp": str(int(time.time()))}
            with open(path, "w") as file:
                json.dump({"message": {"message": f"{type(e).__name__}: {e}", "extraInfo": told}}, file)


def get_error_handler() -> ErrorHandler:
    """The one that writes to a file."""
    return ErrorHandler()


def record(fn: Callable[..., Any], error_handler: ErrorHandler | None = None) -> Callable[..., Any]:
    """The function, whose exceptions are written down before they go on; ``SystemExit(0)`` is its end."""
    handler = error_handler or get_error_handler()

    @functools.wraps(fn)
    def recorded(*args: Any, **kwargs: Any) -> Any:
        handler.initialize()
        try:
            return fn(*args, **kwargs)
        except SystemExit as left:
            if left.code:
                raise
        except Exception as error:
            handler.record_exception(error)
            raise
        return None

    return recorded
