"""The actor that is one rank."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from tesserack_ray import session as sessions
from tesserack_ray.checkpoint import Checkpoint
from tesserack_ray.config import TesserackConfig
from tesserack_ray.session import Report, Session, StoppedError, TrainContext

__all__ = ["Worker"]


class Worker:
    """Runs a train loop in one of its actor's threads, and answers for it in another."""

    def __init__(self) -> None:
        self._session: Session | None = None

    def place(self) -> tuple[str, str, int]:
        """The node's name in Ray and its address, and the process."""
        import ray

        return ray.get_runtime_context().get_node_id(), ray.util.get_node_ip_address(), os.getpid()

    def free_port(self) -> int:
        """A port of this node that is free now."""
        from tesserack.distributed.launcher import free_port

        return free_port()

    def begin(self, context: TrainContext, master: tuple[str, int], last: str | None, number: int) -> None:
        """Take a place among the ranks."""
        told = {
            "RANK": context.world_rank,
            "WORLD_SIZE": context.world_size,
            "LOCAL_RANK": context.local_rank,
            "LOCAL_WORLD_SIZE": context.local_world_size,
            "GROUP_RANK": context.node_rank,
            "NODE_RANK": context.node_rank,
            "MASTER_ADDR": master[0],
            "MASTER_PORT": master[1],
            "TORCHELASTIC_RESTART_COUNT": context.attempt,
        }
        os.environ.update({name: str(value) for name, value in told.items()})
        self._session = Session(context, None if last is None else Checkpoint(last), number)
        sessions.begin(self._session)

    def run(self, loop: Callable[..., Any], arguments: tuple[Any, ...], config: TesserackConfig) -> None:
        """The train loop, between the beginning and the end of the ranks' group."""
        from tesserack import distributed as dist

        dist.init_process_group(config.backend, timeout=config.timeout)
        try:
            loop(*arguments)
        except StoppedError:
            return
        finally:
            if dist.is_initialized():
                dist.destroy_process_group()

    def pending(self, timeout: float) -> Report | None:
        """The report that waits, if one comes within the time."""
        return None if self._session is None else self._session.pending(timeout)

    def taken(self) -> None:
        """All ranks have made the report."""
        if self._session is not None:
            self._session.taken()

    def stop(self) -> None:
        """The attempt is over."""
        if self._session is not None:
            self._session.stop()
