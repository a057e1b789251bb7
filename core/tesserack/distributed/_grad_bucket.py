"""What hooks that reduce gradients are given."""

from __future__ import annotations

from typing import Any

from tesserack import Tensor

__all__ = ["GradBucket"]


class GradBucket:
    """What a communication hook is given: a bucket of this rank's gradients, to be reduced."""

    def __init__(self, index: int, bucket: Any, last: bool) -> None:
        self._index, self._bucket, self._last = index, bucket, last

    def index(self) -> int:
        """Its number; buckets come in order."""
        return self._index

    def buffer(self) -> Tensor:
        """All gradients in one dim."""
        buffer: Tensor = self._bucket.buffer
        return buffer

    def gradients(self) -> list[Tensor]:
        """The gradients, views of the buffer."""
        return list(self._bucket.views)

    def parameters(self) -> list[Tensor]:
        """Whose they are."""
        return list(self._bucket.parameters)

    def is_last(self) -> bool:
        """Whether no other comes after it."""
        return self._last

    def set_buffer(self, buffer: Tensor) -> None:
        """Put another tensor in the buffer's place."""
        self._bucket.replace(buffer)
