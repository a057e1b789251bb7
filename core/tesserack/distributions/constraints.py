"""Constraints: the sets that parameters and samples of distributions lie in.

``constraint.check(value)`` gives a bool tensor, true where a value (or a whole event of ``event_dim`` dims) is inside.

>>> import tesserack as ts
>>> from tesserack.distributions import constraints
>>> constraints.positive.check(ts.tensor([-1.0, 2.0]))
tensor([False,  True])
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import tesserack as ts
from tesserack import Tensor
from tesserack.autograd._whole import whole

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Bound = Tensor | float

__all__ = [
    "Constraint",
    "MixtureSameFamilyConstraint",
    "boolean",
    "cat",
    "corr_cholesky",
    "dependent",
    "dependent_property",
    "greater_than",
    "greater_than_eq",
    "half_open_interval",
    "independent",
    "integer_interval",
    "interval",
    "is_dependent",
    "less_than",
    "lower_cholesky",
    "lower_triangular",
    "multinomial",
    "nonnegative",
    "nonnegative_integer",
    "one_hot",
    "positive",
    "positive_definite",
    "positive_integer",
    "positive_semidefinite",
    "real",
    "real_vector",
    "simplex",
    "square",
    "stack",
    "symmetric",
    "unit_interval",
]


class Constraint:
    """A set of values. ``event_dim`` dims on the right make one value; ``is_discrete`` says whether it is countable."""

    is_discrete: Any = False
    event_dim: Any = 0

    def check(self, value: Tensor) -> Tensor:
        """True where an event of ``value`` lies in the set; the shape is that of ``value`` less ``event_dim`` dims."""
        raise NotImplementedError(f"{type(self).__name__}: a constraint must define check")

    def __repr__(self) -> str:
        return type(self).__name__.removeprefix("_") + "()"


class _Dependent(Constraint):
    """A set that is known only to an instance, since it depends on other parameters."""

    def __init__(self, *, is_discrete: Any = NotImplemented, event_dim: Any = NotImplemented) -> None:
        self._is_discrete = is_discrete
        self._event_dim = event_dim
        super().__init__()

    @property
    def is_discrete(self) -> Any:
        return self._known("is_discrete", self._is_discrete)

    @property
    def event_dim(self) -> Any:
        return self._known("event_dim", self._event_dim)

    @staticmethod
    def _known(name: str, value: Any) -> Any:
        if value is NotImplemented:
            raise NotImplementedError(f"{name} of this constraint depends on the distribution's parameters")
        return value

    def __call__(self, *, is_discrete: Any = NotImplemented, event_dim: Any = NotImplemented) -> _Dependent:
        return _Dependent(
            is_discrete=self._is_discrete if is_discrete is NotImplemented else is_discrete,
            event_dim=self._event_dim if event_dim is NotImplemented else event_dim,
        )

    def check(self, value: Tensor) -> Tensor:
        raise ValueError("constraint: this set depends on other parameters; ask the instance for its constraint")


def is_dependent(constraint: object) -> bool:
    """Whether ``constraint`` is known only to instances."""
    return isinstance(constraint, _Dependent)


class _DependentProperty(property, _Dependent):
    """`dependent` as a decorator of methods: a property of instances, a dependent constraint on the class."""

    def __init__(
        self,
        fn: Callable[[Any], Any] | None = None,
        *,
        is_discrete: Any = NotImplemented,
        event_dim: Any = NotImplemented,
    ) -> None:
        super().__init__(fn)
        self._is_discrete = is_discrete
        self._event_dim = event_dim

    def __call__(self, fn: Any = None, **known: Any) -> Any:
        return _DependentProperty(fn, is_discrete=self._is_discrete, event_dim=self._event_dim)


class _IndependentConstraint(Constraint):
    """The last dims of a set taken together: inside where all elements are."""

    def __init__(self, base_constraint: Constraint, reinterpreted_batch_ndims: int) -> None:
        if not isinstance(reinterpreted_batch_ndims, int) or reinterpreted_batch_ndims < 0:
            raise ValueError(f"independent: expected a non-negative int, got {reinterpreted_batch_ndims!r}")
        self.base_constraint = base_constraint
        self.reinterpreted_batch_ndims = reinterpreted_batch_ndims

    @property
    def is_discrete(self) -> Any:
        return self.base_constraint.is_discrete

    @property
    def event_dim(self) -> Any:
        return self.base_constraint.event_dim + self.reinterpreted_batch_ndims

    def check(self, value: Tensor) -> Tensor:
        result = self.base_constraint.check(value)
        extra = self.reinterpreted_batch_ndims
        if result.ndim < extra:
            need = self.base_constraint.event_dim + extra
            raise ValueError(f"independent: expected a value of at least {need} dims, got shape {tuple(value.shape)}")
        return result.reshape((*result.shape[: result.ndim - extra], -1)).all(-1)

    def __repr__(self) -> str:
        return f"IndependentConstraint({self.base_constraint!r}, {self.reinterpreted_batch_ndims})"


class MixtureSameFamilyConstraint(Constraint):
    """The support of a `MixtureSameFamily`: that of its components, whose rightmost batch dim is the mixture's."""

    def __init__(self, base_constraint: Constraint) -> None:
        if not isinstance(base_constraint, Constraint):
            raise AssertionError(f"expected a Constraint, got {type(base_constraint).__name__}")
        self.base_constraint = base_constraint

    @property
    def is_discrete(self) -> Any:
        return self.base_constraint.is_discrete

    @property
    def event_dim(self) -> Any:
        return self.base_constraint.event_dim

    def check(self, value: Tensor) -> Tensor:
        dims = self.event_dim
        inside = self.base_constraint.check(value.unsqueeze(-1 - dims))
        if value.ndim < dims:
            raise ValueError(f"mixture: expected a value of at least {dims} dims, got shape {tuple(value.shape)}")
        return inside.reshape((*value.shape[: value.ndim - dims], -1)).all(-1)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.base_constraint!r})"


