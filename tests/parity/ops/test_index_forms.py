"""What may stand between brackets: lists as indices, masks that cast, and what is refused.

Each is one program for both libraries.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from outcomes import builtin_error_of


def lists_as_indices(m: Any) -> Any:
    x = m.arange(24).reshape(2, 3, 4)
    one, two = m.tensor([0]), m.tensor([1])
    read = [x[[[0, 1], [1, 0]]], x[[0, [1, 0]]], x[[one, two]], x[[slice(0, 1), 1]], x[[None, 1]], x[[[0, 1]]]]
    read += [x[[..., 0]], x[[m.tensor(0)]], x[[(0, 1), (0, 1)]], x[[0, 1]], x[[True, False]], x[[]]]
    x[[[0, 1], [1, 0]]] = 99
    return [*read, x]


def writes_under_masks_cast(m: Any) -> Any:
    x = m.zeros(2, 3)
    x[m.tensor([True, False])] = m.tensor(2)
    x[:, m.tensor([True, False, False])] = m.tensor([3])
    x[[1]] = 7
    return x


def errors_of_indices(m: Any) -> Any:
    x, two = m.zeros(3, 4), m.tensor([0, 1])
    calls = [
        lambda: x.index_copy(1, two, m.ones(3, 3)),
        lambda: x.index_add(1, two, m.ones(3, 3)),
        lambda: x.put(two, m.ones(1)),
        lambda: m.nn.functional.one_hot(two, 0),
        lambda: m.nn.functional.embedding(two, x, padding_idx=7),
        lambda: m.nn.Embedding(3, 2, padding_idx=5),
        lambda: m.nn.Embedding.from_pretrained(m.ones(3)),
        lambda: m.stft(m.ones(20), 8, hop_length=0, window=m.ones(8), return_complex=True),
    ]
    pooled, at = m.nn.functional.max_pool2d(m.ones(1, 1, 4, 4), 2, return_indices=True)
    return [builtin_error_of(c) for c in calls] + [
        builtin_error_of(lambda: m.nn.functional.max_unpool2d(pooled, at, 2, output_size=(4,) * 3))
    ]


def sizes_that_are_tensors(m: Any) -> Any:
    one, two, x = m.tensor([2]), m.tensor([[3]]), m.arange(6.0)
    made = [m.zeros(one), m.ones(one, 3), m.ones(m.tensor(2), two, 1), m.full((2, one), 1.0), m.eye(one)]
    made += [x.view(one, 3), x.reshape((3, one)), x.view(2, 3).repeat(one, 1), x.new_zeros(2, one), x.topk(one)[0]]
    made += [
        m.zeros(1, 3).expand(one, two),
        x.view(2, 3).sum((0, m.tensor([1]))),
        x.split(one)[0],
        x[None].sum(one - 1),
    ]
    made += [m.nn.functional.pad(x, (0, one)), m.randint(5, (one, 3)) * 0, m.nn.Linear(one, two).weight * 0]
    return made


PROGRAMS = [lists_as_indices, writes_under_masks_cast, errors_of_indices, sizes_that_are_tensors]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_program(compare_program: Callable[..., None], program: Callable[[Any], Any]) -> None:
    compare_program(program)
