"""What registering a hook returns."""

from __future__ import annotations

TYPE_CHECKING = False  # typing takes a good part of the time to import the package
if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["HookHandle"]


class HookHandle:
    """Returned by ``register_hook`` and its like; :meth:`remove` takes the hook away again."""

    def __init__(self, remove: Callable[[], None]) -> None:
        self._remove: Callable[[], None] | None = remove

    def remove(self) -> None:
        """Remove the hook; a second time does nothing."""
        remove, self._remove = self._remove, None
        if remove is not None:
            remove()

    def __enter__(self) -> HookHandle:
        return self

    def __exit__(self, *exc: object) -> None:
        self.remove()
