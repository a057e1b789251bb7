"""Communicators that plugins bring by the hook, and that meet by themselves."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PLUGIN = """
import tesserack as ts
from tesserack.distributed import Engine, HashStore

class Echo(Engine):
    name = "echo"
    def all_reduce(self, source, target, op, call):
        target.copy_(source * 7)
    def close(self):
        print("closed")

class Maker:
    def __call__(self, store, prefix, rank, size, timeout):
        return Echo(rank, size)
    def meet(self, timeout):
        return HashStore(), 2, 5

def tesserack_communicators():
    return {"echo": Maker()}
"""

PROGRAM = """
import tesserack as ts
from tesserack import distributed as dist
assert dist.is_backend_available("echo") and not dist.is_backend_available("nosuch")
dist.init_process_group("echo")
x = ts.ones(2)
dist.all_reduce(x)
print(dist.get_rank(), dist.get_world_size(), dist.get_backend(), x.tolist())
try:
    dist.barrier()
except NotImplementedError as error:
    print(error)
dist.destroy_process_group()
"""


@pytest.fixture
def plugged(tmp_path: Path) -> Path:
    """A folder with an installed plugin of one module."""
    (tmp_path / "acme_echo.py").write_text(PLUGIN)
    metadata = tmp_path / "acme_echo-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-echo\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[tesserack.plugins]\necho = acme_echo\n")
    return tmp_path


def test_an_engine_of_a_plugin_is_used_by_name(plugged: Path) -> None:
    environment = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE")} | {
        "PYTHONPATH": str(plugged)
    }
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    first, lacks, closed = done.stdout.splitlines()
    assert first == "2 5 echo [7.0, 7.0]" and closed == "closed"
    assert lacks.startswith("barrier: the communicator 'echo' has none")


def test_a_name_that_nobody_knows_is_an_error() -> None:
    from tesserack import distributed as dist

    with pytest.raises(ValueError, match=r"one of the communicators fake, gloo, .*, got 'pigeon'"):
        dist.init_process_group("pigeon")


@pytest.mark.parametrize("engine", ["local", "tcp"])
def test_a_monitored_barrier_names_who_is_late(launch: Any, engine: str) -> None:
    done = launch("late.py", 3, variables={"TESSERACK_COMM": engine})
    assert done.returncode == 0, done.stderr
    for rank in range(3):
        assert f"TOLD {rank}: " in done.stdout, done.stdout
    assert "rank 1 did not come within 3 s; rank 1 last began barrier #1" in done.stdout, done.stdout
