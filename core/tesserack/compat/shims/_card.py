"""The surface of ``torch.cuda`` and its like for a device that may not be there."""

from __future__ import annotations

import contextlib
from typing import Any

from tesserack import _native

__all__ = ["Card"]


class Card:
    """Functions that answer for the devices of one name: as their backend does, or as for a machine without any."""

    def __init__(self, name: str) -> None:
        self.name = name

    def _module(self) -> Any:
        from tesserack.backends import _device_module

        real = _native._real_device_name(self.name)
        return _device_module.of(real) if _device_module.has_module(real) else None

    def is_available(self) -> bool:
        """Whether there is a device."""
        return self.device_count() > 0

    def device_count(self) -> int:
        """The number of devices."""
        module = self._module()
        return 0 if module is None else int(module.device_count())

    def require(self, what: str) -> Any:
        """The backend's functions. ``BackendUnavailableError`` where there is no device."""
        module = self._module()
        if module is None or module.device_count() == 0:
            _native._resolve_device(self.name)  # says what is missing
            raise RuntimeError(f"torch.{self.name}.{what}: there is no {self.name} device")
        return module

    def call(self, what: str, *args: Any, **kwargs: Any) -> Any:
        """A function of the backend's."""
        return getattr(self.require(what), what)(*args, **kwargs)

    def quiet(self, what: str, default: Any, *args: Any, **kwargs: Any) -> Any:
        """A function of the backend's, or ``default`` where there is no device."""
        return self.call(what, *args, **kwargs) if self.is_available() else default

    def within(self, device: Any) -> contextlib.AbstractContextManager[Any]:
        """The context that makes a device current; nothing where there is none."""
        module = self._module()
        return contextlib.nullcontext() if module is None or not self.is_available() else module.device(device)
