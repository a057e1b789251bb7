"""Collectives between processes, against NumPy, by shared memory, by TCP and staged from cards.

``FULL=1``: every case of the matrix, tensors of 100 MB, and ten thousand sequences; ``pytest -s`` shows how many.
"""

from typing import Any

import pytest
import tesserack as ts
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


def done(launch: Any, program: str, ranks: int, *arguments: Any, engine: str = "local") -> None:
    """All ranks found what they should have; what the first says of it is shown."""
    ended = launch(program, ranks, *arguments, variables={"TESSERACK_COMM": engine, "OMP_NUM_THREADS": "1"})
    assert ended.returncode == 0, ended.stderr[-3000:]
    print(f"{engine}, {ranks} ranks: {ended.stdout.strip()}")
    assert f"seed {seeds.seed()}" in ended.stdout


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("ranks", [1, 2, 3, 4] if seeds.full() else [3])
def test_each_collective_dtype_shape_and_layout(launch: Any, engine: str, ranks: int) -> None:
    done(launch, "matrix/matrix.py", ranks, "cpu", 0, 1 if seeds.full() else 8, seeds.seed(), engine=engine)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("ranks", [1, 2, 3, 4] if seeds.full() else [2])
def test_large_tensors(launch: Any, engine: str, ranks: int) -> None:
    megabytes, share = (100, 1) if seeds.full() else (5, 4)
    done(launch, "matrix/matrix.py", ranks, "cpu", megabytes, share, seeds.seed(), engine=engine)


@pytest.mark.parametrize("card", ["opencl", "reference"])
@pytest.mark.parametrize("ranks", [1, 2, 3, 4] if seeds.full() else [2])
def test_tensors_of_cards_are_staged(launch: Any, card: str, ranks: int) -> None:
    if card == "opencl" and not ts.opencl.is_available():
        pytest.skip(f"no OpenCL: {ts.backends.why_unavailable('opencl')}")
    done(launch, "matrix/matrix.py", ranks, card, 0, 1 if seeds.full() else 40, seeds.seed())
    if seeds.full():
        done(launch, "matrix/matrix.py", ranks, card, 100, 4, seeds.seed())


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("ranks", [1, 2, 3, 4] if seeds.full() else [4])
def test_sequences_over_groups_that_overlap_from_threads(launch: Any, engine: str, ranks: int) -> None:
    done(launch, "matrix/crossing.py", ranks, seeds.seed(), 1250 if seeds.full() else 60, 3, engine=engine)
