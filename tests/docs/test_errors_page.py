"""What the guide's page of errors says is seen is what Tesserack says."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import tesserack as ts

ROOT = Path(__file__).resolve().parents[2]
TABLE = re.findall(r"^\| (.+?) \|", (ROOT / "docs" / "guide" / "errors.md").read_text(), re.MULTILINE)
ROWS = [row for row in TABLE if row != "You see" and not row.startswith("---")]


def written_before_backward() -> None:
    x = ts.ones(2, requires_grad=True)
    y = x.exp()
    y.add_(1)
    y.sum().backward()


def backward_twice() -> None:
    y = ts.ones(2, requires_grad=True).exp().sum()
    y.backward()
    y.backward()


CAUSES: dict[str, Callable[[], object]] = {
    "no backend named": lambda: ts.ones(2, device="acme"),
    "Expected all tensors to be on the same device": lambda: ts.ones(2) @ ts.ones(2, device="meta"),
    "one of the variables needed for gradient computation has been modified": written_before_backward,
    "Trying to backward through the graph a second time": backward_twice,
    "a leaf Variable that requires grad is being used": lambda: ts.ones(2, requires_grad=True).add_(1),
    "result type float32 can't be cast to the desired output type int64": lambda: ts.arange(2).add_(0.5),
}
# What only some machines say, by the file that says it.
ELSEWHERE = {
    "built from source for another processor": "backends/cpu",
    "; running it on the cpu, with copies": "core/native/dispatch",
}
CLASSES = {"OutOfMemoryError", "DeviceLostError"}


@pytest.mark.parametrize("row", ROWS)
def test_a_row_is_what_is_said(row: str) -> None:
    """The words of the row, as far as it gives any."""
    if row.strip("`") in CLASSES:
        assert issubclass(getattr(ts, row.strip("`")), RuntimeError)
        return
    for words, folder in ELSEWHERE.items():
        if words in row:
            assert any(words in f.read_text() for f in (ROOT / folder).rglob("*.cpp"))
            return
    (cause,) = (cause for words, cause in CAUSES.items() if words in row)
    with pytest.raises(Exception) as told:
        cause()
    text = re.sub(r"^`\w+`: | \.\.\.$", "", row)
    assert text in str(told.value)
