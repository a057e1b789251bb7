"""Checkpoints of so many ranks, opened by others: ``checkpoints.py save|load FOLDER``. Runs on each rank."""

import os
import signal
import sys
from pathlib import Path

import tesserack as ts
from nets import Net, data, trained
from tesserack import distributed as dist
from tesserack import nn
from tesserack.distributed import checkpoint as dcp
from tesserack.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_state_dict,
    set_model_state_dict,
    set_state_dict,
)
from tesserack.distributed.fsdp import FullyShardedDataParallel as FSDP
from tesserack.distributed.fsdp import fully_shard
from tesserack.distributed.fsdp.wrap import ModuleWrapPolicy
from tesserack.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

WHOLE = StateDictOptions(full_state_dict=True)


def divided() -> Net:
    model = Net()
    for block in model.blocks:
        fully_shard(block)
    return fully_shard(model)


def wrapped(**options: object) -> FSDP:
    return FSDP(Net(), auto_wrap_policy=ModuleWrapPolicy({type(Net().blocks[0])}), **options)


def copies() -> nn.Module:
    return nn.parallel.DistributedDataParallel(Net())


def expected(steps: int) -> tuple[Net, ts.optim.Optimizer]:
    alone = Net()
    return alone, trained(alone, *data(), steps=steps)


def same(found: dict, model: nn.Module, limit: float = 1e-5) -> None:
    wanted = model.state_dict()
    assert list(found) == list(wanted), (list(found), list(wanted))
    for name, value in found.items():
        value = value.full_tensor() if isinstance(value, DTensor) else value
        assert (value - wanted[name]).abs().max().item() < limit, name


class Counter:
    """Something with a state."""

    def __init__(self, count: int) -> None:
        self.count = count

    def state_dict(self) -> dict:
        return {"count": self.count, "words": ["a", "b"]}

    def load_state_dict(self, state: dict) -> None:
        self.count, self.words = state["count"], state["words"]


