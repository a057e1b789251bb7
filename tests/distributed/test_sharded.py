"""Training with parameters divided over ranks."""

from typing import Any

import pytest


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
