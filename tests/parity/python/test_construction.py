"""Making tensors and asking what they are: numbers, arrays, typed tensors, sizes, dtypes and their limits.

Each is one program for both libraries.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from outcomes import error_of


def one_element_tensors_are_numbers(m: Any) -> Any:
    one, two = m.tensor([1]), m.tensor([[2.5]])
    lists = [[one, two], [1, two], [one, 3], [[one], [two]], [m.tensor(1), m.tensor(2)]]
    return [m.tensor(values) for values in lists] + [m.tensor(one)]


def typed_tensors(m: Any) -> Any:
    made = [
        m.FloatTensor([1, 2]),
        m.LongTensor([[1], [2]]),
        m.ByteTensor((1, 2)),
        m.BoolTensor([True]),
        m.HalfTensor([1]),
    ]
    made += [m.DoubleTensor(made[0].tolist()), m.FloatTensor(made[0]), m.IntTensor([]), m.LongTensor(np.array([3, 4]))]
    sizes = [tuple(m.LongTensor(2, 3).shape), tuple(m.FloatTensor(m.Size([4])).shape), tuple(m.FloatTensor().shape)]
    tests = [isinstance(m.ones(2), kind) for kind in (m.FloatTensor, m.LongTensor, m.DoubleTensor)]
    return [*made, *sizes, *tests, isinstance(3, m.FloatTensor)]


def arrays_as_operands(m: Any) -> Any:
    x, whole = m.tensor([1.0, 2.0]), m.tensor([1, 2], dtype=m.int32)
    arrays = [np.array([1, 2]), np.array([1, 2], np.int16), np.array([0.5, 2.0]), np.array(2.0), np.array([1j, 2])]
    read = [x + a for a in arrays] + [x.half() * a for a in arrays] + [whole - a for a in arrays]
    read += [x / np.array([1, 2], np.int8), whole / np.array([2, 3]), whole // np.array(2), x @ np.array([1.0, 2.0])]
    return [*read, m.tensor([True]) + np.ones(1, np.float32), x == np.array([1.0, 3.0])]


def complex_numbers_without_an_imaginary_part(m: Any) -> Any:
    x = m.tensor(3 + 0j)
    return [float(x), int(x), error_of(lambda: float(x + 1j)), error_of(lambda: int(x + 1j))]


def sizes_and_limits(m: Any) -> Any:
    size = m.Size([2])
    sums = [(1,) + size, size + (1,), () + size, error_of(lambda: [1] + size), error_of(lambda: size + 1)]
    kinds = [type(s) is m.Size for s in sums]
    infos = [repr(m.iinfo(d)) for d in (m.int8, m.int32, m.int64, m.uint8)]
    infos += [repr(m.finfo(float)), repr(m.finfo(complex)), repr(m.iinfo(int)), error_of(lambda: m.iinfo(float))]
    same = [m.finfo(m.float16) == m.finfo(m.float16), m.iinfo(m.int8) == m.iinfo(m.int16)]
    names = [m.typename(x).rpartition(".")[2] for x in (m.ones(1), m.ones(1).int(), m.nn.Linear(1, 1), m.int8, 3)]
    return [names, [tuple(s) for s in sums[:3]], kinds, infos, same, str(m.bfloat16.to_complex()).rpartition(".")[2]]


def dtypes_have_short_names(m: Any) -> Any:
    names = ("float16", "bfloat16", "float32", "float64", "complex64", "complex128", "bool", "int8", "uint8", "int64")
    return [getattr(m, name).abbr for name in (*names, "uint16", "uint64")]


PROGRAMS = [
    one_element_tensors_are_numbers,
    typed_tensors,
    arrays_as_operands,
    complex_numbers_without_an_imaginary_part,
    sizes_and_limits,
    dtypes_have_short_names,
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_program(compare_program: Callable[..., None], program: Callable[[Any], Any]) -> None:
    compare_program(program)
