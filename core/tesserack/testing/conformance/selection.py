"""Which of the kit's tests run, and which of them are expected to fail."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tesserack.testing import expected_failures
from tesserack.testing.conformance.areas import AREAS
from tesserack.testing.conformance.card import REALS
from tesserack.testing.conformance.covering import QUICK_DTYPES, is_covered, stands_beside_many

__all__ = ["KNOWN_GAPS", "expect", "in_order", "is_thinned", "prepare", "properties_of"]

# What the core itself is known to lack, on every device.
KNOWN_GAPS = Path(__file__).with_name("known_gaps.txt")

# In a quick run one in so many of the tests that remain of these, spread evenly.
_QUICK_SHARE = {
    "test_values": 2,
    "test_special_values": 4,
    "test_gradient": 3,
    "test_second_gradient": 8,
    "test_gradient_from_any_layout": 8,
    "test_gradient_of_dtype": 4,
    "test_inplace": 3,
    "test_inplace_gradient": 6,
    "test_out": 6,
}
_QUICK_BESIDE = 3  # and of those that one kernel computes with many others, at other dtypes than real numbers
_MODULES = {area.module: area.name for area in AREAS.values() if area.name != "required"}


def in_order(item: Any, real: str = REALS[0]) -> tuple[int, bool]:
    """What is told first: areas in their order, and float32, or what the card has in its place (``real``), before other
    dtypes, whose fault may be that something was kept of it."""
    area = properties_of(item)["area"]
    parameters = item.callspec.params if hasattr(item, "callspec") else {}
    return [*AREAS].index(area), parameters.get("dtype", real) != real


def prepare(items: list[Any], areas: str | None = None, quick: bool = False, real: str = REALS[0]) -> set[Any]:
    """Mark each test with its area and level; returns those that a quick run, of the real numbers of one dtype, or one
    of some areas, leaves out. ``UsageError`` for unknown areas."""
    wanted = areas.split(",") if areas else [*AREAS]
    unknown = [name for name in wanted if name not in AREAS]
    if unknown:
        raise pytest.UsageError(f"--tesserack-areas: expected some of {', '.join(AREAS)}, got {unknown[0]!r}")
    counts: dict[str, int] = {}
    dropped = set()
    for item in items:
        own = {key: value for marker in item.iter_markers("conformance") for key, value in marker.kwargs.items()}
        area = AREAS[own.get("area") or _MODULES[item.path.name]]
        item.add_marker(pytest.mark.conformance(area=area.name, level=area.level), append=False)
        item.user_properties.append(("tesserack", {"area": area.name, "level": area.level}))
        if area.name not in wanted or (quick and ("slow" in own or _left_out(item, area.name, counts, real))):
            dropped.add(item)
    return dropped


def is_thinned(item: Any, real: str = REALS[0]) -> bool:
    """Whether other dtypes of its operator stand for a test, unless the run is thorough."""
    parameters = item.callspec.params if hasattr(item, "callspec") else {}
    by_dtype = item.originalname in ("test_values", "test_gradient_of_dtype")
    return by_dtype and not is_covered(parameters["name"], parameters["dtype"], real)


def _left_out(item: Any, area: str, counts: dict[str, int], real: str) -> bool:
    parameters = item.callspec.params if hasattr(item, "callspec") else {}
    dtype = parameters.get("dtype", real)
    if dtype not in (real, *QUICK_DTYPES):
        return True
    function = item.originalname
    share = 1 if area == "required" else _QUICK_SHARE.get(function, 1)
    if area == "required" and function == "test_values" and dtype != real and stands_beside_many(parameters["name"]):
        share, function = _QUICK_BESIDE, f"{function} beside {dtype}"
    counts[function] = counts.get(function, -1) + 1
    return counts[function] % share != 0


def expect(items: list[Any], path: Path | None) -> list[str]:
    """Expect the failures that the core and the vendor list; returns the vendor's lines that name no test.
    ``UsageError`` for a file that is not there or malformed."""
    try:
        vendor = expected_failures.read(path) if path else []
    except (OSError, ValueError) as error:
        raise pytest.UsageError(f"--tesserack-expected-failures: {error}") from None
    matched = expected_failures.apply(items, [*vendor, *expected_failures.read(KNOWN_GAPS, core=True)])
    for item, entry in matched:
        properties_of(item)["excuse"] = {"where": entry.where, "lacks": entry.lacks, "core": entry.core}
    used = {entry for _, entry in matched}
    return [f"{entry.where}: {entry.pattern}" for entry in vendor if entry not in used]


def properties_of(item: Any) -> dict[str, Any]:
    """What a test tells the report."""
    return dict(item.user_properties)["tesserack"]  # type: ignore[no-any-return]
