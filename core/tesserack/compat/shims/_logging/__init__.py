"""``torch._logging``: levels of PyTorch's loggers, and which of them are heard: what becomes of compiled functions."""

from __future__ import annotations

import logging
from typing import Any

from tesserack.jit._compile.logs import switch

__all__ = ["getArtifactLogger", "set_logs", "trace_structured", "warning_once"]

_levels: dict[str, Any] = {}


def set_logs(*, all: int | None = None, modules: dict[str, Any] | None = None, **kwargs: Any) -> None:
    """Set the levels of loggers by name, ``dynamo=logging.INFO``; of artifacts ``graph_breaks=True``,
    ``recompiles=True`` and their kin are told as functions are compiled, others are noted.
    """
    _levels.clear()
    _levels.update(kwargs, **(modules or {}))
    heard = {**_levels, **({} if all is None else {"all": all})}
    switch(name for name, level in heard.items() if level is True or (level and level <= logging.INFO))
    for name, level in _levels.items():
        if isinstance(level, int) and not isinstance(level, bool):
            logging.getLogger(name if "." in name else f"torch._{name}").setLevel(level)


def getArtifactLogger(module_qname: str, artifact_name: str) -> logging.Logger:
    """The logger of a module's artifact."""
    return logging.getLogger(f"{module_qname}.__{artifact_name}")


def trace_structured(*args: Any, **kwargs: Any) -> None:
    """Nothing: no trace is written."""


_warned: set[str] = set()


def warning_once(logger_obj: logging.Logger, *args: Any, **kwargs: Any) -> None:
    """A warning that a logger gives once."""
    if str(args) not in _warned:
        _warned.add(str(args))
        logger_obj.warning(*args, **kwargs)
