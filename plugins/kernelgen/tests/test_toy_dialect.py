"""The example of a dialect: as ``tesserack new-backend`` writes it, and at work."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tesserack.cli import new_backend
from tesserack.testing import seeds

EXAMPLE = Path(__file__).parents[3] / "examples" / "toy_dialect"

PROGRAM = """
import tesserack as ts
x = ts.arange(12.0).reshape(3, 4)
y, z = x.to("toy"), (x.t() + 1).to("toy")
print(ts.allclose((y @ z).cpu(), x @ (x.t() + 1)), ts.allclose(y.exp().sum(0).cpu(), x.exp().sum(0)))
print(y.sort(1, descending=True)[0][0].tolist(), y.half().cumsum(1)[0].tolist())
ts.manual_seed(1)
ours = ts.rand(5, device="toy").tolist()
ts.manual_seed(1)
print(ours == ts.rand(5).tolist(), ts.backends.fallbacks())
print(ts.full((2,), 3.0, device="toy").tolist(), ts.zeros(2, dtype=ts.int64, device="toy").fill_(2).tolist())
"""


def test_the_example_is_what_new_backend_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tesserack.backends.installed", dict)
    for path in new_backend.write("toy", tmp_path / "toy", kernelgen=True):
        assert path.read_text() == (EXAMPLE / path.relative_to(tmp_path / "toy")).read_text()
    assert len((EXAMPLE / "src/tesserack_toy/__init__.py").read_text().splitlines()) <= 150


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """That of a process in which the example is installed."""
    if shutil.which("g++") is None:
        pytest.skip("the example compiles with g++")
    metadata = tmp_path / "tesserack_toy-0.1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: tesserack-toy\nVersion: 0.1.0\n")
    (metadata / "entry_points.txt").write_text("[tesserack.backends]\ntoy = tesserack_toy:backend\n")
    return {**os.environ, "PYTHONPATH": os.pathsep.join((str(tmp_path), str(EXAMPLE / "src")))}


def test_it_computes(environment: dict[str, str]) -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "True True",
        "[3.0, 2.0, 1.0, 0.0] [0.0, 1.0, 3.0, 6.0]",
        "True {}",
        "[3.0, 3.0] [2, 2]",
    ]


@pytest.mark.skipif(not seeds.full(), reason="compiles 4,600 kernels, in minutes; FULL=1 runs it")
def test_it_boots(environment: dict[str, str]) -> None:
    command = [sys.executable, "-m", "tesserack.testing.conform", "toy", "--level", "boots", "--timeout", "1500"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
