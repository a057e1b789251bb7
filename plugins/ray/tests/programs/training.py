"""A driver: trains by two or three workers several times, and prints what came of each as JSON: ``training.py FOLDER``.

``plain``; ``killed``: a worker dies half-way; ``stopped``, ``silent``: it does nothing any more, or does not report;
``shrinking``: and there is room for fewer then; ``raising``; ``uneven``; ``again``: the one that was killed, once more.
"""

import json
import os
import shutil
import signal
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path

import cluster
import ray
import tesserack as ts
import tesserack_ray as train
from tesserack import nn

STEPS, BATCH = 8, 12
WAYS = ("killed", "stopped", "silent", "shrinking", "raising", "uneven")


def loop(config: dict) -> None:
    context = train.get_context()
    rank, ranks = context.get_world_rank(), context.get_world_size()
    ts.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = ts.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    begin = 0
    if (checkpoint := train.get_checkpoint()) is not None:
        with checkpoint.as_directory() as folder:
            held = ts.load(Path(folder) / "state.pt")
        model.load_state_dict(held["model"])
        optimizer.load_state_dict(held["optimizer"])
        begin = held["step"]
    model = train.prepare_model(model)
    x = ts.randn(STEPS, BATCH, 4, generator=ts.Generator().manual_seed(1))
    for step in range(begin, STEPS):
        if step == 4 and context.attempt == 0 and rank == 1:
            fail(config["how"])
        mine = x[step][rank::ranks]
        optimizer.zero_grad()
        loss = (model(mine) - mine.sum(1, keepdim=True)).square().sum()
        (loss * ranks / BATCH).backward()
        optimizer.step()
        total = loss.detach()
        ts.distributed.all_reduce(total)
        metrics = {"step": step, "loss": total.item() / BATCH, "ranks": ranks, "rank": rank}
        if config["how"] == "silent" and step == 4 and context.attempt == 0 and rank == 1:
            time.sleep(600)
        if rank == 0 and step % 2 == 1:
            plain = getattr(model, "module", model)
            held = {"model": plain.state_dict(), "optimizer": optimizer.state_dict(), "step": step + 1}
            place = Path(config["scratch"])
            place.mkdir(exist_ok=True)
            ts.save(held, place / "state.pt")
            train.report(metrics, train.Checkpoint.from_directory(place))
        elif config["how"] != "uneven" or rank == 0 or step < STEPS - 1:
            train.report(metrics)


def fail(how: str) -> None:
    if how == "shrinking":
        Guest.options(name="guest", lifetime="detached").remote()
        time.sleep(1)
    if how in ("killed", "shrinking"):
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    if how == "raising":
        raise ValueError("planted")


@ray.remote(num_cpus=1)
class Guest:
    """Takes a place that a worker leaves."""

    def here(self) -> bool:
        return True


def trained(folder: str, how: str, name: str) -> dict:
    trainer = train.TesserackTrainer(
        loop,
        train_loop_config={"how": how, "scratch": f"{folder}/scratch-{name}"},
        tesserack_config=train.TesserackConfig(timeout=timedelta(seconds=15 if how in ("stopped", "silent") else 1800)),
        scaling_config=train.ScalingConfig(num_workers=(1, 3) if how == "shrinking" else 2),
        run_config=train.RunConfig(
            name=name,
            storage_path=folder,
            # One is planted; a busy machine may be late within a short timeout, too.
            failure_config=train.FailureConfig(max_failures=0 if how in ("raising", "uneven") else 4),
            checkpoint_config=train.CheckpointConfig(num_to_keep=2),
        ),
    )
    try:
        result = trainer.fit()
    except train.TrainingFailedError as error:
        return {"error": str(error), "cause": type(error.__cause__).__name__}
    if how == "shrinking":
        guest = ray.get_actor("guest")
        assert ray.get(guest.here.remote())
        ray.kill(guest)
    kept = sorted(p.name for p in Path(result.path).glob("checkpoint_*"))
    return {"history": result.metrics_history, "last": result.checkpoint.path, "kept": kept}


def main() -> None:
    folder = sys.argv[1]
    sessions = tempfile.mkdtemp(prefix="ts-ray-")  # short: sockets lie in it
    cluster.begin(3, sessions)
    found = {how: trained(folder, how, how) for how in ("plain", *WAYS)}
    found["again"] = trained(folder, "plain", "killed")
    print(json.dumps(found))
    ray.shutdown()
    shutil.rmtree(sessions, ignore_errors=True)


if __name__ == "__main__":
    main()
