"""Collectives between processes, against NumPy, by shared memory and by TCP."""

from typing import Any

import pytest

ENGINES = ("local", "tcp")


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_random_collectives_give_what_numpy_does(
    launch: Any, engine: str, ranks: int, request: pytest.FixtureRequest
) -> None:
    done = launch("collectives.py", ranks, 1000 * ranks, 120, variables={"TESSERACK_COMM": engine})
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("ranks", [2, 3])
def test_messages_objects_groups_and_gradients(launch: Any, engine: str, ranks: int) -> None:
    done = launch("messages.py", ranks, variables={"TESSERACK_COMM": engine})
    assert done.returncode == 0, done.stderr[-3000:]
