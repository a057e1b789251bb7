"""DTensors: operators in every placement, and what a program does with them."""

from typing import Any

import pytest
from tesserack.testing import seeds


@pytest.mark.parametrize("ranks", [2, 4])
def test_operators_agree_with_whole_tensors_in_every_placement(launch: Any, ranks: int) -> None:
    every = 1 if seeds.full() else 9  # all placements, or a sample that changes with the seed
    done = launch("dtensor_ops.py", ranks, seeds.seed() % 9, every)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "fallbacks {}" in done.stdout
