"""Conjugates and negatives that are views, beside PyTorch's: who carries the bit, what is written where, gradients."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tesserack as ts
import torch

VALUES = [[1 + 2j, 3 - 4j, 0.5j], [5j, 6 + 0j, -1 - 1j], [2 - 0.25j, 0j, 7 + 1j]]


def described(value: Any) -> Any:
    """Values and bits of a result, by plain Python."""
    if isinstance(value, list | tuple):
        return [described(v) for v in value]
    if isinstance(value, ts.Tensor | torch.Tensor):
        plain = value.detach().resolve_conj().resolve_neg()
        array = np.asarray(plain.numpy()).round(9) + 0.0
        return str(value.dtype).split(".")[1], value.is_conj(), value.is_neg(), tuple(value.shape), array.tolist()
    return value


def both(program: Callable[[Any, Any], Any]) -> None:
    found, expected = (described(program(m, m.tensor(VALUES, dtype=m.complex128))) for m in (ts, torch))
    assert found == expected


VIEWS: dict[str, Callable[[Any, Any], Any]] = {
    "conj": lambda m, x: x.conj(),
    "twice": lambda m, x: x.conj().conj(),
    "function": lambda m, x: m.conj(x),
    "index": lambda m, x: x.conj()[1:, ::2],
    "select": lambda m, x: x.conj()[1],
    "newaxis": lambda m, x: x.conj()[None, ..., None],
    "advanced": lambda m, x: x.conj()[[0, 2]],
    "mask": lambda m, x: x.conj()[x.real > 1],
    "transpose": lambda m, x: x.conj().transpose(0, 1),
    "T": lambda m, x: x.conj().T,
    "mH": lambda m, x: x.mH,
    "H": lambda m, x: x.H,
    "adjoint": lambda m, x: x.adjoint(),
    "mH twice": lambda m, x: x.mH.mH,
    "reshape": lambda m, x: x.conj().reshape(9),
    "reshape that copies": lambda m, x: x.conj().T.reshape(9),
    "view": lambda m, x: x.conj().view(9),
    "flatten": lambda m, x: x.conj().flatten(),
    "expand": lambda m, x: x.conj().unsqueeze(0).expand(2, 3, 3),
    "permute": lambda m, x: x.conj().permute(1, 0),
    "unbind": lambda m, x: x.conj().unbind(0),
    "split": lambda m, x: x.conj().split(2),
    "chunk": lambda m, x: x.conj().chunk(2),
    "tensor_split": lambda m, x: x.conj().tensor_split(2),
    "diagonal": lambda m, x: x.conj().diagonal(),
    "unfold": lambda m, x: x.conj().unfold(0, 2, 1),
    "as_strided": lambda m, x: x.conj().as_strided((2, 2), (1, 3)),
    "narrow": lambda m, x: x.conj().narrow(0, 1, 2),
    "squeeze": lambda m, x: x.conj()[:1].squeeze(),
    "movedim": lambda m, x: x.conj().movedim(0, 1),
    "detach": lambda m, x: x.conj().detach(),
    "data": lambda m, x: x.conj().data,
    "clone": lambda m, x: x.conj().clone(),
    "clone transposed": lambda m, x: x.mH.clone(),
    "contiguous": lambda m, x: x.conj().contiguous(),
    "contiguous transposed": lambda m, x: x.mH.contiguous(),
    "to same": lambda m, x: x.conj().to(m.complex128),
    "to other": lambda m, x: x.conj().to(m.complex64),
    "resolve": lambda m, x: x.conj().resolve_conj(),
    "physical": lambda m, x: x.conj().conj_physical(),
    "physical in place": lambda m, x: x.conj().conj_physical_(),
    "positive": lambda m, x: x.conj().positive(),
    "real": lambda m, x: x.conj().real,
    "imag": lambda m, x: x.conj().imag,
    "imag of a view": lambda m, x: x.mH[1:].imag,
    "resolve imag": lambda m, x: x.conj().imag.resolve_neg(),
    "imag clone": lambda m, x: x.conj().imag.clone(),
    "imag views": lambda m, x: x.conj().imag[0].view(3, 1).expand(3, 2),
    "minus imag": lambda m, x: -x.conj().imag,
    "neg view": lambda m, x: m._neg_view(x),
    "neg view twice": lambda m, x: m._neg_view(m._neg_view(x)),
    "neg view method": lambda m, x: x.real._neg_view(),
    "neg of conj": lambda m, x: m._neg_view(x.conj()),
    "parts of neg": lambda m, x: m.view_as_real(m._neg_view(x)),
    "complex of neg": lambda m, x: m.view_as_complex(m.view_as_real(m._neg_view(x))),
    "neg integers": lambda m, x: m._neg_view(m.tensor([1, 2], dtype=m.uint8)),
    "real numbers": lambda m, x: (x.real.conj(), x.real.mH, x.real.resolve_conj()),
    "zeros_like": lambda m, x: (m.zeros_like(x.conj()), m.ones_like(x.conj().imag), x.conj().new_zeros(2)),
    "cat": lambda m, x: m.cat([x.conj(), x]),
    "stack": lambda m, x: m.stack([x.conj(), x.conj()]),
    "sum": lambda m, x: (x.conj().sum(), x.conj().imag.sum(), x.conj().mean(0)),
    "matmul": lambda m, x: (x @ x.mH, x.conj() @ x, m.vdot(x[0].conj(), x[1]), m.einsum("ij,kj", x, x.conj())),
    "mixed": lambda m, x: (x * x.conj(), x.conj() / (x + 1), x.conj().imag * x.conj().real, x.conj().abs()),
    "where": lambda m, x: m.where(x.real > 0, x.conj(), x),
    "item": lambda m, x: (x.conj()[0, 0].item(), x.conj().imag[0, 0].item(), x.conj().tolist()),
    "numbers": lambda m, x: (complex(x.conj()[0, 0]), float(x.conj().imag[0, 0]), bool(x.conj()[0, 0] == 1 - 2j)),
    "equal": lambda m, x: (m.equal(x, x.conj()), m.equal(x.conj(), x.conj()), m.allclose(x.conj().conj(), x)),
    "constructors": lambda m, x: (m.as_tensor(x.conj()), m.asarray(x.conj()), m.tensor([x.conj()[0, 0].item()])),
    "is_": lambda m, x: (m.is_conj(x.conj()), m.is_neg(x.conj().imag), x.is_conj(), x.real.is_neg()),
    "resolved itself": lambda m, x: (x.resolve_conj() is x, x.resolve_neg() is x),
    "base": lambda m, x: (x.conj()._is_view(), x.conj()._base is x, x.conj().imag._base is x, x.is_set_to(x.conj())),
    "storage": lambda m, x: (x.conj().data_ptr() == x.data_ptr(), x.conj().resolve_conj().data_ptr() == x.data_ptr()),
    "deepcopy": lambda m, x: (copy.deepcopy(x.conj()), copy.copy(x.conj())),
    "pickle": lambda m, x: (pickle.loads(pickle.dumps(x.conj())), pickle.loads(pickle.dumps(x.conj().imag))),
    "repr": lambda m, x: repr(x.conj()[0, 0]).replace(", dtype=tesserack", ", dtype=torch"),
    "meta": lambda m, x: (x.to("meta").conj().is_conj(), (x.to("meta").conj() + 1).is_conj()),
    "numpy": lambda m, x: (x.conj().numpy(force=True).tolist(), x.conj().resolve_conj().numpy().tolist()),
}

WRITES: dict[str, Callable[[Any, Any], Any]] = {
    "mul_": lambda m, x: (x.conj().mul_(2j), x),
    "add_": lambda m, x: (x.conj().add_(x), x),
    "aliased": lambda m, x: ((lambda y: y.mul_(y))(x.conj()), x),
    "fill_": lambda m, x: (x.conj().fill_(3 + 1j), x),
    "zero_": lambda m, x: (x.conj().zero_(), x),
    "copy_ into": lambda m, x: (x.conj().copy_(m.full((3, 3), 1 + 2j, dtype=x.dtype)), x),
    "copy_ from": lambda m, x: x.clone().copy_(x.conj()),
    "copy_ both": lambda m, x: m.zeros_like(x).conj().copy_(x.conj()),
    "copy_ of itself": lambda m, x: (x.copy_(x.conj()), x),
    "copy_ cast": lambda m, x: m.zeros(3, 3, dtype=m.complex64).conj().copy_(x),
    "copy_ broadcast": lambda m, x: (x.conj().copy_(x[0].clone()), x),
    "assign": lambda m, x: (x.conj().__setitem__((0, 1), 9j), x),
    "assign a slice": lambda m, x: (x.conj().__setitem__(slice(1, None), x[:2].clone()), x),
    "assign by list": lambda m, x: (x.conj().__setitem__([0, 2], x[:2].clone()), x),
    "assign by mask": lambda m, x: (x.conj().__setitem__(x.real > 1, 2j), x),
    "assign the conjugate": lambda m, x: (x.__setitem__(slice(None), x.conj()), x),
    "imag": lambda m, x: (x.conj().imag.add_(1), x),
    "assign imag": lambda m, x: (setattr(x.conj(), "imag", m.full((3, 3), 4.0, dtype=m.float64)), x),
    "assign real": lambda m, x: (setattr(x.conj(), "real", m.full((3, 3), 4.0, dtype=m.float64)), x),
    "seen": lambda m, x: (lambda y: (x.mul_(1j), y))(x.conj()),
    "out": lambda m, x: (m.add(x, x, out=x.conj()), x),
    "out of a view": lambda m, x: (m.mm(x.clone(), x.clone(), out=x.mH), x),
    "out resized": lambda m, x: m.add(x, x, out=m.empty(0, dtype=x.dtype).conj()),
    "out several": lambda m, x: m.max(
        x.real, 0, out=(m.zeros(3, dtype=m.float64)._neg_view(), m.zeros(3, dtype=m.int64))
    ),
    "index_add_": lambda m, x: (x.conj().index_add_(0, m.tensor([1]), x[:1].clone()), x),
    "masked_fill_": lambda m, x: (x.mH.masked_fill_(x.real > 1, 1j), x),
    "transpose_": lambda m, x: (x.conj().transpose_(0, 1), x),
    "neg view": lambda m, x: (x._neg_view().mul_(3), x),
    "versions": lambda m, x: (x.conj().mul_(2), x._version),
    "set_": lambda m, x: (m.zeros(2, dtype=x.dtype).conj().set_(x), m.zeros(2, dtype=x.dtype).set_(x.conj())),
    "clamp": lambda m, x: (x.conj().imag.clamp_(min=0), x),
    "normal shape": lambda m, x: x.conj().normal_().is_conj(),
}

GRADIENTS: dict[str, Callable[[Any, Any], Any]] = {
    "conj": lambda m, z: z.conj(),
    "product": lambda m, z: z * z.conj(),
    "parts": lambda m, z: z.conj().real * z.conj().imag,
    "imag": lambda m, z: z.conj().imag ** 2,
    "matmul": lambda m, z: z.mH @ z,
    "index": lambda m, z: z.conj()[1:] * z[0],
    "in place": lambda m, z: (z * 1).conj().mul_(z),
    "base after": lambda m, z: (lambda b: (b.conj().mul_(2j), b * b)[1])(z * 1),
    "view after": lambda m, z: (lambda b: (lambda y: (b.mul_(2j), y * z)[1])(b.conj()))(z * 1),
    "imag in place": lambda m, z: (lambda b: (b.conj().imag.mul_(3), b * b)[1])(z * 1),
    "imag after": lambda m, z: (lambda b: (lambda y: (b.mul_(2j), y * y)[1])(b.conj().imag))(z * 1),
    "copied": lambda m, z: (lambda b: (b.conj()[0].copy_(z[1]), b * z)[1])(z * 1),
    "assigned": lambda m, z: (lambda b: (b.mH.__setitem__((0, 1), z[0, 0] * z[1, 1]), b * b)[1])(z * 1),
    "detached base": lambda m, z: (lambda b: (b.imag.copy_(z.real), b)[1])((z * 1).detach().conj()),
    "clone": lambda m, z: z.conj().clone() * z,
    "resolve": lambda m, z: z.conj().resolve_conj() * 2j,
    "neg view": lambda m, z: m._neg_view(z) * z,
    "view_as_complex": lambda m, z: m.view_as_complex(m.view_as_real(z) * 2).conj(),
    "addmm": lambda m, z: m.addmm(z.conj(), z.mH, z),
    "sum": lambda m, z: z.conj().sum(0),
    "norm": lambda m, z: m.linalg.norm(z.conj()),
    "solve": lambda m, z: m.linalg.solve(z.mH, z),
    "fft": lambda m, z: m.fft.fft(z.conj()),
    "real fft": lambda m, z: m.fft.rfft(z.conj().imag),
    "stack": lambda m, z: m.stack([z.conj(), z]) * 2,
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("program", VIEWS.values(), ids=VIEWS)
def test_views(program: Callable[[Any, Any], Any]) -> None:
    both(program)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("program", WRITES.values(), ids=WRITES)
def test_writes(program: Callable[[Any, Any], Any]) -> None:
    both(program)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("program", GRADIENTS.values(), ids=GRADIENTS)
def test_gradients(program: Callable[[Any, Any], Any]) -> None:
    """Of the first and second order."""
    found = []
    for m in (ts, torch):
        z = m.tensor(VALUES, dtype=m.complex128, requires_grad=True)
        y = program(m, z)
        loss = (m.view_as_real(y.resolve_conj()) ** 2).sum() if y.is_complex() else (y.resolve_neg() ** 2).sum()
        (g,) = m.autograd.grad(loss, [z], create_graph=True)
        second = (g * g.conj()).real.sum()
        h = m.autograd.grad(second, [z])[0] if second.requires_grad else m.zeros(())
        found.append([np.asarray(t.detach().numpy(force=True)) for t in (y, g, h)])
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-9)


def test_names_of_nodes() -> None:
    for m in (ts, torch):
        z = m.tensor(VALUES, dtype=m.complex128, requires_grad=True)
        nodes = [y.grad_fn for y in (z.conj(), z.mH, z.conj().imag, z._neg_view(), z.conj().clone())]
        assert [type(n).__name__ if m is torch else n.name() for n in nodes] == [
            *("ConjBackward0", "ConjBackward0", "SelectBackward0", "NegViewBackward0", "CloneBackward0"),
        ]


REFUSED: dict[str, Callable[[Any, Any], Any]] = {
    "numpy": lambda m, x: x.conj().numpy(),
    "numpy of imag": lambda m, x: x.conj().imag.numpy(),
    "array": lambda m, x: np.asarray(x.conj()),
    "dlpack": lambda m, x: x.conj().__dlpack__(),
    "view_as_real": lambda m, x: m.view_as_real(x.conj()),
    "view of a dtype": lambda m, x: x.conj().view(m.float64),
    "view of a dtype of imag": lambda m, x: x.conj().imag.view(m.int64),
    "neg view of truth": lambda m, x: m._neg_view(m.tensor([True])).tolist(),
}


@pytest.mark.parametrize("program", REFUSED.values(), ids=REFUSED)
def test_refused(program: Callable[[Any, Any], Any]) -> None:
    for m in (ts, torch):
        with pytest.raises((RuntimeError, BufferError, NotImplementedError), match=r"(?i)conj|neg"):
            program(m, m.tensor(VALUES, dtype=m.complex128))


def test_files_keep_the_bit_both_ways() -> None:
    x = torch.tensor(VALUES, dtype=torch.complex128)
    written = io.BytesIO()
    torch.save({"conj": x.conj(), "imag": x.clone().conj().imag}, written)
    ours = ts.load(io.BytesIO(written.getvalue()))
    assert ours["conj"].is_conj() and ours["imag"].is_neg()
    assert ours["conj"].tolist() == x.conj().tolist() and ours["imag"].tolist() == x.conj().imag.tolist()

    y = ts.tensor(VALUES, dtype=ts.complex128)
    for form in ("archive", "ours"):
        file = io.BytesIO()
        ts.save({"conj": y.conj(), "plain": y}, file, **({"format": "torch"} if form == "archive" else {}))
        if form == "archive":
            theirs = torch.load(io.BytesIO(file.getvalue()), weights_only=True)
            assert theirs["conj"].is_conj() and theirs["conj"].tolist() == y.conj().tolist()
        again = ts.load(io.BytesIO(file.getvalue()))
        assert again["conj"].tolist() == y.conj().tolist() and again["plain"].tolist() == y.tolist()


TRANSFORMS: dict[str, Callable[[Any, Any], Any]] = {
    "vmap": lambda m, x: m.func.vmap(lambda a: a.conj() * a)(x),
    "vmap over a conjugate": lambda m, x: m.func.vmap(lambda a: a.sum())(x.conj()),
    "jvp": lambda m, x: m.func.jvp(lambda a: a.conj() * a, (x,), (x * 1j,)),
    "jvp along a conjugate": lambda m, x: m.func.jvp(lambda a: a * a, (x.conj(),), (x.conj(),)),
    "grad": lambda m, x: m.func.grad(lambda a: (a.conj() * a).real.sum())(x),
    "grad at a conjugate": lambda m, x: m.func.grad(lambda a: (a.imag * a.real).sum())(x.conj()),
    "vjp": lambda m, x: m.func.vjp(lambda a: a.conj(), x)[1](x)[0],
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("program", TRANSFORMS.values(), ids=TRANSFORMS)
def test_transforms(program: Callable[[Any, Any], Any]) -> None:
    found, expected = (program(m, m.tensor(VALUES, dtype=m.complex128)) for m in (ts, torch))
    for ours, theirs in zip(*([f] if not isinstance(f, tuple) else f for f in (found, expected)), strict=True):
        np.testing.assert_allclose(ours.numpy(force=True), theirs.numpy(force=True), rtol=1e-9, atol=1e-9)
