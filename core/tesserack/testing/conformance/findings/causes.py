"""What stands behind many failures: tests that failed alike, with a command that repeats one of them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass

from tesserack.testing.conformance.outcome import Case

__all__ = ["Cause", "causes"]

_DTYPE = re.compile(r"\b(?:bool|u?int(?:8|16|32|64)|b?float(?:16|32|64)|complex(?:64|128))\b")
_NUMBER = re.compile(r"-?\b(?:0x[0-9a-f]+|\d[\d_,.]*(?:e[+-]?\d+)?|inf|nan)\b")


@dataclass(frozen=True)
class Cause:
    """Failures that say the same but for names, dtypes and numbers."""

    cases: tuple[Case, ...]
    device: str

    @property
    def title(self) -> str:
        """What the first of them says."""
        return self.cases[0].title

    @property
    def operators(self) -> list[str]:
        """Which operators it was seen with."""
        return list(dict.fromkeys(str(case.properties["op"]) for case in self.cases if case.properties.get("op")))

    @property
    def command(self) -> str:
        """Repeats the first of them alone."""
        return f"tesserack conform {shlex.quote(self.device)} --case {shlex.quote(self.cases[0].id)}"


def causes(failures: Iterable[Case], device: str) -> list[Cause]:
    """The failures in groups, the largest first.

    >>> one = Case("test_a.py::test_a[x]", "copies", "failed", "sum of int8 on acme: wrong for 3 elements")
    >>> two = Case("test_a.py::test_a[y]", "copies", "failed", "cumsum of float32 on acme: wrong for 70 elements")
    >>> [(c.title, len(c.cases), c.command) for c in causes([one, two], "acme")]
    [('sum of int8 on acme: wrong for 3 elements', 2, "tesserack conform acme --case 'test_a.py::test_a[x]'")]
    """
    groups: dict[str, list[Case]] = {}
    for case in failures:
        groups.setdefault(_gist(case.title, device), []).append(case)
    return sorted((Cause(tuple(group), device) for group in groups.values()), key=lambda cause: -len(cause.cases))


def _gist(title: str, device: str) -> str:
    """What a failure says without whom it says it of."""
    _, subject, rest = title.partition(f" on {device}: ")
    text = rest if subject else title
    return _NUMBER.sub("0", _DTYPE.sub("dtype", text))
