"""Sparse tensors beside torch's: what calls return, to the letter, gradients, errors, files, optimizers."""

from __future__ import annotations

import io
import re
import warnings
from typing import Any

import numpy as np
import pytest
import tesserack as ts
import torch

pytestmark = pytest.mark.filterwarnings("ignore:Sparse")

SAME_TEXT = """
s; c; h; s.to_dense(); s.coalesce(); s.to_sparse_csr(); s.to_sparse_csc(); s.t(); s.transpose(0, 1); s.permute(1, 0)
s.unsqueeze(0); s[0]; s[:, 1]; s[0, 2]; s.select(0, 1); list(s); s.unbind(1); torch.cat([s, s], 1); torch.stack([s, s])
s * 2; s / 2; s * d; d * s; s * torch.tensor(2.0); s ** 2; -s; s.abs().sqrt(); s.relu(); s.isnan(); d + s; d - s
s.sum(); s.sum(0); s.sum((0, 1)); s.norm(); s.any(); torch.sparse.sum(s, 0); torch.sparse.sum(h, 1)
torch.sparse.softmax(s, 1); torch.sparse.log_softmax(s, 0); torch.sparse.softmax(h, 1); torch.sparse.softmax(h, 0)
s @ d.t(); s @ d[0]; d.t() @ s; s @ s.t(); torch.mv(s, d[0]); torch.hspmm(s, d.t()); torch.smm(s, d.t())
torch.sspaddmm(torch.eye(2).to_sparse(), s, d.t()); torch.addmm(torch.ones(2, 2), s, d.t(), beta=2, alpha=3)
torch.zeros_like(s); s.double(); s.long(); s.bool(); s.sparse_mask(s); d.sparse_mask(s); d.clone().mul_(s)
d.clone().add_(s); s.clone().mul_(2); s.clone().zero_(); s.clone().sparse_resize_((4, 5), 2, 0); s.stride(); s.numel()
s.sparse_dim(); s.dense_dim(); d.sparse_dim(); d.dense_dim(); s._nnz(); s.is_coalesced(); h.is_coalesced(); s.layout
c * 2; c + c; c * d; d * c; c + d; -c; c.sin(); c.sum(); c.t(); c @ d.t(); d.t() @ c; c @ d[0]; c[0]; c[0, 2]
c.to_sparse(); c.to_sparse_csc(); c.to_sparse_bsr((1, 3)); c.to_sparse_bsc((2, 1)); c.to_dense(); c.values()
c.crow_indices(); c.col_indices(); c._nnz(); c.to_sparse_csc().row_indices(); c.clone().zero_(); torch.ones_like(c)
torch.sparse.sampled_addmm(c, torch.ones(2, 2), d); torch.sparse.mm(c, d.t()); torch.sparse.mm(c, d.t(), 'mean')
torch.sparse.spdiags(torch.ones(2, 3), torch.tensor([0, -1]), (3, 3)); torch.sparse_coo_tensor((2, 3)); h[1]
torch.sparse_coo_tensor(torch.tensor([[0, 2]]), torch.ones(2, 3)).shape; h.unsqueeze(-1); h * 2
s + torch.zeros(2, 3).to_sparse(1); torch.sub(torch.zeros(2, 3).to_sparse(1), s, alpha=2)
torch.div(s, 2, rounding_mode='floor', out=torch.zeros(2, 3).to_sparse())
torch.bmm(torch.ones(2, 2, 3).to_sparse(), torch.ones(2, 3, 0))
torch.bmm(torch.ones(0, 2, 3).to_sparse(), torch.ones(0, 3, 4))
torch.bmm(torch.ones(2, 3, 0).to_sparse(), torch.ones(2, 0, 4))
torch.full_like(c, 2); torch.full_like(c, 2.5, dtype=torch.float64); torch.ones_like(c, layout=torch.sparse_csr)
torch.full_like(torch.empty_like(c, layout=torch.sparse_csr), 1)
torch.full_like(torch.empty_like(c, memory_format=torch.contiguous_format), 1)
torch.zeros_like(s, layout=torch.sparse_coo); torch.empty_like(s, layout=torch.sparse_csr).layout
torch.zeros(2, 3).to_sparse()._coalesced_(False)
torch.zeros(2, 3).to_sparse()._coalesced_(False).clone().is_coalesced()
torch.zeros(2, 3).to_sparse()._coalesced_(False).coalesce().is_coalesced()
"""
ERRORS = """
s + 1; s + d; s / d; d / s; s.exp(); s.view(6); s == s; s.numpy(); s.tolist(); s.max(); s.indices(); d.indices()
d.values(); d.coalesce(); s.crow_indices(); c.indices(); c.coalesce(); c.sum(0); s.pow(0); bool(s); d.copy_(s); s.item()
torch.sparse_coo_tensor(torch.tensor([[0, 5]]), torch.ones(2), (3,), check_invariants=True); s.contiguous()
torch.sparse_coo_tensor(torch.tensor([[0, 1]]), torch.ones(3), (3,))
torch.sparse_csr_tensor([1, 2], [0], [1.0], (1, 2), check_invariants=True); s @ d; torch.cat([s, d]); s.to_sparse(1)
c.to_sparse_bsr((2, 2)); s.select(0, 5); s.transpose(0, 4); torch.empty_like(c, layout=torch.sparse_csc)
torch.empty_like(c, layout=torch.strided); torch.empty_like(c, layout=torch.sparse_coo); torch.rand_like(c)
"""


def cases(text: str) -> list[str]:
    return [case.strip() for case in re.split(r"[;\n]", text) if case.strip()]


