"""The example, several times, on the loopback alone: ``digits.py EXAMPLE STORAGE ARGUMENTS [-- ARGUMENTS ...]``."""

import runpy
import shutil
import sys
import tempfile

import ray

example, storage, *words = sys.argv[1:]
sessions = tempfile.mkdtemp(prefix="ts-ray-")  # short: sockets lie in it
runs = " ".join(words).split(" -- ")
for number, run in enumerate(runs):
    ray.init(
        num_cpus=2,
        include_dashboard=False,
        object_store_memory=80_000_000,
        _node_ip_address="127.0.0.1",
        log_to_driver=False,
        _temp_dir=sessions,
    )
    print("RUN", run, flush=True)
    sys.argv = [example, "--storage", f"{storage}/{number}", *run.split()]
    runpy.run_path(example, run_name="__main__")
shutil.rmtree(sessions, ignore_errors=True)
