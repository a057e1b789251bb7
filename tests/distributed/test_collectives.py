"""Collectives between processes, against NumPy, by shared memory and by TCP."""

from typing import Any

import pytest
from tesserack.testing import seeds

ENGINES = ("local", "tcp")
#: Calls of each combination: with FULL=1 ten thousand in all.
COUNT = 1250 if seeds.full() else 120


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_random_collectives_give_what_numpy_does(launch: Any, engine: str, ranks: int) -> None:
    done = launch("collectives.py", ranks, 100_000 * ranks, COUNT, variables={"TESSERACK_COMM": engine})
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("ranks", [2, 3])
def test_messages_objects_groups_and_gradients(launch: Any, engine: str, ranks: int) -> None:
    done = launch("messages.py", ranks, variables={"TESSERACK_COMM": engine})
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.parametrize("engine", ["local", "tcp"])
def test_collectives_by_themselves_and_gradients_of_gradients(launch: Any, engine: str) -> None:
    done = launch("asynchronous.py", 2, variables={"TESSERACK_COMM": engine})
    assert done.returncode == 0, done.stderr[-3000:]
