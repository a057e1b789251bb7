"""The example, several times, on the loopback alone: ``digits.py EXAMPLE STORAGE ARGUMENTS [-- ARGUMENTS ...]``."""

import runpy
import shutil
import sys
import tempfile

import cluster

example, storage, *words = sys.argv[1:]
sessions = tempfile.mkdtemp(prefix="ts-ray-")  # short: sockets lie in it
runs = " ".join(words).split(" -- ")
for number, run in enumerate(runs):
    cluster.begin(2, sessions)
    print("RUN", run, flush=True)
    sys.argv = [example, "--storage", f"{storage}/{number}", *run.split()]
    runpy.run_path(example, run_name="__main__")
shutil.rmtree(sessions, ignore_errors=True)
