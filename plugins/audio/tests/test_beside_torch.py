"""torchaudio's functions, transforms and models under Tesserack's hook give what they give under PyTorch."""

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="it says what is right")
pytest.importorskip("tesserack_audio", reason="the package tesserack-audio is not installed")

CASES = Path(__file__).with_name("sound_cases.py")
# Phases of bins that hold next to nothing: gradients are large there, and rounding tells.
LOOSE = {"GriffinLim": 2e-2, "griffinlim": 2e-2, "pitch_shift": 2e-3, "PitchShift": 2e-3}
# Only torchaudio's loop in Python has a gradient; its library, which ours stands for, has none.
ONLY_THERE = {"overdrive(12.0, 5.0): gradient 0"}


def computed(out: Path, *words: str, path: Path) -> dict[str, np.ndarray]:
    """What the program writes, with torchaudio from a folder."""
    command = [sys.executable, "-W", "ignore", *words, str(CASES), str(out)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(path)})
    assert done.returncode == 0, done.stderr[-3000:]
    return dict(np.load(out))


def differs(name: str, want: np.ndarray, got: np.ndarray) -> str | None:
    if want.dtype.kind == "U":  # an error, of the same class
        return None if str(want).split(":")[0] == str(got).split(":")[0] else f"{want} here {got}"
    if want.shape != got.shape or want.dtype != got.dtype:
        return f"{want.shape} {want.dtype} here {got.shape} {got.dtype}"
    bound = max([2e-4, *(share for word, share in LOOSE.items() if word in name)])
    scale = float(np.nanmax(np.abs(want), initial=1e-6))
    close = np.isclose(got, want, rtol=0, atol=bound * scale, equal_nan=True)
    return (
        None
        if close.all()
        else f"{np.count_nonzero(~close)} of {want.size} differ, by {np.abs(want - got).max() / scale:.1e}"
    )


@pytest.mark.skipif(find_spec("torchaudio") is None, reason="torchaudio is not installed")
def test_results_and_gradients_are_those_under_torch(tmp_path: Path) -> None:
    spec = find_spec("torchaudio")
    assert spec is not None and spec.origin is not None
    package = Path(spec.origin).parent
    # Its library is for one build of PyTorch; without it PyTorch runs torchaudio's loops in Python.
    shutil.copytree(package, tmp_path / "plain" / "torchaudio", ignore=shutil.ignore_patterns("lib", "__pycache__"))
    want = computed(tmp_path / "torch.npz", path=tmp_path / "plain")
    got = computed(tmp_path / "ours.npz", "-m", "tesserack", "run", path=package.parent)
    assert {*want} - {*got} == ONLY_THERE and {*got} <= {*want}
    assert len(want) > 390
    wrong = {name: why for name in got if (why := differs(name, want[name], got[name]))}
    assert not wrong, "\n".join(f"{name}: {why}" for name, why in wrong.items())
