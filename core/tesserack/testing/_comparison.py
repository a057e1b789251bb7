"""``assert_close``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from numbers import Number
from typing import Any

from tesserack import _native
from tesserack._native import Tensor
from tesserack._tensor.subclass import has_no_memory

__all__ = ["assert_allclose", "assert_close"]

# Default tolerances by dtype, (rtol, atol); exact for the rest.
_TOLERANCES = {
    _native.float16: (1e-3, 1e-5),
    _native.bfloat16: (1.6e-2, 1e-5),
    _native.float32: (1.3e-6, 1e-5),
    _native.float64: (1e-7, 1e-7),
    _native.complex64: (1.3e-6, 1e-5),
    _native.complex128: (1e-7, 1e-7),
}

_INF = float("inf")


def assert_close(
    actual: Any,
    expected: Any,
    *,
    allow_subclasses: bool = True,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = False,
    check_device: bool = True,
    check_dtype: bool = True,
    check_layout: bool = True,
    check_stride: bool = False,
    msg: str | Callable[[str], str] | None = None,
) -> None:
    """Raise ``AssertionError`` unless ``|actual - expected| <= atol + rtol * |expected|`` everywhere.

    Takes tensors, numbers, arrays, and sequences and mappings of these. Default tolerances follow from the dtypes; give
    both or none. Shapes must agree, and unless switched off dtypes, devices and layouts, of numbers their types;
    infinities must agree exactly. Of sparse tensors the specified elements are compared, and how many there are unless
    one alone is coalesced; of meta tensors the attributes. None equals None only.

    >>> import tesserack as ts
    >>> assert_close(ts.tensor([1.0, 2.0]), ts.tensor([1.0, 2.0 + 1e-7]))
    """
    if (rtol is None) != (atol is None):
        raise ValueError(
            f"assert_close: rtol and atol must both be given or both be left out, got rtol={rtol} and atol={atol}"
        )
    rules = _Rules(rtol, atol, equal_nan, check_device, check_dtype, check_layout, check_stride, allow_subclasses)
    complaint = _compare(actual, expected, rules, "")
    if complaint is None:
        return
    if callable(msg):
        complaint = msg(complaint)
    raise AssertionError(msg if isinstance(msg, str) else complaint)


class _Rules:
    def __init__(
        self,
        rtol: float | None,
        atol: float | None,
        equal_nan: bool,
        device: bool,
        dtype: bool,
        layout: bool,
        stride: bool,
        subclasses: bool,
    ) -> None:
        self.rtol, self.atol, self.equal_nan = rtol, atol, equal_nan
        self.device, self.dtype, self.layout, self.stride = device, dtype, layout, stride
        self.subclasses = subclasses

    def tolerances(self, *dtypes: Any) -> tuple[float, float]:
        if self.rtol is not None and self.atol is not None:
            return self.rtol, self.atol
        found = [_TOLERANCES.get(dtype, (0.0, 0.0)) for dtype in dtypes]
        return max(r for r, _ in found), max(a for _, a in found)


def _compare(actual: Any, expected: Any, rules: _Rules, where: str) -> str | None:
    """What is wrong, or None; ``where`` holds the keys that led here."""
    if isinstance(actual, Mapping) and isinstance(expected, Mapping):
        return _compare_mappings(actual, expected, rules, where)
    if _is_sequence(actual) and _is_sequence(expected):
        return _compare_sequences(actual, expected, rules, where)
    complaint = _compare_values(actual, expected, rules)
    return complaint and complaint + _at(where)


def _at(where: str) -> str:
    return f"\n\nThe failure occurred for item {where}" if where else ""


def _compare_values(actual: Any, expected: Any, rules: _Rules) -> str | None:
    if actual is None or expected is None:
        return None if actual is expected else f"None mismatch: {actual} is not {expected}"
    for value in (actual, expected):
        if not isinstance(value, (Tensor, Number)) and not hasattr(value, "__array__"):
            raise TypeError(
                "No comparison pair was able to handle inputs of type "
                f"{type(actual)} and {type(expected)}; give tensors, numbers, or sequences or mappings of these"
            )
    if not rules.subclasses and type(actual) is not type(expected):
        raise TypeError(
            f"No comparison pair was able to handle inputs of type {type(actual)} and {type(expected)}; "
            "allow_subclasses=True compares tensors of different classes"
        )
    if isinstance(actual, (bool, int, float, complex)) and isinstance(expected, (bool, int, float, complex)):
        return _compare_numbers(actual, expected, rules)
    return _compare_tensors(_tensor(actual), _tensor(expected), rules)


def _compare_numbers(actual: Any, expected: Any, rules: _Rules) -> str | None:
    if isinstance(actual, bool) and isinstance(expected, bool):
        return None if actual is expected else f"Booleans mismatch: {actual} is not {expected}"
    if rules.dtype and type(actual) is not type(expected):
        return f"The (d)types do not match: {type(actual)} != {type(expected)}."
    kind = _native.complex128 if isinstance(actual + expected, complex) else _native.float64
    exact = isinstance(actual, int) and isinstance(expected, int)
    rtol, atol = rules.tolerances(_native.int64 if exact else kind)
    distance = abs(actual - expected)
    if actual == expected or (rules.equal_nan and actual != actual and expected != expected):
        return None
    if abs(expected) != _INF and distance <= atol + rtol * abs(expected):
        return None
    return _describe_numbers(actual, expected, rtol, atol)


def _describe_numbers(actual: Any, expected: Any, rtol: float, atol: float) -> str:
    distance = abs(actual - expected)
    relative = distance / abs(expected) if expected else _INF
    exact = rtol == atol == 0
    absolute_limit, relative_limit = ("", "") if exact else (f" (up to {atol} allowed)", f" (up to {rtol} allowed)")
    return (
        f"Scalars are not {'equal' if exact else 'close'}!\n\nExpected {expected} but got {actual}.\n"
        f"Absolute difference: {distance}{absolute_limit}\nRelative difference: {relative}{relative_limit}"
    )


def _is_sequence(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes))


def _tensor(value: Any) -> Tensor:
    return value.detach() if isinstance(value, Tensor) else _native.as_tensor(value)


def _compare_mappings(actual: Mapping[Any, Any], expected: Mapping[Any, Any], rules: _Rules, where: str) -> str | None:
    if actual.keys() != expected.keys():
        missing, extra = [k for k in expected if k not in actual], [k for k in actual if k not in expected]
        return (
            f"The keys of the mappings do not match:\nMissing keys in the actual mapping: {missing}\n"
            f"Additional keys in the actual mapping: {extra}{_at(where)}"
        )
    for key in actual:
        complaint = _compare(actual[key], expected[key], rules, f"{where}[{key!r}]")
        if complaint:
            return complaint
    return None


def _compare_sequences(actual: Sequence[Any], expected: Sequence[Any], rules: _Rules, where: str) -> str | None:
    if len(actual) != len(expected):
        return f"The length of the sequences mismatch: {len(actual)} != {len(expected)}{_at(where)}"
    for index, (a, b) in enumerate(zip(actual, expected, strict=True)):
        complaint = _compare(a, b, rules, f"{where}[{index}]")
        if complaint:
            return complaint
    return None


def _attributes(actual: Tensor, expected: Tensor, rules: _Rules) -> str | None:
    checks: list[tuple[str, Any, Any, bool]] = [
        ("shape", actual.shape, expected.shape, True),
        ("device", str(actual.device), str(expected.device), rules.device),
        ("dtype", actual.dtype, expected.dtype, rules.dtype),
        ("layout", actual.layout, expected.layout, rules.layout),
    ]
    if rules.stride:
        checks.append(("stride()", actual.stride(), expected.stride(), True))
    for name, left, right, wanted in checks:
        if wanted and left != right:
            return f"The values for attribute '{name}' do not match: {left} != {right}."
    return None


def _compare_tensors(actual: Tensor, expected: Tensor, rules: _Rules) -> str | None:
    complaint = _attributes(actual, expected, rules)
    if complaint or actual.numel() == 0 or actual.is_meta or expected.is_meta:
        return complaint
    if actual.layout != expected.layout:
        actual, expected = _dense(actual), _dense(expected)
    if actual.layout is _native.strided:
        return _compare_elements(actual, expected, rules)
    return _compare_sparse(actual, expected, rules)


def _dense(tensor: Tensor) -> Tensor:
    return tensor if tensor.layout is _native.strided else tensor.to_dense()


def _compare_sparse(actual: Tensor, expected: Tensor, rules: _Rules) -> str | None:
    """Where the specified elements are, exactly, then what they are."""
    if actual.layout is _native.sparse_coo and (
        actual._nnz() == expected._nnz() or actual.is_coalesced() != expected.is_coalesced()
    ):
        actual, expected = actual.coalesce(), expected.coalesce()
    layout = str(actual.layout).rpartition("_")[2].upper()
    left, right = _components(actual), _components(expected)
    if left["values"].shape != right["values"].shape:
        counts = f"{len(left['values'])} != {len(right['values'])}"
        return f"The number of specified values in sparse {layout} tensors does not match: {counts}"
    for name in left:
        complaint = _compare_elements(left[name], right[name], rules)
        if complaint:
            return complaint.replace("Tensor-likes", f"Sparse {layout} {name}", 1)
    return None


def _components(tensor: Tensor) -> dict[str, Tensor]:
    if tensor.layout is _native.sparse_coo:
        return {"indices": tensor._indices(), "values": tensor._values()}
    rows_first = str(tensor.layout).endswith("r")
    names = ("crow_indices", "col_indices") if rows_first else ("ccol_indices", "row_indices")
    return {**{name: getattr(tensor, name)() for name in names}, "values": tensor.values()}


def _compare_elements(actual: Tensor, expected: Tensor, rules: _Rules) -> str | None:
    from tesserack import isclose, logical_or

    if actual.numel() == 0:
        return None
    rtol, atol = rules.tolerances(actual.dtype, expected.dtype)
    if actual.device != expected.device:
        actual, expected = actual.cpu(), expected.cpu()
    wide = _wide(actual, expected)
    if wide is not None:
        close = isclose(actual.to(wide), expected.to(wide), rtol=rtol, atol=atol, equal_nan=rules.equal_nan)
    else:
        if actual.dtype is not expected.dtype or actual.dtype is _native.bool:
            actual, expected = actual.to(_native.int64), expected.to(_native.int64)
        close = actual == expected
        if rtol or atol:
            allowed = atol + rtol * expected.to(_native.float64).abs()
            close = logical_or(close, _apart(actual, expected) <= allowed)
    if close.all().item():
        return None
    return _describe(actual, expected, close, rtol, atol)


def _apart(actual: Tensor, expected: Tensor) -> Tensor:
    """How far integers are from each other, which the dtype of narrow ones need not hold."""
    from tesserack import where

    if actual.dtype is not _native.uint64:
        actual, expected = actual.to(_native.int64), expected.to(_native.int64)
    apart = where(actual > expected, actual - expected, expected - actual)
    return apart.view(_native.uint64).to(_native.float64)  # of int64 it may be what only the unsigned one holds


def _wide(actual: Tensor, expected: Tensor) -> Any:
    """The dtype to compare in; None of integers and bools."""
    if actual.is_complex() or expected.is_complex():
        return _native.complex128
    return _native.float64 if actual.is_floating_point() or expected.is_floating_point() else None


def _describe(actual: Tensor, expected: Tensor, close: Tensor, rtol: float, atol: float) -> str:
    left, right, good = map(_listed, (actual, expected, close))
    kind = "equal" if rtol == atol == 0 else "close"
    if actual.ndim == 0:
        return _describe_numbers(left[0], right[0], rtol, atol)
    wrong = good.count(False)
    head = f"Tensor-likes are not {kind}!\n\nMismatched elements: {wrong} / {len(good)} ({wrong / len(good):.1%})\n"
    return head + _worst(left, right, good, actual, rtol, atol)


def _listed(x: Tensor) -> list[Any]:
    """The elements in a row; one by one where they are a subclass's to tell."""
    row = x.reshape(-1)
    return [element.item() for element in row.unbind()] if has_no_memory(row) else row.tolist()