class _Boolean(Constraint):
    is_discrete = True

    def check(self, value: Tensor) -> Tensor:
        return (value == 0) | (value == 1)


class _OneHot(Constraint):
    is_discrete = True
    event_dim = 1

    def check(self, value: Tensor) -> Tensor:
        return ((value == 0) | (value == 1)).all(-1) & value.sum(-1).eq(1)


class _IntegerInterval(Constraint):
    is_discrete = True

    def __init__(self, lower_bound: Bound, upper_bound: Bound) -> None:
        self.lower_bound = lower_bound
        self.upper_bound = upper_bound

    def check(self, value: Tensor) -> Tensor:
        return (value % 1 == 0) & (value >= self.lower_bound) & (value <= self.upper_bound)

    def __repr__(self) -> str:
        return f"IntegerInterval(lower_bound={self.lower_bound}, upper_bound={self.upper_bound})"


class _IntegerGreaterThan(Constraint):
    is_discrete = True

    def __init__(self, lower_bound: Bound) -> None:
        self.lower_bound = lower_bound

    def check(self, value: Tensor) -> Tensor:
        return (value % 1 == 0) & (value >= self.lower_bound)

    def __repr__(self) -> str:
        return f"IntegerGreaterThan(lower_bound={self.lower_bound})"


class _Real(Constraint):
    def check(self, value: Tensor) -> Tensor:
        return value == value  # not NaN


class _GreaterThan(Constraint):
    def __init__(self, lower_bound: Bound) -> None:
        self.lower_bound = lower_bound

    def check(self, value: Tensor) -> Tensor:
        return value > self.lower_bound

    def __repr__(self) -> str:
        return f"GreaterThan(lower_bound={self.lower_bound})"


class _GreaterThanEq(Constraint):
    def __init__(self, lower_bound: Bound) -> None:
        self.lower_bound = lower_bound

    def check(self, value: Tensor) -> Tensor:
        return value >= self.lower_bound

    def __repr__(self) -> str:
        return f"GreaterThanEq(lower_bound={self.lower_bound})"


class _LessThan(Constraint):
    def __init__(self, upper_bound: Bound) -> None:
        self.upper_bound = upper_bound

    def check(self, value: Tensor) -> Tensor:
        return value < self.upper_bound

    def __repr__(self) -> str:
        return f"LessThan(upper_bound={self.upper_bound})"


class _Interval(Constraint):
    def __init__(self, lower_bound: Bound, upper_bound: Bound) -> None:
        self.lower_bound = lower_bound
        self.upper_bound = upper_bound

    def check(self, value: Tensor) -> Tensor:
        return (value >= self.lower_bound) & (value <= self.upper_bound)

    def __repr__(self) -> str:
        return f"Interval(lower_bound={self.lower_bound}, upper_bound={self.upper_bound})"


class _HalfOpenInterval(Constraint):
    def __init__(self, lower_bound: Bound, upper_bound: Bound) -> None:
        self.lower_bound = lower_bound
        self.upper_bound = upper_bound

    def check(self, value: Tensor) -> Tensor:
        return (value >= self.lower_bound) & (value < self.upper_bound)

    def __repr__(self) -> str:
        return f"HalfOpenInterval(lower_bound={self.lower_bound}, upper_bound={self.upper_bound})"


class _Simplex(Constraint):
    event_dim = 1

    def check(self, value: Tensor) -> Tensor:
        return (value >= 0).all(-1) & ((value.sum(-1) - 1).abs() < 1e-6)


class _Multinomial(Constraint):
    is_discrete = True
    event_dim = 1

    def __init__(self, upper_bound: Bound) -> None:
        self.upper_bound = upper_bound

    def check(self, x: Tensor) -> Tensor:
        return (x >= 0).all(-1) & (x.sum(-1) <= self.upper_bound)


class _LowerTriangular(Constraint):
    event_dim = 2

    def check(self, value: Tensor) -> Tensor:
        return (value.tril() == value).flatten(-2).all(-1)


class _LowerCholesky(Constraint):
    event_dim = 2

    def check(self, value: Tensor) -> Tensor:
        return lower_triangular.check(value) & (value.diagonal(dim1=-2, dim2=-1) > 0).all(-1)


