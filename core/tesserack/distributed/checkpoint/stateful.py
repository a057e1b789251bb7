"""Objects that have a state of their own."""

from __future__ import annotations

from typing import Any, Protocol, TypeVar, runtime_checkable

__all__ = ["Stateful", "StatefulT"]


@runtime_checkable
class Stateful(Protocol):
    """Has ``state_dict()`` and ``load_state_dict(state_dict)``: what a save asks, and what a load gives to."""

    def state_dict(self) -> dict[str, Any]:
        """What is to be saved."""
        ...

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take what was saved."""
        ...


StatefulT = TypeVar("StatefulT", bound=Stateful)
