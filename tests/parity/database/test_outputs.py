"""``out=`` of every dtype, and of shapes that do not fit: taken, refused, cast and resized as by PyTorch.

A part of the operators is run, another one with every seed; FULL=1 runs all.
"""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import tesserack as ts
import torch
from tesserack.testing.seeds import turn

ONE = """
add(x,y) mul(x,2) div(n,n) exp(x) sin(n) neg(x) argmax(x,0) argmin(x,0) any(x,0) all(b,0) cumsum(n,0)
matmul(x,z) mm(x,z) mv(x,y[0]) dot(x[0],y[0]) addmm(s,x,z) cat([x,y]) stack([x,y]) where(b,x,y) eq(x,y)
logical_and(x,y) bitwise_and(n,n) gather(n,0,n*0) index_select(x,0,i) take(x,i) masked_select(x,b) maximum(x,y)
pow(x,2) remainder(n,2) floor_divide(n,2) sqrt(x) sigmoid(x) atan2(x,y) tril(x) triu(x) diag(x[0])
bucketize(x,y[0]) logsumexp(x,0) amax(x,0) amin(n,0) kron(x,y) histc(x) isin(n,i) round(x) floor(n) frac(x)
sign(x) erf(x) gt(n,2) full((2,3),1) nan_to_num(x) quantile(x,.5) renorm(x,2,0,1.) addcmul(x,x,y)
scatter(x,0,n*0,y) index_add(x,0,i,y) heaviside(x,y) signbit(x) isposinf(x) msort(x) vdot(x[0],y[0]) inner(x,y)
tensordot(x,y) softmax(x,0) linalg.det(s) linalg.inv(s) linalg.vector_norm(x) linalg.solve(s,s)
linalg.cholesky(s) linalg.svdvals(x) linalg.matrix_power(s,2) linalg.cross(x,y)
"""
SEVERAL = """
max(x,0) min(n,1) sort(x) topk(x,2) median(x,0) nanmedian(x,0) mode(n,0) kthvalue(x,1) cummax(x,0) cummin(x,0)
aminmax(x) linalg.qr(x) linalg.eigh(s) linalg.slogdet(s) frexp(x) linalg.cholesky_ex(s) linalg.inv_ex(s)
linalg.lu_factor(s) linalg.eig(s)
"""
DTYPES = ["float32", "float64", "float16", "int64", "int32", "uint8", "bool", "complex64", "complex128"]
# What PyTorch does by the way its kernels are written, not by what it says.
EXCEPT = {
    ("cumsum(n,0)", "bool"): "its kernel refuses bool, after it has chosen to compute in it",
}


def names(m: Any) -> dict[str, Any]:
    return {
        "m": m, "x": m.tensor([[3.0, -1.0, 2.0], [0.5, 4.0, -2.0]]), "y": m.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]),
        "n": m.tensor([[3, 1, 2], [5, 4, 6]]), "b": m.tensor([[True, False, True], [False, False, True]]),
        "z": m.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), "i": m.tensor([0, 1]),
        "s": m.tensor([[4.0, 1.0], [1.0, 3.0]]),
    }  # fmt: skip


