"""The error that answers a request."""

from __future__ import annotations

__all__ = ["ServingError"]


class ServingError(Exception):
    """A request that is refused or failed; ``status`` is HTTP's, from which gRPC's code follows.

    >>> ServingError("there is no model 'x'", 404).status
    404
    """

    def __init__(self, message: str, status: int = 400, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.message, self.status, self.retry_after = message, status, retry_after
