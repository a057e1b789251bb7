"""A rank that fails as it is told: ``failing.py HOW``; prints what the others are told. Runs on each rank."""

import atexit
import os
import signal
import sys
import threading
import time
from datetime import timedelta

if sys.argv[1] == "lingering" and os.environ["RANK"] == "1":  # after what tesserack does at the end
    atexit.register(time.sleep, 600)

import tesserack as ts
from tesserack import distributed as dist


def interrupt_once_it_waits(process: int) -> None:
    """SIGINT for this process when it has been in its second reduction for a while."""
    recorder = dist.group.WORLD.recorder
    while [entry["op"] for entry in recorder.entries if entry["state"] != "scheduled"].count("all_reduce") < 2:
        time.sleep(0.02)
    time.sleep(1)
    os.kill(process, signal.SIGINT)


def slow_to_ask() -> None:
    """This process asks the store late for what is there."""
    get = dist.PrefixStore.get
    dist.PrefixStore.get = lambda *arguments: (time.sleep(0.5), get(*arguments))[1]


if sys.argv[1] == "stopped at once" and os.environ["RANK"] != "0":
    slow_to_ask()
dist.init_process_group(timeout=timedelta(seconds=1000))  # however late a busy machine starts some
x, me, how = ts.ones(4), dist.get_rank(), sys.argv[1]
if me != 1:  # a launcher that ends ranks as soon as one has failed leaves these the time to print
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if how == "interrupted" and me == 0:
    threading.Thread(target=interrupt_once_it_waits, args=(os.getpid(),), daemon=True).start()
if how == "stopped at once" and me == 0:  # which keeps the store
    os.kill(os.getpid(), signal.SIGSTOP)
try:
    if how == "stopped at once":
        dist._set_pg_timeout(timedelta(seconds=5))
    dist.all_reduce(x)
    if how == "stopped":  # of one that is stopped the others hear when the time is over
        dist._set_pg_timeout(timedelta(seconds=5))
    if me == 1:
        if how == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "stopped":
            os.kill(os.getpid(), signal.SIGSTOP)
        if how == "raising":
            raise ValueError("planted")
        if how == "interrupted":
            time.sleep(1000)  # the launcher ends it, once the others have ended
        if how in ("leaving", "lingering"):
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
