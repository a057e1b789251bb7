"""Saves in threads while ranks go on: ``async_saves.py WAY FOLDER``, WAY ``several``, ``failing`` or ``killed``."""

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import tesserack as ts
from tesserack import distributed as dist
from tesserack.distributed import checkpoint as dcp
from tesserack.distributed.tensor import DTensor, Shard, distribute_tensor

ROWS = 30


def parts(value: float) -> DTensor:
    mesh = dist.init_device_mesh("cpu", (dist.get_world_size(),))
    return distribute_tensor(ts.full((ROWS, 5), value), mesh, [Shard(0)])


def stored(path: Path) -> float:
    found = {"weight": parts(-1.0), "step": -1}
    dcp.load(found, checkpoint_id=path)
    whole = found["weight"].full_tensor()
    assert bool((whole == whole[0, 0]).all()) and found["step"] == int(whole[0, 0].item())
    return float(whole[0, 0].item())


class Writer(dcp.FileSystemWriter):
    """Writes once it may, then does as it is told."""

    def __init__(self, path: Path, may: Path, then: Any) -> None:
        super().__init__(path)
        self.may, self.then = may, then

    def write_data(self, plan: Any, planner: Any) -> Any:
        while not self.may.exists():
            time.sleep(0.01)
        done = super().write_data(plan, planner)
        self.then()
        return done


def several(folder: Path, me: int) -> None:
    """More than one at a time, of which the later have to wait; what is saved is what was."""
    weight = parts(0.0)
    saves, may = [], folder / "may"
    for step in range(1, 5):
        weight.fill_(float(step))
        total = ts.tensor(step + me)
        writer = Writer(folder / f"of{step}", may, lambda: None)
        state = {"weight": weight, "step": step}
        saves.append(dcp.async_save(state, storage_writer=writer, async_checkpointer_type=KINDS[step % 2]))
        dist.all_reduce(total)  # training goes on meanwhile
        assert total.item() == sum(step + k for k in range(dist.get_world_size()))
    weight.fill_(99.0)
    assert not any(save.done() for save in saves)
    dist.barrier()
    if me == 0:
        may.touch()
    for step, save in enumerate(saves, 1):
        assert save.result().state_dict_metadata["weight"].size == (ROWS, 5)
        assert stored(folder / f"of{step}") == step


def failing(folder: Path, me: int) -> None:
    """What goes wrong on a rank is raised by the future of each; training goes on, and so do later saves."""
    path, may = folder / "it", folder / "may"
    dcp.async_save({"weight": parts(1.0), "step": 1}, checkpoint_id=path).result()

    def fail() -> None:
        if me == 1:
            raise OSError("no space left")

    save = dcp.async_save({"weight": parts(2.0), "step": 2}, storage_writer=Writer(path, may, fail))
    total = ts.ones(3)
    dist.all_reduce(total)
    may.touch()
    error = save.exception()
    assert isinstance(error, dcp.CheckpointException) and list(error.failures) == [1], error
    assert "no space left" in str(error) and total[0].item() == dist.get_world_size()
    assert stored(path) == 1
    dcp.async_save({"weight": parts(3.0), "step": 3}, checkpoint_id=path).result()
    assert stored(path) == 3


def killed(folder: Path, me: int) -> None:
    """Of a rank's end the others' futures tell; the checkpoint of before is what there is."""
    path, may = folder / "it", folder / "may"
    dcp.save({"weight": parts(1.0), "step": 1}, checkpoint_id=path)

    def end() -> None:
        if me == 1:
            os.kill(os.getpid(), signal.SIGKILL)

    save = dcp.async_save({"weight": parts(2.0), "step": 2}, storage_writer=Writer(path, may, end))
    dist.all_reduce(ts.ones(3))
    may.touch()
    print(f"TOLD {me}: {type(save.exception()).__name__}: {save.exception()}".replace("\n", " "), flush=True)
    os._exit(7)


KINDS = tuple(dcp.state_dict_saver.AsyncCheckpointerType)
if __name__ == "__main__":
    dist.init_process_group()
    {"several": several, "failing": failing, "killed": killed}[sys.argv[1]](Path(sys.argv[2]), dist.get_rank())
    print("DONE", flush=True)
    dist.destroy_process_group()
