"""Sums numbers, divided over however many ranks there are, with checkpoints: ``coming_going.py FOLDER``.

Goes no further than FOLDER/go says. Every start writes a line: restarts, ranks, rank, machine, step.
"""

import json
import os
import sys
import time
from pathlib import Path

import tesserack as ts
from tesserack import distributed as dist

STEPS, PRIME = 12, 1_000_003


def main() -> None:
    folder = Path(sys.argv[1])
    dist.init_process_group()
    me, ranks, file = dist.get_rank(), dist.get_world_size(), folder / "state.json"
    step, value = json.loads(file.read_text()) if file.exists() else (0, 1)
    told = os.environ["TORCHELASTIC_RESTART_COUNT"], ranks, me, os.environ["GROUP_RANK"], step
    with (folder / "log").open("a") as log:
        log.write(" ".join(map(str, told)) + "\n")
    while step < STEPS:
        while int((folder / "go").read_text() or 0) <= step:
            time.sleep(0.02)
        given = ts.tensor([sum(range(step + me, step + 100, ranks))])
        dist.all_reduce(given)
        value, step = (31 * value + given.item()) % PRIME, step + 1
        if me == 0:
            partial = folder / "partial"
            partial.write_text(json.dumps([step, value]))
            partial.replace(file)
        dist.barrier()
    print(f"RANK {me} OF {ranks} CAME TO {value}", flush=True)
    dist.destroy_process_group()


main()
