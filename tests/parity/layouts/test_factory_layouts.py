"""``layout=`` of factory functions: what PyTorch makes sparse is sparse here, what it refuses is refused alike."""

from __future__ import annotations

from typing import Any

import pytest
import tesserack as ts
import torch

MADE = [
    "m.zeros(2, 3, layout=L)", "m.zeros((2, 2, 3), dtype=m.int32, layout=L)", "m.zeros(0, 4, layout=L)",
    "m.zeros(4, layout=L)", "m.zeros_like(m.eye(2), layout=L)", "m.zeros_like(m.eye(2).to_sparse(), layout=L)",
    "m.zeros_like(m.eye(2).to_sparse_csr(), layout=L)", "m.eye(2).new_zeros((2, 4), layout=L)",
    "m.eye(2).new_zeros(2, 2, layout=L, dtype=m.float64, requires_grad=True)", "m.scalar_tensor(2, layout=L)",
    "m.zeros(2, 2, out=m.empty(2, 2), layout=L)", "m.eye(2).to_sparse().new_zeros((2, 2), layout=L)",
]  # fmt: skip
REFUSED = [
    "m.ones(2, 3, layout=L)", "m.full((2,), 1, layout=L)", "m.rand(2, layout=L)", "m.randn(2, layout=L)",
    "m.arange(2, layout=L)", "m.eye(2, layout=L)", "m.linspace(0, 1, 2, layout=L)", "m.randperm(3, layout=L)",
    "m.ones_like(m.eye(2), layout=L)", "m.empty_like(m.eye(2), layout=L)", "m.tril_indices(2, 2, layout=L)",
    "m.eye(2).new_ones((2,), layout=L)", "m.eye(2).new_full((2,), 3, layout=L)", "m.tensor([1], layout=L)",
    "m.empty_strided((2,), (1,), layout=L)", "m.empty_permuted((2,), (0,), layout=L)", "m.range(0, 1, layout=L)",
    "m.hann_window(3, layout=L)", "m.signal.windows.kaiser(3, layout=L)", "m.fft.fftfreq(3, layout=L)",
]  # fmt: skip
LAYOUTS = ["strided", "sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr"]


def outcome(m: Any, call: str, layout: str) -> Any:
    try:
        made = eval(call, {"m": m, "L": getattr(m, layout)})
    except (RuntimeError, TypeError, ValueError) as error:
        return type(error).__name__
    return (
        str(made.layout).partition(".")[2], str(made.dtype).partition(".")[2], tuple(made.shape), made.requires_grad,
        made.to_dense().tolist(),
    )  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("call", MADE)
def test_made(call: str, layout: str) -> None:
    assert outcome(ts, call, layout) == outcome(torch, call, layout)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("call", REFUSED)
def test_refused(call: str) -> None:
    expected = outcome(torch, call, "sparse_coo")
    assert isinstance(expected, str) and outcome(ts, call, "sparse_coo") == expected
    # Of the compressed ones PyTorch's classes follow what it is made of inside.
    assert all(isinstance(outcome(ts, call, layout), str) for layout in LAYOUTS[2:])


@pytest.mark.filterwarnings("ignore")
def test_empty_has_no_elements() -> None:
    for layout in LAYOUTS[1:4]:
        made = ts.empty(2, 3, layout=getattr(ts, layout))
        assert made.layout is getattr(ts, layout) and made._nnz() == 0 and made.to_dense().tolist() == [[0.0] * 3] * 2
        assert ts.eye(2).new_empty((3, 3), layout=getattr(ts, layout))._nnz() == 0


def test_what_is_no_layout() -> None:
    for wrong in (3, "strided"):
        with pytest.raises(TypeError):
            ts.zeros(2, layout=wrong)
