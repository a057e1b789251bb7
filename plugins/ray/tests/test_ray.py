"""Training by actors of Ray, in a network of nothing but the loopback.

``make test-ranks`` makes the environment ``build/ranks/ray``.
"""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
PROGRAM = Path(__file__).parent / "programs" / "training.py"
PYTHON = ROOT / "build" / "ranks" / "ray" / "bin" / "python"

# In a process namespace too: nothing that Ray starts stays behind.
ALONE = ["unshare", "-n", "-p", "-f", "--mount-proc", "--kill-child", "bash", "-c", 'ip link set lo up && "$@"', "x"]

pytestmark = pytest.mark.skipif(not PYTHON.exists(), reason="no Ray in build/ranks; make test-ranks brings it")


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What came of each training, all in one cluster."""
    folder = tmp_path_factory.mktemp("ray")
    alone = ALONE if os.geteuid() == 0 else []
    told = {"RAY_USAGE_STATS_ENABLED": "0", "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore", "HOME": str(folder)}
    words = [*alone, str(PYTHON), str(PROGRAM), str(folder)]
    environment = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE", "MASTER_ADDR")} | told
    done = subprocess.run(words, capture_output=True, text=True, timeout=240, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    return dict(json.loads(done.stdout.splitlines()[-1]))


def test_reports_are_kept_with_the_last_checkpoints(found: dict[str, Any]) -> None:
    plain = found["plain"]
    assert [m["step"] for m in plain["history"]] == list(range(8)) and {m["rank"] for m in plain["history"]} == {0}
    assert plain["kept"] == ["checkpoint_000005", "checkpoint_000007"] and plain["last"].endswith("checkpoint_000007")


@pytest.mark.parametrize("how", ["killed", "shrinking"])
def test_a_killed_worker_costs_no_more_than_steps(found: dict[str, Any], how: str) -> None:
    history = found[how]["history"]
    assert [m["step"] for m in history] == list(range(8))
    ranks = [m["ranks"] for m in history]
    assert ranks == ([3] * 4 + [2] * 4 if how == "shrinking" else [2] * 8), ranks
    losses = [m["loss"] for m in history]
    assert losses == pytest.approx([m["loss"] for m in found["plain"]["history"]], abs=1e-5)


def test_a_training_of_the_same_name_goes_on_from_its_end(found: dict[str, Any]) -> None:
    assert found["again"] == found["killed"]


def test_what_a_train_loop_raises_is_told(found: dict[str, Any]) -> None:
    told = found["raising"]["error"]
    assert "raising failed 1 time, the last with" in told
    assert "ValueError: planted" in told or "rank 1 has ended" in told, told


def test_ranks_that_report_unequally_are_told(found: dict[str, Any]) -> None:
    assert "expected every rank to report equally often" in found["uneven"]["error"]
