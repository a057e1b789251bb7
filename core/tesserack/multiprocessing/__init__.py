"""The standard :mod:`multiprocessing`, with tensors that are shared instead of copied.

Everything of the standard module is here. A tensor on the cpu that goes through a ``Queue``, a ``Pipe`` or the
arguments of a ``Process`` is moved to shared memory: the receiver sees the same memory, and what either writes, both
see. The sender has to live until it is received. Tensors of other devices are copied.

>>> import tesserack as ts
>>> x = ts.zeros(2).share_memory_()
>>> x.is_shared(), ts.ones(2).is_shared()
(True, False)
"""

from __future__ import annotations

import multiprocessing as _standard
from multiprocessing import *  # noqa: F403
from typing import Any

from tesserack.multiprocessing import _reductions
from tesserack.multiprocessing._shared import STRATEGIES, get_sharing_strategy, set_sharing_strategy
from tesserack.multiprocessing.spawn import (
    ProcessContext,
    ProcessException,
    ProcessExitedException,
    ProcessRaisedException,
    SpawnContext,
    spawn,
    start_processes,
)

_reductions.install()

__all__ = [
    *_standard.__all__,
    "ProcessContext",
    "ProcessException",
    "ProcessExitedException",
    "ProcessRaisedException",
    "SpawnContext",
    "get_all_sharing_strategies",
    "get_sharing_strategy",
    "set_sharing_strategy",
    "spawn",
    "start_processes",
]


def get_all_sharing_strategies() -> set[str]:
    """The names :func:`set_sharing_strategy` takes."""
    return set(STRATEGIES)


def __getattr__(name: str) -> Any:
    return getattr(_standard, name)
