"""Programs written for PyTorch, run as they are: the same losses from the same weights."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

import pytest
import tesserack as ts
from tesserack.testing import seeds

pytest.importorskip("sklearn")
FOLDER = Path(__file__).parent / "programs"
NAMES = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem not in ("common", "utils"))
CARDS = ["cuda", "opencl", "reference"]
FULL = seeds.full()
AT_ONCE, ON_CARDS = 12, 3  # of them in one run, another choice with every seed; all with FULL=1
HALF = {"resnet": 2e-2, "gpt_resume": 2e-2}  # in half precision on a card
needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch to compare with")


def chosen():
    if FULL:
        return NAMES
    return seeds.generator("programs").sample(NAMES, AT_ONCE)


def losses(done):
    assert done.returncode == 0, done.stderr
    return [float(line.split()[1]) for line in done.stdout.splitlines() if line.startswith("loss")]


@pytest.fixture(scope="session")
def known(tmp_path_factory, runner):
    """Losses of programs on the cpu, by torch, or as the words before the program say; each is run once."""
    found = {}

    def of(name, *words):
        if (name, *words) not in found:
            place = runner(tmp_path_factory.mktemp(name))
            shutil.copytree(FOLDER, place.folder, dirs_exist_ok=True)
            found[(name, *words)] = losses(place.start(*words, f"{name}.py", OMP_NUM_THREADS="1"))
        return found[(name, *words)]

    return of


@pytest.mark.parametrize("name", chosen())
@needs_torch
def test_losses_are_those_of_torch(known, name):
    ours, theirs = known(name, "-m", "tesserack", "run"), known(name)
    assert len(ours) == len(theirs) > 3
    assert ours == pytest.approx(theirs, rel=2e-3, abs=2e-4)
    assert ours[:3] == pytest.approx(theirs[:3], rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("card", CARDS)
@pytest.mark.parametrize("name", NAMES if FULL else chosen()[:ON_CARDS])
@needs_torch
def test_losses_on_a_card_are_those_of_torch(program, known, name, card):
    """Programs choose their device themselves, as public ones do; shortened unless all is asked for."""
    if ts.backends.why_unavailable(card):
        pytest.skip(f"no {card} device")
    shutil.copytree(FOLDER, program.folder, dirs_exist_ok=True)
    limit = {} if FULL else {"LOSSES": "4"}
    words = ("-m", "tesserack", "run", "--device", card, "--as-cuda", f"{name}.py")
    done = program.start(*words, OMP_NUM_THREADS="1", **limit)
    ours, theirs = losses(done), known(name)
    assert len(ours) == (len(theirs) if FULL else min(4, len(theirs)))
    assert ours == pytest.approx(theirs[: len(ours)], rel=HALF.get(name, 2e-3), abs=2e-4)
    assert "card used" in done.stdout
    helped = [line for line in done.stderr.splitlines() if "running it on the cpu" in line]
    assert all("lapack_" in line for line in helped), helped


def test_what_names_no_device_stays_on_the_host_beside_a_card(program):
    if ts.backends.why_unavailable("opencl"):
        pytest.skip("no OpenCL device")
    text = "import torch; print(torch.ones(2).device, torch.ones(2).cuda().device, torch.randperm(3).numpy().sum())"
    (program.folder / "where.py").write_text(text)
    done = program.start("-m", "tesserack", "run", "--device", "opencl", "--as-cuda", "where.py")
    assert done.stdout.split() == ["cpu", "cuda:0", "3"], done.stderr


@pytest.mark.parametrize("name", ["cnn_digits", "char_rnn"])
def test_programs_run_where_a_device_stands_for_a_card(program, known, name):
    shutil.copytree(FOLDER, program.folder, dirs_exist_ok=True)
    done = program.start("-m", "tesserack", "run", "--device", "cpu", "--as-cuda", f"{name}.py", OMP_NUM_THREADS="1")
    assert losses(done) == pytest.approx(known(name, "-m", "tesserack", "run"), rel=1e-3)
    assert "card used" in done.stdout
