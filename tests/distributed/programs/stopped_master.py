"""Rank 0, which keeps the store, is stopped while rank 1 waits for a key. Runs on each rank."""

import os
import signal
import time
from datetime import timedelta

from tesserack import distributed as dist

store = dist.TCPStore(
    os.environ["MASTER_ADDR"],
    int(os.environ["MASTER_PORT"]),
    int(os.environ["WORLD_SIZE"]),
    os.environ["RANK"] == "0",
    timeout=timedelta(seconds=60),
)
store.set_timeout(timedelta(seconds=2))
if os.environ["RANK"] == "0":
    os.kill(os.getpid(), signal.SIGSTOP)
try:
    time.sleep(0.3)
    store.get("never")
except dist.DistError as error:
    print(f"TOLD {os.environ['RANK']}: {error}", flush=True)
    raise SystemExit(1) from None
