"""Rank 1 comes late to a monitored barrier. Runs on each rank."""

import time
from datetime import timedelta

from tesserack import distributed as dist

dist.init_process_group()
dist.monitored_barrier(timeout=timedelta(seconds=1000))
if dist.get_rank() == 1:
    time.sleep(10)
try:
    dist.monitored_barrier(timeout=timedelta(seconds=3), wait_all_ranks=True)
except dist.DistBackendError as error:
    print(f"TOLD {dist.get_rank()}: {error}", flush=True)
