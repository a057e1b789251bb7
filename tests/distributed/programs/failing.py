"""A rank that fails as it is told: ``failing.py HOW``; prints what the others are told. Runs on each rank."""

import os
import signal
import sys
import time
from datetime import timedelta

import tesserack as ts
from tesserack import distributed as dist

dist.init_process_group(timeout=timedelta(seconds=2))
x, me, how = ts.ones(4), dist.get_rank(), sys.argv[1]
processes: list = [None] * dist.get_world_size()
if how == "interrupted":
    dist.all_gather_object(processes, os.getpid())
try:
    dist.all_reduce(x)
    if me == 1:
        if how == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "stopped":
            os.kill(os.getpid(), signal.SIGSTOP)
        if how == "raising":
            raise ValueError("planted")
        if how == "interrupted":
            time.sleep(0.3)
            os.kill(processes[0], signal.SIGINT)
            time.sleep(0.3)
        if how == "leaving":
            raise SystemExit(0)
    if how == "another" and me == 1:
        dist.broadcast(x, 0)
    elif how == "size" and me == 1:
        dist.all_reduce(ts.ones(5))
    elif how == "dtype" and me == 1:
        dist.all_reduce(x.double())
    else:
        dist.all_reduce(x)
except dist.DistBackendError as error:
    print(f"TOLD {me}: {error}", flush=True)
    raise SystemExit(7) from None
