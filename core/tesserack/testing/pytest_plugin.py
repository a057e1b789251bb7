"""The pytest plugin: the device to test on, the seed, expected failures, and the log and report of a conformance run.

Ships with the core and is found by pytest itself::

    pytest --tesserack-device=NAME --pyargs tesserack.testing.conformance
"""

from __future__ import annotations

import json
import re
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tesserack.testing import seeds

if TYPE_CHECKING:
    import tesserack

KIT = "tesserack.testing.conformance"
_LOG = pytest.StashKey["Log"]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options of the kit, and of the project's own tests."""
    group = parser.getgroup("tesserack", "Tesserack")
    group.addoption("--tesserack-device", default="cpu", metavar="NAME", help="device the tests run on (default: cpu)")
    group.addoption(
        "--tesserack-expected-failures",
        metavar="FILE",
        type=Path,
        help="conformance tests that the device is expected to fail: lines of 'pattern  # reason [until=YYYY-MM-DD]'",
    )
    group.addoption("--tesserack-report", metavar="DIR", type=Path, help="write report.html, report.json and badge.svg")
    group.addoption("--tesserack-areas", metavar="NAME,NAME", help="conformance: only these areas, such as copies")
    group.addoption("--tesserack-quick", action="store_true", help="conformance: a subset that takes under a minute")
    group.addoption("--tesserack-thorough", action="store_true", help="conformance: each dtype in each layout")
    group.addoption("--tesserack-seed", metavar="N", type=int, help="choose the cases that this seed chose")
    group.addoption("--tesserack-log", metavar="FILE", type=Path, help="conformance: a line of JSON for each test")


@pytest.hookimpl(tryfirst=True)  # what others choose depends on the seed
def pytest_configure(config: pytest.Config) -> None:
    """Markers, and the log if somebody reads it."""
    config.addinivalue_line("markers", "conformance(area, level): what part of the kit a test belongs to")
    config.addinivalue_line("markers", "tesserack_expired(message): an expected failure whose day has passed")
    seeds.begin(config.getoption("--tesserack-seed"))
    if hasattr(config, "workerinput"):
        return
    log, report = config.getoption("--tesserack-log"), config.getoption("--tesserack-report")
    if log or report:
        config.stash[_LOG] = Log(log, report, str(config.getoption("--tesserack-device")))
        config.pluginmanager.register(config.stash[_LOG], "tesserack-log")


def _in_kit(item: pytest.Item) -> bool:
    module = getattr(item, "module", None)
    return module is not None and str(module.__name__).startswith(KIT)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the kit's tests with area and level, drop those a quick run leaves out, expect the failures expected."""
    kit = [item for item in items if _in_kit(item)]
    if not kit:
        return
    from tesserack.testing.conformance import selection

    options = (config.getoption("--tesserack-areas"), config.getoption("--tesserack-quick"))
    real = _real_of(str(config.getoption("--tesserack-device")))
    dropped = selection.prepare(kit, *options, real)
    thinned = (
        set()
        if config.getoption("--tesserack-thorough")
        else {item for item in kit if selection.is_thinned(item, real)}
    )
    represented = [item for item in thinned if item not in dropped]
    dropped |= thinned
    done = config.stash[_LOG].done if _LOG in config.stash else set()
    dropped |= {item for item in kit if item.nodeid in done}
    if dropped:
        config.hook.pytest_deselected(items=sorted(dropped, key=lambda item: item.nodeid))
        items[:] = [item for item in items if item not in dropped]
    kept = sorted((item for item in kit if item not in dropped), key=lambda item: selection.in_order(item, real))
    moved = set(kept)
    items[:] = [*(item for item in items if item not in moved), *kept]
    unused = selection.expect([*kept, *represented], config.getoption("--tesserack-expected-failures"))
    if _LOG in config.stash:
        config.stash[_LOG].collected(kept, unused)


def _real_of(device: str) -> str:
    """The dtype in which real numbers are tried first on a device; of one that cannot be used, the usual one."""
    import tesserack as ts
    from tesserack.testing.conformance.card import REALS, describe

    return REALS[0] if ts.backends.why_unavailable(device) else describe(ts.device(device)).real


