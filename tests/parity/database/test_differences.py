"""How lists of known differences are read: a line that is no longer true fails, and none is for ever."""

from __future__ import annotations

import pytest
from op_samples import Difference, judge, read

LINES = """# Operators
abs: another sign
sort: sometimes until 0.3: equal elements
"""


def agrees() -> None:
    pass


def differs() -> None:
    raise AssertionError("differs")


def test_what_sometimes_differs_has_an_end() -> None:
    known = {"abs": Difference("another sign", always=True), "sort": Difference("equal elements", always=False)}
    assert read(LINES, "0.1.0") == read(LINES, "0.2.9") == known
    assert read(LINES, "0.3.0").keys() == read(LINES, "1.0").keys() == {"abs"}
    with pytest.raises(ValueError, match="sort: expected 'sometimes until VERSION: why', got 'sometimes: ties'"):
        read("sort: sometimes: ties", "0.1.0")


def test_a_line_that_is_no_longer_true() -> None:
    known = read(LINES, "0.1.0")
    with pytest.raises(pytest.fail.Exception, match="take it off the list"):
        judge(known, "abs", "abs", agrees)
    judge(known, "sort-int64", "sort", agrees)
    for case, general in (("abs", ""), ("sort-int64", "sort")):
        with pytest.raises(pytest.xfail.Exception):
            judge(known, case, general, differs)
    with pytest.raises(AssertionError, match="differs"):
        judge(read(LINES, "0.3.0"), "sort-int64", "sort", differs)