def save(folder: Path, n: int, me: int) -> None:
    x, y = data()
    mine = slice(me, None, n)
    shared = divided()
    optimizer = trained(shared, x[mine], y[mine], n, steps=10)
    own, of_optimizer = get_state_dict(shared, optimizer)
    mesh = dist.init_device_mesh("cpu", (2, n // 2), mesh_dim_names=("a", "b"))
    grid = ts.arange(91.0).view(7, 13)
    state = {
        "model": own,
        "optim": of_optimizer,
        "counter": Counter(7),
        "epoch": 3,
        "nested": {"list": [ts.ones(2), 5], 4: "four", "empty": {}},
        "grid": distribute_tensor(grid, mesh, [Shard(0), Shard(1)]),
        "copies": distribute_tensor(grid, mesh, [Replicate(), Shard(1)]),
        "complex": ts.full((3,), 2 + 1j, dtype=ts.complex128),
        "number": ts.tensor(4.5, dtype=ts.bfloat16),
        "none": ts.empty(0, 3),
    }
    saved = dcp.async_save(state, checkpoint_id=folder / "divided")
    trained(shared, x[mine], y[mine], n, steps=2, optimizer=optimizer)  # what is saved is what was
    metadata = saved.result()
    assert metadata.state_dict_metadata["grid"].size == (7, 13)
    assert (
        len(metadata.state_dict_metadata["grid"].chunks) == 4
        and len(metadata.state_dict_metadata["copies"].chunks) == 2
    )
    other = wrapped()
    optimizer = trained(other, x[mine], y[mine], n, steps=10)
    own, of_optimizer = get_state_dict(other, optimizer)
    assert any(isinstance(value, DTensor) for value in own.values())
    dcp.save({"model": own, "optim": of_optimizer}, checkpoint_id=folder / "wrapped")
    files = sorted(p.name for p in (folder / "divided").iterdir())
    assert len(files) == n + 1 and files[0] == ".metadata.json", files
    dist.barrier()
    breaks(folder, n, me)


def breaks(folder: Path, n: int, me: int) -> None:
    """A save that fails on a rank fails on all, and leaves what was there."""
    state = {"model": {"weight": ts.full((4,), 1.0)}}
    dcp.save(state, checkpoint_id=folder / "whole")
    before = sorted((folder / "whole").iterdir())
    bad = {"model": {"weight": ts.full((4,), 2.0)}, "object": object() if me == 1 else 1}
    try:
        dcp.save(bad, checkpoint_id=folder / "whole")
    except dcp.CheckpointException as error:
        assert list(error.failures) == [1] and "object" in str(error), error
    else:
        raise AssertionError("an object was saved")
    dist.barrier()
    found = {"model": {"weight": ts.zeros(4)}}
    dcp.load(found, checkpoint_id=folder / "whole")
    assert found["model"]["weight"].tolist() == [1.0] * 4 and set(before) <= set((folder / "whole").iterdir())
    dist.barrier()
    dcp.save({"model": {"weight": ts.full((4,), 3.0)}}, checkpoint_id=folder / "whole")
    dist.barrier()
    assert not set(before) & set((folder / "whole").iterdir()) - {folder / "whole" / ".metadata.json"}
    try:
        dcp.load({"model": {"weight": ts.zeros(5 if me == 1 else 4)}}, checkpoint_id=folder / "whole")
    except dcp.CheckpointException as error:
        assert "Size mismatch between saved (4,) and current: (5,) for model.weight" in str(error), error
    else:
        raise AssertionError("another size was loaded")


def load(folder: Path, n: int, me: int) -> None:
    (alone, _), (reference, _) = expected(10), expected(13)
    mesh = dist.init_device_mesh("cpu", (n,))
    grid = ts.arange(91.0).view(7, 13)
    found = {
        "counter": Counter(0),
        "epoch": 0,
        "nested": {"list": [ts.zeros(2), 0], 4: "", "empty": None},
        "grid": distribute_tensor(ts.zeros(7, 13), mesh, [Shard(1)]),
        "copies": ts.zeros(7, 13),
        "complex": ts.zeros(3, dtype=ts.complex128),
        "number": ts.tensor(0.0, dtype=ts.bfloat16),
        "none": ts.empty(0, 3),
    }
    dcp.load(found, checkpoint_id=folder / "divided")
    assert found["counter"].count == 7 and found["counter"].words == ["a", "b"] and found["epoch"] == 3
    assert found["nested"]["list"][0].tolist() == [1.0, 1.0] and found["nested"]["list"][1] == 5
    assert found["nested"][4] == "four" and found["nested"]["empty"] == {}
    assert bool((found["grid"].full_tensor() == grid).all()) and bool((found["copies"] == grid).all())
    assert found["complex"].tolist() == [2 + 1j] * 3 and found["number"].item() == 4.5
    for name in ("divided", "wrapped"):
        for make in (
            divided,
            wrapped,
            lambda: wrapped(use_orig_params=True),
            lambda: nn.parallel.DistributedDataParallel(Net()),
        ):
            resume(folder / name, make, alone, reference, n, me)
    if n == 2:
        ends(folder, me)


def resume(folder: Path, make, alone: Net, reference: Net, n: int, me: int) -> None:
    """Go on from a checkpoint under another wrapping; the first steps of both were one process's."""
    x, y = data()
    mine = slice(me, None, n)
    model = make()
    optimizer = ts.optim.AdamW(model.parameters(), lr=0.5)
    own, of_optimizer = get_state_dict(model, optimizer)
    state = {"model": own, "optim": of_optimizer}
    dcp.load(state, checkpoint_id=folder)
    result = set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optim"])
    assert not result.missing_keys and not result.unexpected_keys, result
    same(get_model_state_dict(model, options=WHOLE), alone)
    trained(model, x[mine], y[mine], n, steps=3, optimizer=optimizer)
    same(get_model_state_dict(model, options=WHOLE), reference)
    given = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    assert bool(given) == (me == 0)
    fresh = make()
    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
    set_model_state_dict(fresh, given, options=options)
    same(get_model_state_dict(fresh, options=WHOLE), reference)


def ends(folder: Path, me: int) -> None:
    """A rank is killed while it writes: what was saved before is what there is."""
    path = folder / "killed"
    dcp.save({"weight": ts.full((4,), 1.0)}, checkpoint_id=path)

    class Killed(dcp.FileSystemWriter):
        def write_data(self, plan, planner):
            done = super().write_data(plan, planner)
            if me == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            return done

    dcp.save({"weight": ts.full((4,), 2.0)}, storage_writer=Killed(path))


def main() -> None:
    dist.init_process_group()
    {"save": save, "load": load}[sys.argv[1]](Path(sys.argv[2]), dist.get_world_size(), dist.get_rank())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
