"""Layouts and dtypes of results: channels that stay last, gaps, nothing, booleans, numbers alone.

Each is one program for both libraries.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from outcomes import builtin_error_of, error_of


def channels_stay_last(m: Any) -> Any:
    f = m.nn.functional
    x = m.arange(240.0).reshape(2, 4, 5, 6).contiguous(memory_format=m.channels_last)
    made = [
        f.interpolate(x, scale_factor=2),
        f.interpolate(x, scale_factor=2, mode="bilinear"),
        f.interpolate(x, size=(3, 3), mode="bilinear", antialias=True),
        f.pad(x, (1, 1, 1, 1), mode="reflect"),
        f.pad(x, (1, 1, 1, 1), mode="replicate"),
        f.adaptive_avg_pool2d(x, 4),
        f.adaptive_max_pool2d(x, 4),
        f.group_norm(x, 2),
    ]
    return [(t, t.stride()) for t in made]


def layouts_of_what_has_gaps(m: Any) -> Any:
    x = m.arange(80.0).reshape(10, 8).t()[::2, ::2]
    wide = m.arange(192.0).reshape(4, 6, 8).permute(2, 0, 1)[::2]
    made = [x.clone(), x.double(), m.zeros_like(x), m.rand_like(x), x.sort(0).values, wide.clone(), m.empty_like(wide)]
    made += [m.empty_like(m.ones(3).expand(2, 3)), m.empty_like(m.ones(4, 1)[::2].expand(2, 3)), x.to(m.int32)]
    return [(tuple(t.shape), tuple(t.stride())) for t in made] + [x.clone(), wide.clone()]


def norms_and_integrals_of_nothing(m: Any) -> Any:
    norm, inf = m.linalg.norm, float("inf")
    made = [norm(m.ones(0, 3), inf), norm(m.ones(0, 3), 2), m.linalg.matrix_norm(m.ones(2, 3, 0), 1)]
    made += [m.cumulative_trapezoid(m.ones(3, 0)), m.cumulative_trapezoid(m.ones(0), m.ones(0))]
    return [*made, error_of(lambda: norm(m.ones(0, 3), -inf)), error_of(lambda: norm(m.ones(0, 3), -2))]


def selections_of_bool(m: Any) -> Any:
    b = m.tensor([True, False])
    calls = [b.argmax, b.argmin, lambda: b.median(0), b.nanmedian, lambda: b.topk(1), lambda: b.kthvalue(1)]
    return [*(error_of(call) for call in calls), *b.sort(), b.max(), b.max(0).indices, b.msort()]


def einsum_of_numbers(m: Any) -> Any:
    a, b = m.arange(6.0).reshape(2, 3), m.arange(12.0).reshape(3, 4)
    return [
        m.einsum(a, [0, 1], b, [1, 2], [0, 2]),
        m.einsum(a, [0, 1], b, [1, 2]),
        m.einsum(a, [1, 0]),
        m.einsum(a, [..., 5], [5, ...]),
    ]


def draws_into_other_dtypes(m: Any) -> Any:
    outs = [m.empty(3, dtype=dtype) for dtype in (m.bool, m.int64, m.uint8, m.float64)]
    return [m.bernoulli(m.ones(3), out=out) for out in outs] + outs


def complex_lines(m: Any) -> Any:
    made = [
        m.linspace(0, 1j, 3),
        m.linspace(1 - 1j, 2 + 3j, 5, dtype=m.complex128),
        m.view_as_real(m.logspace(0, 1j, 3)).mul(1e3).round(),
    ]
    return [*made, builtin_error_of(lambda: m.linspace(0, 1j, 3, dtype=m.float32))]


PROGRAMS = [
    channels_stay_last,
    layouts_of_what_has_gaps,
    norms_and_integrals_of_nothing,
    selections_of_bool,
    einsum_of_numbers,
    draws_into_other_dtypes,
    complex_lines,
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_program(compare_program: Callable[..., None], program: Callable[[Any], Any]) -> None:
    compare_program(program)
