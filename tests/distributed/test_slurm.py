"""Tasks that srun starts: lists of nodes, and programs under Slurm's own daemons where those are installed."""

import os
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import rank_faults
from tesserack.distributed import _slurm as slurm
from tesserack.testing import seeds

PROGRAMS = Path(__file__).parent / "programs"
EXAMPLE = Path(__file__).parents[2] / "examples" / "digits_ranks.py"


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ("one", ["one"]),
        ("a,b-1,c", ["a", "b-1", "c"]),
        ("n[1-3]", ["n1", "n2", "n3"]),
        ("n[08-10,2,007]", ["n08", "n09", "n10", "n2", "n007"]),
        ("rack[1-2]n[3,5]x,login", ["rack1n3x", "rack1n5x", "rack2n3x", "rack2n5x", "login"]),
        ("gpu-[1-2],gpu-[5]", ["gpu-1", "gpu-2", "gpu-5"]),
    ],
)
def test_lists_of_nodes_are_written_out(nodes: str, expected: list[str]) -> None:
    assert list(slurm.expanded(nodes)) == expected


@pytest.mark.parametrize("nodes", ["n[1-", "n[3-1]", "n[a]", "n]1[", "n[[1]]", "n[]"])
def test_what_is_no_list_of_nodes_is_an_error(nodes: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        list(slurm.expanded(nodes))


def test_the_host_of_the_first_task_is_known_within_a_step_alone() -> None:
    told = {"SLURM_JOB_NODELIST": "n[3-9]", "SLURM_LAUNCH_NODE_IPADDR": "10.0.0.1", "SLURM_PROCID": "0"}
    assert slurm.master(told) is None  # a batch script, which srun did not start
    step = told | {"SLURM_STEP_NUM_TASKS": "4", "SLURM_STEP_NODELIST": "n[4-5]", "SLURM_STEP_NUM_NODES": "2"}
    assert slurm.master(step) == "n4"
    assert slurm.master(step | {"SLURM_STEP_NUM_NODES": "1"}) == "127.0.0.1"
    assert slurm.port({"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0"}) != slurm.port(
        {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "1"}
    )


def test_a_first_node_that_does_not_resolve_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    from tesserack import distributed as dist

    told = {"PROCID": "0", "STEP_NUM_TASKS": "2", "STEP_NUM_NODES": "2", "STEP_NODELIST": "nosuch[1-2].invalid"}
    for name, value in told.items():
        monkeypatch.setenv(f"SLURM_{name}", value)
    for name in ("MASTER_ADDR", "RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(dist.DistError, match=r"first node of SLURM_STEP_NODELIST.*nosuch1.invalid"):
        dist.init_process_group()


def srun(*words: Any) -> "subprocess.CompletedProcess[str]":
    """Under Slurm on two nodes that are made for it, in namespaces of their own."""
    missing = [name for name in ("munged", "slurmctld", "slurmd", "srun", "unshare") if shutil.which(name) is None]
    if missing or os.geteuid() != 0:
        pytest.skip(
            f"needs root and {', '.join(missing) or 'nothing else'} (Debian: slurmctld slurmd slurm-client munge)"
        )
    alone = ["unshare", "-n", "-m", "-p", "-f", "--mount-proc", PROGRAMS / "slurm.sh"]
    environment = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE", "MASTER_ADDR")}
    done = subprocess.run(
        [*map(str, alone), *map(str, words)], capture_output=True, text=True, timeout=900, env=environment
    )
    if "Operation not permitted" in done.stderr and "unshare" in done.stderr:
        pytest.skip(f"no namespaces here: {done.stderr.strip()[-200:]}")
    return done


@pytest.mark.parametrize("nodes", [1, 2])
def test_tasks_of_srun_meet(nodes: int) -> None:
    done = srun("-N", nodes, "-n", 4, sys.executable, PROGRAMS / "collectives.py", 5000 * nodes, 40)
    assert done.returncode == 0, done.stderr[-3000:]


def test_a_task_that_is_killed_ends_the_others() -> None:
    done = srun("-N", 2, "-n", 3, sys.executable, PROGRAMS / "failing.py", "killed")
    assert done.returncode != 0
    for text in ("TOLD 0", "TOLD 2", "rank 1 has ended"):
        assert text in done.stdout, done.stdout + done.stderr[-3000:]


def test_tasks_end_where_one_fails_at_some_step(tmp_path: Path) -> None:
    """One of a hundred failures, chosen by the run's seed; ``FULL=1``: all. Namespaces end with what runs in them."""
    for run in range(100) if seeds.full() else [random.Random(seeds.seed()).randrange(100)]:
        rng = random.Random(run)
        how = ("killed", "stopped", "raising", "leaving")[run % 4]
        folder = tmp_path / str(run)
        folder.mkdir()
        words = [PROGRAMS / "surviving.py", folder, how, rng.randrange(12), rng.randrange(3)]
        # A task that is stopped cannot end itself: without the flag srun waits for it, whoever else has failed.
        flag = ["--kill-on-bad-exit=1"] if how == "stopped" else []
        done = srun(*flag, "-N", 2, "-n", 3, sys.executable, *words)
        print(f"run {run}: srun, {how}", *rank_faults.survivors(done.stdout, folder), sep="\n  ")
        shown = f"run {run}, {how}: {done.returncode}\n{done.stdout}{done.stderr[-3000:]}"
        assert done.returncode != 0 and "CAME TO" not in done.stdout, shown
        assert ("did not come within 8 s" if how == "stopped" else "has ended") in shown, shown


def test_the_example_runs_under_srun() -> None:
    pytest.importorskip("sklearn", reason="the scans come with scikit-learn")
    words = [sys.executable, str(EXAMPLE), "--alone", "--epochs", "1"]
    alone = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    done = srun("-N", 2, "-n", 2, sys.executable, EXAMPLE, "--epochs", 1)
    assert done.returncode == 0, done.stderr[-3000:]
    losses = [line for line in alone.splitlines() if line.startswith("epoch")]
    assert losses and losses == [line for line in done.stdout.splitlines() if line.startswith("epoch")]
