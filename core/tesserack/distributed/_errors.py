"""What ``torch.distributed`` raises."""

__all__ = ["DistBackendError", "DistError", "DistNetworkError", "DistStoreError", "QueueEmptyError"]


class DistError(RuntimeError):
    """Something between processes failed."""


class DistBackendError(DistError):
    """A collective failed: a rank is gone or late, or ranks called different ones. The group is of no use then."""


class DistNetworkError(DistError):
    """Another process cannot be reached, or is gone."""


class DistStoreError(DistError):
    """A store could not do what it was asked for, in the time it had."""


class QueueEmptyError(DistStoreError):
    """Nothing is in a queue."""
