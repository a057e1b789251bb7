"""What the card offers beside computing: times of its events, recovery, registered memory, kernels kept on disk."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tesserack as ts

_COMPILES = """
import json
import tesserack as ts
x = ts.arange(12.0, device="opencl").reshape(3, 4)
found = [((x + 1) * 2).sum().item(), (x @ x.t()).tolist(), x.cumsum(1).cpu().tolist()]
print(json.dumps(found))
import tesserack_opencl
print(json.dumps(tesserack_opencl.kernel_statistics()))
"""


def test_a_second_process_compiles_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TESSERACK_KERNEL_CACHE", str(tmp_path))
    runs = []
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", _COMPILES], capture_output=True, text=True, check=True)
        values, statistics = map(json.loads, done.stdout.splitlines()[-2:])
        runs.append((values, statistics["compiled"], statistics["from_disk"]))
    (first, compiled, _), (second, again, from_disk) = runs
    assert first == second and compiled > 3 and again == 0 and from_disk == compiled


def test_the_kit_finds_its_services_right(tmp_path: Path) -> None:
    """Profiles with device times, ranges and copies; recovery; what is not offered is skipped."""
    report = tmp_path / "report.json"
    command = [
        sys.executable,
        "-m",
        "tesserack.testing.conform",
        "opencl",
        "--areas",
        "services",
        "--json",
        str(report),
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    cases = {case["id"].rpartition("::")[2]: case["outcome"] for case in json.loads(report.read_text())["cases"]}
    assert done.returncode == 0, done.stdout
    wanted = (
        "test_every_kernel_is_told_once",
        "test_times_lie_within_the_work",
        "test_ranges_surround_their_work",
        "test_copies_tell_their_bytes",
        "test_a_recovered_device_computes",
    )
    assert {name: cases[name] for name in wanted} == dict.fromkeys(wanted, "passed"), done.stdout


def test_registered_memory_is_copied_from_and_to() -> None:
    data = np.arange(5000, dtype=np.float32)
    shared = ts.from_numpy(data)
    registered = ts.backends.register_host_memory(shared, "opencl")
    there: Any = registered.to("opencl", non_blocking=True)
    registered.copy_(there * 2, non_blocking=True)
    ts.synchronize("opencl")
    assert (data == np.arange(5000) * 2).all()
