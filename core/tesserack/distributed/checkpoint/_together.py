"""Steps that ranks take together: an error on one is an error on all."""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Callable
from typing import Any

from tesserack.distributed import _objects, _world
from tesserack.distributed.checkpoint.api import CheckpointException

__all__ = ["Together"]


class _Failure:
    def __init__(self, error: BaseException) -> None:
        self.trace = traceback.extract_tb(error.__traceback__)
        try:
            pickle.loads(pickle.dumps(error))
            self.error = error
        except Exception:  # of a kind that does not travel
            self.error = RuntimeError(f"{type(error).__name__}: {error}")


def _tried(call: Callable[..., Any], *args: Any) -> Any:
    try:
        return call(*args)
    except Exception as error:
        return _Failure(error)


class Together:
    """The ranks of a group, of which one decides; or this process alone."""

    def __init__(self, group: Any, alone: bool, coordinator: int = 0) -> None:
        self.alone, self.group = alone, group
        made = None if alone else _world.resolve(group)
        if not alone and made is None:
            raise ValueError("checkpoint: expected a group that this rank belongs to")
        self.rank, self.size = (0, 1) if made is None else (made.rank(), made.size())
        self.root = coordinator
        self.is_coordinator = self.rank == self.root

    def _gathered(self, value: Any) -> list[Any]:
        if self.alone:
            return [value]
        found: list[Any] = [None] * self.size
        _objects.all_gather_object(found, value, self.group)
        return found

    def _spread(self, value: Any) -> Any:
        if self.alone:
            return value
        box = [value]
        _objects.broadcast_object_list(box, group=self.group, group_src=self.root)
        return box[0]

    def _check(self, step: str, found: list[Any]) -> None:
        failures = {rank: (each.error, each.trace) for rank, each in enumerate(found) if isinstance(each, _Failure)}
        if failures:
            raise CheckpointException(step, failures) from next(iter(failures.values()))[0]

    def planned(self, step: str, local: Callable[[], Any], decide: Callable[[list[Any]], list[Any]]) -> Any:
        """Each rank's part of what one decides from what all have."""
        found = self._gathered(_tried(local))
        self._check(step, found)
        decided = self._spread(_tried(decide, found) if self.is_coordinator else None)
        self._check(step, [decided])
        return decided[self.rank]

    def finished(self, step: str, local: Callable[[], Any], finish: Callable[[list[Any]], Any]) -> Any:
        """What one makes of what all have done, on all."""
        found = self._gathered(_tried(local))
        self._check(step, found)
        made = self._spread(_tried(finish, found) if self.is_coordinator else None)
        self._check(step, [made])
        return made

    def told(self, step: str, tell: Callable[[], Any]) -> Any:
        """What one knows, on all."""
        made = self._spread(_tried(tell) if self.is_coordinator else None)
        self._check(step, [made])
        return made
