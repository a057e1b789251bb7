"""From constraints to transforms onto them.

``biject_to(constraint)`` gives a bijection from unconstrained numbers, ``transform_to(constraint)`` any map onto the
set that optimisers like. New constraints are added with ``biject_to.register(constraint_class)``.

>>> import tesserack as ts
>>> from tesserack.distributions import biject_to, constraints
>>> biject_to(constraints.positive)(ts.tensor(0.0))
tensor(1.)
"""

from __future__ import annotations

import numbers
from typing import TYPE_CHECKING, Any, TypeVar, overload

from tesserack.distributions import constraints, transforms

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["ConstraintRegistry", "biject_to", "transform_to"]

Factory = TypeVar("Factory", bound="Callable[[Any], Any]")


class ConstraintRegistry:
    """A table from classes of constraints to functions that make a transform of a constraint."""

    def __init__(self) -> None:
        self._registry: dict[type, Callable[[Any], Any]] = {}
        super().__init__()

    @overload
    def register(self, constraint: Any, factory: None = None) -> Callable[[Factory], Factory]: ...

    @overload
    def register(self, constraint: Any, factory: Factory) -> Factory: ...

    def register(self, constraint: Any, factory: Any = None) -> Any:
        """Adds ``factory(constraint) -> Transform`` for a class of constraints; a decorator without ``factory``."""
        if factory is None:
            return lambda factory: self.register(constraint, factory)
        if isinstance(constraint, constraints.Constraint):
            constraint = type(constraint)
        if not isinstance(constraint, type) or not issubclass(constraint, constraints.Constraint):
            raise TypeError(f"Expected constraint to be either a Constraint subclass or instance, but got {constraint}")
        self._registry[constraint] = factory
        return factory

    def __call__(self, constraint: Any) -> Any:
        try:
            factory = self._registry[type(constraint)]
        except KeyError:
            raise NotImplementedError(
                f"Cannot transform {type(constraint).__name__} constraints; register a factory for them"
            ) from None
        return factory(constraint)


biject_to = ConstraintRegistry()
transform_to = ConstraintRegistry()


def _both(constraint: Any) -> Callable[[Factory], Factory]:
    def add(factory: Factory) -> Factory:
        biject_to.register(constraint, factory)
        transform_to.register(constraint, factory)
        return factory

    return add


@_both(constraints.real)
def _to_real(constraint: Any) -> Any:
    return transforms.identity_transform


def _independent(registry: ConstraintRegistry) -> Callable[[Any], Any]:
    def make(constraint: Any) -> Any:
        base = registry(constraint.base_constraint)
        return transforms.IndependentTransform(base, constraint.reinterpreted_batch_ndims)

    return make


for _registry in (biject_to, transform_to):
    _registry.register(constraints.independent, _independent(_registry))


@_both(constraints.positive)
@_both(constraints.nonnegative)
def _to_greater_than(constraint: Any) -> Any:
    return transforms.ComposeTransform(
        [transforms.ExpTransform(), transforms.AffineTransform(constraint.lower_bound, 1)]
    )


@_both(constraints.less_than)
def _to_less_than(constraint: Any) -> Any:
    return transforms.ComposeTransform(
        [transforms.ExpTransform(), transforms.AffineTransform(constraint.upper_bound, -1)]
    )


@_both(constraints.interval)
@_both(constraints.half_open_interval)
def _to_interval(constraint: Any) -> Any:
    bounds = constraint.lower_bound, constraint.upper_bound
    if all(isinstance(bound, numbers.Number) for bound in bounds) and bounds == (0, 1):
        return transforms.SigmoidTransform()
    scale = constraint.upper_bound - constraint.lower_bound
    return transforms.ComposeTransform(
        [transforms.SigmoidTransform(), transforms.AffineTransform(constraint.lower_bound, scale)]
    )


@biject_to.register(constraints.simplex)
def _simplex_bijection(constraint: Any) -> Any:
    return transforms.StickBreakingTransform()


@transform_to.register(constraints.simplex)
def _simplex_map(constraint: Any) -> Any:
    return transforms.SoftmaxTransform()


@transform_to.register(constraints.lower_cholesky)
def _to_lower_cholesky(constraint: Any) -> Any:
    return transforms.LowerCholeskyTransform()


@transform_to.register(constraints.positive_definite)
@transform_to.register(constraints.positive_semidefinite)
def _to_positive_definite(constraint: Any) -> Any:
    return transforms.PositiveDefiniteTransform()


@_both(constraints.corr_cholesky)
def _to_corr_cholesky(constraint: Any) -> Any:
    return transforms.CorrCholeskyTransform()


def _joined(registry: ConstraintRegistry, kind: str) -> Callable[[Any], Any]:
    def make(constraint: Any) -> Any:
        parts = [registry(part) for part in constraint.cseq]
        if kind == "cat":
            return transforms.CatTransform(parts, constraint.dim, constraint.lengths)
        return transforms.StackTransform(parts, constraint.dim)

    return make


for _registry in (biject_to, transform_to):
    _registry.register(constraints.cat, _joined(_registry, "cat"))
    _registry.register(constraints.stack, _joined(_registry, "stack"))
