"""With no memory left a call raises an error that says so; what is freed is freed, and the process goes on."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PROGRAM = """
import resource, sys, gc
import tesserack as ts
x = ts.ones(64)
ts.ones(4).tolist(); x.split(1)                       # loads what is needed
limit = 300 << 20
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + limit, resource.getrlimit(resource.RLIMIT_AS)[1]))
{body}
resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.getrlimit(resource.RLIMIT_AS)[1]))
print("goes on", ts.ones(1000).sum().item())
"""
BODIES = {
    "small blocks": """
held = []
try:
    while True:
        held.append(ts.empty(100))
except (MemoryError, ts.OutOfMemoryError) as error:
    said = str(error)
held.clear()
del held
assert "memory" in said, said
""",
    "large blocks": """
held = []
try:
    while True:
        held.append(ts.empty(100_000))
except (MemoryError, ts.OutOfMemoryError) as error:
    said = str(error)
del held
assert "memory" in said, said
""",
    "tolist": """
try:
    ts.zeros(60_000_000, dtype=ts.int8).tolist()
except MemoryError as error:
    assert "memory" in str(error), repr(error)
else:
    raise SystemExit("there was enough")
""",
    "a graph": """
try:
    y = x.requires_grad_()
    while True:
        y = y * 1.0
except (MemoryError, ts.OutOfMemoryError) as error:
    said = str(error)
del y
assert "memory" in said, said
""",
}


@pytest.mark.skipif(sys.platform != "linux", reason="limits the address space as Linux does")
@pytest.mark.skipif("TESSERACK_SANITIZED" in os.environ, reason="the sanitizer's shadow memory has no such limit")
@pytest.mark.parametrize("name", BODIES)
def test_out_of_memory(name: str) -> None:
    """In small pieces, large ones, lists and graphs."""
    program = PROGRAM.replace("{body}", BODIES[name])
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and "goes on 1000.0" in done.stdout, (done.returncode, done.stderr[-2000:])
