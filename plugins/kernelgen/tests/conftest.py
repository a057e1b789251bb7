"""Fixtures of the generator's tests: the opencl device, and its card with one schedule or the other."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import pytest
import tesserack as ts


@pytest.fixture(scope="session")
def opencl() -> Any:
    """The opencl card. Skips where no platform works, and says why."""
    pytest.importorskip("tesserack_opencl")
    reason = ts.backends.why_unavailable("opencl")
    if reason:
        pytest.skip(reason)
    from tesserack_opencl import card

    return card


@pytest.fixture(params=["serial", "parallel"])
def schedule(request: Any, opencl: Any) -> Iterator[str]:
    """Plans as for a device of few processors, then as for one of many threads, on the same device."""
    from tesserack_opencl import backend

    serial = request.param == "serial"
    known = opencl.device(0)
    opencl._devices[0] = dataclasses.replace(known, serial=serial)
    if serial != known.serial:
        opencl.install(backend)  # the core forgets the plans it holds
    yield request.param
    opencl._devices[0] = known
    if serial != known.serial:
        opencl.install(backend)
