"""The device under test: what it declares, and what tests write down about it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

import tesserack as ts

__all__ = ["Card", "Record", "describe", "lacks"]


@dataclass(frozen=True)
class Card:
    """A device and the capabilities it declares."""

    device: ts.device
    capabilities: dict[str, Any]

    @property
    def name(self) -> str:
        """The name the device is known by."""
        return self.device.type

    @property
    def dtypes(self) -> frozenset[str]:
        """Names of the dtypes the device computes with."""
        return frozenset(self.capabilities["dtypes"])

    def needs(self, *dtypes: str) -> None:
        """Skip the test unless the device declares these dtypes."""
        missing = [dtype for dtype in dtypes if dtype not in self.dtypes]
        if missing:
            pytest.skip(f"lacks {' and '.join(missing)}")

    def supports(self, dtype: str) -> bool:
        """Whether the device declares this dtype."""
        return dtype in self.dtypes


def lacks(capabilities: dict[str, Any], what: str) -> bool:
    """Whether a device declares not to have something: a dtype, "streams", "events", "host_memory", or a number of
    dimensions ("ndim8")."""
    if what.startswith("ndim") and what[4:].isdigit():
        return 0 < int(capabilities["max_ndim"]) < int(what[4:])
    if what in ("streams", "events", "host_memory"):
        return not capabilities[what]
    return what not in capabilities["dtypes"]


def describe(device: ts.device) -> Card:
    """What the backend of a device declares."""
    if not hasattr(ts.backends, "capabilities"):
        return Card(device, _from_properties(device))
    return Card(device, dict(ts.backends.capabilities(device.type)))


def _from_properties(device: ts.device) -> dict[str, Any]:
    found = ts.backends.properties(device)
    names = ["bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"]
    names += ["float16", "bfloat16", "float32", "float64", "complex64", "complex128"]
    bits = int(found["dtypes"])
    table = next(b for b in ts._native._backends() if b["name"] == device.type)
    return {
        "dtypes": [name for bit, name in enumerate(names) if bits >> bit & 1],
        "max_ndim": found["max_ndim"],
        "kernels": [],
        "streams": False,
        "events": False,
        "host_memory": bool(int(found["flags"]) & 1),
        "devices": table["device_count"],
        "vendor": table["vendor"],
        "version": table["version"],
        "properties": found,
    }


@dataclass
class Record:
    """What a test tells the report."""

    properties: dict[str, Any] = field(default_factory=dict)

    def case(self, **properties: Any) -> None:
        """Note the operator, its dtype, the direction, the worst error."""
        self.properties.update(properties)

    def timing(self, name: str, device: float, cpu: float) -> None:
        """Note the seconds one call took on the device and on the cpu."""
        self.properties.setdefault("timings", []).append({"name": name, "device": device, "cpu": cpu})
