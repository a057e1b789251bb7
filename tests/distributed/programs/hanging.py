"""Rank 1 keeps the others waiting until each has written what it does: ``hanging.py FOLDER``. Runs on each rank."""

import os
import signal
import sys
import time
from pathlib import Path

import tesserack as ts
from tesserack import distributed as dist

dist.init_process_group()
x, me, n = ts.ones(4), dist.get_rank(), dist.get_world_size()
processes: list = [None] * n
dist.all_gather_object(processes, os.getpid())
dist.all_reduce(x)
if me == 1:
    time.sleep(0.3)
    for process in processes:
        os.kill(process, signal.SIGUSR2)
    while len(list(Path(sys.argv[1]).glob("rank*.json"))) < n:
        time.sleep(0.05)
dist.broadcast(x, 1)
dist.destroy_process_group()
