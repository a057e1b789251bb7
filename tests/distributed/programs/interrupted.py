"""A rank that waits for a late one is interrupted, as by Ctrl-C; ``interrupted.py all_reduce|barrier|window``."""

import os
import signal
import sys
import threading
import time

import tesserack as ts
from tesserack import distributed as dist

dist.init_process_group(sys.argv[2])
rank, what = dist.get_rank(), sys.argv[1]
x = ts.ones(1 << 16)
if what == "window":
    x = dist.group.WORLD.allocate_tensor(1 << 16, dtype=ts.float32, device="cpu").fill_(1.0)
call = dist.barrier if what == "barrier" else lambda: dist.all_reduce(x)
call()
if rank == 0:

    def interrupt() -> None:
        time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    try:
        call()
    except KeyboardInterrupt:
        print("rank 0: KeyboardInterrupt", flush=True)
else:
    time.sleep(3)  # the first has long given up then
    try:
        call()
    except dist.DistBackendError as error:
        print(f"rank {rank}: told {error}\n", end="", flush=True)
