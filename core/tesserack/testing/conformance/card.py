"""The device under test: what it declares, and what tests write down about it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

import tesserack as ts

__all__ = ["REALS", "Card", "Record", "describe", "lacks"]

# What tests that need some real numbers compute in: the first that the device has.
REALS = ("float32", "float16", "bfloat16", "float64")


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
    def properties(self) -> dict[str, Any]:
        """What the device says about itself."""
        return self.capabilities["devices"][self.device.index or 0]  # type: ignore[no-any-return]

    @property
    def dtypes(self) -> frozenset[str]:
        """Names of the dtypes the device computes with."""
        return frozenset(self.capabilities["dtypes"])

    @property
    def real(self) -> str:
        """The dtype of tests that need real numbers and do not care which; the default dtype while they run."""
        return next((dtype for dtype in REALS if dtype in self.dtypes), REALS[0])

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
    return Card(device, ts.backends.capabilities(device.type))


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
