"""Ports of this machine."""

from __future__ import annotations

import socket

__all__ = ["free_port"]


def free_port(address: str = "") -> int:
    """A port that is free now, at an address of this machine or at all of them.

    >>> 0 < free_port() < 2**16
    True
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((address, 0))
        return int(probe.getsockname()[1])
