"""What PyTorch keeps to itself and programs take nevertheless: its own operators, as functions of ``torch``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tesserack as ts
import torch
from tesserack import compat

ours = compat.torch
Case = Callable[..., Any]  # of the library, and x, y (3, 4), complex c (3, 4)

CASES: dict[str, Case] = {
    "_stack": lambda m, x, y, c: m._stack([x, y], 1),
    "_euclidean_dist": lambda m, x, y, c: m._euclidean_dist(x, y),
    "_is_all_true": lambda m, x, y, c: m._is_all_true(x > -1),
    "_is_any_true": lambda m, x, y, c: m._is_any_true(x > 9),
    "_unsafe_index": lambda m, x, y, c: m.ops.aten._unsafe_index(x, [None, m.tensor([0, 2])]),
    "_unsafe_index_put": lambda m, x, y, c: m._unsafe_index_put(x, [m.tensor([0, 2])], m.ones(2, 4)),
    "_index_put_impl_": lambda m, x, y, c: m._index_put_impl_(x.clone(), [m.tensor([0, 0])], m.ones(2, 4), True),
    "_conj_physical": lambda m, x, y, c: m._conj_physical(c),
    "_conj_copy": lambda m, x, y, c: m._conj_copy(c),
    "_neg_view_copy": lambda m, x, y, c: m._neg_view_copy(x),
    "_logcumsumexp": lambda m, x, y, c: m._logcumsumexp(x, 1),
    "_lu_with_info": lambda m, x, y, c: m._lu_with_info(x[:, :3] + m.eye(3)),
    "_weight_norm_interface": lambda m, x, y, c: m._weight_norm_interface(x, m.ones(3, 1), 0),
    "_fused_rms_norm": lambda m, x, y, c: m._fused_rms_norm(x, [4], m.ones(4) * 2, None),
    "_fused_rms_norm, eps": lambda m, x, y, c: m._fused_rms_norm(x, [4], None, 1e-3),
    "_add_relu": lambda m, x, y, c: m.ops.aten._add_relu(x, y, alpha=-2),
    "_cast_Int": lambda m, x, y, c: m._cast_Int(x * 5),
    "_foreach_clone": lambda m, x, y, c: m._foreach_clone([x, y]),
    "_convolution": lambda m, x, y, c: m._convolution(
        x[None], y[:, :3, None], None, [1], [1], [1], False, [0], 1, False, False, True, True
    ),
    "_adaptive_avg_pool2d": lambda m, x, y, c: m._adaptive_avg_pool2d(x[None], (2, 2)),
    "_adaptive_avg_pool3d": lambda m, x, y, c: m._adaptive_avg_pool3d(x[None, None], (1, 2, 2)),
}


def given(m: Any) -> tuple[Any, ...]:
    x, y = m.arange(12.0).reshape(3, 4) / 7 - 0.6, m.arange(12.0).reshape(3, 4).flip(0) / 5
    return x, y, m.complex(x, y)


def seen(found: Any) -> list[Any]:
    parts = found if isinstance(found, (tuple, list)) else [found]
    return [(str(part.dtype).rpartition(".")[2], part.resolve_conj().tolist()) for part in parts]


@pytest.mark.filterwarnings("ignore:torch.lu is deprecated")
@pytest.mark.parametrize("name", CASES)
def test_an_operator_of_its_own(name: str) -> None:
    for (dtype, one), (wanted, other) in zip(
        seen(CASES[name](ours, *given(ours))), seen(CASES[name](torch, *given(torch))), strict=True
    ):
        assert dtype == wanted
        torch.testing.assert_close(torch.tensor(one), torch.tensor(other), rtol=1e-5, atol=1e-6)


SCALES: dict[str, Any] = {
    "one": lambda m: (m.tensor(0.5), m.tensor(2.0)),
    "rows": lambda m: (m.arange(1.0, 17)[:, None] / 8, m.arange(1.0, 49)[None] / 8),
}


# Rows' scales and biases are taken by PyTorch with results of bfloat16.
@pytest.mark.parametrize(
    ("scales", "dtype", "biased"),
    [("one", None, False), ("one", "float32", False)]
    + [(scales, "bfloat16", biased) for scales in SCALES for biased in (False, True)],
)
def test_scaled_mm(scales: str, dtype: str | None, biased: bool) -> None:
    def run(m: Any) -> Any:
        a = (m.arange(16 * 32).reshape(16, 32) % 7 - 3.0).to(m.float8_e4m3fn)
        b = (m.arange(48 * 32).reshape(48, 32) % 5 - 2.0).to(m.float8_e4m3fn).t()
        bias = m.ones(48, dtype=m.bfloat16) if biased else None
        found = m._scaled_mm(a, b, *SCALES[scales](m), bias=bias, out_dtype=dtype and getattr(m, dtype))
        assert found.dtype == (getattr(m, dtype) if dtype else m.float8_e4m3fn)
        return found.float().tolist()

    assert run(ours) == run(torch)


def test_what_is_not_there_is_not_there() -> None:
    assert not hasattr(ours, "_no_such_operator")
    assert isinstance(ours._VF._stack([ts.ones(1)]), ts.Tensor)


def test_scales_that_are_none() -> None:
    a, one = ts.ones(16, 32).to(ts.float8_e4m3fn), ts.tensor(1.0)
    with pytest.raises(TypeError, match="expected scales as tensors, got float and Tensor"):
        ours._scaled_mm(a, a.t(), 2.0, one)
    with pytest.raises(ValueError, match=r"each of 16 rows, .* got \(3,\)"):
        ours._scaled_mm(a, a.t(), ts.ones(3), one)
