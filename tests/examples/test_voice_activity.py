"""A published model: its weights load, and it hears what is speech."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
NEEDED = importlib.util.find_spec("silero_vad")
pytestmark = pytest.mark.skipif(NEEDED is None, reason="needs the weights of silero-vad")


def test_it_hears_vowels_and_neither_silence_nor_noise(device):
    command = [sys.executable, str(EXAMPLES / "voice_activity.py"), "--device", str(device)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    (span,) = [line.split() for line in done.stdout.splitlines() if line.startswith("speech")]
    assert 0.4 < float(span[2]) < 0.6 and 1.4 < float(span[5]) < 1.8, done.stdout
