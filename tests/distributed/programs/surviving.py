"""Counts for some steps with checkpoints, until a rank fails as it is told: ``surviving.py FOLDER HOW STEP RANK``.

Runs on each rank; started again, it goes on from the checkpoint and does not fail. Prints what it has come to, and how
long after the failure others were told or began again.
"""

import json
import os
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path

import tesserack as ts
from tesserack import distributed as dist

STEPS, PRIME = 12, 1_000_003


def after(folder: Path) -> str:
    """The time since the failure."""
    file = folder / "failed"
    return f"after {time.time() - float(file.read_text()):.2f} s" if file.exists() else "without a failure"


def summed(number: int) -> int:
    """Over all ranks."""
    given = ts.tensor([number])
    dist.all_reduce(given)
    return int(given.item())


def main() -> None:
    folder, how, step_of, rank_of = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    dist.init_process_group(timeout=timedelta(seconds=1000))  # however late a busy machine starts some
    me, file = dist.get_rank(), folder / "state.json"
    step, value = json.loads(file.read_text()) if file.exists() else (0, 1)
    again = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0"
    if again:
        print(f"RANK {me} BEGAN AGAIN {after(folder)}\n", end="", flush=True)
    while step < STEPS:
        if how == "stopped" and step == step_of and not again:  # of it the others hear when the time is over
            dist._set_pg_timeout(timedelta(seconds=8))
        if (me, step) == (rank_of, step_of) and not again:
            (folder / "failed").write_text(str(time.time()))
            if how == "raising":
                raise ValueError("planted")
            if how == "leaving":
                raise SystemExit(3)
            os.kill(os.getpid(), signal.SIGKILL if how == "killed" else signal.SIGSTOP)
        try:
            value = (31 * value + summed(7 * step + me)) % PRIME
            step += 1
            if me == 0 and step % 3 == 0:
                partial = folder / "partial"
                partial.write_text(json.dumps([step, value]))
                partial.replace(file)
            dist.barrier()
        except dist.DistBackendError as error:
            print(f"RANK {me} TOLD {after(folder)}: {str(error).splitlines()[0]}\n", end="", flush=True)
            raise
    print(f"RANK {me} CAME TO {value}", flush=True)
    dist.destroy_process_group()


main()
