"""``assert_close`` in parts, which packages extend by pairs of their own.

A pair holds an actual and an expected value of one kind and says what differs; inputs that it is not for are refused
when it is made, and the next kind of pair is tried.
"""

from __future__ import annotations

import collections.abc
from collections.abc import Callable, Collection, Sequence
from typing import Any, NoReturn

import tesserack as ts
from tesserack.testing import _comparison, assert_close
from tesserack.testing._comparison import _TOLERANCES, _Rules

__all__ = [
    "BooleanPair",
    "ErrorMeta",
    "NonePair",
    "NumberPair",
    "ObjectPair",
    "Pair",
    "TensorLikePair",
    "UnsupportedInputs",
    "assert_equal",
    "default_tolerances",
    "get_tolerances",
    "not_close_error_metas",
    "originate_pairs",
]


class ErrorMeta(Exception):
    """What differs: the type and text of an error to come, and the keys that lead to the values."""

    def __init__(self, type: type[Exception], msg: str, *, id: tuple[Any, ...] = ()) -> None:
        super().__init__(f"{type.__name__}: {msg}; raise what to_error() gives instead of this")
        self.type, self.msg, self.id = type, msg, id

    def to_error(self, msg: str | Callable[[str], str] | None = None) -> Exception:
        """The error, with another text, or one made of this one, where it is given."""
        if isinstance(msg, str):
            return self.type(msg)
        where = "".join(f"[{key!r}]" for key in self.id)
        text = self.msg + (f"\n\nThe failure occurred for item {where}" if self.id else "")
        return self.type(msg(text) if callable(msg) else text)


class UnsupportedInputs(Exception):
    """A pair is not for such inputs."""


def default_tolerances(
    *inputs: Any, dtype_precisions: dict[ts.dtype, tuple[float, float]] | None = None
) -> tuple[float, float]:
    """``(rtol, atol)`` of the dtypes, or of tensors' dtypes: the loosest."""
    dtypes = [each.dtype if isinstance(each, ts.Tensor) else each for each in inputs]
    if not all(isinstance(dtype, ts.dtype) for dtype in dtypes):
        raise TypeError(f"default_tolerances: expected tensors or dtypes, got {[type(each) for each in inputs]}")
    found = [(dtype_precisions or _TOLERANCES).get(dtype, (0.0, 0.0)) for dtype in dtypes]
    return max(rtol for rtol, _ in found), max(atol for _, atol in found)


def get_tolerances(
    *inputs: Any, rtol: float | None, atol: float | None, id: tuple[Any, ...] = ()
) -> tuple[float, float]:
    """The two that are given, or those of the dtypes; one of them alone is refused."""
    if rtol is None and atol is None:
        return default_tolerances(*inputs)
    if rtol is None or atol is None:
        raise ErrorMeta(ValueError, f"rtol and atol are given both or neither, got rtol={rtol}, atol={atol}", id=id)
    return rtol, atol


class Pair:
    """An actual and an expected value. A subclass's ``compare`` calls ``_fail`` for what differs."""

    def __init__(self, actual: Any, expected: Any, *, id: tuple[Any, ...] = (), **unknown_parameters: Any) -> None:
        self.actual, self.expected, self.id = actual, expected, id
        self._unknown_parameters = unknown_parameters

    @staticmethod
    def _inputs_not_supported() -> NoReturn:
        raise UnsupportedInputs

    @staticmethod
    def _check_inputs_isinstance(*inputs: Any, cls: type | tuple[type, ...]) -> None:
        if not all(isinstance(each, cls) for each in inputs):
            raise UnsupportedInputs

    def _fail(self, type: type[Exception], msg: str, *, id: tuple[Any, ...] = ()) -> NoReturn:
        raise ErrorMeta(type, msg, id=self.id if self.id and not id else id)

    def compare(self) -> None:
        """Return where the values match."""
        raise NotImplementedError(f"{type(self).__name__} has no compare()")

    def extra_repr(self) -> Sequence[str | tuple[str, Any]]:
        """Names of attributes, or names and values, to show."""
        return []

    def __repr__(self) -> str:
        shown = [item if isinstance(item, tuple) else (item, getattr(self, item)) for item in self.extra_repr()]
        pairs = [("id", self.id), ("actual", self.actual), ("expected", self.expected), *shown]
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in pairs)})"


class ObjectPair(Pair):
    """Anything, compared by ``==``."""

    def compare(self) -> None:
        """Fail where the two are not equal."""
        try:
            equal = bool(self.actual == self.expected)
        except Exception as error:
            raise ErrorMeta(ValueError, f"{self.actual} == {self.expected} failed with {error}", id=self.id) from error
        if not equal:
            self._fail(AssertionError, f"{self.actual} != {self.expected}")


class NonePair(Pair):
    """Values of which one is ``None``."""

    def __init__(self, actual: Any, expected: Any, **other_parameters: Any) -> None:
        if not (actual is None or expected is None):
            self._inputs_not_supported()
        super().__init__(actual, expected, **other_parameters)

    def compare(self) -> None:
        """Fail where the other one is not."""
        if not (self.actual is None and self.expected is None):
            self._fail(AssertionError, f"None mismatch: {self.actual} is not {self.expected}")


