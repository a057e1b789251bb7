"""Running the kit in a process of its own, which a backend may crash or hang without ending the run."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tesserack.testing.conformance.areas import LEVELS, Area, areas_up_to
from tesserack.testing.conformance.results import Results
from tesserack.testing.expected_failures import without_folders

__all__ = ["KitError", "Options", "Stopped", "run"]

_FOLDER = Path(__file__).parent
_MOST_CRASHES = 25
_ABORTING = 20.0  # seconds that a process has to say where it hangs
_TELLING = 5.0  # seconds between two words about what is running
_COLLECTING = 600.0  # seconds; importing the tests takes a while on a busy machine


class KitError(RuntimeError):
    """The kit itself could not run: a wrong option, a module that cannot be imported."""


class Stopped(Exception):
    """Somebody ended the run: Ctrl-C, or a signal of whoever limits its time. ``results`` are those so far."""

    def __init__(self, by: str, message: str, results: Results) -> None:
        super().__init__(message)
        self.by, self.results = by, results


@dataclass(frozen=True)
class Options:
    """What to run. ``areas``: only these, of those the level needs, if any are named. ``timeout``: seconds after which
    a test counts as hung. ``cases``: only these tests, by the ids of a report. ``stop``: at the first failure.
    ``thorough``: each dtype of an operator in each layout, not only what covers their pairs."""

    device: str
    level: str = [*LEVELS][-1]
    expected_failures: Path | None = None
    quick: bool = False
    expression: str | None = None
    timeout: float = 300.0
    areas: tuple[str, ...] = ()
    cases: tuple[str, ...] = ()
    stop: bool = False
    thorough: bool = False

    @property
    def partial(self) -> bool:
        """Whether part of what the level needs is left out."""
        return self.sampled or bool(self.areas)

    @property
    def sampled(self) -> bool:
        """Whether tests of the areas that run are left out."""
        return self.quick or self.expression is not None or bool(self.cases) or self.stop

    def wanted(self) -> list[Area]:
        """The areas to run."""
        return [area for area in areas_up_to(self.level) if not self.areas or area.name in self.areas]


def run(options: Options, watch: Callable[[dict[str, Any]], None] = lambda line: None) -> Results:
    """Run the tests; ``watch`` sees each line of the log as it is written, and, while nothing is written, lines
    ``{"event": "waiting", "doing": ...}``.

    A test that kills the process, or hangs, is a failure, and the run goes on with the next. ``KitError`` if the tests
    cannot be collected; ``Stopped`` when the run is interrupted.
    """
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="tesserack-conform-") as folder, _signals_raise():
        log = Path(folder, "log.jsonl")
        log.touch()
        doing = _Doing()
        try:
            for _ in range(_MOST_CRASHES):
                if _run_once(options, log, Path(folder, "output.txt"), watch, doing) or options.stop:
                    break
        except _Signal as signalled:
            _drop_unfinished_line(log)
            results = Results.from_lines(_lines(log), partial=True, sampled=True)
            counts = f"{results.count('passed')} tests had passed, {results.count('failed')} failed"
            told = f"stopped by {signalled} after {time.monotonic() - begin:.0f} s, {doing}; {counts}"
            raise Stopped(str(signalled), told, results) from None
        return Results.from_lines(_lines(log), partial=options.partial, sampled=options.sampled)


class _Signal(BaseException):
    """A signal that ends the run."""


@contextlib.contextmanager
def _signals_raise() -> Iterator[None]:
    """Within it, signals that would end the process raise ``_Signal``, so that the run can say where it was. Only in
    the main thread: others get none."""

    def ended(number: int, frame: Any) -> None:
        raise _Signal(signal.Signals(number).name)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = [signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])]
    before = {number: signal.signal(number, ended) for number in numbers if signal.getsignal(number) != signal.SIG_IGN}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Doing:
    """What a run is about, and for how long it has been."""

    def __init__(self) -> None:
        self.reader: _Follower | None = None

    def __str__(self) -> str:
        running = self.reader.running if self.reader else None
        seconds = f"{self.reader.idle():.0f} s" if self.reader else ""
        if running is None:
            between = self.reader is not None and self.reader.collected
            return f"between two tests for {seconds}" if between else f"collecting the tests for {seconds or '0 s'}"
        return f"in {without_folders(running['id'])} for {seconds}"


def _command(options: Options, log: Path) -> list[str]:
    areas = options.wanted()
    command = [sys.executable, "-m", "pytest", "-q", "--tb=short", "-p", "tesserack.testing.pytest_plugin"]
    command += ["-c", str(_FOLDER / "pytest.ini"), f"--tesserack-device={options.device}"]
    command += [f"--tesserack-areas={','.join(area.name for area in areas)}", f"--tesserack-log={log}"]
    if options.expected_failures:
        command.append(f"--tesserack-expected-failures={options.expected_failures.resolve()}")
    command += ["--tesserack-quick"] if options.quick else []
    # Tests that are named run, whatever else might stand for them.
    command += ["--tesserack-thorough"] if options.thorough or options.cases else []
    command += ["-k", options.expression] if options.expression else []
    command += ["-x"] if options.stop else []
    if options.cases:
        return command + [str(_FOLDER / case) for case in options.cases]
    return command + [str(_FOLDER / module) for module in dict.fromkeys(area.module for area in areas)]


def _run_once(
    options: Options, log: Path, output: Path, watch: Callable[[dict[str, Any]], None], doing: _Doing
) -> bool:
    """Run what has not run yet; whether that came to an end."""
    # Plugins that happen to be installed must not change the outcome.
    environment = dict(os.environ, PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")
    begin = log.stat().st_size
    with output.open("w") as stream:
        process = subprocess.Popen(_command(options, log), stdout=stream, stderr=subprocess.STDOUT, env=environment)
    reader = doing.reader = _Follower(log, begin, watch)
    hung = False
    told = time.monotonic()
    try:
        while process.poll() is None:
            time.sleep(0.1)
            reader.read()
            if not hung and min(reader.idle(), time.monotonic() - told) >= _TELLING:
                told = time.monotonic()
                watch({"event": "waiting", "doing": str(doing)})
            allowed = options.timeout if reader.running else max(options.timeout, _COLLECTING)
            if reader.idle() > allowed and not hung:
                hung, told = True, time.monotonic()
                process.send_signal(signal.SIGABRT)  # pytest prints where every thread stands
            elif hung and time.monotonic() - told > _ABORTING:
                process.kill()  # a driver's handler, or a wait within one, took the signal
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        reader.read()
    if reader.finished:
        return True
    if reader.running is None:
        raise KitError(f"the conformance tests could not run:\n{output.read_text()[-6000:]}")
    _drop_unfinished_line(log)
    line = _blame(reader.running, process.returncode, options.timeout if hung else None, output.read_text())
    with log.open("a") as file:
        file.write(json.dumps(line) + "\n")
    watch(line)
    return False


def _blame(started: dict[str, Any], status: int, timeout: float | None, output: str) -> dict[str, Any]:
    """The result of a test that took the process with it."""
    ending = f"exit status {status}"
    if status < 0:
        with contextlib.suppress(ValueError):
            ending = signal.Signals(-status).name
    told = f"did not end within {timeout:.0f} s" if timeout else f"ended the process ({ending})"
    trace = output[output.find("Fatal Python error") :] if "Fatal Python error" in output else output[-3000:]
    return {
        "event": "result",
        "id": started["id"],
        "outcome": "failed",
        "message": f"the test {told}\n\n{trace}",
        "seconds": timeout or 0.0,
        "properties": started["properties"],
    }


def _drop_unfinished_line(log: Path) -> None:
    """The process may have died while writing."""
    data = log.read_bytes()
    log.write_bytes(data[: data.rfind(b"\n") + 1])


def _lines(log: Path) -> Iterator[dict[str, Any]]:
    return map(json.loads, log.read_text().splitlines())


class _Follower:
    """Reads a growing log."""

    def __init__(self, log: Path, begin: int, watch: Callable[[dict[str, Any]], None]) -> None:
        self.log, self.at, self.watch = log, begin, watch
        self.running: dict[str, Any] | None = None
        self.finished = self.collected = False
        self.last = time.monotonic()

    def idle(self) -> float:
        """Seconds since something was written."""
        return time.monotonic() - self.last

    def read(self) -> None:
        """Take in the lines that are complete."""
        with self.log.open("rb") as file:
            file.seek(self.at)
            data = file.read()
        complete = data[: data.rfind(b"\n") + 1]
        self.at += len(complete)
        for text in complete.splitlines():
            self.last = time.monotonic()
            line = json.loads(text)
            self._take(line)
            self.watch(line)

    def _take(self, line: dict[str, Any]) -> None:
        if line["event"] == "start":
            self.running = line
        elif line["event"] == "result":
            self.running = None
        elif line["event"] == "collected":
            self.collected = True
        elif line["event"] == "finished" and line["status"] in (0, 1, 5):
            self.finished = True
