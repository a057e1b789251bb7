"""No kernel that a card may have goes untried: the kit has calls for each, and they reach it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from cards import conform
from tesserack.testing.conformance.areas import REQUIRED
from tesserack.testing.conformance.own.kernels import CALLS

# What the cpu backend leaves to other kernels or the host, so that the simulated card made of it has neither.
ELSEWHERE = {"addmm", "baddbmm", "check_weights", "fft_rows", "native_dropout", "scaled_dot_product_attention"}


def test_every_kernel_that_the_core_asks_for_has_calls() -> None:
    """Beside the required ones, whose tests are the kit's own. Other tests declare kernels: a process without them."""
    program = "import json, tesserack; print(json.dumps(tesserack._native._kernel_names()))"
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    named = {*json.loads(done.stdout)} - {*REQUIRED}
    assert named - {*CALLS} == set(), "kernels without any sample: give them calls in own/kernels.py"
    assert all(CALLS.values())


def test_the_calls_reach_their_kernels(shadow: dict[str, str], tmp_path: Path) -> None:
    """On a card that has what the cpu has, and writes down what is called."""
    heard = tmp_path / "calls"
    text, found = conform("shadow", dict(shadow, SHADOW_CALLS=str(heard)), tmp_path / "r.json", "--areas", "kernels")
    assert {case["outcome"] for case in found["cases"]} <= {"passed", "skipped"}, text
    called = set(heard.read_text().split())
    assert {*CALLS} - called == ELSEWHERE & {*CALLS}
