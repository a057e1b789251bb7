"""Buckets over sockets go on beside backward: the trace of some step shows a reduction and an operator at one time."""

import itertools
import json
import sys
from pathlib import Path
from typing import Any

import tesserack as ts
from tesserack import distributed as dist
from tesserack import nn

STEPS = 30  # until a busy machine lets two threads run beside each other


def traced(model: nn.Module, batch: ts.Tensor, file: Path) -> list[dict[str, Any]]:
    """What a step's trace shows to have taken time, first to last."""
    with ts.profiler.profile() as seen:
        model(batch).sum().backward()
    seen.export_chrome_trace(str(file))
    events = [event for event in json.loads(file.read_text())["traceEvents"] if event.get("ph") == "X"]
    return sorted(events, key=lambda event: event["ts"])


def beside(events: list[dict[str, Any]]) -> bool:
    """Whether an operator of backward, in another thread, begins within a reduction."""
    reductions = [event for event in events if event["name"].endswith(":all_reduce")]
    operators = [event for event in events if "backward" in event["name"].lower()]
    pairs = itertools.product(reductions, operators)
    return any(r["tid"] != o["tid"] and r["ts"] < o["ts"] < r["ts"] + r["dur"] for r, o in pairs)


dist.init_process_group()
layers = [layer for _ in range(6) for layer in (nn.Linear(256, 256), nn.ReLU())]
model = nn.parallel.DistributedDataParallel(nn.Sequential(*layers), bucket_cap_mb=0.5)
seen = 0
for _step in range(STEPS):
    events = traced(model, ts.randn(64, 256), Path(sys.argv[1]) / f"rank{dist.get_rank()}.json")
    assert sum(event["name"].endswith(":all_reduce") for event in events) > 2, "a bucket each for some layers"
    found = ts.tensor([int(beside(events))])
    dist.all_reduce(found)
    seen += int(found.item())
    if seen:
        break
assert seen, f"no trace of {STEPS} shows a reduction beside an operator"
print("OVERLAPPED\n", end="")
dist.destroy_process_group()
