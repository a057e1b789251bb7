"""The process that runs the kit: what becomes of tests that kill it, or never end."""

from __future__ import annotations

import io
import json
import os
import signal
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from tesserack.testing import conform
from tesserack.testing.conformance import run
from tesserack.testing.conformance.report import progress

HEAD = """
import json, os, sys, time
log = open(sys.argv[1], "a")
def write(event, **fields):
    print(json.dumps({"event": event, **fields}), file=log, flush=True)
done = sum('"result"' in line for line in open(sys.argv[1]))
PROPERTIES = {"area": "copies", "level": "boots"}
def start(name):
    write("start", id=name, properties=PROPERTIES)
def result(name):
    write("result", id=name, outcome="passed", message="", seconds=0.1, properties=PROPERTIES)
write("environment", device="acme", versions={}, capabilities={}, date="")
"""


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Runs a script in pytest's place, with the log of the run as its argument."""

    def play(script: str, timeout: float = 60.0) -> Any:
        path = tmp_path / "kit.py"
        path.write_text(HEAD + textwrap.dedent(script))
        monkeypatch.setattr(run, "_command", lambda options, log: [sys.executable, str(path), str(log)])
        seen: list[Any] = []
        return run.run(run.Options("acme", timeout=timeout), seen.append), seen

    return play


def test_a_crash_is_a_failure_and_the_rest_still_runs(play: Any) -> None:
    """The test that was running is blamed, with the signal and what was printed."""
    results, seen = play(
        """
        for name in ["one", "two", "three"][done:]:
            start(name)
            if name == "two":
                print("Fatal Python error: Segmentation fault in kernel 'scan'", flush=True)
                os.kill(os.getpid(), 11)
            result(name)
        write("finished", status=0)
        """
    )
    assert [(c.id, c.outcome) for c in results.cases] == [("one", "passed"), ("two", "failed"), ("three", "passed")]
    assert results.cases[1].title == "the test ended the process (SIGSEGV)"
    assert "kernel 'scan'" in results.cases[1].message
    assert results.cases[1].area == "copies"
    assert [line["event"] for line in seen].count("result") == 3


def test_a_hang_is_a_failure(play: Any) -> None:
    """After the time allowed."""
    results, _ = play(
        """
        if not done:
            start("slow")
            time.sleep(100)
        write("finished", status=1)
        """,
        timeout=1.0,
    )
    assert [(c.id, c.title) for c in results.cases] == [("slow", "the test did not end within 1 s")]


def test_a_hang_that_takes_no_signal_is_a_failure(play: Any, monkeypatch: Any) -> None:
    """A driver may have taken the signal that asks where the process stands."""
    monkeypatch.setattr(run, "_ABORTING", 1.0)
    results, _ = play(
        """
        import signal
        signal.signal(signal.SIGABRT, lambda *_: None)
        if not done:
            start("slow")
            for _ in range(100):
                time.sleep(1)
        write("finished", status=1)
        """,
        timeout=1.0,
    )
    assert [(c.id, c.title) for c in results.cases] == [("slow", "the test did not end within 1 s")]


def test_a_line_cut_short_by_the_crash(play: Any) -> None:
    """What was written last may be incomplete."""
    results, _ = play(
        """
        if not done:
            start("one")
            log.write('{"event": "resu')
            log.flush()
            os._exit(9)
        write("finished", status=5)
        """
    )
    assert [(c.id, c.title) for c in results.cases] == [("one", "the test ended the process (exit status 9)")]


def test_many_crashes_end_the_run(play: Any) -> None:
    """A backend that crashes always does not keep the kit busy for ever."""
    results, _ = play("start(str(done)); os._exit(1)")
    assert len(results.cases) == run._MOST_CRASHES


def test_a_kit_that_cannot_start_says_why(play: Any) -> None:
    """Not the device's fault."""
    with pytest.raises(run.KitError, match="no module named nonsense"):
        play("print('no module named nonsense'); sys.exit(4)")


