"""Collectives between processes, against NumPy."""

from typing import Any

import pytest


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_random_collectives_give_what_numpy_does(launch: Any, ranks: int, request: pytest.FixtureRequest) -> None:
    done = launch("collectives.py", ranks, 1000 * ranks, 120)
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.parametrize("ranks", [2, 3])
def test_messages_objects_groups_and_gradients(launch: Any, ranks: int) -> None:
    done = launch("messages.py", ranks)
    assert done.returncode == 0, done.stderr[-3000:]
