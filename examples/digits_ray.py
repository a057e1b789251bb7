"""The digits by workers of Ray: one of them is killed half-way, and the training goes on from the last checkpoint.

    python examples/digits_ray.py --epochs 3 --kill 20    # needs tesserack-ray, and scikit-learn for the scans

Prints the mean loss of every epoch: those of one process on whole batches (``digits_ranks.py --alone``).
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
from datetime import timedelta
from pathlib import Path
from typing import Any

import ray
import tesserack as ts
import tesserack_ray as train
from tesserack import distributed as dist
from tesserack import nn
from tesserack.nn import functional as F

HERE = str(Path(__file__).resolve().parent)
BATCH = 64


def loop(config: dict[str, Any]) -> None:
    """What every worker runs."""
    sys.path.insert(0, HERE)
    from common import load_digits

    context = train.get_context()
    rank, ranks = context.get_world_rank(), context.get_world_size()
    scans, digits = load_digits("cpu")
    part = ts.randperm(len(scans), generator=ts.Generator().manual_seed(0))[:1437]
    images, labels = scans[part], digits[part]
    ts.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = ts.optim.SGD(net.parameters(), lr=0.2)
    begin = 0
    if (checkpoint := train.get_checkpoint()) is not None:
        with checkpoint.as_directory() as folder:
            held = ts.load(Path(folder) / "state.pt")
        net.load_state_dict(held["net"])
        optimizer.load_state_dict(held["optimizer"])
        begin = held["step"]
    model = train.prepare_model(net)
    order = ts.Generator().manual_seed(0)
    batches = [b for _ in range(config["epochs"]) for b in ts.randperm(len(images), generator=order).split(BATCH)]
    for step in range(begin, len(batches)):
        if step == config["at"] and context.attempt == 0 and rank == config["rank"]:
            fail(config["how"])
        batch = batches[step]
        mine = batch[rank::ranks]
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images[mine]), labels[mine], reduction="sum")
        # Gradients are averaged over ranks: each weighs its sum so that the average is the batch's mean.
        (loss * ranks / len(batch)).backward()
        optimizer.step()
        total = loss.detach().clone()
        dist.all_reduce(total)
        metrics = {"step": step, "loss": total.item(), "scans": len(batch)}
        if rank == 0 and step % 5 == 4:
            state = {"net": net.state_dict(), "optimizer": optimizer.state_dict(), "step": step + 1}
            with tempfile.TemporaryDirectory() as folder:
                ts.save(state, Path(folder) / "state.pt")
                train.report(metrics, train.Checkpoint.from_directory(folder))
        else:
            train.report(metrics)


def fail(how: str) -> None:
    """As a worker may."""
    if how == "raising":
        raise ValueError("planted")
    os.kill(os.getpid(), signal.SIGSTOP if how == "stopped" else signal.SIGKILL)


def main() -> None:
    parser = argparse.ArgumentParser(description="Train on handwritten digits with workers of Ray.")
    parser.add_argument("--workers", type=int, default=2, help="how many there are (default: 2)")
    parser.add_argument("--epochs", type=int, default=3, help="passes over the training scans (default: 3)")
    parser.add_argument("--kill", type=int, default=-1, help="the step at which a worker fails (default: none)")
    parser.add_argument("--rank", type=int, default=1, help="which worker fails (default: 1)")
    parser.add_argument("--how", choices=("killed", "stopped", "raising"), default="killed", help="in which way")
    parser.add_argument("--failures", type=int, default=1, help="how many there may be (default: 1)")
    parser.add_argument("--timeout", type=float, default=30, help="seconds until a worker counts as stopped")
    parser.add_argument("--storage", help="where checkpoints lie (default: a folder that is removed)")
    args = parser.parse_args()
    begin = not ray.is_initialized()
    if begin:
        ray.init(num_cpus=args.workers, include_dashboard=False, object_store_memory=80_000_000)
    with tempfile.TemporaryDirectory() as folder:
        trainer = train.TesserackTrainer(
            loop,
            train_loop_config={"epochs": args.epochs, "at": args.kill, "rank": args.rank, "how": args.how},
            tesserack_config=train.TesserackConfig(timeout=timedelta(seconds=args.timeout)),
            scaling_config=train.ScalingConfig(num_workers=args.workers),
            run_config=train.RunConfig(
                name="digits",
                storage_path=args.storage or folder,
                failure_config=train.FailureConfig(max_failures=args.failures),
            ),
        )
        history = trainer.fit().metrics_history
    steps = len(history) // args.epochs
    for epoch in range(args.epochs):
        told = history[epoch * steps : (epoch + 1) * steps]
        print(f"epoch {epoch + 1}  loss {sum(m['loss'] for m in told) / sum(m['scans'] for m in told):.5f}", flush=True)
    if begin:
        ray.shutdown()


if __name__ == "__main__":
    main()