@pytest.fixture(scope="session")
def tesserack_device(request: pytest.FixtureRequest) -> tesserack.device:
    """The device under test; tests are skipped, with the reason, where it cannot be used."""
    import tesserack as ts

    name = str(request.config.getoption("--tesserack-device"))
    reason = ts.backends.why_unavailable(name)
    if reason:
        pytest.skip(reason)
    return ts.device(name)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """An expected failure that has expired excuses nothing."""
    expired = item.get_closest_marker("tesserack_expired")
    if expired:
        pytest.fail(f"{expired.args[0]}; mend the backend or renew the date", pytrace=False)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Say plainly what to do about a test that was expected to fail and passes."""
    report = yield
    expected = item.get_closest_marker("xfail")
    if report.when == "call" and report.failed and expected and str(report.longrepr).startswith("[XPASS(strict)]"):
        report.longrepr = f"unexpected pass: expected to fail because {expected.kwargs['reason']}; remove that line"
    return report


class Log:
    """Writes down what happens in a run, as it happens, so that it can be read even if the process dies."""

    def __init__(self, path: Path | None, report: Path | None, device: str) -> None:
        self.path, self.report, self.device = path, report, device
        self.lines: list[dict[str, Any]] = []
        self.done: set[str] = set()
        if path and path.exists():
            self.lines = [json.loads(line) for line in path.read_text().splitlines()]
            self.done = {line["id"] for line in self.lines if line["event"] == "result"}
        self.parts: dict[str, dict[str, Any]] = {}
        self.properties: dict[str, dict[str, Any]] = {}

    def write(self, event: str, **fields: Any) -> None:
        """One line."""
        self.lines.append({"event": event, **fields})
        if self.path:
            with self.path.open("a") as file:
                file.write(json.dumps(self.lines[-1]) + "\n")

    def pytest_sessionstart(self) -> None:
        """What the results will be about."""
        from tesserack.testing.conformance.results import environment

        self.write("environment", **environment(self.device))

    def collected(self, items: list[pytest.Item], unused: list[str]) -> None:
        """What is going to run."""
        self.properties = {item.nodeid: _properties(item) for item in items}
        self.write("collected", count=len(items), unused=unused)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """A test begins; if nothing follows, it took the process with it."""
        self.write("start", id=nodeid, properties=self.properties.get(nodeid, {}))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Gather setup, call and teardown into one result."""
        properties = _properties(report)
        part = self.parts.setdefault(report.nodeid, {"outcome": "passed", "message": "", "seconds": 0.0})
        part["seconds"] += report.duration
        part["properties"] = properties
        expected = getattr(report, "wasxfail", None)
        if report.failed:
            part.update(outcome="failed", message=_message(report))
        elif report.skipped and part["outcome"] == "passed":
            part.update(outcome="xfailed" if expected is not None else "skipped", message=expected or _reason(report))
        if report.when == "teardown":
            part = self.parts.pop(report.nodeid)
            if "area" in part["properties"]:
                self.write("result", id=report.nodeid, **part)

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        """The run is over."""
        self.write("finished", status=int(exitstatus))
        if self.report:
            from tesserack.testing.conformance.report import write_report
            from tesserack.testing.conformance.results import Results

            write_report(Results.from_lines(self.lines), self.report)


def _properties(of: pytest.Item | pytest.TestReport) -> dict[str, Any]:
    """What a test of the kit tells the report; empty for other tests."""
    found: Any = next((value for name, value in of.user_properties if name == "tesserack"), {})
    return dict(found)


def _message(report: pytest.TestReport) -> str:
    """What went wrong, the gist of it first."""
    text = str(report.longrepr)
    crash = getattr(report.longrepr, "reprcrash", None)
    gist = re.sub(r"^(AssertionError|Failed): ", "", str(crash.message)) if crash is not None else ""
    return text if text.startswith(gist) else f"{gist}\n\n{text}"


def _reason(report: pytest.TestReport) -> str:
    return str(report.longrepr[2]).removeprefix("Skipped: ") if isinstance(report.longrepr, tuple) else ""
