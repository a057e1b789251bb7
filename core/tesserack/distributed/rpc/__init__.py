"""Calls into other processes are not part of this package: ``torch.distributed.rpc``'s own word for that is
:func:`is_available`, which programs ask."""

from typing import Any

__all__ = ["is_available"]


def is_available() -> bool:
    """Always False, as in a PyTorch built without it.

    >>> is_available()
    False
    """
    return False


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    raise AttributeError(
        f"tesserack.distributed.rpc.{name}: calls into other processes are not part of Tesserack (is_available() is "
        "False); use collectives, send and recv, a store's queues, or actors of Ray"
    )
