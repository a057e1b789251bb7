"""``tesserack launch --nnodes MIN:MAX``: machines that come and go, each a launcher on the loopback."""

import contextlib
import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import rank_faults
from tesserack.distributed.launcher import parse
from tesserack.distributed.launcher._members import Members
from tesserack.testing import seeds

PROGRAM = Path(__file__).parent / "programs" / "coming_going.py"
STEPS, PRIME = 12, 1_000_003


def expected() -> int:
    value = 1
    for step in range(STEPS):
        value = (31 * value + sum(range(step, step + 100))) % PRIME
    return value


class Job:
    """Launchers that meet at one place, as many as are started."""

    def __init__(self, folder: Path, nodes: str, *options: str) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            place = f"127.0.0.1:{probe.getsockname()[1]}"
        conf = "last_call_timeout=1,keep_alive_interval=0.5"
        self.words = [sys.executable, "-m", "tesserack", "launch", "--no-torch", "--nnodes", nodes, "--rdzv-endpoint"]
        self.words += [place, "--rdzv-backend", "c10d", "--rdzv-id", "job", *options, "--rdzv-conf", conf]
        self.folder, self.machines = folder, list[Any]()
        self.environment = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE")}
        self.environment |= {"ELASTIC": str(folder), "TESSERACK_COMM": "tcp"}
        self.go(0)

    def go(self, step: int) -> None:
        """As far as ranks may go."""
        partial = self.folder / "part"
        partial.write_text(str(step))
        partial.replace(self.folder / "go")

    def start(self, ranks: int = 1) -> Any:
        words = [*self.words, "--nproc-per-node", str(ranks), str(PROGRAM), str(self.folder)]
        pipe = subprocess.PIPE
        machine = subprocess.Popen(words, env=self.environment, stdout=pipe, stderr=subprocess.STDOUT, text=True)
        self.machines.append(machine)
        return machine

    def started(self) -> list[tuple[int, ...]]:
        """Restarts, ranks, rank, machine and step of each start."""
        file = self.folder / "log"
        text = file.read_text() if file.exists() else ""
        return [tuple(map(int, line.split())) for line in text.splitlines()]

    def until(self, starts: int) -> list[tuple[int, ...]]:
        """The last of so many starts."""
        end = time.monotonic() + 100
        while len(found := self.started()) < starts:
            assert time.monotonic() < end, found
            time.sleep(0.05)
        return found

    def until_of(self, ranks: int) -> list[tuple[int, ...]]:
        """Once all of so many have begun after any other: one that is late makes a start of its own."""
        end = time.monotonic() + 100
        whole = [(ranks, k) for k in range(ranks)]
        while sorted(row[1:3] for row in self.started()[-ranks:]) != whole:
            assert time.monotonic() < end, self.started()
            time.sleep(0.05)
        return self.started()[-ranks:]

    def end(self, machine: Any, code: int) -> str:
        shown = str(machine.communicate(timeout=100)[0])
        assert machine.returncode == code, (machine.returncode, shown, self.started())
        return shown

    def processes(self) -> list[str]:
        return rank_faults.marked(f"ELASTIC={self.folder}")


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Any]:
    made: list[Job] = []

    def make(*words: str) -> Job:
        made.append(Job(tmp_path, *words))
        return made[-1]

    yield make
    for each in made:
        while left := each.processes():
            for process in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(process.split()[0]), signal.SIGKILL)
            time.sleep(0.05)
        for machine in each.machines:
            machine.wait(timeout=100)
            machine.stdout.close()


def test_machines_come_and_go_between_the_bounds(job: Any) -> None:
    """None is counted as a failure: there may be none. Two are waited for, the third comes to them, and the fourth
    has a place once the third leaves."""
    it = job("2:3", "--max-restarts", "0")
    keeper, second = it.start(), it.start()
    assert sorted(row[:3] for row in it.until(2)) == [(0, 2, 0), (0, 2, 1)]
    it.go(4)
    third = it.start()
    starts = it.until(5)[2:]
    assert sorted(row[:3] for row in starts) == [(0, 3, 0), (0, 3, 1), (0, 3, 2)]
    fourth = it.start()
    assert "3 machines are at work; waiting for a place" in fourth.stdout.readline()
    it.go(8)
    third.send_signal(signal.SIGTERM)
    it.end(third, 128 + signal.SIGTERM)
    it.until(6)
    assert all(row[0] == 0 for row in it.until_of(3))
    it.go(STEPS)
    shown = [it.end(machine, 0) for machine in (keeper, second, fourth)]
    assert all(f"OF 3 CAME TO {expected()}" in text for text in shown), shown
    # A rank may fail for want of the one that left before its launcher hears of that: as little a failure of its own.
    left = re.search(r"(has left|ended with status 1); starting again \(0 left\)", shown[0])
    assert "has come; starting again" in shown[0] and left, shown[0]
    assert len(it.started()) >= 8


def test_who_waits_for_a_place_ends_well_with_the_others(job: Any) -> None:
    it = job("1:1")
    keeper = it.start()
    it.until(1)
    spare = it.start()
    assert "1 machine is at work; waiting for a place" in spare.stdout.readline()
    it.go(STEPS)
    it.end(keeper, 0)
    assert "no place for this machine" in it.end(spare, 0) and len(it.started()) == 1


