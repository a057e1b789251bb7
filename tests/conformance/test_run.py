"""The process that runs the kit: what becomes of tests that kill it, or never end."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from tesserack.testing.conformance import run

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
    ordered = "capabilities,slots,bounds,reads,memory,copies,required,edges,forms,state,views"  # causes first
    assert f"--tesserack-areas={ordered}" in command
    assert "-x" not in command and "-x" in run._command(run.Options("acme", stop=True), Path("log"))
    assert all(Path(word).is_file() for word in command if word.endswith(".py"))
    few = run.Options("acme", areas=("copies", "sizes"))
    assert [area.name for area in few.wanted()] == ["copies", "sizes"]
    assert few.partial and not run.Options("acme", "boots").partial
    assert options.sampled and not few.sampled
