"""Programs that mpiexec starts, under Open MPI, MPICH and Intel's, in a network of nothing but the loopback.

``make test-ranks`` makes the environments ``build/ranks/openmpi`` and ``build/ranks/mpich``, with ``FULL=1`` also
``build/ranks/impi``.
"""

import os
import random
import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from tesserack.testing import seeds

ROOT = Path(__file__).parents[3]
PROGRAMS = ROOT / "tests" / "distributed" / "programs"
Start = Callable[..., "subprocess.CompletedProcess[str]"]
ALONE = """ip link set lo up && mount -t tmpfs tmpfs /dev/shm
"$@"; status=$?; [ -z "$(ls -A /dev/shm)" ] || { echo LEFT BEHIND: /dev/shm/* >&2; exit 99; }; exit $status"""


@pytest.fixture(params=["openmpi", "mpich", "impi"])
def start(request: pytest.FixtureRequest) -> Start:
    """``start(program, ranks, *arguments)`` runs it under ``mpiexec`` of one of the libraries."""
    place = ROOT / "build" / "ranks" / request.param / "bin"
    if not (place / "mpiexec").exists():
        pytest.skip(f"no MPI of {request.param} in build/ranks; make test-ranks brings it")
    options = ["--oversubscribe"] if request.param == "openmpi" else []
    alone = ["unshare", "-n", "-m", "bash", "-c", ALONE, "x"] if os.geteuid() == 0 else []

    def run(program: Any, ranks: int, *arguments: Any, variables: Mapping[str, str] | None = None) -> Any:
        words = [*alone, place / "mpiexec", *options, "-n", ranks, place / "python", PROGRAMS / program, *arguments]
        environment = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE", "MASTER_ADDR")}
        environment |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMP_NUM_THREADS": "1"}
        environment |= {"TESSERACK_COMM": "mpi"} if variables is None else variables
        return subprocess.run([*map(str, words)], capture_output=True, text=True, timeout=900, env=environment)

    return run


@pytest.mark.parametrize("ranks", [1, 2, 3, *([4] if seeds.full() else [])])
def test_random_collectives_give_what_numpy_does(start: Start, ranks: int) -> None:
    done = start("collectives.py", ranks, 7000 * ranks, 1250 if seeds.full() else 100)
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.parametrize("program", ["matrix.py 0", "crossing.py", *(["matrix.py 100"] if seeds.full() else [])])
@pytest.mark.parametrize("ranks", [1, 2, 3, 4] if seeds.full() else [3])
def test_each_collective_and_sequences_from_threads(start: Start, ranks: int, program: str) -> None:
    """``FULL=1``: every case, and tensors of 100 MB; ``pytest -s`` shows how many."""
    seed, (name, *megabytes) = seeds.seed(), program.split()
    count, share = ("600", "1") if seeds.full() else ("30", "20")
    words = ["cpu", *megabytes, share, seed] if megabytes else [seed, count, 3]
    done = start(f"matrix/{name}", ranks, *words)
    assert done.returncode == 0 and f"seed {seed}" in done.stdout, done.stdout + done.stderr[-3000:]
    print(f"{ranks} ranks: {done.stdout.strip()}")


def test_messages_objects_groups_and_gradients(start: Start) -> None:
    done = start("messages.py", 3)
    assert done.returncode == 0, done.stderr[-3000:]


def test_the_example_prints_the_losses_of_one_process(start: Start) -> None:
    pytest.importorskip("sklearn", reason="the scans come with scikit-learn")
    program = ROOT / "examples" / "digits_ranks.py"
    words = [sys.executable, str(program), "--alone", "--epochs", "1"]
    alone = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    done = start(program, 2, "--epochs", 1)
    assert done.returncode == 0, done.stderr[-3000:]
    losses = [line for line in alone.splitlines() if line.startswith("epoch")]
    assert losses and losses == [line for line in done.stdout.splitlines() if line.startswith("epoch")]


