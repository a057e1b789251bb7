"""Loaders and data sets: what is collated, what cannot be changed, what is refused.

Each is one program for both libraries.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest
from outcomes import builtin_error_of, error_of, warned


def loaders_are_settled(m: Any) -> Any:
    data = m.utils.data
    loader = data.DataLoader([1, 2], batch_size=2)
    names = ("batch_size", "sampler", "batch_sampler", "drop_last", "dataset", "multiprocessing_context")
    errors = [builtin_error_of(lambda name=name: setattr(loader, name, "spawn")) for name in names]
    errors += [
        builtin_error_of(lambda: data.ConcatDataset([])),
        builtin_error_of(lambda: data.ConcatDataset([[1], [2]])[-5]),
    ]
    return [*errors, list(loader), warned(lambda: data.random_split(range(1), [0.5, 0.5]))]


def collated(m: Any) -> Any:
    collate = m.utils.data.default_collate
    kept = collate([defaultdict(int, a=1)])
    parts = [collate([((1, "a"), {"x": m.ones(1)})] * 2), collate(["a", "b"]), m.utils.data.default_convert((1, 2))]
    rows = [*m.utils.data.DataLoader(m.utils.data.TensorDataset(m.arange(2)), batch_size=None)]
    kinds = [type(kept).__name__, type(parts[0][0][1]).__name__, type(parts[2]).__name__, type(rows[0]).__name__]
    return [kept["a"], *parts, rows, kinds, error_of(lambda: m.utils.data.WeightedRandomSampler([[1, 1]], 2))]


PROGRAMS = [loaders_are_settled, collated]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_program(compare_program: Callable[..., None], program: Callable[[Any], Any]) -> None:
    compare_program(program)
