"""A worker that dies within a call, and one that does not come to the end: who waits is told. ``rpc_lost.py HOW``."""

import os
import sys
import time

import tesserack as ts
from tesserack.distributed import rpc

me = int(os.environ["RANK"])
rpc.init_rpc(f"worker{me}")
if sys.argv[1] == "dies":
    if me == 0:
        try:
            rpc.rpc_sync("worker1", os._exit, args=(3,), timeout=1000)
        except RuntimeError as error:
            print(f"told: {error}", flush=True)
        rpc.shutdown(graceful=False)
    else:
        time.sleep(1000)
elif me == 0:
    try:
        rpc.shutdown(timeout=1)
    except RuntimeError as error:
        print(f"told: {error}", flush=True)
    ts.distributed.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])).set("told", "1")
else:
    ts.distributed.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])).get("told")
    rpc.shutdown(graceful=False)
