"""The forms of operators on torch's own samples: errors, ``out=``, in place, layouts, other dtypes, higher derivatives.

One form of one operator is a case. A part of them is run, another one with every seed; FULL=1 runs all.
``forms_differences.txt`` lists what differs, with a reason.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tesserack as ts
from op_samples import (
    DTYPES,
    RANDOM,
    TOLERANCE,
    Sample,
    Standin,
    Unsupported,
    bare,
    check,
    check_gradients,
    database,
    differences,
    flat,
    judge,
    mapped,
    numpy_of,
    ours_of,
    title,
    torch,
    weighed,
)  # fmt: skip
from tesserack.testing.seeds import turn

SHARE = 40
SAMPLES = 4
REFUSALS = (RuntimeError, TypeError, ValueError, NotImplementedError, IndexError, AssertionError)
# Looser than those of the results' dtype: intermediate values are rounded too.
HALVES = {torch.float16: (4e-3, 4e-3), torch.bfloat16: (3e-2, 3e-2)}


def samples(op: Any, dtype: Any, grad: bool = False) -> Iterator[Any]:
    """The first ones, without those that drop out at random."""
    torch.manual_seed(0)
    every = op.sample_inputs("cpu", dtype, requires_grad=grad)
    fixed = (given for given in every if not (given.kwargs.get("dropout_p") or given.kwargs.get("dropout")))
    return itertools.islice(fixed, SAMPLES)


def floating(op: Any) -> Any:
    """The dtype to test a form in, float64 where there is a choice."""
    supported = op.supported_dtypes("cpu")
    wanted = (torch.float64, torch.float32, torch.int64, torch.bool, *supported)
    return next(dtype for dtype in wanted if dtype in supported)


def outcome(call: Callable[[], Any]) -> tuple[Any, type[Exception] | None]:
    """The result, or the class of what is raised."""
    try:
        return call(), None
    except Unsupported:
        raise
    except Exception as error:
        return error, type(error)


def compare_outcomes(ours: Any, theirs: Any, what: str, dtype: Any) -> None:
    (got, refused), (expected, expected_refusal) = ours, theirs
    if expected_refusal is not None:
        assert refused is not None, f"{what}: torch raises {expected_refusal.__name__}: {expected}"
        same = issubclass(refused, expected_refusal) or issubclass(expected_refusal, refused)
        assert same, f"{what}: raises {refused.__name__} ({got}), torch {expected_refusal.__name__} ({expected})"
    elif refused is not None:
        raise AssertionError(f"{what}: raises {refused.__name__}: {got}")
    else:
        check(got, expected, what, dtype)


def check_errors(op: Any, device: Any) -> None:
    """What torch says it refuses is refused by the same class of exception."""
    for error in op.error_inputs("cpu"):
        try:
            sample = Sample(error.sample_input, device)
        except Unsupported:
            continue
        args, kwargs = sample.theirs
        _, expected = outcome(lambda args=args, kwargs=kwargs: op.op(*args, **kwargs))
        if expected is None or not issubclass(expected, REFUSALS):
            continue
        try:
            got, refused = outcome(lambda sample=sample: ours_of(op, sample))
        except Unsupported:
            continue
        shown = [tuple(item.shape) if isinstance(item, torch.Tensor) else item for item in flat((args, kwargs))]
        assert refused is not None, f"not refused: {shown}; torch: {error.error_regex}"
        same = issubclass(refused, expected) or issubclass(expected, refused)
        assert same, f"{shown} raises {refused.__name__} ({got}), torch {expected.__name__}"


def _outs(results: Any, kind: str) -> Any:
    """Tensors to write ``results`` to, of torch's."""

    def make(result: Any) -> Any:
        shape, dtype = tuple(result.shape), result.dtype
        if kind == "strided":
            return torch.zeros((*shape, 2), dtype=dtype)[..., 0]
        if kind == "size":
            return torch.zeros((*shape, 1, 2), dtype=dtype)
        if kind == "empty":
            return torch.zeros(0, dtype=dtype)
        if kind == "dtype":
            return torch.zeros(shape, dtype=torch.int64 if dtype.is_floating_point or dtype.is_complex else torch.bool)
        return torch.zeros(shape, dtype=dtype)

    return make(results) if isinstance(results, torch.Tensor) else tuple(make(result) for result in results)


