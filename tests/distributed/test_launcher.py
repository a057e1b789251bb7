"""What ``tesserack launch`` does about ranks, what they start, signals, and machines that give up."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

PROGRAMS = Path(__file__).parent / "programs"
LAUNCH = [sys.executable, "-m", "tesserack", "launch", "--no-torch"]

# A rank that has a child of its own, and says so; rank 1 ends as it is told once both have.
PARENTS = """
import os, subprocess, sys, time
from pathlib import Path
folder, how, rank = Path(sys.argv[1]), sys.argv[2], int(os.environ["RANK"])
if os.fork() == 0:
    time.sleep(300)
written = folder / f"partial{rank}"
written.write_text(str(os.getpid()))
written.replace(folder / f"rank{rank}")  # whole, once it is seen
while len(list(folder.glob("rank*"))) < 2:
    time.sleep(0.01)
if how == "failing" and rank == 1:
    sys.exit(3)
time.sleep(0 if how == "leaving" else 300)
os._exit(0)
"""


def marked(folder: Path) -> list[int]:
    """Processes that were started for a test."""
    found = []
    for process in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if process.name.isdigit() and f"LAUNCHED={folder}".encode() in (process / "environ").read_bytes():
                found.append(int(process.name))
    return found


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[dict[str, str]]:
    told = {key: value for key, value in os.environ.items() if key not in ("RANK", "WORLD_SIZE")}
    yield told | {"LAUNCHED": str(tmp_path)}
    for process in marked(tmp_path):
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


def wait_until(what: Any) -> None:
    end = time.monotonic() + 300
    while not what():
        assert time.monotonic() < end
        time.sleep(0.02)


def started(tmp_path: Path, environment: dict[str, str], how: str) -> "subprocess.Popen[str]":
    program = tmp_path / "parents.py"
    program.write_text(PARENTS)
    words = [*LAUNCH, "--standalone", "--nproc-per-node", "2", str(program), str(tmp_path), how]
    return subprocess.Popen(words, env=environment, stderr=subprocess.PIPE, text=True)


def test_what_failed_ranks_have_started_ends_with_them(tmp_path: Path, environment: dict[str, str]) -> None:
    launcher = started(tmp_path, environment, "failing")
    assert "rank 1 ended with status 3" in launcher.communicate(timeout=300)[1]
    assert launcher.returncode == 1 and not marked(tmp_path)


def test_what_ranks_that_ended_well_have_started_is_theirs(tmp_path: Path, environment: dict[str, str]) -> None:
    launcher = started(tmp_path, environment, "leaving")
    launcher.wait(timeout=300)
    launcher.stderr.close()
    assert launcher.returncode == 0 and len(marked(tmp_path)) == 2


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
def test_a_launcher_that_is_asked_to_end_ends_all(
    tmp_path: Path, environment: dict[str, str], number: signal.Signals
) -> None:
    launcher = started(tmp_path, environment, "waiting")
    wait_until(lambda: len(list(tmp_path.glob("rank*"))) == 2)
    launcher.send_signal(number)
    launcher.communicate(timeout=300)
    assert launcher.returncode == 128 + number and not marked(tmp_path)


def test_ranks_do_not_outlive_a_launcher_that_is_killed(tmp_path: Path, environment: dict[str, str]) -> None:
    launcher = started(tmp_path, environment, "waiting")
    wait_until(lambda: len(list(tmp_path.glob("rank*"))) == 2)
    ranks = {int(file.read_text()) for file in tmp_path.glob("rank*")}
    launcher.kill()
    launcher.wait(timeout=300)
    launcher.stderr.close()
    wait_until(lambda: not ranks & set(marked(tmp_path)))


def test_a_stopped_rank_hangs_up_nobody(tmp_path: Path, environment: dict[str, str]) -> None:
    """The shell that started a launcher ends while a rank is stopped: the kernel hangs up jobs in which one is."""
    words = [*LAUNCH, "--standalone", "--nproc-per-node", "3", str(PROGRAMS / "failing.py"), "stopped"]
    shell = (  # a job of its own, whose shell leaves once a rank is stopped
        "import os, subprocess, sys, time\n"
        "from pathlib import Path\n"
        f"job = subprocess.Popen({words!r}, preexec_fn=os.setpgrp)\n"
        f"Path({str(tmp_path / 'job')!r}).write_text(str(job.pid))\n"
        "def stopped():\n"
        "    for stat in Path('/proc').glob('[0-9]*/stat'):\n"
        "        try:\n"
        "            fields = stat.read_text().rpartition(')')[2].split()\n"
        "        except OSError:\n"
        "            continue\n"
        "        if fields[0] == 'T' and int(fields[1]) == job.pid:\n"
        "            return True\n"
        "while not stopped():\n"
        "    time.sleep(0.02)\n"
    )
    with (tmp_path / "shown").open("w") as shown:
        subprocess.run(
            [sys.executable, "-c", shell],
            env=environment,
            stdout=shown,
            stderr=shown,
            start_new_session=True,
            timeout=300,
            check=True,
        )
    wait_until(lambda: not marked(tmp_path))
    told = (tmp_path / "shown").read_text()
    assert "rank 1 did not come within 5 s" in told and "rank 0 ended with status 7" in told, told


def test_a_machine_that_gives_up_tells_the_others(tmp_path: Path, environment: dict[str, str]) -> None:
    program = tmp_path / "half.py"
    program.write_text("import os, sys, time\nif os.environ['GROUP_RANK'] == '1': sys.exit(4)\ntime.sleep(300)\n")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        place = f"127.0.0.1:{probe.getsockname()[1]}"
    words = [*LAUNCH, "--nnodes", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint", place, "--rdzv-id", "x"]
    machines = [
        subprocess.Popen([*words, str(program)], env=environment, stderr=subprocess.PIPE, text=True) for _ in range(2)
    ]
    told = sorted(machine.communicate(timeout=300)[1] for machine in machines)
    assert all("ended with status 4" in text for text in told) and any("has given up" in text for text in told), told
    assert not marked(tmp_path)


def test_children_of_a_rank_do_not_hide_its_end(environment: dict[str, str]) -> None:
    """Ranks without a launcher: nobody else ends the child, which has copies of the group's sockets."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    environment |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2", "TESSERACK_COMM": "tcp"}
    ranks = [
        subprocess.Popen(
            [sys.executable, str(PROGRAMS / "leaving_children.py")],
            env=environment | {"RANK": str(rank)},
            stdout=subprocess.PIPE if rank == 0 else None,
            text=True,
        )
        for rank in range(2)
    ]
    shown = ranks[0].communicate(timeout=300)[0]
    ranks[1].wait(timeout=300)
    assert "rank 1 has ended" in shown and "the child still runs" in shown, shown


def test_random_numbers_of_pytorch(tmp_path: Path) -> None:
    program = tmp_path / "draws.py"
    program.write_text("import torch\ntorch.manual_seed(0)\nprint([round(x, 4) for x in torch.rand(2).tolist()])\n")
    words = [sys.executable, "-m", "tesserack", "launch", "--nproc-per-node", "2", "--torch-random"]
    done = subprocess.run([*words, str(program)], capture_output=True, text=True, timeout=120)
    assert done.stdout.count("[0.4963, 0.7682]") == 2, done.stderr  # of both ranks, at times in one line
    refused = subprocess.run([*words, "--no-torch", str(program)], capture_output=True, text=True, timeout=120)
    assert refused.returncode == 2 and "--torch-random goes with" in refused.stderr