def test_command(tmp_path: Path) -> None:
    """Options become pytest's; a level leaves out the modules of those above."""
    options = run.Options("acme", "boots", tmp_path / "gaps.txt", True, "conv or pool", 5.0)
    command = run._command(options, Path("log"))
    for word in ("--tesserack-device=acme", "--tesserack-quick", "conv or pool", "--tesserack-log=log"):
        assert word in command
    assert f"--tesserack-expected-failures={tmp_path / 'gaps.txt'}" in command
    modules = [Path(word).name for word in command if word.endswith(".py")]
    assert "test_copies.py" in modules
    assert "test_training.py" not in modules
    ordered = "capabilities,slots,bounds,reads,memory,copies,required,edges,numbers,forms,state,views"  # causes first
    assert f"--tesserack-areas={ordered}" in command
    assert "-x" not in command and "-x" in run._command(run.Options("acme", stop=True), Path("log"))
    assert all(Path(word).is_file() for word in command if word.endswith(".py"))
    few = run.Options("acme", areas=("copies", "sizes"))
    assert [area.name for area in few.wanted()] == ["copies", "sizes"]
    assert few.partial and not run.Options("acme", "boots").partial
    assert options.sampled and not few.sampled


def test_who_is_ended_says_what_was_running(play: Any, tmp_path: Path) -> None:
    """By whoever limits its time: the test, how long it had run, and what was found so far."""
    script = f"""
        start("one")
        result("one")
        start("folder/test_copies.py::two")
        os.kill({os.getpid()}, 15)
        time.sleep(100)
        """
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(run.Stopped, match=r"stopped by SIGTERM after \d+ s, in test_copies.py::two for \d+ s; 1 tests"):
        play(script)
    assert signal.getsignal(signal.SIGTERM) is before


def test_the_command_writes_what_was_found_when_it_is_ended(monkeypatch: Any, tmp_path: Path, capfd: Any) -> None:
    """The report of a part, a status of its own, and nothing in silence; the kit's process ends with it."""
    line = {"event": "result", "id": "a", "outcome": "passed", "message": "", "seconds": 0.1}
    lines = [{"event": "environment", "device": "acme", "versions": {}, "capabilities": {}, "date": ""}]
    lines.append({**line, "properties": {"area": "copies", "level": "boots"}})

    def stopped(options: Any, watch: Any) -> Any:
        raise run.Stopped("SIGTERM", "stopped by SIGTERM after 3 s, in b for 2 s", run.Results.from_lines(lines))

    monkeypatch.setattr(run, "run", stopped)
    assert conform.main(["cpu", "--json", str(tmp_path / "found.json")]) == 130
    out, err = capfd.readouterr()
    assert "stopped by SIGTERM after 3 s, in b for 2 s" in err and "Conformance of acme" in out
    assert len(json.loads((tmp_path / "found.json").read_text())["cases"]) == 1


def test_progress_without_a_terminal() -> None:
    """A line for each area as it ends, and one that names what is running when there was none for a while."""
    file, now = io.StringIO(), [0.0]
    told = progress._Lines(Console(file=file, width=40), "acme", lambda: now[0])
    told.watch({"event": "collected", "count": 3, "unused": []})
    for area, outcome in (("slots", "passed"), ("slots", "failed"), ("copies", "passed")):
        told.watch({"event": "start", "id": area, "properties": {"area": area}})
        told.watch({"event": "waiting", "doing": "in slow for 6 s"})  # too early to be told
        told.watch({"event": "result", "id": area, "outcome": outcome, "properties": {"area": area}})
    now[0] = 30.0
    told.watch({"event": "waiting", "doing": "in slow for 30 s"})
    told.end_area()
    assert file.getvalue().splitlines() == [
        "acme: 3 tests",
        "acme: slots: 1 failed, 1 passed, 0.0 s; 2 of 3 tests",
        "acme: copies: 3 of 3 tests done, in slow for 30 s",
        "acme: copies: 1 passed, 30.0 s; 3 of 3 tests",
    ]


def test_while_nothing_is_written_the_running_test_is_named(play: Any, monkeypatch: Any) -> None:
    """Every few seconds."""
    monkeypatch.setattr(run, "_TELLING", 0.2)
    _, seen = play(
        """
        start("test_copies.py::slow")
        time.sleep(1)
        result("test_copies.py::slow")
        write("finished", status=0)
        """
    )
    waits = [line["doing"] for line in seen if line["event"] == "waiting"]
    assert any(text.startswith("in test_copies.py::slow for") for text in waits), seen
