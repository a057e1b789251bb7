"""What distributions given by probabilities or by logits share."""

from __future__ import annotations

from typing import Any, ClassVar

from tesserack import Size, Tensor
from tesserack.distributions.distribution import Distribution
from tesserack.distributions.utils import broadcast_all, is_number, lazy_property, logits_to_probs, probs_to_logits

__all__ = ["BinaryOdds", "Odds"]


class Odds(Distribution):
    """Parameters ``probs`` or ``logits`` along the last dim: one is given, the other computed when first asked for."""

    _binary: ClassVar[bool] = False
    _param: Tensor

    @lazy_property
    def logits(self) -> Tensor:
        """Log-probabilities, or log-odds."""
        return probs_to_logits(self.probs, is_binary=self._binary)

    @lazy_property
    def probs(self) -> Tensor:
        """Probabilities."""
        return logits_to_probs(self.logits, is_binary=self._binary)

    @property
    def param_shape(self) -> Size:
        """The shape of ``probs`` and ``logits``."""
        return self._param.size()

    def _new(self, *args: Any, **kwargs: Any) -> Tensor:
        return self._param.new(*args, **kwargs)

    @staticmethod
    def _check_one(probs: Any, logits: Any) -> None:
        if (probs is None) == (logits is None):
            raise ValueError("Either `probs` or `logits` must be specified, but not both.")

    def _expand_odds(self, cls: type, batch_shape: Any, _instance: Any, event_dims: int, names: Any = ()) -> Any:
        new = self._expanded(cls, batch_shape, ("probs", "logits"), _instance, event_dims)
        for name in names:
            new.__dict__[name] = self.__dict__[name].expand(Size(batch_shape))
        new._param = new.__dict__["probs"] if "probs" in new.__dict__ else new.__dict__["logits"]
        return new


class BinaryOdds(Odds):
    """The same for a single probability: logits are log-odds."""

    _binary: ClassVar[bool] = True

    def _take_odds(self, probs: Any, logits: Any) -> Size:
        """Keeps the one given as a tensor; the batch shape."""
        self._check_one(probs, logits)
        given = logits if probs is None else probs
        (self._param,) = broadcast_all(given)
        if probs is None:
            self.logits = self._param
        else:
            self.probs = self._param
        return Size() if is_number(given) else self._param.size()

    def _take_trials(self, total_count: Any, probs: Any, logits: Any, validate_args: bool | None) -> None:
        """Begins a distribution of a number of trials, which is broadcast with the one given."""
        self._take_odds(probs, logits)
        self.total_count, self._param = broadcast_all(total_count, self._param)
        self.total_count = self.total_count.type_as(self._param)
        self.__dict__["logits" if probs is None else "probs"] = self._param
        Distribution.__init__(self, self._param.size(), validate_args=validate_args)
