"""What ``torch.distributed`` raises."""

__all__ = ["DistError", "DistNetworkError", "DistStoreError", "QueueEmptyError"]


class DistError(RuntimeError):
    """Something between processes failed."""


class DistNetworkError(DistError):
    """Another process cannot be reached, or is gone."""


class DistStoreError(DistError):
    """A store could not do what it was asked for, in the time it had."""


class QueueEmptyError(DistStoreError):
    """Nothing is in a queue."""