def names(lib: Any) -> dict[str, Any]:
    at = lib.tensor([[0, 1, 1], [2, 0, 2]])
    s = lib.sparse_coo_tensor(at, lib.tensor([3.0, 4.0, 5.0]), (2, 3))
    c = lib.tensor([[0.0, 0, 3], [4, 0, 5]]).to_sparse_csr()
    h = lib.sparse_coo_tensor(lib.tensor([[2, 0, 2]]), lib.arange(18.0).reshape(3, 2, 3), (3, 2, 3))
    return {"torch": lib, "s": s, "c": c, "h": h, "d": lib.arange(6.0).reshape(2, 3) + 1}


def told(value: Any) -> str:
    """The text without the package's name, and without line breaks, which depend on its length."""
    return re.sub(r"\s+", " ", re.sub(r"torch\.|tesserack\.", "", repr(value)))


@pytest.mark.parametrize("case", cases(SAME_TEXT))
def test_results_as_text(case: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs, ours = (told(eval(case, names(lib))) for lib in (torch, ts))
    if "softmax" in case or "norm" in case or "sin" in case:
        digits = [[float(n) for n in re.findall(r"-?\d+\.\d+(?:e-?\d+)?", text)] for text in (theirs, ours)]
        assert digits[1] == pytest.approx(digits[0], rel=1e-3, abs=1e-4)
        return
    assert ours == theirs


@pytest.mark.parametrize("case", cases(ERRORS))
def test_errors(case: str) -> None:
    with pytest.raises(Exception) as theirs:
        eval(case, names(torch))
    with pytest.raises(Exception) as ours:
        eval(case, names(ts))
    assert isinstance(ours.value, type(theirs.value)), (theirs.value, ours.value)


GRADIENTS = """
(s @ d.t()).sum(); torch.sparse.mm(s, d.t()).sum(); (s.to_dense() * d).sum(); s.sum(); torch.sparse.sum(s)
(s.to_dense(masked_grad=False) * d).sum(); torch.sparse.sum(s, 0).to_dense().sum(); (s * 2).to_dense().sum()
(s * s).to_dense().sum(); (d + s).sum(); (s.t().to_dense() * d.t()).sum(); (s / 2).to_dense().sum(); s.values().sum()
(torch.sparse.softmax(s, 1).to_dense() * d).sum(); (s * d).to_dense().sum(); s.relu().to_dense().sum()
torch.sparse.mm(s, s.t()).to_dense().sum(); torch.sparse.addmm(torch.ones(2, 2), s, d.t()).sum()
"""


@pytest.mark.parametrize("case", cases(GRADIENTS))
def test_gradients_of_a_sparse_leaf(case: str) -> None:
    found = []
    for lib in (torch, ts):
        known = names(lib)
        known["s"] = known["s"].coalesce().detach().requires_grad_()
        eval(case, known).backward()
        found.append(known["s"].grad)
    theirs, ours = found
    assert told(ours.layout) == told(theirs.layout)
    np.testing.assert_allclose(ours.to_dense().numpy(), theirs.to_dense().numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("layout", ["sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc"])
def test_files_of_either(layout: str) -> None:
    def made(lib: Any) -> Any:
        blocked = {"blocksize": (1, 3)} if "bs" in layout else {}
        return lib.tensor([[0.0, 0, 3], [4, 0, 5]]).to_sparse(layout=getattr(lib, layout), **blocked)

    file = io.BytesIO()
    torch.save({"x": made(torch)}, file)
    file.seek(0)
    assert told(ts.load(file)["x"]) == told(made(ts))
    file = io.BytesIO()
    ts.save({"x": made(ts)}, file, format="torch")
    file.seek(0)
    assert told(torch.load(file)["x"]) == told(made(torch))


@pytest.mark.parametrize("name", ["SparseAdam", "SGD", "Adagrad"])
def test_steps_on_sparse_gradients(name: str) -> None:
    found = []
    for lib in (torch, ts):
        weight = lib.nn.Parameter(lib.arange(12.0).reshape(4, 3) / 7)
        opt = getattr(lib.optim, name)([weight], lr=0.1)
        for step in range(4):
            opt.zero_grad()
            rows = lib.nn.functional.embedding(lib.tensor([step, 1, 1]), weight, sparse=True)
            (rows**2).sum().backward()
            opt.step()
        found.append(weight.detach().numpy())
    np.testing.assert_allclose(found[1], found[0], rtol=1e-6)


UNARY = (
    *(
        "abs",
        "asin",
        "asinh",
        "atan",
        "ceil",
        "erf",
        "expm1",
        "floor",
        "frac",
        "isinf",
        "isnan",
        "log1p",
        "neg",
        "relu",
    ),
    *("round", "sgn", "sign", "signbit", "sin", "sinh", "sqrt", "square", "tan", "tanh", "trunc", "nan_to_num"),
)


@pytest.mark.parametrize("dtype", ["float64", "float32", "complex128", "int64", "bool"])
@pytest.mark.parametrize("name", UNARY)
def test_functions_in_every_dtype(name: str, dtype: str) -> None:
    for layout in ("sparse_coo", "sparse_csr"):
        x = torch.tensor([[0, 1, 0, 2], [0, 0, -0.5, 0.5]]).to(getattr(torch, dtype))
        theirs = x.to_sparse(layout=getattr(torch, layout))
        try:
            expected = getattr(theirs, name)()
        except (RuntimeError, TypeError):
            continue
        result = getattr(ts.as_tensor(x.numpy()).to_sparse(layout=getattr(ts, layout)), name)()
        assert told(result.dtype) == told(expected.dtype) and told(result.layout) == told(expected.layout)
        full = expected.to_dense().resolve_conj().numpy()
        np.testing.assert_allclose(result.to_dense().numpy(), full, rtol=1e-6, atol=1e-7)
