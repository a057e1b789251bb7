"""Every operator's sample calls with arguments whose conjugation or negation is pending: the results, gradients and
memory are those of plain arguments, in all forms. An operator that reads such memory as it is fails here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import tesserack as ts
from tesserack.testing import cases, samples

RECORDS = samples.records()
FUNCTIONAL = [n for n, r in RECORDS.items() if r["variant"] == "functional" and samples.samples(n)]
FORMS = {
    variant: [n for n, r in RECORDS.items() if r["variant"] == variant and samples.samples(cases.functional_name(r))]
    for variant in ("inplace", "out")
}
WRITERS = {n for n in FUNCTIONAL if "!" in RECORDS[n]["schema"]}
PENDING = ("conj", "neg")
ERRORS = (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError)
# Their results are whatever was in memory, or say how an argument lies in it.
UNDETERMINED = {
    *("empty_like", "new_empty", "new_empty_strided", "is_conj", "is_neg", "view_as_real", "view.dtype", "result_type"),
}
# Vectors that a factor of its own makes no less right, and what is chosen among equals.
AMBIGUOUS = {"linalg_eig", "linalg_eigh", "linalg_svd", "svd", "linalg_qr", "qr", "geqrf", "pca_lowrank", "svd_lowrank"}


def pend(t: Any, what: str) -> Any:
    """The same values as a view of memory that holds others."""
    if not isinstance(t, ts.Tensor) or t.dtype is ts.bool:
        return t
    if what == "conj":
        return t.conj_physical().conj() if t.is_complex() else t
    return t.neg()._neg_view()


def made(sample: samples.Sample, what: str, device: Any) -> tuple[Any, Any]:
    """Plain arguments: complex ones for conjugates."""
    dtype = "float64" if what == "conj" or cases.suits(sample, "float64") else "int64"

    def tensor(item: Any) -> ts.Tensor:
        t = cases.tensor(item, getattr(ts, dtype), device)
        return ts.complex(t, t.flip(tuple(range(t.dim()))) * 0.5) if what == "conj" and item.varies else t

    return sample.map(tensor)


def mapped(value: Any, change: Callable[[ts.Tensor], Any]) -> Any:
    if isinstance(value, ts.Tensor):
        return change(value)
    if isinstance(value, list | tuple) and not isinstance(value, ts.Size):
        return type(value)(mapped(v, change) for v in value)
    return {k: mapped(v, change) for k, v in value.items()} if isinstance(value, dict) else value


def attempt(name: str, args: Any, kwargs: Any) -> Any:
    """The results, or the class of the error."""
    ts.manual_seed(0)
    try:
        return cases.leaves(cases.call(name, args, kwargs))
    except ERRORS as error:
        return [type(error)]


def same(found: Any, expected: Any, what: str) -> None:
    assert len(found) == len(expected), what
    for f, e in zip(found, expected, strict=True):
        if isinstance(e, ts.Tensor):
            assert isinstance(f, ts.Tensor), f"{what}: {f}"
            assert f.shape == e.shape and f.dtype == e.dtype, what
            plain = f.detach().resolve_conj().resolve_neg()
            assert ts.allclose(plain, e.detach().resolve_conj().resolve_neg(), rtol=1e-9, atol=1e-9, equal_nan=True), (
                f"{what}: {plain} is not {e}"
            )
        else:
            assert f == e or (f != f and e != e), f"{what}: {f} is not {e}"


def calls(name: str, what: str, device: Any) -> Iterator[tuple[str, Any, Any, Any]]:
    """Sample calls that work with plain arguments, and what they give."""
    for sample in samples.samples(name):
        args, kwargs = made(sample, what, device)
        expected = attempt(name, mapped(args, ts.Tensor.clone), mapped(kwargs, ts.Tensor.clone))
        if not (expected and isinstance(expected[0], type)):
            yield f"{name}({sample}), {what}", args, kwargs, expected


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("what", PENDING)
@pytest.mark.parametrize("name", [n for n in FUNCTIONAL if n not in UNDETERMINED])
def test_values(name: str, what: str, device: ts.device) -> None:
    for shown, args, kwargs, expected in calls(name, what, device):
        given = mapped((args, kwargs), lambda t: pend(t, what))
        memory = mapped(given, lambda t: t.detach().resolve_conj().resolve_neg().clone())
        found = attempt(name, *given)
        if name in AMBIGUOUS:
            found, expected = [t.abs() for t in found], [t.abs() for t in expected]
        same(found, expected, shown)
        if name not in WRITERS:
            kept = cases.leaves([*given[0], *given[1].values()])
            same(kept, cases.leaves([*memory[0], *memory[1].values()]), f"{shown}: arguments")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("what", PENDING)
@pytest.mark.parametrize("name", [n for n in FORMS["inplace"] if cases.functional_name(RECORDS[n]) not in UNDETERMINED])
def test_in_place(name: str, what: str, device: ts.device) -> None:
    functional = cases.functional_name(RECORDS[name])
    for shown, args, kwargs, _ in calls(functional, what, device):
        if not args or not isinstance(args[0], ts.Tensor) or (what == "conj" and not args[0].is_complex()):
            continue
        plain = mapped((args, kwargs), ts.Tensor.clone)
        expected = attempt(name, *plain)
        given = mapped((args, kwargs), lambda t: pend(t, what))
        target = given[0][0]
        base = target.conj() if what == "conj" else target._neg_view()
        found = attempt(name, *given)
        same(found, expected, f"{name}: {shown}")
        if isinstance(expected[0], type):
            continue
        assert found[0] is target and (target.is_conj() or target.is_neg() or target.dtype is ts.bool), shown
        if target.dtype is not ts.bool:
            stored = base.resolve_conj().resolve_neg()
            same([stored.conj() if what == "conj" else -stored], [plain[0][0]], f"{name}: {shown}: memory")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("what", PENDING)
@pytest.mark.parametrize("name", [n for n in FORMS["out"] if cases.functional_name(RECORDS[n]) not in UNDETERMINED])
def test_out(name: str, what: str, device: ts.device) -> None:
    functional = cases.functional_name(RECORDS[name])
    for shown, args, kwargs, expected in calls(functional, what, device):
        if not all(isinstance(t, ts.Tensor) for t in expected):
            continue
        given = mapped((args, kwargs), lambda t: pend(t, what))
        outs = [pend(ts.zeros_like(t), what) for t in expected]
        out = outs[0] if len(outs) == 1 else tuple(outs)
        found = attempt(name, given[0], {**given[1], "out": out})
        reference = [ts.zeros_like(t) for t in expected]
        plain = attempt(name, args, {**kwargs, "out": reference[0] if len(outs) == 1 else tuple(reference)})
        if isinstance(plain[0], type):
            assert found == plain, shown
            continue
        if functional in AMBIGUOUS:
            outs, plain = [t.abs() for t in outs], [t.abs() for t in plain]
        else:
            assert all(f is o for f, o in zip(found, outs, strict=True)), shown
        same(outs, plain, f"{name}: {shown}")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("what", PENDING)
@pytest.mark.parametrize("name", [n for n in FUNCTIONAL if n not in UNDETERMINED | AMBIGUOUS | WRITERS])
def test_gradients(name: str, what: str, device: ts.device) -> None:
    """Of the memory behind, which are those of the values, conjugated or negated."""
    for shown, args, kwargs, expected in calls(name, what, device):
        floating = [isinstance(t, ts.Tensor) and (t.is_floating_point() or t.is_complex()) for t in expected]
        if not any(floating):
            continue
        grads = []
        for pending in (False, True):
            leaves: list[ts.Tensor] = []

            def leaf(t: ts.Tensor, pending: bool = pending, leaves: list[ts.Tensor] = leaves) -> ts.Tensor:
                if not (t.is_floating_point() or t.is_complex()):
                    return t
                held = (t.conj_physical() if what == "conj" else t.neg()) if pending else t.clone()
                leaves.append(held.requires_grad_())
                if not pending:
                    return held
                return held.conj() if what == "conj" else held._neg_view()

            results = attempt(name, *mapped((args, kwargs), leaf))
            outputs = [r for r in results if isinstance(r, ts.Tensor) and r.requires_grad]
            if not outputs or not leaves:
                grads.append(None)
                continue
            try:
                weights = [ts.linspace(0.5, 1.5, r.numel(), dtype=ts.float64).reshape(r.shape) for r in outputs]
                weights = [w.to(r.dtype) for w, r in zip(weights, outputs, strict=True)]
                found = ts.autograd.grad(outputs, leaves, weights, allow_unused=True)
            except ERRORS as error:
                grads.append([type(error)])
                continue
            back = [
                g if g is None or not pending else (g.conj_physical() if what == "conj" and g.is_complex() else g)
                for g in found
            ]
            grads.append([-g if pending and what == "neg" and g is not None else g for g in back])
        if grads[0] is None or grads[1] is None:
            assert grads[0] is None and grads[1] is None, f"{shown}: {grads}"
            continue
        same(grads[1], grads[0], f"{shown}: gradients")