def check_out(op: Any, device: Any) -> None:
    """``out=`` of the right size, strided, empty, of another size (resized, with a warning) and of another dtype."""
    dtype = floating(op)
    for given in itertools.islice(samples(op, dtype), 2):
        results, refused = outcome(lambda given=given: op.op(given.input, *given.args, **given.kwargs))
        if refused or not all(isinstance(result, torch.Tensor) for result in flat(results)):
            continue
        for kind in ("right", "strided", "empty", "size", "dtype"):
            outs = _outs(results, kind)
            try:
                sample = Sample(given, device)
                # Copies: torch resizes nothing that NumPy has seen.
                ours_out = mapped(outs, lambda out, sample=sample: sample._copy(out.clone()).tensor)
            except Unsupported:
                continue
            args, kwargs = sample.theirs
            found: list[Any] = []
            for call, out in (
                (lambda a=args, k=kwargs, o=outs: op.op(*a, out=o, **k), outs),
                (lambda s=sample, o=ours_out: _with_out(op, s, o), ours_out),
            ):
                with warnings.catch_warnings(record=True) as seen:
                    warnings.simplefilter("always")
                    result = outcome(call)
                warned = any("resize" in str(warning.message) for warning in seen)
                found.append(((out, None) if result[1] is None else result, warned))
            (theirs, warned), (ours, also) = found
            compare_outcomes(ours, theirs, f"out= ({kind})", dtype)
            assert also == warned or theirs[1] is not None, f"out= ({kind}): warns {also}, torch {warned}"


def _with_out(op: Any, sample: Sample, out: Any) -> Any:
    args, kwargs = sample.ours
    out = Standin(out) if isinstance(out, ts.Tensor) else tuple(Standin(o) for o in out)
    sample.ours = args, {**kwargs, "out": out}
    return ours_of(op, sample)


def check_inplace(op: Any, device: Any) -> None:
    """The in-place form, on a sample's own tensor and on one that is expanded."""
    dtype = floating(op)
    name = getattr(op.inplace_variant, "__name__", None)
    for given, expanded in itertools.product(samples(op, dtype), (False, True)):
        if not isinstance(given.input, torch.Tensor) or name is None or not hasattr(torch.Tensor, name):
            continue
        try:
            sample = Sample(given, device)
        except Unsupported:
            continue
        (mine, *rest), kwargs = sample.ours
        theirs_in = given.input.clone()
        ours_in = mine.tensor.clone()
        if expanded:
            theirs_in, ours_in = theirs_in.expand(2, *theirs_in.shape), ours_in.expand(2, *ours_in.shape)
        theirs = outcome(lambda t=theirs_in, g=given: getattr(t, name)(*g.args, **g.kwargs))
        ours = outcome(lambda t=ours_in, r=rest, k=kwargs: getattr(t, name)(*bare(tuple(r)), **bare(k)))
        if theirs[1] in (None, *REFUSALS):
            compare_outcomes(ours, theirs, "in place, expanded" if expanded else "in place", dtype)


def check_strided(op: Any, device: Any) -> None:
    """Samples that are not contiguous: values and gradients."""
    dtype = floating(op)
    grad = op.supports_autograd and dtype.is_floating_point
    for given in samples(op, dtype, grad):
        given = given.noncontiguous()
        try:
            sample = Sample(given, device)
            theirs, refused = outcome(lambda g=given: op.op(g.input, *g.args, **g.kwargs))
            if refused:
                continue
            ours = ours_of(op, sample)
        except Unsupported:
            continue
        ours, theirs = sample.finish(ours), sample.finish(theirs)
        check(ours, theirs, "not contiguous", dtype)
        if grad and sample.leaves:
            check_gradients(sample, ours, theirs, dtype)


