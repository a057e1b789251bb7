"""Training with parameters divided over ranks."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "gpt_ranks.py"


@pytest.mark.parametrize("ranks", [2, 4])
def test_wrapped_models_follow_one_process_on_the_whole_batch(launch: Any, ranks: int) -> None:
    done = launch("fsdp.py", ranks)
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.parametrize("ranks", [2, 4])
def test_divided_models_follow_one_process_on_the_whole_batch(launch: Any, ranks: int) -> None:
    done = launch("fully_shard.py", ranks)
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.parametrize("ranks", [2, 4])
def test_optimizers_over_ranks_follow_one_process(launch: Any, ranks: int) -> None:
    done = launch("zero.py", ranks)
    assert done.returncode == 0, done.stderr[-3000:]


def test_models_on_a_card_follow_one_process_on_the_cpu(launch: Any) -> None:
    done = launch("cards.py", 2, "reference")
    assert done.returncode == 0, done.stderr[-3000:]


def test_the_example_goes_on_from_a_checkpoint_of_other_ranks(launch: Any, tmp_path: Path) -> None:
    def losses(shown: str) -> list[str]:
        return [line for line in shown.splitlines() if line.startswith("step")]

    def alone(*options: str) -> str:
        words = [sys.executable, str(EXAMPLE), "--alone", *options]
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout

    whole = losses(alone("--steps", "20"))
    done = launch(EXAMPLE, 2, "--steps", "10", "--checkpoint", tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "holds 317,044 of 633,831 parameters" in done.stdout
    assert losses(done.stdout) + losses(alone("--steps", "10", "--checkpoint", str(tmp_path))) == whole
