"""This process's part in calls."""

from __future__ import annotations

from typing import Any

__all__ = ["current", "is_current", "make_current"]

_agent: Any = None


def current() -> Any:
    """The agent of this process. ``RuntimeError`` if there is none."""
    if _agent is None:
        raise RuntimeError("RPC has not been initialized. Call torch.distributed.rpc.init_rpc first.")
    return _agent


def is_current() -> bool:
    """Whether there is one."""
    return _agent is not None


def make_current(agent: Any) -> None:
    """Have this agent be it; None for no more."""
    global _agent
    _agent = agent
