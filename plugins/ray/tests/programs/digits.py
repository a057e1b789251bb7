"""The example, several times, on the loopback alone: ``digits.py EXAMPLE STORAGE ARGUMENTS [-- ARGUMENTS ...]``.

All in one cluster; after each, nothing of it is left there.
"""

import runpy
import shutil
import sys
import tempfile
import time

import cluster
import ray


def wait_until_free(cpus: int) -> None:
    """Nobody holds a place any more. Ray hears of ended workers a little later."""
    end = time.monotonic() + 300
    while ray.available_resources().get("CPU", 0) != cpus:
        assert time.monotonic() < end, ray.available_resources()
        time.sleep(0.05)


example, storage, *words = sys.argv[1:]
sessions = tempfile.mkdtemp(prefix="ts-ray-")  # short: sockets lie in it
cluster.begin(2, sessions)
for number, run in enumerate(" ".join(words).split(" -- ")):
    print("RUN", number, run, flush=True)
    sys.argv = [example, "--storage", f"{storage}/{number}", *run.split()]
    runpy.run_path(example, run_name="__main__")
    wait_until_free(2)
ray.shutdown()
shutil.rmtree(sessions, ignore_errors=True)
