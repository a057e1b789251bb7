"""The digits example, run as a user runs it."""

import importlib.util
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tesserack.profiler import profile
from tesserack.utils.data import TensorDataset

pytest.importorskip("sklearn", reason="the scans come with scikit-learn")
EXAMPLE = Path(__file__).parents[2] / "examples" / "digits.py"


def run(*arguments):
    return subprocess.run([sys.executable, str(EXAMPLE), *arguments], capture_output=True, text=True, timeout=600)


def test_it_learns_saves_and_reloads(device, tmp_path):
    path = tmp_path / "digits.safetensors"
    done = run("--device", str(device), "--save", str(path))
    assert done.returncode == 0, done.stderr
    assert len(re.findall(r"^epoch \d+/20  loss [\d.]+", done.stdout, re.MULTILINE)) == 20
    (accuracy,) = re.findall(r"^test accuracy +([\d.]+)%", done.stdout, re.MULTILINE)
    assert float(accuracy) >= 98
    assert re.search(r"^reloaded in a new process +predicts the same", done.stdout, re.MULTILINE)
    for line in ("device", "training time", "images/s", "peak memory", "fallbacks"):
        assert re.search(rf"^{line} ", done.stdout, re.MULTILINE)
    assert path.stat().st_size > 100_000


def test_an_unknown_device_is_explained_without_a_traceback():
    done = run("--device", "nosuch")
    assert done.returncode == 2
    assert "nosuch" in done.stderr and "Traceback" not in done.stderr and done.stdout == ""


@pytest.mark.parametrize("arguments", [("--epochs", "0"), ("--batch-size", "x"), ("--colour", "red")])
def test_bad_arguments_are_refused(arguments):
    done = run(*arguments)
    assert done.returncode == 2 and "usage:" in done.stderr and "Traceback" not in done.stderr


def test_its_profile_adds_up_and_opens_in_a_trace_viewer(device, tmp_path):
    """One account of one run: the self times are the time measured around it, and the trace tells the same."""
    spec = importlib.util.spec_from_file_location("digits_example", EXAMPLE)
    digits = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(digits)
    train, _ = digits.load_digits(device)
    few = TensorDataset(*(t[:256] for t in train.tensors))
    model = digits.make_model().to(device)
    digits.fit(model, few, 1, 64)
    with profile() as prof:
        began = time.perf_counter()
        digits.fit(model, few, 1, 64)
        measured = 1e6 * (time.perf_counter() - began)
    rows = prof.key_averages()
    assert rows.self_cpu_time_total == pytest.approx(measured, rel=0.05)
    assert {"convolution", "native_batch_norm", "relu"} <= {row.key for row in rows}
    path = tmp_path / "trace.json"
    prof.export_chrome_trace(str(path))
    told = json.loads(path.read_text())["traceEvents"]
    records = [r for r in told if r["pid"] == os.getpid()]  # cards that another test opened tell of ranges as well
    complete = [r for r in records if r["ph"] == "X"]
    assert {r["ph"] for r in records} == {"M", "X"}
    assert {r["tid"] for r in complete} == {r["tid"] for r in records if r["name"] == "thread_name"}
    (step,) = [r for r in complete if r["name"] == "ProfilerStep#0"]
    assert step["dur"] == pytest.approx(measured, rel=0.05)  # in microseconds, as viewers take ts and dur
    assert nested([r for r in complete if r["tid"] == step["tid"]]) > 500


def nested(records):
    """How many records there are; each lies wholly inside the one around it, as viewers want it."""
    around = []
    for record in sorted(records, key=lambda r: (r["ts"], -r["dur"])):
        end = record["ts"] + record["dur"]
        assert record["dur"] >= 0
        while around and around[-1] <= record["ts"]:
            around.pop()
        assert not around or end <= around[-1] + 1e-2, record
        around.append(end)
    return len(records)