def _numpy(*names: str) -> tuple[type, ...]:
    import numpy

    return tuple(getattr(numpy, name) for name in names)


class BooleanPair(Pair):
    """Booleans of Python or NumPy."""

    def __init__(self, actual: Any, expected: Any, *, id: tuple[Any, ...] = (), **other_parameters: Any) -> None:
        actual, expected = self._process_inputs(actual, expected, id=id)
        super().__init__(actual, expected, id=id, **other_parameters)

    @property
    def _supported_types(self) -> tuple[type, ...]:
        return (bool, *_numpy("bool_"))

    def _process_inputs(self, actual: Any, expected: Any, *, id: tuple[Any, ...]) -> tuple[bool, bool]:
        self._check_inputs_isinstance(actual, expected, cls=self._supported_types)
        return self._to_bool(actual, id=id), self._to_bool(expected, id=id)

    @staticmethod
    def _to_bool(value: Any, *, id: tuple[Any, ...]) -> bool:
        return bool(value)

    def compare(self) -> None:
        """Fail where they differ."""
        if self.actual is not self.expected:
            self._fail(AssertionError, f"Booleans mismatch: {self.actual} is not {self.expected}")


class NumberPair(Pair):
    """Numbers of Python or NumPy, within ``atol + rtol * abs(expected)``."""

    def __init__(
        self,
        actual: Any,
        expected: Any,
        *,
        id: tuple[Any, ...] = (),
        rtol: float | None = None,
        atol: float | None = None,
        equal_nan: bool = False,
        check_dtype: bool = False,
        **other_parameters: Any,
    ) -> None:
        actual, expected = self._process_inputs(actual, expected, id=id)
        super().__init__(actual, expected, id=id, **other_parameters)
        kinds = {complex: ts.complex128, float: ts.float64, int: ts.int64, bool: ts.bool}
        dtypes = [kinds[next(kind for kind in kinds if isinstance(x, kind))] for x in (actual, expected)]
        self.rtol, self.atol = get_tolerances(*dtypes, rtol=rtol, atol=atol, id=id)
        self.equal_nan, self.check_dtype = equal_nan, check_dtype

    @property
    def _supported_types(self) -> tuple[type, ...]:
        return (int, float, complex, *_numpy("number"))

    def _process_inputs(self, actual: Any, expected: Any, *, id: tuple[Any, ...]) -> tuple[Any, Any]:
        self._check_inputs_isinstance(actual, expected, cls=self._supported_types)
        return self._to_number(actual, id=id), self._to_number(expected, id=id)

    @staticmethod
    def _to_number(value: Any, *, id: tuple[Any, ...]) -> Any:
        return value.item() if hasattr(value, "item") else value

    def compare(self) -> None:
        """Fail where the types, if asked for, or the numbers differ."""
        rules = _Rules(self.rtol, self.atol, self.equal_nan, False, self.check_dtype, False, False, True)
        complaint = _comparison._compare_numbers(self.actual, self.expected, rules)
        if complaint:
            self._fail(AssertionError, complaint)

    def extra_repr(self) -> Sequence[str]:
        """What the numbers are compared with."""
        return ("rtol", "atol", "equal_nan", "check_dtype")


