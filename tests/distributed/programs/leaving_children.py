"""Rank 1 is killed and leaves a child, forked within the group: prints what rank 0 is told, which ends the child.
Runs on both ranks.
"""

import os
import signal
import time
from datetime import timedelta
from pathlib import Path

from tesserack import distributed as dist

dist.init_process_group(timeout=timedelta(seconds=1000))
me, child = dist.get_rank(), 0
if me == 1:
    child = os.fork()
    if child == 0:
        time.sleep(1000)
        os._exit(0)
children = [0, 0]
dist.all_gather_object(children, child)
if me == 1:
    os.kill(os.getpid(), signal.SIGKILL)
try:
    dist.barrier()
except dist.DistBackendError as error:
    print(f"TOLD 0: {error}", flush=True)
state = Path(f"/proc/{children[1]}/stat").read_text().rpartition(")")[2].split()[0]
print("the child still runs" if state in "SR" else f"the child is {state}", flush=True)
os.kill(children[1], signal.SIGKILL)
