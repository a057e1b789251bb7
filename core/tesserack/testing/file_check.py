"""Checks that pieces of text stand in a text in order, as those of LLVM's FileCheck do."""

from __future__ import annotations

import re
from typing import Any

__all__ = ["FileCheck"]

_WORDS = {
    "CHECK": "check",
    "CHECK-DAG": "check_dag",
    "CHECK-NEXT": "check_next",
    "CHECK-NOT": "check_not",
    "CHECK-REGEX": "check_regex",
    "CHECK-SAME": "check_same",
}


class FileCheck:
    """What a text, such as the code of a graph, is to contain; each check looks behind what the one before found.

    ``run`` raises ``RuntimeError`` that says which check failed, with the text.

    >>> FileCheck().check("relu").check_same("(").check_not("sigmoid").run("x = relu(y)")
    """

    def __init__(self) -> None:
        self._checks: list[tuple[str, str, int]] = []

    def _add(self, kind: str, text: str, count: int = 1) -> FileCheck:
        self._checks.append((kind, text, count))
        return self

    def check(self, test_string: str) -> FileCheck:
        """The text comes next, somewhere."""
        return self._add("find", test_string)

    def check_same(self, test_string: str) -> FileCheck:
        """The text comes next, on the same line."""
        return self._add("same", test_string)

    def check_next(self, test_string: str) -> FileCheck:
        """The text comes next, on the line after."""
        return self._add("next", test_string)

    def check_not(self, test_string: str) -> FileCheck:
        """The text does not stand before what the next check finds."""
        return self._add("not", test_string)

    def check_count(self, test_string: str, count: int, exactly: bool = False) -> FileCheck:
        """The text comes so often; with ``exactly``, and not once more."""
        self._add("count", test_string, count)
        return self._add("not", test_string) if exactly else self

    def check_dag(self, test_string: str) -> FileCheck:
        """The text comes next, in any order with those of other such checks beside this one."""
        return self._add("dag", test_string)

    def check_regex(self, test_string: str) -> FileCheck:
        """Something comes next that the expression matches."""
        return self._add("regex", test_string)

    def check_source_highlighted(self, test_string: str) -> FileCheck:
        """The text comes next with ``~`` or ``^`` under all of it."""
        return self._add("highlighted", test_string)

    def run(self, *texts: Any) -> None:
        """Check a text; given two, the first holds lines such as ``# CHECK: relu``, and the second is checked."""
        if len(texts) == 2:
            return _read(str(texts[0])).run(texts[1])
        (given,) = texts
        text, at, pending = str(given), 0, list[str]()
        position = 0
        while position < len(self._checks):
            kind, wanted, count = self._checks[position]
            position += 1
            if kind == "not":
                pending.append(wanted)
                continue
            if kind == "dag":
                group = [wanted]
                while position < len(self._checks) and self._checks[position][0] == "dag":
                    group.append(self._checks[position][1])
                    position += 1
                places = [_found(text, each, at, "CHECK-DAG") for each in group]
                start, end = min(s for s, _ in places), max(e for _, e in places)
            else:
                start, end = self._place(kind, wanted, count, text, at)
            _refuse(text, pending, at, start)
            pending, at = [], end
        _refuse(text, pending, at, len(text))

    def _place(self, kind: str, wanted: str, count: int, text: str, at: int) -> tuple[int, int]:
        """Where a check finds what it looks for."""
        if kind == "regex":
            match = re.compile(wanted).search(text, at)
            if match is None:
                raise _failure(f"to find a match of the expression {wanted!r}", text, at)
            return match.span()
        start, end = _found(text, wanted, at, f"CHECK-{kind.upper()}" if kind != "find" else "CHECK")
        for _ in range(count - 1):
            _, end = _found(text, wanted, end, "CHECK-COUNT")
        lines = text.count("\n", at, start)
        if kind == "same" and lines:
            raise _failure(f"{wanted!r} on the same line, not {lines} after it", text, at)
        if kind == "next" and lines != 1:
            raise _failure(f"{wanted!r} on the next line, not {lines} after this one", text, at)
        if kind == "highlighted":
            self._check_highlight(text, start, end)
        return start, end

    @staticmethod
    def _check_highlight(text: str, start: int, end: int) -> None:
        line_start, line_end = text.rfind("\n", 0, start) + 1, text.find("\n", end)
        under = text[line_end + 1 :][start - line_start : end - line_start] if line_end >= 0 else ""
        if len(under) < end - start or not set(under) <= set("~^"):
            raise _failure(f"{text[start:end]!r} to be highlighted", text, start)


def _found(text: str, wanted: str, at: int, kind: str) -> tuple[int, int]:
    start = text.find(wanted, at)
    if start < 0:
        raise _failure(f"to find {wanted!r} ({kind})", text, at)
    return start, start + len(wanted)


def _refuse(text: str, unwanted: list[str], at: int, end: int) -> None:
    for each in unwanted:
        if each in text[at:end]:
            raise _failure(f"to not find {each!r}", text, at)


def _failure(what: str, text: str, at: int) -> RuntimeError:
    line = text.count("\n", 0, at) + 1
    return RuntimeError(f"FileCheck: Expected {what} but did not, from line {line} on; Searched string:\n{text}")


def _read(source: str) -> FileCheck:
    made = FileCheck()
    for line in source.splitlines():
        match = re.match(r"\s*(?:#\s*)?(CHECK(?:-[A-Z]+)*(?:-(\d+))?):\s?(.*)", line)
        if match is None:
            continue
        word, count, wanted = match.groups()
        if count is not None:
            made.check_count(wanted.strip(), int(count), exactly="EXACTLY" in word)
        elif word in _WORDS:
            getattr(made, _WORDS[word])(wanted.strip())
        else:
            raise RuntimeError(f"FileCheck: expected one of {', '.join(_WORDS)}, got {word}")
    return made
