"""Counts for some steps with checkpoints, until a rank fails as it is told: ``surviving.py FOLDER HOW STEP RANK``.

Runs on each rank; started again, it goes on from the checkpoint and does not fail. Prints what it has come to.
"""

import json
import os
import signal
import sys
from datetime import timedelta
from pathlib import Path

import tesserack as ts
from tesserack import distributed as dist

STEPS, PRIME = 12, 1_000_003


def main() -> None:
    folder, how, step_of, rank_of = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    dist.init_process_group(timeout=timedelta(seconds=1000))  # however late a busy machine starts some
    me, file = dist.get_rank(), folder / "state.json"
    step, value = json.loads(file.read_text()) if file.exists() else (0, 1)
    again = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0"
    while step < STEPS:
        if how == "stopped" and step == step_of and not again:  # of it the others hear when the time is over
            dist._set_pg_timeout(timedelta(seconds=8))
        if (me, step) == (rank_of, step_of) and not again:
            if how == "raising":
                raise ValueError("planted")
            if how == "leaving":
                raise SystemExit(3)
            os.kill(os.getpid(), signal.SIGKILL if how == "killed" else signal.SIGSTOP)
        given = ts.tensor([7 * step + me])
        dist.all_reduce(given)
        value, step = (31 * value + given.item()) % PRIME, step + 1
        if me == 0 and step % 3 == 0:
            partial = folder / "partial"
            partial.write_text(json.dumps([step, value]))
            partial.replace(file)
        dist.barrier()
    print(f"RANK {me} CAME TO {value}", flush=True)
    dist.destroy_process_group()


main()
