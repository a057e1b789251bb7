"""LitServe's transport of answers, several in one message."""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Sequence
from typing import Any

from litserve.transport.process_transport import MPQueueTransport

__all__ = ["Bundles"]

BUNDLE = "bundle"


class Bundles(MPQueueTransport):  # type: ignore[misc] # without types
    """A step of a worker answers many requests: they travel as one message, and are taken apart on arrival.

    The message is bytes to the process of the queues, which would otherwise make objects of it and bytes again.
    """

    def __init__(self, manager: Any, queues: Sequence[Any]) -> None:
        super().__init__(manager, queues)
        self._arrived: deque[Any] = deque()

    def send_all(self, answers: Sequence[tuple[str, Any]], consumer_id: int) -> None:
        """Send what :meth:`send` takes one by one."""
        self.send((BUNDLE, pickle.dumps(answers, pickle.HIGHEST_PROTOCOL)), consumer_id)

    async def areceive(self, consumer_id: int, timeout: float | None = None, block: bool = True) -> Any:
        """The next answer."""
        if self._arrived:
            return self._arrived.popleft()
        found = await super().areceive(consumer_id, timeout, block)
        if found is None or found[0] != BUNDLE:
            return found
        self._arrived.extend(pickle.loads(found[1]))
        return self._arrived.popleft() if self._arrived else None

    def __reduce__(self) -> Any:
        return (Bundles, (None, self._queues))
