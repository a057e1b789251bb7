"""Rank 0, which keeps the store, is stopped while rank 1 waits for a key. Runs on each rank."""

import os
import signal
import time
from datetime import timedelta
from pathlib import Path

from tesserack import distributed as dist

store = dist.TCPStore(
    os.environ["MASTER_ADDR"],
    int(os.environ["MASTER_PORT"]),
    int(os.environ["WORLD_SIZE"]),
    os.environ["RANK"] == "0",
    timeout=timedelta(seconds=1000),
)
if os.environ["RANK"] == "0":
    store.set("master", str(os.getpid()))
    signal.pause()
master = int(store.get("master"))
os.kill(master, signal.SIGSTOP)  # by this rank, to which nothing is owed any more
while Path(f"/proc/{master}/stat").read_text().rpartition(")")[2].split()[0] != "T":
    time.sleep(0.02)
store.set_timeout(timedelta(seconds=2))
try:
    store.get("never")
except dist.DistError as error:
    print(f"TOLD {os.environ['RANK']}: {error}", flush=True)
    raise SystemExit(1) from None