def test_a_program_that_names_mpi_needs_nothing_else(start: Start, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import tesserack as ts\nfrom tesserack import distributed as dist\ndist.init_process_group('mpi')\n"
        "x = ts.tensor([1.0, float('nan') if dist.get_rank() else 2.0])\ndist.all_reduce(x, dist.ReduceOp.MAX)\n"
        "assert x[0].item() == 1 and x[1].isnan().item(), x\n"
        "told = f'{dist.get_backend()} {dist.get_rank()} {dist.group.WORLD.engine.name}'\n"
        "import os; os.write(1, told.encode() + b'\\n')\ndist.destroy_process_group()\n"
    )
    done = start(program, 2, variables={})
    assert done.returncode == 0, done.stderr[-3000:]
    assert sorted(done.stdout.splitlines()) == ["mpi 0 mpi", "mpi 1 mpi"]


def test_ranks_of_mpiexec_meet_by_mpi_and_share_memory(start: Start, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import tesserack as ts\nfrom tesserack import distributed as dist\ndist.init_process_group()\n"
        "x = ts.ones(2)\ndist.all_reduce(x)\ntold = f'{dist.get_rank()} {dist.group.WORLD.engine.name} {x[0].item()}'\n"
        "import os; os.write(1, told.encode() + b'\\n')\n"
    )
    done = start(program, 2, variables={})
    assert done.returncode == 0, done.stderr[-3000:]
    assert sorted(done.stdout.splitlines()) == ["0 local 2.0", "1 local 2.0"]


SAYS = {
    "killed": (),
    "raising": ("ValueError: planted",),
    "leaving": ("TOLD 0", "rank 1 has ended"),
    "stopped": ("TOLD 0", "TOLD 2", "rank 1 did not come within 5 s", "all_reduce #1 of float32[4]"),
    "another": ("TOLD 0", "TOLD 2", "broadcast #2 of float32[4]", "different collectives"),
    "size": ("TOLD 0", "TOLD 2", "all_reduce #2 of float32[5]", "different collectives"),
    "dtype": ("TOLD 0", "TOLD 2", "all_reduce #2 of float64[4]", "different collectives"),
}


@pytest.mark.parametrize("how", SAYS)
def test_a_rank_that_fails_ends_all(start: Start, how: str) -> None:
    done = start("failing.py", 3, how)
    shown = done.stdout + done.stderr
    assert done.returncode != 0
    for text in SAYS[how]:
        assert text in shown, shown[-3000:]
    end = time.monotonic() + 300
    while running := [
        p for p in Path("/proc").glob("[0-9]*/cmdline") if b"programs/failing.py\0" + how.encode() in _read(p)
    ]:  # mpiexec may end a little before them
        assert time.monotonic() < end, running
        time.sleep(0.1)


def test_nothing_stays_where_a_rank_fails_at_some_step(start: Start, tmp_path: Path) -> None:
    """One of a hundred failures, chosen by the run's seed; ``FULL=1``: all. Shared memory is looked at by ``start``."""
    for run in range(100) if seeds.full() else [random.Random(seeds.seed()).randrange(100)]:
        rng = random.Random(run)
        how = ("killed", "stopped", "raising", "leaving")[run % 4]
        folder = tmp_path / str(run)
        folder.mkdir()
        variables = {"TESSERACK_COMM": "mpi"} if run // 4 % 2 else {}
        done = start("surviving.py", 3, folder, how, rng.randrange(12), rng.randrange(3), variables=variables)
        after = re.findall("RANK .* TOLD .*", done.stdout)
        if (folder / "failed").exists():
            after.append(f"ENDED after {time.time() - float((folder / 'failed').read_text()):.2f} s")
        print(f"run {run}: mpiexec, {how}, {variables or 'shared memory'}", *after, sep="\n  ")
        shown = f"run {run}, {how}, {variables}: {done.returncode}\n{done.stdout}{done.stderr}"
        assert done.returncode not in (0, 99) and "CAME TO" not in done.stdout, shown
        expected = {"stopped": "did not come within 8 s", "raising": "ValueError: planted"}
        assert expected.get(how, "") in shown, shown


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def test_a_world_of_another_launcher_is_an_error(start: Start, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("from tesserack import distributed as dist\ndist.init_process_group('mpi')\n")
    done = start(program, 1, variables={"RANK": "0", "WORLD_SIZE": "4"})
    assert done.returncode != 0 and "world of 4 ranks, got 1 of MPI's" in done.stderr
