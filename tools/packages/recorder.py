"""A pytest plugin: which tests passed, line by line, so that a run that is cut short has told what it reached.

PACKAGE_RESULTS names the file; PACKAGE_SHARE=N keeps one test in N, the same ones wherever they are collected, and
PACKAGE_PART=K (0 to N-1) says which; PACKAGE_ONLY names a file with the tests to run, one identifier a line.
"""

from __future__ import annotations

import json
import os
import zlib
from pathlib import Path
from typing import Any

SHARE = int(os.environ.get("PACKAGE_SHARE", "1"))
PART = int(os.environ.get("PACKAGE_PART", "0"))
TARGET = Path(os.environ["PACKAGE_RESULTS"])
ONLY = os.environ.get("PACKAGE_ONLY", "")
FIRST_LINE = 300


def _let_torchvision_in() -> None:
    """Its wheels from PyPI bring operators for a torch with CUDA: for a torch without, those it asks for are named."""
    import torch

    if not torch.version.cuda and "tesserack" not in torch.__version__:
        for name in ("nms", "qnms"):
            torch.library.define(f"torchvision::{name}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")


_let_torchvision_in()


def _write(test: str, outcome: str, seconds: float, message: str = "") -> None:
    with TARGET.open("a", encoding="utf-8") as file:
        file.write(json.dumps({"test": test, "outcome": outcome, "seconds": round(seconds, 3), "why": message}) + "\n")


def _message(report: Any) -> str:
    if isinstance(report.longrepr, tuple):  # a test that was skipped: its file, its line and why
        return str(report.longrepr[2])[:FIRST_LINE]
    crash = getattr(report.longrepr, "reprcrash", None)
    text = crash.message if crash is not None else str(report.longrepr)
    if crash is None:  # a doctest: the exception stands at its end
        lines = [line for line in text.splitlines() if line.strip()]
        told = [line for line in lines if not line.endswith((": DocTestFailure", ": UnexpectedException"))]
        text = told[-1] if told else ""
    return str(text).strip()[:FIRST_LINE]


def pytest_collection_modifyitems(config: Any, items: list[Any]) -> None:
    """Keep the share that was asked for."""
    wanted = set(Path(ONLY).read_text("utf-8").splitlines()) if ONLY else None
    kept: list[Any] = []
    dropped: list[Any] = []
    for item in items:
        chosen = zlib.crc32(item.nodeid.encode()) % SHARE == PART if wanted is None else item.nodeid in wanted
        (kept if chosen else dropped).append(item)
    if dropped:
        config.hook.pytest_deselected(items=dropped)
    items[:] = kept


def pytest_collectreport(report: Any) -> None:
    """A file that cannot be imported is told as such."""
    if report.failed:
        _write(report.nodeid, "error", 0.0, _message(report))


def pytest_runtest_logstart(nodeid: str, location: Any) -> None:
    """Told first, so that the test at which a process ends is known."""
    _write(nodeid, "started", 0.0)


def pytest_runtest_logreport(report: Any) -> None:
    """The outcome of a test, or of its set-up where that failed."""
    if report.when == "call" or report.outcome != "passed":
        _write(report.nodeid, report.outcome, report.duration, "" if report.passed else _message(report))
