"""Seeds and states of random number generators."""

from __future__ import annotations

import contextlib
import struct
import threading

from tesserack import _native
from tesserack._native import Generator, Tensor

TYPE_CHECKING = False  # typing takes a good part of the time to import the package
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

__all__ = ["default_generator", "fork_rng", "get_rng_state", "initial_seed", "manual_seed", "seed", "set_rng_state"]


class _Substitutes(threading.local):
    """What draws in this thread in place of loops of Tesserack's own, by name (``torch_random``)."""

    samplers: dict[str, Callable[..., Tensor]] = {}  # noqa: RUF012 - replaced as a whole


substitutes = _Substitutes()


def default_generator(device: Any = None) -> Generator:
    """The generator that random operators on a device use unless given another."""
    return _native._default_generator(device)


def manual_seed(seed: int) -> Generator:
    """Start the default generators of all devices from one seed; returns that of the default device if there is one.

    The same seed gives the same numbers on every backend. Negative ones count from 2**64 down; ``ValueError`` for one
    of more than 64 bits.
    """
    if not -(2**63) <= int(seed) < 2**64:
        raise ValueError(f"manual_seed: expected a seed of 64 bits, got {int(seed)}")
    _native._manual_seed_all(int(seed) & 0xFFFF_FFFF_FFFF_FFFF)
    return _native._default_generator(None)


def seed() -> int:
    """Seed the default generators from the operating system and return the seed."""
    import secrets

    value = secrets.randbits(53)
    manual_seed(value)
    return value


def initial_seed() -> int:
    """The seed the default generator started from."""
    return default_generator().initial_seed()


def _pack(generator: Generator) -> Tensor:
    from tesserack import frombuffer

    return frombuffer(bytearray(struct.pack("<QQ", *generator._position())), dtype=_native.uint8)


def _unpack(state: Tensor) -> tuple[int, int]:
    values = bytes(state.tolist()) if state.dtype is _native.uint8 else b""
    if len(values) != 16:
        raise ValueError(f"random state: expected a uint8 tensor of 16 bytes, got {tuple(state.shape)} {state.dtype}")
    seed, offset = struct.unpack("<QQ", values)
    return seed, offset


def get_rng_state(device: Any = None) -> Tensor:
    """The state of a default generator, as a uint8 tensor for :func:`set_rng_state`."""
    return _pack(default_generator(device))


def set_rng_state(new_state: Tensor, device: Any = None) -> None:
    """Restore what :func:`get_rng_state` returned. ``ValueError`` for anything else."""
    default_generator(device)._set_position(*_unpack(new_state))


class fork_rng(contextlib.ContextDecorator):
    """Context manager or decorator: random states inside do not affect those outside.

    Saved are the states of the cpu, of the default device and of ``devices``: given as devices, names, or indices of
    ``device_type``; by default every device of every backend that is loaded.

    >>> import tesserack as ts
    >>> before = ts.get_rng_state()
    >>> with ts.random.fork_rng(devices=[]):
    ...     x = ts.rand(3)
    >>> ts.equal(ts.get_rng_state(), before)
    True
    """

    def __init__(
        self,
        devices: Any = None,
        enabled: bool = True,
        _caller: str = "fork_rng",
        _devices_kw: str = "devices",
        device_type: str | None = None,
    ) -> None:
        self._devices = [] if not enabled else _every_device() if devices is None else [*devices]
        self._kind = device_type
        self._enabled = enabled
        self._saved: list[list[tuple[Generator, tuple[int, int]]]] = []

    def _generators(self) -> list[Generator]:
        named = [f"{self._kind}:{d}" if isinstance(d, int) and self._kind else d for d in self._devices]
        host = _native._declared_default()
        return [default_generator(d) for d in (*([host] if _native._is_loaded(host) else []), None, *named)]

    def __enter__(self) -> None:
        found = self._generators() if self._enabled else []
        self._saved.append([(generator, generator._position()) for generator in found])

    def __exit__(self, *exc: object) -> None:
        for generator, position in self._saved.pop():
            generator._set_position(*position)


def _every_device() -> list[str]:
    return [f"{found['name']}:{k}" for found in _native._backends() for k in range(found["device_count"] or 0)]
