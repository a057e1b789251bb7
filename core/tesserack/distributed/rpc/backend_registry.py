"""The kinds of agents there are."""

from enum import Enum

__all__ = ["BackendType", "backend_registered"]


class BackendType(Enum):
    """What programs name as ``backend``; there is one, over TCP."""

    TENSORPIPE = "TENSORPIPE"

    def __repr__(self) -> str:
        return f"BackendType.{self.name}"


def backend_registered(backend_name: str) -> bool:
    """Whether there is one of this name."""
    return backend_name in BackendType.__members__