def outcome(m: Any, call: str, out: Any) -> Any:
    """The dtypes, shapes and values of ``out``, or the class of an error."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            eval(f"m.{call[:-1]},out=o)", {**names(m), "o": out})
    except (RuntimeError, TypeError) as error:
        return TypeError if isinstance(error, TypeError) else RuntimeError
    given = out if isinstance(out, tuple) else (out,)
    return [(str(t.dtype).partition(".")[2], tuple(t.shape), t.to(m.complex128).flatten().tolist()) for t in given]


def agree(ours: Any, theirs: Any) -> bool:
    if not (isinstance(ours, list) and isinstance(theirs, list)):
        return bool(ours == theirs)
    return all(
        a[:2] == b[:2] and a[2] == pytest.approx(b[2], 1e-3, 1e-5, nan_ok=True)
        for a, b in zip(ours, theirs, strict=True)
    )


def chosen(calls: str) -> list[str]:
    return turn(calls.split(), 3)


@pytest.mark.parametrize("call", chosen(ONE))
def test_dtype_of_one_output(call: str) -> None:
    for dtype in DTYPES:
        if (call, dtype) in EXCEPT:
            continue
        ours, theirs = (outcome(m, call, m.empty(0, dtype=getattr(m, dtype))) for m in (ts, torch))
        assert agree(ours, theirs), (dtype, ours, theirs)


@pytest.mark.parametrize("call", chosen(SEVERAL))
def test_dtypes_of_several_outputs(call: str) -> None:
    for first in DTYPES[:5] + DTYPES[7:]:
        for second in DTYPES[:2] + DTYPES[3:5] + DTYPES[7:]:
            ours, theirs = (
                outcome(m, call, (m.empty(0, dtype=getattr(m, first)), m.empty(0, dtype=getattr(m, second))))
                for m in (ts, torch)
            )
            if call.startswith(("linalg.eig(", "linalg.qr", "linalg.eigh")) and isinstance(ours, list):
                ours, theirs = ([part[:2] for part in each] for each in (ours, theirs))  # vectors up to a sign
                assert ours == theirs
            else:
                assert agree(ours, theirs), (first, second, ours, theirs)


@pytest.mark.parametrize("call", chosen(ONE))
def test_shape_of_an_output(call: str) -> None:
    dtype = str(eval(f"m.{call}", names(torch)).dtype).partition(".")[2]
    for shape in ((7, 7), (1,), (2, 3), (0, 2)):
        ours, theirs = (outcome(m, call, m.zeros(shape, dtype=getattr(m, dtype))) for m in (ts, torch))
        assert agree(ours, theirs), (shape, ours, theirs)


def test_resize_to_the_same_sizes_keeps_strides() -> None:
    for m in (torch, ts):
        x = m.arange(6.0).reshape(2, 3)
        assert x[:, ::2].resize_(2, 2).tolist() == [[0.0, 2.0], [3.0, 5.0]]
        assert x.t().resize_(3, 2).stride() == (1, 3)
        assert x.clone().t().resize_(3, 2, memory_format=m.contiguous_format).stride() == (2, 1)


@pytest.mark.filterwarnings("ignore")
def test_numbers_that_do_not_fit() -> None:
    for m in (torch, ts):
        x, mask = m.zeros(3), m.tensor([True, False, True])
        with pytest.raises(RuntimeError):
            x[mask] = m.tensor(2j)
        with pytest.raises(RuntimeError):
            x.masked_fill_(mask, m.tensor(2j))
        assert x.tolist() == [0, 0, 0]


def test_complex_operands_beside_numbers() -> None:
    for number in (2, 2.5, True):
        for turned in (False, True):
            z, w = torch.tensor([2 + 1j, -1j]), ts.tensor([2 + 1j, -1j])
            # PyTorch takes tensors alone here.
            pair = (torch.tensor(number), z) if turned else (z, torch.tensor(number))
            found = ts.logaddexp(number, w) if turned else ts.logaddexp(w, number)
            expected = torch.logaddexp(*(t.to(torch.complex64) for t in pair))
            assert found.dtype is ts.complex64 and found.tolist() == pytest.approx(expected.tolist(), 1e-5)


@pytest.mark.parametrize("real", ["float32", "float64", "bfloat16", "int32", "bool"])
def test_complex_numbers_beside_tensors(real: str) -> None:
    """Tensors of no dims leave the others their precision."""
    for whole in ("complex64", "complex128"):
        found = []
        for m in (torch, ts):
            x, z = m.tensor([1, 0, 1], dtype=getattr(m, real)), m.tensor(2 - 1j, dtype=getattr(m, whole))
            found.append([str(t.dtype).partition(".")[2] for t in (x + z, z * x, x / z)])
        assert found[0] == found[1]


def test_python_numbers_of_tensors() -> None:
    for m in (torch, ts):
        assert [10, 20][m.tensor(True)] == 20 and range(3)[m.tensor([2])] == 2
        with pytest.raises(ValueError):
            complex(m.ones(2))
        assert m.amax(m.ones(2, 3), dim=None).item() == 1 and m.ones(2, 3).amin(None, True).shape == (1, 1)
