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
while me == 1:
    for process in processes:
        os.kill(process, signal.SIGUSR2)
    time.sleep(0.3)
    written = [file.read_text() for file in Path(sys.argv[1]).glob("rank*.json")]
    if len(written) == n and sum('"broadcast"' in text for text in written) == n - 1:
        break
dist.broadcast(x, 1)
dist.destroy_process_group()
