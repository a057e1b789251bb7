"""Free ports."""

from __future__ import annotations

import socket

__all__ = ["get_free_port", "get_socket_with_port"]


def get_socket_with_port() -> socket.socket:
    """A socket that listens at a free port of this machine."""
    made = socket.socket()
    made.bind(("localhost", 0))
    made.listen(0)
    return made


def get_free_port() -> int:
    """A port that was free a moment ago."""
    with get_socket_with_port() as made:
        port: int = made.getsockname()[1]
        return port
