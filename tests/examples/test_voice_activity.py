"""A published model: its weights load, it says what the published form of it says, and it hears what is speech."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest
import tesserack as ts

EXAMPLES = Path(__file__).parents[2] / "examples"
NEEDED = importlib.util.find_spec("silero_vad")
pytestmark = pytest.mark.skipif(NEEDED is None, reason="needs the weights of silero-vad")


def test_it_hears_vowels_and_neither_silence_nor_noise(device):
    command = [sys.executable, str(EXAMPLES / "voice_activity.py"), "--device", str(device)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    (span,) = [line.split() for line in done.stdout.splitlines() if line.startswith("speech")]
    assert "the published model's own outputs: the same" in done.stdout
    assert 0.4 < float(span[2]) < 0.6 and 1.4 < float(span[5]) < 1.8, done.stdout


def test_it_says_what_the_published_model_says(device):
    """Chunk by chunk what onnxruntime made of the package's own ONNX file, recorded in voice_activity.json."""
    spec = importlib.util.spec_from_file_location("voice_activity", EXAMPLES / "voice_activity.py")
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    model = example.VoiceActivity()
    model.load_state_dict(example.load(example.published_weights(None)))
    samples = ts.from_numpy(example.made_up()).to(device)
    found = example.probabilities(model.to(device).eval(), samples)
    published = json.loads(example.PUBLISHED.read_text())["probabilities"]
    ts.testing.assert_close(found.cpu(), ts.tensor(published), rtol=0, atol=1e-5)
    assert min(published) < 0.01 and max(published) > 0.99
    assert example.difference([*published[:-1], published[-1] + 1]) == pytest.approx(1)
