"""The process that starts the ranks of one machine, watches them, and starts all again when one fails."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

from tesserack.distributed.launcher._meeting import JobEnded, Meeting, Place
from tesserack.distributed.launcher._options import LaunchConfig
from tesserack.distributed.launcher._ports import free_port

__all__ = ["Agent", "ChildFailedError"]

GRACE = 5.0  # seconds between asking a rank to end and ending it
_PR_SET_PDEATHSIG = 1
_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)  # ask the launcher to end


class ChildFailedError(RuntimeError):
    """Ranks failed, and were started again as often as was allowed."""

    def __init__(self, name: str, failures: dict[int, str]) -> None:
        self.name, self.failures = name, failures
        super().__init__(f"launch: {name} failed: {_listed(failures)}")


def _listed(failures: dict[int, str]) -> str:
    return "; ".join(f"rank {rank} {why}" for rank, why in sorted(failures.items()))


class _Rank(NamedTuple):
    number: int
    local: int
    process: subprocess.Popen[bytes]


def _dying_with(launcher: int) -> Callable[[], None] | None:
    """What a child does before it becomes a rank: be killed from then on when the launcher ends, however that ends."""
    if sys.platform != "linux":
        return None
    library = ctypes.CDLL(None)

    def prepare() -> None:
        library.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != launcher:  # it has ended meanwhile
            os._exit(1)

    return prepare


def _why(code: int) -> str:
    """An exit status in words."""
    if code >= 0:
        return f"ended with status {code}"
    try:
        return f"was ended by the signal {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by the signal {-code}"


def _send(rank: _Rank, number: int) -> None:
    """A signal for a rank and all that it has started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):  # nobody is left; only zombies are
        os.killpg(rank.process.pid, number)


def _say(what: str) -> None:
    print(f"tesserack launch: {what}", file=sys.stderr, flush=True)