def check_dtypes(op: Any, device: Any) -> None:
    """Values in every dtype that torch supports beside those of the other test."""
    failures = []
    for dtype in DTYPES:
        if dtype in (torch.float64, torch.complex128, torch.int64, torch.uint8, torch.bool):
            continue
        if dtype not in op.supported_dtypes("cpu"):
            continue
        try:
            _check_dtype(op, dtype, device)
        except Exception as error:
            failures.append(f"{str(dtype)[6:]}: {type(error).__name__}: {str(error).strip()[:200]}")
    assert not failures, "\n".join(failures)


def check_halves(op: Any, given: Any, ours: Any, theirs: Any, dtype: Any) -> None:
    """Near torch's values, or else no farther than these from what single precision makes of the sample: which
    partial sums torch rounds to 16 bits is the processor's affair."""
    assert ours.shape == theirs.shape
    relative, absolute = HALVES[dtype]
    if np.allclose(ours, theirs, relative, absolute, equal_nan=True):
        return
    wide = given.transform(lambda x: x.float() if isinstance(x, torch.Tensor) and x.dtype is dtype else x)
    exact = op.op(wide.input, *wide.args, **wide.kwargs)
    if isinstance(exact, torch.Tensor) and exact.dtype is torch.float32:
        off, torch_off = (float(np.abs(values - numpy_of(exact)).max()) for values in (ours, theirs))
        if off <= torch_off:
            return
    np.testing.assert_allclose(ours, theirs, relative, absolute)


def _check_dtype(op: Any, dtype: Any, device: Any) -> None:
    for given in itertools.islice(samples(op, dtype), 2):
        try:
            sample = Sample(given, device)
            theirs, refused = outcome(lambda g=given: op.op(g.input, *g.args, **g.kwargs))
            if refused:
                continue
            ours = ours_of(op, sample)
        except Unsupported:
            continue
        ours, theirs = sample.finish(ours), sample.finish(theirs)
        if dtype in HALVES:
            for got, expected in zip(flat(ours), flat(theirs), strict=True):
                if isinstance(expected, torch.Tensor):
                    assert got.tensor.dtype is DTYPES[expected.dtype], f"{got.tensor.dtype} for {expected.dtype}"
                    check_halves(op, given, numpy_of(got.tensor), numpy_of(expected), dtype)
        else:
            check(ours, theirs, str(dtype), dtype if dtype in TOLERANCE else torch.float32)


def _twice(lib: Any, results: list[Any], leaves: list[Any]) -> list[Any]:
    """Second gradients: those of the first ones, weighed."""
    first = lib.autograd.grad([weighed(t, lib) for t in results], leaves, create_graph=True, allow_unused=True)
    kept = [g for g in first if g is not None and g.requires_grad]
    if not kept:
        return [lib.zeros_like(leaf) for leaf in leaves]
    second = lib.autograd.grad([weighed(g, lib) for g in kept], leaves, allow_unused=True)
    return [lib.zeros_like(leaf) if g is None else g for g, leaf in zip(second, leaves, strict=True)]


def check_second(op: Any, device: Any) -> None:
    """Second gradients."""
    for given in samples(op, torch.float64, True):
        try:
            sample = Sample(given, device)
            theirs, refused = outcome(lambda g=given: op.op(g.input, *g.args, **g.kwargs))
            if refused or not sample.leaves:
                continue
            ours = ours_of(op, sample)
        except Unsupported:
            continue
        ours, theirs = flat(sample.finish(ours)), flat(sample.finish(theirs))
        theirs = [t for t in theirs if isinstance(t, torch.Tensor) and t.requires_grad]
        ours = [t.tensor for t in ours if isinstance(t, Standin) and t.tensor.requires_grad]
        leaves = [leaf for leaf, _ in sample.leaves]
        expected, refused = outcome(lambda t=theirs, x=leaves: _twice(torch, t, x))
        if refused is None and theirs:
            check(_twice(ts, ours, [leaf for _, leaf in sample.leaves]), expected, "second gradient", torch.float64)


