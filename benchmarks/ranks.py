"""Time what ranks do beside PyTorch's gloo, by turns in the same two processes.

    python benchmarks/ranks.py [--seconds 2] [--json FILE]

All reductions over shared memory (of tensors anywhere, and of those in a window, which all ranks map) and over TCP, a
step of ``DistributedDataParallel`` beside its own in ``no_sync``, and how long a launcher takes to a first collective.
Ratios are medians of those of pairs that follow each other.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

FEW = 1 << 16  # bytes below which a turn is several calls: the other side's threads still run in the first
SIZES = {"1 KiB": 1 << 10, "64 KiB": 1 << 16, "1 MiB": 1 << 20, "64 MiB": 1 << 26}
FIRST = """
import time
import {0} as fw
import {0}.distributed as dist
dist.init_process_group("gloo")
dist.all_reduce(fw.ones(1))
print(f"{{time.time()}}\\n", end="")  # in one piece, whoever else writes
dist.barrier()  # torch's gloo aborts where the other has left
dist.destroy_process_group()
"""
LAUNCHERS = {"tesserack": ("tesserack", "launch", "--no-torch"), "torch": ("torch.distributed.run",)}


def together(
    dist: Any, fw: Any, seconds: float, pair: tuple[Callable[[], Any], Callable[[], Any]], calls: int = 1
) -> dict[str, float]:
    """Two calls by turns of so many, every rank as often: medians of a call, and of the ratio of neighbours."""
    times: list[tuple[float, float]] = []
    for call in pair:
        call()
    end, going = time.perf_counter() + seconds, fw.ones(1)
    while going.item() and len(times) < 400:
        took = []
        for call in pair:
            dist.barrier()
            start = time.perf_counter()
            for _ in range(calls):
                call()
            took.append((time.perf_counter() - start) / calls)
        times.append((took[0], took[1]))
        going.fill_(float(time.perf_counter() < end or len(times) < 5))
        dist.broadcast(going, 0)
    ours, theirs = (statistics.median(each) for each in zip(*times, strict=True))
    ratio = statistics.median(a / b for a, b in times)
    return {"seconds": ours, "beside": theirs, "ratio": ratio, "pairs": len(times)}


def rank_rows(seconds: float, store: str) -> dict[str, Any]:
    """The rows of two ranks, on each of them."""
    import tesserack as ts
    import torch
    import torch.distributed as gloo
    from tesserack import distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group()
    rank, ranks = dist.get_rank(), dist.get_world_size()
    gloo.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=ranks)
    sockets = dist.new_group(backend="tcp")
    rows: dict[str, Any] = {}
    for name, size in SIZES.items():
        theirs, mine, turn = torch.ones(size // 4), ts.ones(size // 4), 20 if size < FEW else 1
        for group, where in ((None, "shared memory"), (sockets, "TCP")):
            calls = (lambda m=mine, g=group: dist.all_reduce(m, group=g), lambda t=theirs: gloo.all_reduce(t))
            rows[f"all_reduce {name}, {where}"] = together(dist, ts, seconds, calls, turn)
        window = dist.group.WORLD.allocate_tensor(size // 4, dtype=ts.float32, device="cpu").fill_(1)
        shared = (lambda w=window: dist.all_reduce(w), calls[1])
        rows[f"all_reduce {name}, in a window"] = together(dist, ts, seconds, shared, turn)
    model = ts.nn.parallel.DistributedDataParallel(
        ts.nn.Sequential(
            ts.nn.Linear(784, 1024), ts.nn.ReLU(), ts.nn.Linear(1024, 1024), ts.nn.ReLU(), ts.nn.Linear(1024, 10)
        )
    )
    data = ts.ones(64, 784)

    def step() -> None:
        model.zero_grad()
        model(data).sum().backward()

    def alone() -> None:
        with model.no_sync():
            step()

    rows["DDP step, beside no_sync"] = together(dist, ts, seconds, (step, alone))
    gloo.destroy_process_group()
    dist.destroy_process_group()
    return rows if rank == 0 else {}


def launched(folder: Path) -> dict[str, float]:
    """Seconds from a launcher's start to the end of the first collective of two ranks."""
    times: dict[str, list[float]] = {name: [] for name in LAUNCHERS}
    for _ in range(3):
        for name, words in LAUNCHERS.items():
            program = folder / f"{name}_first.py"
            program.write_text(FIRST.format(name))
            start = time.time()
            command = [sys.executable, "-m", *words, "--standalone", "--nproc-per-node", "2", str(program)]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            times[name].append(max(map(float, done.stdout.split())) - start)
    ours, theirs = (statistics.median(times[name]) for name in LAUNCHERS)
    return {"seconds": ours, "beside": theirs, "ratio": ours / theirs, "pairs": 3}


def main() -> None:
    """Print a line for each row; ``--json`` keeps them with the machine, its load and the date."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=2.0, help="for each row (default: 2)")
    parser.add_argument("--json", type=Path, help="keep the rows in this file")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        load = os.getloadavg()[0]
        told = {"RANKS_STORE": str(folder / "store"), "RANKS_OUT": str(folder / "rows"), "OMP_NUM_THREADS": "1"}
        words = [sys.executable, "-m", "tesserack", "launch", "--no-torch", "--standalone", "--nproc-per-node", "2"]
        environment = {**os.environ, **told}
        subprocess.run([*words, __file__, "--seconds", str(args.seconds)], check=True, env=environment)
        rows = json.loads((folder / "rows").read_text()) | {"launcher to first collective": launched(folder)}
    for row, found in rows.items():
        print(f"{row:34} {found['seconds'] * 1e6:11.1f} us  {found['beside'] * 1e6:11.1f} us  {found['ratio']:6.2f}")
    print(f"load {load:.1f} to {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    if args.json:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        machine = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), "unknown")
        facts = {"machine": machine, "processors": os.cpu_count(), "date": time.strftime("%Y-%m-%d"), "load": load}
        args.json.write_text(json.dumps({**facts, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    if "RANKS_STORE" in os.environ:
        found = rank_rows(float(sys.argv[2]), os.environ["RANKS_STORE"])
        if found:
            Path(os.environ["RANKS_OUT"]).write_text(json.dumps(found))
    else:
        main()
