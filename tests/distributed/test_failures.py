"""Every wait ends, with a message that names who is missing; nothing stays behind."""

import importlib
from pathlib import Path
from typing import Any

import pytest

SAYS = {
    "killed": ("rank 1 has ended", "rank 1 was ended by the signal SIGKILL"),
    "raising": ("rank 1 has ended", "ValueError: planted"),
    "leaving": ("rank 1 has ended", "rank 0 ended with status 7"),
    "lingering": ("rank 1 has ended", "rank 0 ended with status 7"),
    "stopped": ("rank 1 did not come within 5 s", "rank 0 ended with status 7"),
    "another": ("broadcast #2 of float32[4]", "different collectives"),
    "size": ("all_reduce #2 of float32[5]", "different collectives"),
    "dtype": ("all_reduce #2 of float64[4]", "different collectives"),
}


@pytest.mark.parametrize("engine", ["local", "tcp"])
def test_who_is_interrupted_in_a_collective_tells_the_others(launch: Any, engine: str) -> None:
    done = launch("failing.py", 3, "interrupted", variables={"TESSERACK_COMM": engine})
    shown = done.stdout + done.stderr
    for text in ("KeyboardInterrupt", "TOLD 2", "rank 0 was interrupted"):
        assert text in shown, shown[-3000:]


@pytest.mark.parametrize("engine", ["local", "tcp"])
@pytest.mark.parametrize("how", SAYS)
def test_a_rank_that_fails_ends_the_others_in_words(launch: Any, how: str, engine: str) -> None:
    done = launch("failing.py", 3, how, variables={"TESSERACK_COMM": engine})
    shown = done.stdout + done.stderr
    assert done.returncode == 1, shown[-3000:]
    for text in (*SAYS[how], "TOLD 0", "TOLD 2", "failing.py:", "all_reduce #2"):
        assert text in shown, shown[-3000:]
    ours = [Path("/proc") / p.name for p in Path("/proc").iterdir() if p.name.isdigit()]
    running = [p for p in ours if "programs/failing.py" in _command(p)]
    assert not running


@pytest.mark.parametrize("engine", ["local", "tcp"])
def test_who_keeps_the_store_may_stop_once_it_has_joined(launch: Any, engine: str) -> None:
    done = launch("failing.py", 3, "stopped at once", variables={"TESSERACK_COMM": engine})
    for text in ("rank 0 did not come within 5 s", "TOLD 1", "TOLD 2"):
        assert text in done.stdout, done.stdout + done.stderr[-3000:]


def _command(process: Path) -> str:
    try:
        return (process / "cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""


def test_a_host_that_does_not_resolve_is_an_error_and_no_world_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    dist = importlib.import_module("tesserack.distributed")
    for name, value in {
        "RANK": "0",
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "no-such-host.invalid",
        "MASTER_PORT": "1",
    }.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(dist.DistError, match=r"no-such-host.invalid"):
        dist.init_process_group()
    assert not dist.is_initialized()


@pytest.mark.parametrize("missing", ["RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"])
def test_what_the_environment_lacks_is_named(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    dist = importlib.import_module("tesserack.distributed")
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.setenv(name, "localhost" if name == "MASTER_ADDR" else "1")
    monkeypatch.delenv(missing)
    with pytest.raises(ValueError, match=missing):
        dist.init_process_group()


@pytest.mark.parametrize(
    ("url", "rank", "error", "says"),
    [
        ("tcp://localhost:1", -1, ValueError, "rank parameter missing"),
        ("tcp://localhost:1?rank=0", -1, ValueError, "world_size parameter missing"),
        ("tcp://localhost?rank=0&world_size=1", -1, ValueError, "port number missing"),
        ("tcp://:1?rank=0&world_size=1", -1, ValueError, "host missing"),
        ("file://?rank=0&world_size=1", -1, ValueError, "path missing"),
        ("tcp://localhost:1?rank=0&world_size=1", 0, AssertionError, "has node-specific arguments"),
    ],
)
def test_what_an_address_lacks_or_says_twice_is_named(url: str, rank: int, error: type[Exception], says: str) -> None:
    dist = importlib.import_module("tesserack.distributed")
    with pytest.raises(error, match=says):
        next(dist.rendezvous(url, rank))


def test_a_master_that_answers_nothing_is_an_error(launch: Any) -> None:
    """It is stopped while others wait for what it keeps."""
    done = launch("stopped_master.py", 2)
    assert done.returncode == 1 and "TOLD 1: TCPStore: the master at" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("engine", "what"),
    [("local", "all_reduce"), ("local", "barrier"), ("local", "window"), ("tcp", "all_reduce"), ("tcp", "barrier")],
)
def test_a_rank_that_waits_is_interrupted_and_the_others_are_told(launch: Any, engine: str, what: str) -> None:
    done = launch("interrupted.py", 3, what, engine)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "rank 0: KeyboardInterrupt" in done.stdout and done.stdout.count(": told") == 2, done.stdout
    assert done.stdout.count("rank 0 was interrupted") == 2, done.stdout


def test_groups_are_left_and_made_again_whoever_is_first(launch: Any) -> None:
    done = launch("again.py", 3)
    assert done.returncode == 0 and done.stdout.count("again and again") == 3, done.stdout + done.stderr[-3000:]