def _worst(left: list[Any], right: list[Any], good: list[bool], actual: Tensor, rtol: float, atol: float) -> str:
    absolute = [0.0 if ok else _distance(a, b) for a, b, ok in zip(left, right, good, strict=True)]
    relative = [d / abs(b) if b else (float("inf") if d else 0.0) for d, b in zip(absolute, right, strict=True)]
    lines = []
    for name, values, allowed in (("absolute", absolute, atol), ("relative", relative, rtol)):
        worst = max(range(len(values)), key=lambda k: (values[k] != values[k], values[k]))
        limit = f" (up to {allowed} allowed)" if rtol or atol else ""
        lines.append(f"Greatest {name} difference: {values[worst]} at index {_position(worst, actual)}{limit}")
    return "\n".join(lines)


def _distance(a: Any, b: Any) -> float:
    return abs(a - b)  # type: ignore[no-any-return]


def _position(flat: int, tensor: Tensor) -> tuple[int, ...]:
    position = []
    for size in reversed(tensor.shape):
        position.append(flat % size)
        flat //= size
    return tuple(reversed(position))


def assert_allclose(
    actual: Any,
    expected: Any,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = True,
    msg: str = "",
) -> None:
    """:func:`assert_close` under its older name: dtypes and devices need not agree, and NaN equals NaN."""
    assert_close(
        actual,
        expected,
        rtol=rtol,
        atol=atol,
        equal_nan=equal_nan,
        check_device=False,
        check_dtype=False,
        msg=msg or None,
    )
