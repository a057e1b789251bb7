"""Help for tests that need a process of their own."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Callable

import pytest
import tesserack as ts

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def run_python(device: ts.device) -> Run:
    """Runs code in a new interpreter, with ``ts`` imported and ``DEVICE`` set; its exit status must be ``status``."""

    def run(code: str, status: int = 0, timeout: float = 300) -> subprocess.CompletedProcess[str]:
        source = f"import tesserack as ts\nDEVICE = {str(device)!r}\n" + textwrap.dedent(code)
        done = subprocess.run(
            [sys.executable, "-X", "faulthandler", "-c", source], capture_output=True, text=True, timeout=timeout
        )
        assert done.returncode == status, f"exit status {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
        return done

    return run
