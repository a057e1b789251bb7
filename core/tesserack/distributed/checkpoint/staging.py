"""Copies of state dicts, from which asynchronous saves write."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from tesserack.distributed.checkpoint._copies import copied

__all__ = ["AsyncStager", "BlockingAsyncStager", "DefaultStager", "StagingOptions"]


@runtime_checkable
class AsyncStager(Protocol):
    """What ``async_save`` asks for copies: ``stage(state_dict)``, at once or as a future."""

    @property
    def should_synchronize_after_execute(self) -> bool:
        """Whether ``synchronize_staging`` is to be called before training goes on."""
        ...

    def stage(self, state_dict: Mapping[str, Any]) -> Any:
        """The copy."""
        ...

    def synchronize_staging(self) -> None:
        """Wait for copies under way."""

    def close(self) -> None:
        """Give up what is held."""


@dataclass
class StagingOptions:
    """How :class:`DefaultStager` copies: ``use_async_staging`` has it answer with a future; others have no effect."""

    use_pinned_memory: bool = True
    use_shared_memory: bool = True
    use_async_staging: bool = True
    use_non_blocking_copy: bool = True


class DefaultStager:
    """Copies to host memory, which are there when ``stage`` returns.

    >>> import tesserack as ts
    >>> weight = ts.ones(2)
    >>> staged = DefaultStager(StagingOptions(use_async_staging=False)).stage({"weight": weight})
    >>> weight.zero_()
    tensor([0., 0.])
    >>> staged
    {'weight': tensor([1., 1.])}
    """

    should_synchronize_after_execute = False

    def __init__(self, config: StagingOptions | None = None) -> None:
        self._config = config or StagingOptions()

    def stage(self, state_dict: Mapping[str, Any], **kwargs: Any) -> Any:
        """The copy, or a future of it that is done."""
        made = copied(state_dict)
        if not self._config.use_async_staging:
            return made
        done: Future[Any] = Future()
        done.set_result(made)
        return done

    def synchronize_staging(self) -> None:
        """Nothing is under way."""

    def close(self) -> None:
        """Nothing is held."""


class BlockingAsyncStager(DefaultStager):
    """Copies at once; ``cache_staged_state_dict`` and ``type_check`` have no effect."""

    def __init__(self, cache_staged_state_dict: bool = False, type_check: bool = False) -> None:
        super().__init__(StagingOptions(use_async_staging=False))