def check_forward(op: Any, device: Any) -> None:
    """Tangents that go forward, of every sample's tensors at once."""
    import torch.autograd.forward_ad as theirs_ad
    from tesserack.autograd import forward_ad as ours_ad

    for given in itertools.islice(samples(op, torch.float64, True), 2):
        try:
            sample = Sample(given, device)
        except Unsupported:
            continue
        if not sample.leaves:
            continue
        tangents = [torch.linspace(-1, 1, leaf.numel(), dtype=leaf.dtype).reshape(leaf.shape)
                    for leaf, _ in sample.leaves]  # fmt: skip
        pairs = list(zip(sample.leaves, tangents, strict=True))
        with theirs_ad.dual_level():
            duals = {id(leaf): theirs_ad.make_dual(leaf.detach(), t) for (leaf, _), t in pairs}
            swap = _swapped(sample.theirs, duals)
            result, refused = outcome(lambda s=swap: op.op(*s[0], **s[1]))
            if refused:
                continue
            expected = [theirs_ad.unpack_dual(t).tangent for t in flat(sample.finish(result))
                        if isinstance(t, torch.Tensor)]  # fmt: skip
        with ours_ad.dual_level():
            made = {id(leaf): Standin(ours_ad.make_dual(leaf.detach(), bare(sample._copy(t))))
                    for (_, leaf), t in pairs}  # fmt: skip
            sample.ours = _swapped(sample.ours, made)
            try:
                ours = flat(sample.finish(ours_of(op, sample)))
            except Unsupported:
                continue
            got = [ours_ad.unpack_dual(t.tensor).tangent for t in ours if isinstance(t, Standin)]
        assert len(got) == len(expected)
        for tangent, wanted in zip(got, expected, strict=True):
            if wanted is None or tangent is None:  # zero or none, as each of them sees it
                for one in (tangent, wanted):
                    assert one is None or not numpy_of(one).any(), "tangent of one alone"
            else:
                check(tangent, wanted, "tangent", torch.float64)


def _swapped(given: Any, by_id: dict[int, Any]) -> Any:
    args, kwargs = given
    pick = lambda item: by_id.get(id(item.tensor if isinstance(item, Standin) else item), item)  # noqa: E731
    return mapped(args, pick), mapped(kwargs, pick)


FORMS: dict[str, tuple[Callable[[Any, Any], None], Callable[[Any], bool]]] = {
    "errors": (check_errors, lambda op: op.error_inputs_func is not None),
    "out": (check_out, lambda op: op.supports_out),
    "inplace": (check_inplace, lambda op: op.inplace_variant is not None),
    "strided": (check_strided, lambda op: True),
    "dtypes": (check_dtypes, lambda op: True),
    "second": (check_second, lambda op: op.supports_gradgrad and torch.float64 in op.supported_dtypes("cpu")),
    "forward": (check_forward, lambda op: op.supports_forward_ad and torch.float64 in op.supported_dtypes("cpu")),
}


def every() -> list[Any]:
    """Operators and forms."""
    found = []
    for op in database.op_db:
        if op.name.startswith("jiterator") or not op.supported_dtypes("cpu"):  # for CUDA alone
            continue
        drawn = any(word in op.name for word in RANDOM)
        found += [(op, form) for form in FORMS if FORMS[form][1](op) and (not drawn or form == "errors")]
    return found


def cases() -> list[Any]:
    """Those whose turn it is."""
    return [pytest.param(op, form, id=f"{title(op)}-{form}") for op, form in turn(every(), SHARE)]


KNOWN = differences("forms_differences.txt")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("op", "form"), cases())
def test_form(op: Any, form: str, device: Any) -> None:
    judge(KNOWN, f"{title(op)}-{form}", title(op), lambda: FORMS[form][0](op, device))


def test_every_line_names_a_case() -> None:
    assert not KNOWN.keys() - {name for op, form in every() for name in (title(op), f"{title(op)}-{form}")}