class Agent:
    """Starts ``config.nproc_per_node`` ranks and sees them to their end."""

    def __init__(self, config: LaunchConfig) -> None:
        self.config = config
        self._ranks: list[_Rank] = []
        self._threads: list[threading.Thread] = []
        self._temporary: str | None = None
        self._written: set[Path] = set()  # folders of logs
        self._asked_to_stop = self._times_asked = 0

    def run(self) -> None:
        """Until all ranks have ended well. ``ChildFailedError`` where they do not, ``DistError`` where nobody comes."""
        with self._signals():
            try:
                with Meeting(self.config, lambda: self._asked_to_stop) as meeting:
                    while not self._attempted(meeting):
                        pass
            except JobEnded:
                _say("the others have come to the end; there was no place for this machine")

    def _attempted(self, meeting: Meeting) -> bool:
        """Start the ranks and see them to their end: whether that was a good one, and not to be begun again."""
        place = meeting.join()
        port = place.port or self.config.master_port or free_port("127.0.0.1")
        try:
            self._start(place, port, meeting.restarts)
            failures, over = self._watch(meeting)
            if self._asked_to_stop:
                meeting.leaving()
            again = not failures or meeting.failed(_listed(failures))  # others hear of it before ranks here have ended
        finally:
            self._stop()
        if self._asked_to_stop:
            raise SystemExit(128 + self._asked_to_stop)
        if not failures and not over:
            return meeting.done()
        if not again:
            raise ChildFailedError(self.config.command[0], failures)
        left = max(self.config.max_restarts - meeting.restarts, 0)
        _say(f"{_listed(failures) or over}; starting again ({left} left)")
        return False

    # --- one attempt ------------------------------------------------------------------------------------------------

    def _command(self) -> list[str]:
        config = self.config
        if config.how == "program":
            return config.command
        if not config.torch and not config.run_options:
            return [sys.executable, "-u", *(["-m"] if config.how == "module" else []), *config.command]
        run = [sys.executable, "-u", "-m", "tesserack", "run", *config.run_options]
        run += [] if config.torch else ["--no-torch"]
        run += ["-m"] if config.how == "module" else []
        return [*run, config.command[0], "--", *config.command[1:]]

    def _environment(self, place: Place, port: int, local: int, attempt: int) -> dict[str, str]:
        per_node, size, rank = self.config.nproc_per_node, place.size, place.first + local
        told = {
            "LOCAL_RANK": local,
            "RANK": rank,
            "GROUP_RANK": place.node,
            "ROLE_RANK": rank,
            "ROLE_NAME": self.config.role,
            "LOCAL_WORLD_SIZE": per_node,
            "WORLD_SIZE": size,
            "GROUP_WORLD_SIZE": place.nodes,
            "ROLE_WORLD_SIZE": size,
            "MASTER_ADDR": place.host or self.config.master_addr,
            "MASTER_PORT": port,
            "TORCHELASTIC_RESTART_COUNT": attempt,
            "TORCHELASTIC_MAX_RESTARTS": self.config.max_restarts,
            "TORCHELASTIC_RUN_ID": self.config.rdzv_id,
            "TORCHELASTIC_USE_AGENT_STORE": "False",
        }
        environment = {**os.environ, **{key: str(value) for key, value in told.items()}}
        if per_node > 1:  # ranks share the processors
            environment.setdefault("OMP_NUM_THREADS", "1")
        return environment

    def _start(self, place: Place, port: int, attempt: int) -> None:
        self._ranks = []
        prepare = _dying_with(os.getpid())
        for local in range(self.config.nproc_per_node):
            output, errors = self._streams(local, attempt)
            process = subprocess.Popen(
                self._command(),
                env=self._environment(place, port, local, attempt),
                stdout=output,
                stderr=errors,
                preexec_fn=prepare,
                # Of its own: what a rank starts is ended with it. And a rank that is stopped is none of the terminal's
                # jobs: of those, the kernel hangs up all when the shell ends, this launcher and its callers too.
                start_new_session=True,
            )
            for stream in (output, errors):
                if isinstance(stream, int) and stream >= 0:
                    os.close(stream)
            self._ranks.append(_Rank(place.first + local, local, process))

    def _streams(self, local: int, attempt: int) -> tuple[Any, Any]:
        """Where a rank's output and errors go: our own, a file, or both."""
        config = self.config
        alone = config.redirects.get(local, config.redirects.get(-1, 0))
        both = config.tee.get(local, config.tee.get(-1, 0))
        if not alone and not both:
            return None, None
        folder = Path(self._logs()) / f"attempt_{attempt}" / str(local)
        folder.mkdir(parents=True, exist_ok=True)
        streams: list[Any] = []
        for bit, name, shown in ((1, "stdout.log", sys.stdout), (2, "stderr.log", sys.stderr)):
            if not (alone | both) & bit:
                streams.append(None)
                continue
            # Begun again since a machine came or went, an attempt goes on in its file.
            file = (folder / name).open("ab" if folder in self._written else "wb", buffering=0)
            if both & bit:
                streams.append(self._teed(file, shown, f"[{config.role}{local}]:"))
            else:
                streams.append(os.dup(file.fileno()))
                file.close()
        self._written.add(folder)
        return streams[0], streams[1]

    def _logs(self) -> str:
        if self.config.log_dir:
            return str(Path(self.config.log_dir) / self.config.rdzv_id)
        if self._temporary is None:
            self._temporary = tempfile.mkdtemp(prefix="tesserack-launch-")
        return self._temporary

    def _teed(self, file: IO[bytes], shown: Any, prefix: str) -> int:
        reading, writing = os.pipe()

        def copy() -> None:
            with os.fdopen(reading, "rb") as lines, file:
                for line in lines:
                    file.write(line)
                    shown.write(prefix + line.decode(errors="replace"))
                    shown.flush()

        thread = threading.Thread(target=copy, daemon=True)
        thread.start()
        self._threads.append(thread)
        return writing

    def _watch(self, meeting: Meeting) -> tuple[dict[int, str], str]:
        """Why ranks failed, by rank, and why all are to begin again though none here did: neither where all ended
        well."""
        left = list(self._ranks)
        while left and not self._asked_to_stop:
            ended = [rank for rank in left if rank.process.poll() is not None]
            if failed := {r.number: _why(r.process.returncode) for r in ended if r.process.returncode}:
                time.sleep(min(self.config.monitor_interval, 0.2))  # who fails with it is named with it
                for rank in left:
                    if code := rank.process.poll():
                        failed[rank.number] = _why(code)
                return failed, ""
            left = [rank for rank in left if rank not in ended]
            if over := meeting.over():
                return {}, over
            if left:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    left[0].process.wait(self.config.monitor_interval)
        return {}, ""

    def _stop(self) -> None:
        """End what still runs, and what failed ranks have left: asked first, then ended."""
        unfinished = any(rank.process.poll() != 0 for rank in self._ranks)
        if unfinished:
            for rank in self._ranks:
                _send(rank, self._asked_to_stop or signal.SIGTERM)
                _send(rank, signal.SIGCONT)  # one that is stopped would hear of it later
        end, asked = time.monotonic() + GRACE, self._times_asked
        while self._running() and time.monotonic() < end and self._times_asked < asked + 1:
            time.sleep(0.02)
        if unfinished:
            for rank in self._ranks:
                _send(rank, signal.SIGKILL)
                rank.process.wait()
        end = time.monotonic() + GRACE
        for thread in self._threads:
            thread.join(timeout=max(0.0, end - time.monotonic()))
        self._threads = []

    def _running(self) -> bool:
        return any(rank.process.poll() is None for rank in self._ranks)

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        """Within, signals that ask the launcher to end ask the ranks."""

        def asked(number: int, frame: Any) -> None:
            self._asked_to_stop = number
            self._times_asked += 1

        main = threading.current_thread() is threading.main_thread()
        heard = [s for s in _ENDING if main and signal.getsignal(s) is not signal.SIG_IGN]  # nohup's stays ignored
        before = {s: signal.signal(s, asked) for s in heard}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            if self._temporary is not None:
                shutil.rmtree(self._temporary, ignore_errors=True)
                self._temporary = None