class _CorrCholesky(Constraint):
    """Cholesky factors of correlation matrices: lower triangular, positive diagonal, rows of length one."""

    event_dim = 2

    def check(self, value: Tensor) -> Tensor:
        tolerance = ts.finfo(value.dtype).eps * value.shape[-1] * 10
        unit_rows = ((value.detach() ** 2).sum(-1) - 1).abs().le(tolerance).all(-1)
        return lower_cholesky.check(value) & unit_rows


@partial(whole, computes=True)
def holds(checked: Tensor) -> bool:
    """Whether a constraint is met everywhere; without data it is taken to be."""
    return checked.is_meta or bool(checked.all())


class _Square(Constraint):
    event_dim = 2

    def check(self, value: Tensor) -> Tensor:
        inside = value.ndim >= 2 and value.shape[-2] == value.shape[-1]
        return ts.full(value.shape[:-2], inside, dtype=ts.bool, device=value.device)


class _Symmetric(_Square):
    def check(self, value: Tensor) -> Tensor:
        square_check = super().check(value)
        if not holds(square_check):
            return square_check
        return ts.isclose(value, value.mT, atol=1e-6).all(-1).all(-1)


class _PositiveSemidefinite(_Symmetric):
    def check(self, value: Tensor) -> Tensor:
        symmetric_check = super().check(value)
        if not holds(symmetric_check):
            return symmetric_check
        return ts.linalg.eigvalsh(value).ge(0).all(-1)  # type: ignore[no-any-return]


class _PositiveDefinite(_Symmetric):
    def check(self, value: Tensor) -> Tensor:
        symmetric_check = super().check(value)
        if not holds(symmetric_check):
            return symmetric_check
        return ts.linalg.cholesky_ex(value).info.eq(0)  # type: ignore[no-any-return]


class _Joined(Constraint):
    """Several constraints, each on a part of a dimension."""

    def __init__(self, parts: Sequence[Constraint], dim: int) -> None:
        if not all(isinstance(part, Constraint) for part in parts):
            raise AssertionError("expected constraints")
        self.cseq = list(parts)
        self.dim = dim

    @property
    def is_discrete(self) -> Any:
        return any(part.is_discrete for part in self.cseq)

    def _check_dim(self, value: Tensor) -> None:
        if not -value.ndim <= self.dim < value.ndim:
            raise AssertionError(f"dim {self.dim} is out of range for a value of shape {tuple(value.shape)}")


class _Cat(_Joined):
    def __init__(self, cseq: Sequence[Constraint], dim: int = 0, lengths: Sequence[int] | None = None) -> None:
        super().__init__(cseq, dim)
        self.lengths = [1] * len(self.cseq) if lengths is None else list(lengths)
        if len(self.lengths) != len(self.cseq):
            raise AssertionError(f"expected {len(self.cseq)} lengths, got {len(self.lengths)}")

    @property
    def event_dim(self) -> Any:
        return max(part.event_dim for part in self.cseq)

    def check(self, value: Tensor) -> Tensor:
        self._check_dim(value)
        checks, start = [], 0
        for part, length in zip(self.cseq, self.lengths, strict=True):
            checks.append(part.check(value.narrow(self.dim, start, length)))
            start += length
        return ts.cat(checks, self.dim)


class _Stack(_Joined):
    def __init__(self, cseq: Sequence[Constraint], dim: int = 0) -> None:
        super().__init__(cseq, dim)

    @property
    def event_dim(self) -> Any:
        dim = max(part.event_dim for part in self.cseq)
        return dim + 1 if self.dim + dim < 0 else dim

    def check(self, value: Tensor) -> Tensor:
        self._check_dim(value)
        slices = [value.select(self.dim, i) for i in range(value.size(self.dim))]
        return ts.stack([part.check(v) for part, v in zip(self.cseq, slices, strict=True)], self.dim)


dependent = _Dependent()
dependent_property = _DependentProperty
independent = _IndependentConstraint
boolean = _Boolean()
one_hot = _OneHot()
nonnegative_integer = _IntegerGreaterThan(0)
positive_integer = _IntegerGreaterThan(1)
integer_interval = _IntegerInterval
real: _Real = _Real()
real_vector = independent(real, 1)
positive: _GreaterThan = _GreaterThan(0.0)
nonnegative: _GreaterThanEq = _GreaterThanEq(0.0)
greater_than = _GreaterThan
greater_than_eq = _GreaterThanEq
less_than = _LessThan
multinomial = _Multinomial
unit_interval = _Interval(0.0, 1.0)
interval = _Interval
half_open_interval = _HalfOpenInterval
simplex: _Simplex = _Simplex()
lower_triangular = _LowerTriangular()
lower_cholesky: _LowerCholesky = _LowerCholesky()
corr_cholesky: _CorrCholesky = _CorrCholesky()
square = _Square()
symmetric = _Symmetric()
positive_semidefinite: _PositiveSemidefinite = _PositiveSemidefinite()
positive_definite: _PositiveDefinite = _PositiveDefinite()
cat = _Cat
stack = _Stack
