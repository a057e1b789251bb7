"""Sockets between ranks: where a process may be reached, and how connections are set up."""

from __future__ import annotations

import contextlib
import os
import socket
import struct

from tesserack.distributed._errors import DistError

__all__ = ["addresses", "exactly", "greet", "listening", "tuned"]

_SIOCGIFADDR = 0x8915
_INTERFACES = ("TESSERACK_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")


def _of_interface(names: str) -> str:
    """The IPv4 address of the first of some network interfaces that has one. ``DistError`` where none has."""
    import fcntl

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for name in names.split(","):
            with contextlib.suppress(OSError):
                asked = struct.pack("256s", name.strip().encode()[:15])
                return socket.inet_ntoa(fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, asked)[20:24])
    known = ", ".join(name for _, name in socket.if_nameindex())
    raise DistError(f"init: expected a network interface with an address, got {names!r}; there are {known}")


def _towards(host: str) -> list[str]:
    """The address by which packets leave for a host; none is sent."""
    found = []
    with contextlib.suppress(OSError):
        for family, kind, _, _, address in socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM):
            with contextlib.suppress(OSError), socket.socket(family, kind) as probe:
                probe.connect(address)
                found.append(str(probe.getsockname()[0]))
    return found


def addresses(master: str | None) -> list[str]:
    """Where other ranks may reach this process, the likeliest first: as ``TESSERACK_SOCKET_IFNAME`` (or gloo's and
    NCCL's variable) says, else by the way to the master and the machine's own name."""
    for variable in _INTERFACES:
        if os.environ.get(variable):
            return [_of_interface(os.environ[variable])]
    found = _towards(master) if master else []
    with contextlib.suppress(OSError):
        found += [str(entry[4][0]) for entry in socket.getaddrinfo(socket.gethostname(), None, type=socket.SOCK_STREAM)]
    # Of a master on this machine the loopback is known, which others cannot reach: it comes last.
    order = sorted(dict.fromkeys(found), key=_is_loopback)
    return order or ["127.0.0.1"]


def _is_loopback(address: str) -> bool:
    return address.startswith("127.") or address == "::1"


def listening(places: list[str]) -> socket.socket:
    """A socket that answers at every one of these addresses, and at no other where they are of this machine alone."""
    if all(map(_is_loopback, places)) or len(places) == 1:
        family = socket.AF_INET6 if ":" in places[0] else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.bind((places[0], 0))
    else:
        v6 = any(":" in place for place in places) and socket.has_dualstack_ipv6()
        listener = socket.create_server(("", 0), family=socket.AF_INET6 if v6 else socket.AF_INET, dualstack_ipv6=v6)
    listener.listen(1024)
    return listener


def exactly(connection: socket.socket, count: int) -> bytearray:
    """So many bytes. ``ConnectionResetError`` if the other end closes before."""
    data, at = bytearray(), 0
    while at < count:
        if at == len(data):  # memory as bytes come, whatever a stranger says of how many there are
            data += bytes(min(count - at, max(at, 1 << 16)))
        with memoryview(data)[at:] as rest:
            got = connection.recv_into(rest)
        if not got:
            raise ConnectionResetError("the other end is gone")
        at += got
    return data


def greet(connection: socket.socket, hello: bytes) -> None:
    """Say who calls. ``ConnectionRefusedError`` if nobody answers who expects it."""
    connection.sendall(hello)
    with contextlib.suppress(ConnectionResetError):
        if exactly(connection, 2) == b"ok":
            return
    raise ConnectionRefusedError("another program answers there")


def tuned(connection: socket.socket) -> socket.socket:
    """Small messages at once; a machine that is gone without a word is noticed within a minute."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 20), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3), ("TCP_USER_TIMEOUT", 60_000)):
        if option := getattr(socket, name, None):
            connection.setsockopt(socket.IPPROTO_TCP, option, value)
    return connection