class TensorLikePair(Pair):
    """Tensors, and what ``as_tensor`` takes."""

    def __init__(
        self,
        actual: Any,
        expected: Any,
        *,
        id: tuple[Any, ...] = (),
        allow_subclasses: bool = True,
        rtol: float | None = None,
        atol: float | None = None,
        equal_nan: bool = False,
        check_device: bool = True,
        check_dtype: bool = True,
        check_layout: bool = True,
        check_stride: bool = False,
        **other_parameters: Any,
    ) -> None:
        actual, expected = self._process_inputs(actual, expected, id=id, allow_subclasses=allow_subclasses)
        super().__init__(actual, expected, id=id, **other_parameters)
        self.rtol, self.atol = get_tolerances(actual, expected, rtol=rtol, atol=atol, id=id)
        self.equal_nan, self.check_device, self.check_dtype = equal_nan, check_device, check_dtype
        self.check_layout, self.check_stride = check_layout, check_stride

    def _process_inputs(
        self, actual: Any, expected: Any, *, id: tuple[Any, ...], allow_subclasses: bool
    ) -> tuple[ts.Tensor, ts.Tensor]:
        related = isinstance(actual, type(expected)) or isinstance(expected, type(actual))
        if not related or (not allow_subclasses and type(actual) is not type(expected)):
            self._inputs_not_supported()
        actual, expected = self._to_tensor(actual), self._to_tensor(expected)
        for tensor in (actual, expected):
            self._check_supported(tensor, id=id)
        return actual, expected

    def _check_supported(self, tensor: ts.Tensor, *, id: tuple[Any, ...]) -> None:
        """Nothing: every layout there is can be compared. Packages' pairs override this, and call it."""

    def _to_tensor(self, tensor_like: Any) -> ts.Tensor:
        if isinstance(tensor_like, ts.Tensor):
            return tensor_like
        try:
            return ts.as_tensor(tensor_like)
        except Exception:
            self._inputs_not_supported()

    def _rules(self) -> _Rules:
        flags = (self.check_device, self.check_dtype, self.check_layout, self.check_stride)
        return _Rules(self.rtol, self.atol, self.equal_nan, *flags, True)

    def compare(self) -> None:
        """Fail where attributes that are checked, or elements, differ."""
        actual, expected = self.actual, self.expected
        self._compare_attributes(actual, expected)
        if not (actual.is_meta or expected.is_meta):
            self._compare_values(*self._equalize_attributes(actual, expected))

    def _compare_attributes(self, actual: ts.Tensor, expected: ts.Tensor) -> None:
        complaint = _comparison._attributes(actual, expected, self._rules())
        if complaint:
            self._fail(AssertionError, complaint)

    def _equalize_attributes(self, actual: ts.Tensor, expected: ts.Tensor) -> tuple[ts.Tensor, ts.Tensor]:
        if actual.device != expected.device:
            actual, expected = actual.cpu(), expected.cpu()
        if actual.dtype != expected.dtype:
            dtype = ts.promote_types(actual.dtype, expected.dtype)
            actual, expected = actual.to(dtype), expected.to(dtype)
        if actual.layout != expected.layout:
            actual, expected = _comparison._dense(actual), _comparison._dense(expected)
        return actual, expected

    def _compare_values(self, actual: ts.Tensor, expected: ts.Tensor) -> None:
        compare = _comparison._compare_sparse if actual.layout is not ts.strided else _comparison._compare_elements
        complaint = compare(actual.detach(), expected.detach(), self._rules())
        if complaint:
            self._fail(AssertionError, complaint)

    def extra_repr(self) -> Sequence[str]:
        """What the tensors are compared with."""
        return ("rtol", "atol", "equal_nan", "check_device", "check_dtype", "check_layout", "check_stride")


def originate_pairs(
    actual: Any,
    expected: Any,
    *,
    pair_types: Sequence[type[Pair]],
    sequence_types: tuple[type, ...] = (collections.abc.Sequence,),
    mapping_types: tuple[type, ...] = (collections.abc.Mapping,),
    id: tuple[Any, ...] = (),
    **options: Any,
) -> list[Pair]:
    """The pairs of two nested values: of each, the first type of pair that takes it. Raises :class:`ErrorMeta`."""

    def inside(keys: Collection[Any], key_of: Callable[[Any], Any] = lambda key: key) -> list[Pair]:
        kinds: Any = {"pair_types": pair_types, "sequence_types": sequence_types, "mapping_types": mapping_types}
        return [
            pair
            for key in keys
            for pair in originate_pairs(actual[key], expected[key], id=(*id, key_of(key)), **kinds, **options)
        ]

    def both(kinds: tuple[type, ...]) -> bool:
        return all(isinstance(x, kinds) and not isinstance(x, str) for x in (actual, expected))

    if both(sequence_types):
        if len(actual) != len(expected):
            text = f"The length of the sequences mismatch: {len(actual)} != {len(expected)}"
            raise ErrorMeta(AssertionError, text, id=id)
        return inside(range(len(actual)))
    if both(mapping_types):
        if set(actual) != set(expected):
            text = (
                f"The keys of the mappings do not match:\nMissing keys in the actual mapping: "
                f"{sorted(set(expected) - set(actual), key=str)}\nAdditional keys in the actual mapping: "
                f"{sorted(set(actual) - set(expected), key=str)}"
            )
            raise ErrorMeta(AssertionError, text, id=id)
        return inside(list(actual))
    for pair_type in pair_types:
        try:
            return [pair_type(actual, expected, id=id, **options)]
        except UnsupportedInputs:
            continue
        except ErrorMeta:
            raise
        except Exception as error:
            raise RuntimeError(f"{pair_type.__name__} of {type(actual)} and {type(expected)}: {error}") from error
    text = f"No comparison pair was able to handle inputs of type {type(actual)} and {type(expected)}."
    raise ErrorMeta(TypeError, text, id=id)


def not_close_error_metas(
    actual: Any,
    expected: Any,
    *,
    pair_types: Sequence[type[Pair]] = (ObjectPair,),
    sequence_types: tuple[type, ...] = (collections.abc.Sequence,),
    mapping_types: tuple[type, ...] = (collections.abc.Mapping,),
    **options: Any,
) -> list[ErrorMeta]:
    """What differs between two nested values; empty where nothing does."""
    kinds: Any = {"pair_types": pair_types, "sequence_types": sequence_types, "mapping_types": mapping_types}
    try:
        pairs = originate_pairs(actual, expected, **kinds, **options)
    except ErrorMeta as error:
        raise error.to_error() from None
    found = []
    for pair in pairs:
        try:
            pair.compare()
        except ErrorMeta as error:
            found.append(error)
    return found


def assert_equal(actual: Any, expected: Any, **options: Any) -> None:
    """:func:`assert_close` without tolerances."""
    assert_close(actual, expected, rtol=0, atol=0, **options)
