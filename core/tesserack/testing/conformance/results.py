"""The outcome of a run: cases, areas, the level reached and what stands in the way of the next."""

from __future__ import annotations

import datetime
import platform
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from tesserack.testing.conformance.areas import AREAS, LEVELS, Area, areas_up_to
from tesserack.testing.conformance.findings.causes import Cause, causes
from tesserack.testing.conformance.findings.ways import suggestions, ways
from tesserack.testing.conformance.outcome import Case
from tesserack.testing.expected_failures import without_folders

__all__ = ["AreaSummary", "Case", "Results", "environment"]

OUTCOMES = ("passed", "failed", "xfailed", "skipped")


def environment(device: str) -> dict[str, Any]:
    """What was tested, with what, when."""
    import numpy

    import tesserack as ts
    from tesserack.testing.conformance.card import describe

    found: dict[str, Any] = {
        "device": device,
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "versions": {
            "tesserack": ts.__version__,
            "python": platform.python_version(),
            "numpy": numpy.__version__,
            "system": platform.platform(),
        },
        "unavailable": ts.backends.why_unavailable(device),
        "capabilities": {},
    }
    if found["unavailable"] is None:
        card = describe(ts.device(device))
        found["capabilities"] = card.capabilities
        found["versions"][f"{card.name} backend"] = str(card.capabilities["version"]) or "unknown"
        found["versions"]["vendor"] = str(card.capabilities["vendor"]) or "unknown"
        found["versions"]["hardware"] = str(card.properties["name"]) or "unknown"
    return found


@dataclass
class AreaSummary:
    """How the tests of an area went."""

    area: Area
    counts: Counter[str]
    seconds: float

    @property
    def ran(self) -> bool:
        """Whether the run had tests of this area at all."""
        return self.counts.total() > 0


@dataclass
class Results:
    """A whole run."""

    environment: dict[str, Any]
    cases: list[Case]
    unused: list[str] = field(default_factory=list)
    partial: bool = False
    sampled: bool = False  # tests of its areas were left out

    @classmethod
    def from_lines(cls, lines: Iterable[dict[str, Any]], *, partial: bool = False, sampled: bool = False) -> Results:
        """Read what the plugin's log wrote."""
        results = cls({}, [], partial=partial, sampled=sampled)
        for line in lines:
            if line["event"] == "environment":
                results.environment = {k: v for k, v in line.items() if k != "event"}
            elif line["event"] == "collected":
                results.unused = line["unused"]
            elif line["event"] == "result":
                properties = line["properties"]
                results.cases.append(
                    Case(
                        without_folders(line["id"]),
                        properties["area"],
                        line["outcome"],
                        line["message"],
                        line["seconds"],
                        properties,
                    )
                )
        return results

    @property
    def device(self) -> str:
        """The name of the device that was tested."""
        return str(self.environment["device"])

    @property
    def seconds(self) -> float:
        """The time all tests took."""
        return sum(case.seconds for case in self.cases)

    def areas(self) -> list[AreaSummary]:
        """All areas, in the order of the levels that need them."""
        by_area: dict[str, list[Case]] = {name: [] for name in AREAS}
        for case in self.cases:
            by_area[case.area].append(case)
        return [
            AreaSummary(AREAS[name], Counter(c.outcome for c in cases), sum(c.seconds for c in cases))
            for name, cases in by_area.items()
        ]

    def count(self, outcome: str) -> int:
        """How many tests ended so."""
        return sum(case.outcome == outcome for case in self.cases)

    def failures(self) -> list[Case]:
        """The tests that failed."""
        return [case for case in self.cases if case.outcome == "failed"]

    def obstacles(self, level: str) -> list[str]:
        """What keeps the device from a level; empty if it has reached it."""
        summaries = {summary.area.name: summary for summary in self.areas()}
        found = []
        for area in areas_up_to(level):
            counts = summaries[area.name].counts
            if not counts.total():
                found.append(f"{area.name}: not run")
            elif counts["failed"]:
                found.append(f"{area.name}: {counts['failed']} of {counts.total()} tests failed")
        if level == [*LEVELS][-1]:
            found += self._unexcused()
        return found

    def _unexcused(self) -> list[str]:
        """Expected failures that neither the core nor a declared lack explains."""
        from tesserack.testing.conformance.card import lacks

        left: Counter[str] = Counter()
        for case in self.cases:
            excuse = case.properties.get("excuse", {})
            declared = excuse.get("lacks") and lacks(self.environment["capabilities"], excuse["lacks"])
            if case.outcome == "xfailed" and not excuse.get("core") and not declared:
                left[case.area] += 1
        return [f"{area}: {count} expected failures" for area, count in left.items()]

    @property
    def level(self) -> str | None:
        """The highest level reached, if any."""
        reached = None
        for level in LEVELS:
            if self.obstacles(level):
                break
            reached = level
        return reached

    def causes(self) -> list[Cause]:
        """The failures in groups of one cause each, the largest first."""
        return causes(self.failures(), self.device)

    def to_dict(self) -> dict[str, Any]:
        """Everything, for report.json."""
        return {
            "format": 1,
            "device": self.device,
            "environment": self.environment,
            "level": self.level,
            "partial": self.partial,
            "sampled": self.sampled,
            "levels": {level: {"means": text, "obstacles": self.obstacles(level)} for level, text in LEVELS.items()},
            "areas": {s.area.name: {**s.counts, "seconds": round(s.seconds, 3)} for s in self.areas()},
            "unused_expected_failures": self.unused,
            "causes": [
                {"title": c.title, "count": len(c.cases), "operators": c.operators, "command": c.command}
                for c in self.causes()
            ],
            "ways": ways(self),
            "optimise_next": suggestions(self),
            "cases": [
                {
                    "id": case.id,
                    "area": case.area,
                    "outcome": case.outcome,
                    "message": case.message,
                    "seconds": round(case.seconds, 5),
                    **{k: v for k, v in case.properties.items() if k not in ("area", "level")},
                }
                for case in self.cases
            ],
        }