def test_machines_of_several_ranks_each(job: Any) -> None:
    it = job("2:2")
    machines = [it.start(2), it.start(1)]
    it.go(STEPS)
    shown = "".join(it.end(machine, 0) for machine in machines)
    assert sorted(re.findall(r"RANK (\d) OF 3 CAME TO (\d+)", shown)) == [(str(k), str(expected())) for k in range(3)]
    assert sorted({row[3] for row in it.started()}) == [0, 1]


def test_a_killed_machine_is_one_failure(job: Any) -> None:
    it = job("1:3", "--max-restarts", "1")
    machines = [it.start() for _ in range(3)]
    it.until_of(3)
    it.go(5)
    machines[1 if _keeps(it, machines) != 1 else 2].kill()
    it.go(STEPS)
    left = [m for m in machines if m.wait(timeout=100) != -signal.SIGKILL]
    shown = [it.end(machine, 0) for machine in left]
    assert len(left) == 2 and all(f"OF 2 CAME TO {expected()}" in text for text in shown), shown
    assert {row[0] for row in it.started() if row[1] == 2} == {1}


def _keeps(it: Job, machines: list[Any]) -> int:
    """Which launcher listens."""
    port = int(it.words[it.words.index("--rdzv-endpoint") + 1].rpartition(":")[2])
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    (inode,) = [row[9] for row in rows if int(row[1].rpartition(":")[2], 16) == port and row[3] == "0A"]
    for index, machine in enumerate(machines):
        for file in Path(f"/proc/{machine.pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                if os.readlink(file) == f"socket:[{inode}]":
                    return index
    raise AssertionError("nobody listens")


def test_a_silent_machine_is_left_and_comes_again(job: Any) -> None:
    it = job("1:2")
    keeper = it.start()
    it.until(1)
    silent = it.start()
    it.until_of(2)
    before = len(it.started())
    ranks = [int(text.split()[0]) for text in it.processes() if _parent(text.split()[0]) == silent.pid]
    for process in (silent.pid, *ranks):
        os.kill(process, signal.SIGSTOP)
    assert it.until(before + 1)[-1][:3] == (0, 1, 0)
    it.go(6)
    for process in (*ranks, silent.pid):
        os.kill(process, signal.SIGCONT)
    it.until(before + 2)
    assert all(row[0] == 0 for row in it.until_of(2))
    it.go(STEPS)
    shown = it.end(keeper, 0), it.end(silent, 0)
    assert all(f"OF 2 CAME TO {expected()}" in text for text in shown), shown
    assert "does not answer; starting again" in shown[0], shown[0]


def _parent(process: str) -> int:
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_nothing_outlives_who_keeps_the_store(job: Any, number: signal.Signals) -> None:
    it = job("2:2", "--max-restarts", "3")
    keeper = it.start()
    end = time.monotonic() + 100
    while not _listens(it):
        assert time.monotonic() < end
        time.sleep(0.05)
    other = it.start()
    it.until(2)
    keeper.send_signal(number)
    shown = it.end(other, 1)
    assert ("which kept the store" in shown) if number == signal.SIGTERM else ("TCPStore: the master" in shown), shown
    keeper.communicate(timeout=100)
    assert not it.processes()


def _listens(it: Job) -> bool:
    port = int(it.words[it.words.index("--rdzv-endpoint") + 1].rpartition(":")[2])
    return rank_faults.listening(port)


def test_too_few_machines_are_an_error_in_time(job: Any) -> None:
    it = job("2:3")
    it.words[-1] += ",timeout=1"
    assert "1 of 2 machines came within 1 s" in it.end(it.start(), 1)


def test_what_machines_do_leaves_all_with_one_view() -> None:
    """Random comings and goings: a round has no more than may be, all of them there, and begins with who came first."""
    rng = random.Random(seeds.seed())
    for _ in range(200):
        it, most, names = Members(), rng.randint(1, 4), [f"m{k}" for k in range(6)]
        for _ in range(40):
            name, before = rng.choice(names), it.round
            it = Members.read(it.text().encode())
            what = rng.randrange(5)
            if what < 2:
                took = it.come(name, 1, most)
                assert took == (name in it.members)
            elif what == 2 and it.members:
                it.close(it.round)
                assert it.members == [n for n in it.present if n in it.members]
            elif what == 3:
                it.leave(name, f"{name} went")
                assert name not in it.present
            elif it.closed:
                it.fail(name, it.round, "status 3", 10**6)
                assert it.round == before + 1 and not it.members
            assert len(it.members) <= most and set(it.members) <= set(it.present) and it.round >= before
        assert not it.ended and not it.done


def test_the_words_of_a_meeting_are_those_of_torchrun() -> None:
    words = (
        "--rdzv_conf=join_timeout=9,last_call_timeout=2,keep_alive_interval=1,keep_alive_max_attempt=7,is_host=0,x=1"
    )
    told = parse(["--nnodes=1:4", "--rdzv_endpoint=localhost:1", words, "p.py"])
    assert (told.min_nodes, told.max_nodes, told.rdzv_backend, told.rdzv_timeout) == (1, 4, "c10d", 9)
    assert (told.last_call, told.keep_alive_interval, told.keep_alive_attempts, told.keeps_store) == (2, 1, 7, False)
    with pytest.raises(SystemExit):
        parse(["--rdzv-conf", "timeout=soon", "p.py"])
