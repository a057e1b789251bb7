"""The base class of all distributions."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import tesserack as ts
from tesserack import Size, Tensor
from tesserack.distributions import constraints
from tesserack.distributions.utils import lazy_property

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Distribution"]


def missing(distribution: object, what: str) -> NotImplementedError:
    """The error of a distribution that has no closed form, or no method, for something."""
    return NotImplementedError(f"{type(distribution).__name__}: {what} is not defined for this distribution")


class Distribution:
    """A probability distribution over a batch of independent events.

    ``batch_shape`` counts parameter sets, ``event_shape`` is the shape of one draw of one of them; a sample has
    shape ``sample_shape + batch_shape + event_shape``. With ``validate_args`` (the default, until
    `set_default_validate_args` says otherwise) parameters and values are checked and a ``ValueError`` names what is
    outside.
    """

    has_rsample: Any = False
    has_enumerate_support: Any = False
    _validate_args: bool = __debug__

    @staticmethod
    def set_default_validate_args(value: bool) -> None:
        """Whether distributions check their arguments where ``validate_args`` is not given."""
        if value not in (True, False):
            raise ValueError(f"set_default_validate_args: expected a bool, got {value!r}")
        Distribution._validate_args = value

    def __init__(self, batch_shape: Any = (), event_shape: Any = (), validate_args: bool | None = None) -> None:
        self._batch_shape = Size(batch_shape)
        self._event_shape = Size(event_shape)
        if validate_args is not None:
            self._validate_args = validate_args
        if self._validate_args:
            self._check_parameters()
        super().__init__()

    def _check_parameters(self) -> None:
        try:
            limits = self.arg_constraints
        except NotImplementedError:
            warnings.warn(
                f"{type(self)} does not define `arg_constraints`. Please set `arg_constraints = {{}}` or "
                "initialize the distribution with `validate_args=False` to turn off validation.",
                stacklevel=4,
            )
            return
        for name, limit in limits.items():
            if constraints.is_dependent(limit):
                continue
            if name not in self.__dict__ and isinstance(getattr(type(self), name, None), lazy_property):
                continue  # derived from the parameters given
            value = getattr(self, name)
            if not constraints.holds(limit.check(value)):
                raise ValueError(
                    f"Expected parameter {name} ({type(value).__name__} of shape {tuple(value.shape)}) of distribution "
                    f"{self!r} to satisfy the constraint {limit!r}, but found invalid values:\n{value}"
                )

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        """The same distribution over a larger batch; parameters are expanded, not copied."""
        raise missing(self, "expand")

    @property
    def batch_shape(self) -> Size:
        """The shape over which parameters are batched."""
        return self._batch_shape

    @property
    def event_shape(self) -> Size:
        """The shape of a single draw."""
        return self._event_shape

    @property
    def arg_constraints(self) -> dict[str, Any]:
        """The constraint of each parameter."""
        raise missing(self, "arg_constraints")

    @property
    def support(self) -> Any:
        """The constraint that draws satisfy."""
        raise missing(self, "support")

    @property
    def mean(self) -> Tensor:
        """The mean, of shape batch + event."""
        raise missing(self, "mean")

    @property
    def mode(self) -> Tensor:
        """The most probable value."""
        raise missing(self, "mode")

    @property
    def variance(self) -> Tensor:
        """The variance, elementwise."""
        raise missing(self, "variance")

    @property
    def stddev(self) -> Tensor:
        """The standard deviation, elementwise."""
        return self.variance.sqrt()

    def sample(self, sample_shape: Any = ()) -> Tensor:
        """Draws of shape ``sample_shape + batch_shape + event_shape``, without gradients."""
        with ts.no_grad():
            return self.rsample(sample_shape)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        """Draws that are differentiable functions of the parameters."""
        raise missing(self, "rsample")

    def sample_n(self, n: int) -> Tensor:
        """``n`` draws; deprecated, use ``sample((n,))``."""
        warnings.warn("`sample_n(n)` will be deprecated. Use `sample((n,))` instead.", FutureWarning, stacklevel=2)
        return self.sample(Size((n,)))

    def log_prob(self, value: Tensor) -> Tensor:
        """The log of the probability density or mass at ``value``."""
        raise missing(self, "log_prob")

    def cdf(self, value: Tensor) -> Tensor:
        """The probability of a draw at most ``value``."""
        raise missing(self, "cdf")

    def icdf(self, value: Tensor) -> Tensor:
        """The quantile function, the inverse of `cdf`."""
        raise missing(self, "icdf")

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """All values of a discrete distribution along a new first dim."""
        raise missing(self, "enumerate_support")

    def entropy(self) -> Tensor:
        """The entropy in nats, of the batch's shape."""
        raise missing(self, "entropy")

    def perplexity(self) -> Tensor:
        """exp(entropy)."""
        return ts.exp(self.entropy())

    def _extended_shape(self, sample_shape: Any = ()) -> Size:
        return Size((*sample_shape, *self._batch_shape, *self._event_shape))

    def _validate_sample(self, value: Tensor) -> None:
        if not isinstance(value, Tensor):
            raise ValueError("The value argument to log_prob must be a Tensor")
        start = value.ndim - len(self._event_shape)
        if start < 0 or value.shape[start:] != self._event_shape:
            raise ValueError(
                "The right-most size of value must match event_shape: "
                f"{tuple(value.shape)} vs {tuple(self._event_shape)}."
            )
        for i, j in zip(reversed(value.shape[:start]), reversed(self._batch_shape), strict=False):
            if i not in (1, j) and j != 1:
                raise ValueError(
                    "Value is not broadcastable with batch_shape+event_shape: "
                    f"{tuple(value.shape)} vs {tuple(self._extended_shape())}."
                )
        try:
            support = self.support
        except NotImplementedError:
            warnings.warn(
                f"{type(self)} does not define `support` to enable sample validation. Please initialize the "
                "distribution with `validate_args=False` to turn off validation.",
                stacklevel=3,
            )
            return
        if not constraints.holds(support.check(value)):
            raise ValueError(
                f"Expected value argument ({type(value).__name__} of shape {tuple(value.shape)}) to be within the "
                f"support ({support!r}) of the distribution {self!r}, but found invalid values:\n{value}"
            )

    def _checked(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        return value

    def _get_checked_instance(self, cls: type, _instance: Any = None) -> Any:
        if _instance is None and type(self).__init__ != cls.__init__:  # type: ignore[misc]
            raise NotImplementedError(
                f"Subclass {type(self).__name__} of {cls.__name__} that defines a custom __init__ method must also "
                "define a custom .expand() method."
            )
        return self.__new__(type(self)) if _instance is None else _instance

    def _expanded(
        self, cls: type, batch_shape: Any, names: Sequence[str], _instance: Any = None, event_dims: int = 0
    ) -> Any:
        """A copy whose tensors among ``names`` are expanded; ``event_dims`` dims on the right stay as they are."""
        new = self._get_checked_instance(cls, _instance)
        batch_shape = Size(batch_shape)
        for name in names:
            if name in self.__dict__:
                value = self.__dict__[name]
                tail = value.shape[value.ndim - event_dims :] if event_dims else ()
                new.__dict__[name] = value.expand((*batch_shape, *tail))
        Distribution.__init__(new, batch_shape, self._event_shape, validate_args=False)
        new._validate_args = self._validate_args
        return new

    def __repr__(self) -> str:
        names = [name for name in self.arg_constraints if name in self.__dict__]
        values = [self.__dict__[name] for name in names]
        texts = [
            f"{name}: {value if value.numel() == 1 else value.size()}"
            for name, value in zip(names, values, strict=True)
        ]
        return f"{type(self).__name__}({', '.join(texts)})"
