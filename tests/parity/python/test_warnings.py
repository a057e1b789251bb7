"""What is warned of, and what an assertion says.

Each is one program for both libraries.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
from outcomes import error_of, warned, warned_always


def warnings_of_what_is_old(m: Any) -> Any:
    def last_operator() -> None:
        layer = m.nn.Sequential(m.nn.Linear(2, 2), m.nn.ReLU())
        layer.register_backward_hook(lambda *given: None)
        layer(m.ones(1, 2)).sum().backward()

    a, square = m.arange(3.0), m.eye(3)
    calls: list[Callable[[], Any]] = [
        lambda: m.meshgrid(a, a),
        lambda: m.meshgrid(a, a, indexing="ij"),
        lambda: a.T,
        lambda: square.T,
        lambda: m.range(0, 3),
        lambda: m.stft(m.ones(40), 8, return_complex=True),
        lambda: m.stft(m.ones(40), 8, return_complex=False, window=m.ones(8)),
        lambda: m.cholesky(square),
        lambda: m.linalg.cholesky(square),
        lambda: m.qr(square),
        lambda: m.lu(square),
        lambda: m.lu_solve(square, *m.linalg.lu_factor(square)),
        lambda: m.triangular_solve(square, square),
        lambda: m.chain_matmul(square, square),
        lambda: m.cross(square, square),
        lambda: m.cross(square, square, dim=0),
        lambda: m.nn.functional.kl_div(square, square),
        lambda: m.nn.functional.upsample(m.ones(1, 1, 2, 2), scale_factor=2),
        lambda: m.nn.utils.clip_grad_norm_((p for p in ()), 1.0),
        lambda: m.autograd.grad(m.ones(1, requires_grad=True).sum(), [], only_inputs=True),
        last_operator,
    ]
    return [warned_always(m, lambda call=call: error_of(call)) for call in calls]


def too_few_numbers(m: Any) -> Any:
    one, two = m.ones(1), m.ones(2, 3)
    calls = [one.var, one.std, lambda: two.var(0, correction=2), lambda: m.var_mean(one), lambda: two.std(1)]
    return [warned(call) for call in (*calls, lambda: m.cov(m.ones(2, 1)), lambda: m.cov(two), lambda: m.corrcoef(one))]


def too_few_elements_are_warned_of(m: Any) -> Any:
    one, none, column = m.ones(1), m.zeros(3, 0), m.ones(2, 1)
    calls = [lambda: m.tensor(1.0).std(), lambda: one.var(0), lambda: none.std(1), lambda: none.std(0), one.cov,
             column.cov, column.corrcoef, lambda: column.var(1), lambda: column.var(1, correction=0),
             lambda: column.var((0, 1), correction=3), lambda: m.var_mean(one), lambda: column.var(0), column.std,
             lambda: m.cov(one, correction=0), none.cov]  # fmt: skip
    counts = []
    for call in calls:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            call()
        counts.append([("degrees of freedom" in str(w.message), w.category.__name__) for w in caught])
    return counts


def unset_memory_when_runs_are_to_agree(m: Any) -> Any:
    dtypes = (m.float32, m.float16, m.complex64, m.int32, m.int64, m.int8, m.uint8, m.bool)
    m.use_deterministic_algorithms(True)
    try:
        made = [m.empty(3, dtype=d) for d in dtypes] + [m.empty_strided((2, 2), (1, 2)), m.empty_like(m.ones(2))]
        return [*made, m.ones(1).new_empty(2), m.empty_permuted((2, 3), (1, 0))]
    finally:
        m.use_deterministic_algorithms(False)


def assert_close_says_what_differs(m: Any) -> Any:
    one, zero, eye = m.ones(2), m.zeros(2), m.eye(2)
    pairs = [(m.tensor(1.0), m.tensor(2.0)), (1, 2), (1.0, 2), (1.0, float("inf")), (1.0, 0.0), (1j, 2j), (True, False)]
    pairs += [([1.0, 1.0], [1.0, 2.0]), ({"a": 1}, {"b": 2}), ({"a": [one, 1]}, {"a": [one, 2]}), ([1], [1, 2])]
    pairs += [(None, None), (None, 1), ("a", "a"), (one, m.ones(3)), (one, one.double()), (one, zero)]
    pairs += [(one.to_sparse(), other) for other in (one, one.to_sparse(), zero.to_sparse(), (one * 2).to_sparse())]
    pairs += [(eye.to_sparse_csr(), other.to_sparse_csr()) for other in (eye, eye * 2, m.ones(2, 2))]
    pairs += [(eye.to_sparse_csc(), eye.flip(0).to_sparse_csc()), (eye.to_sparse(), eye.flip(0).to_sparse())]
    close = m.testing.assert_close
    told = [error_of(lambda a=a, b=b: close(a, b), message=True) for a, b in pairs]
    return [*told, error_of(lambda: close(one.to_sparse(), one, check_layout=False)), close(1.0, 1, check_dtype=False)]


PROGRAMS = [
    warnings_of_what_is_old,
    too_few_numbers,
    too_few_elements_are_warned_of,
    unset_memory_when_runs_are_to_agree,
    assert_close_says_what_differs,
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_program(compare_program: Callable[..., None], program: Callable[[Any], Any]) -> None:
    compare_program(program)
