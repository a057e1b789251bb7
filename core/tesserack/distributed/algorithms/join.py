"""Ranks with different numbers of batches: ``torch.distributed.algorithms.join``."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

import tesserack as ts
from tesserack import distributed as dist

__all__ = ["Join", "JoinHook", "Joinable"]


class JoinHook:
    """What a rank does once its own data has ended, while ``going`` others go on."""

    going: int = 0

    def main_hook(self) -> None:
        """Again and again while other ranks go on: take part in the collectives of one iteration."""

    def post_hook(self, is_last_joiner: bool) -> None:
        """Once when all have ended; ``is_last_joiner`` of those that went on to the end."""


class _JoinConfig(NamedTuple):
    enable: bool
    throw_on_early_termination: bool
    is_first_joinable: bool

    @staticmethod
    def construct_disabled_join_config() -> _JoinConfig:
        """That of one outside of a context."""
        return _JoinConfig(False, False, False)


class Joinable(ABC):
    """Something whose iterations communicate, and that may be joined."""

    def __init__(self) -> None:
        self._join_config = _JoinConfig.construct_disabled_join_config()

    @abstractmethod
    def join_hook(self, **kwargs: Any) -> JoinHook:
        """What it does for the others."""

    @property
    @abstractmethod
    def join_device(self) -> Any:
        """Where ranks count who is there."""

    @property
    @abstractmethod
    def join_process_group(self) -> Any:
        """Who counts."""


class Join:
    """A context around a training loop whose ranks have different numbers of batches.

    A rank that has ended shadows the collectives of those that go on, until all have ended. With
    ``throw_on_early_termination`` the first end is a ``RuntimeError`` on every rank.
    """

    def __init__(
        self,
        joinables: Sequence[Joinable],
        enable: bool = True,
        throw_on_early_termination: bool = False,
        **kwargs: Any,
    ) -> None:
        if not joinables:
            raise ValueError("The join context manager requires at least one joinable")
        self._joinables, self._enable, self._throw = list(joinables), enable, throw_on_early_termination
        self._hooks = [joinable.join_hook(**kwargs) for joinable in self._joinables]
        self._group = self._joinables[0].join_process_group
        for number, joinable in enumerate(self._joinables):
            joinable._join_config = _JoinConfig(enable, throw_on_early_termination, number == 0)

    def __enter__(self) -> Join:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        try:
            if self._enable and kind is None:
                self._shadow()
        finally:
            for joinable in self._joinables:
                joinable._join_config = _JoinConfig.construct_disabled_join_config()

    def _shadow(self) -> None:
        last, turns = True, 0
        while (going := self._going(0)) > 0:
            if self._throw:
                self._tell_end()
                raise RuntimeError(f"Rank {dist.get_rank(self._group)} exhausted all inputs.")
            last, turns = False, turns + 1
            if turns == 1000:
                warnings.warn(
                    f"Join: {going} ranks have gone on for 1000 iterations since this one ended", stacklevel=3
                )
            for hook in self._hooks:
                hook.going = going
                hook.main_hook()
        if self._throw:
            self._tell_end()
        for hook in self._hooks:
            hook.post_hook(last)

    def _going(self, here: int) -> int:
        count = ts.tensor([here])
        dist.all_reduce(count, group=self._group)
        return int(count.item())

    def _tell_end(self) -> None:
        """To those that ask in ``notify_join_context`` whether somebody has ended."""
        ended = ts.ones(1)
        dist.all_reduce(ended, group=self._group)

    @staticmethod
    def notify_join_context(joinable: Joinable) -> int | None:
        """At the beginning of an iteration: this rank is still there. Returns how many are; None outside of a join."""
        config = joinable._join_config
        if not config.is_first_joinable or not config.enable:
            return None
        group = joinable.join_process_group
        count = ts.ones(1, dtype=ts.int64)
        dist.all_reduce(count, group=group)
        if config.throw_on_early_termination:
            ended = ts.zeros(1)
            # Only where some rank is in _shadow does it answer with a one.
            dist.all_reduce(ended, group=group)
            if ended.item():
                raise RuntimeError("Detected at least one rank that exhausted inputs. Throwing across all ranks.")
        return int(count.item())
