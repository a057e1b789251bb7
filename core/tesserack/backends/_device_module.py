"""``tesserack.acme``: the functions of one backend, under the names PyTorch has for its accelerators."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

import tesserack
from tesserack import _native
from tesserack.backends import _device_streams as _streams
from tesserack.backends._accessors import declared_absent, resolve
from tesserack.backends._info import DeviceProperties, device_properties
from tesserack.backends._loader import list_backends, load, namespace

__all__ = ["DeviceModule", "has_module", "of"]


#: PyTorch's names of what is counted, in tensors and in blocks held for them.
_STATISTICS = {"allocated_bytes": "allocated", "active_bytes": "allocated", "reserved_bytes": "reserved"}


class DeviceContext:
    """Within it, the bare name of a backend means the device with this index, in this thread."""

    def __init__(self, name: str, device: Any) -> None:
        self._name, self._device = name, device
        self._before: list[int] = []

    def __enter__(self) -> None:
        self._before.append(_native._current_index(self._name) if self._names_one() else -1)
        if self._before[-1] >= 0:
            _native._set_current_index(self._name, resolve(self._name, self._device).index or 0)

    def __exit__(self, *exc: object) -> None:
        before = self._before.pop()
        if before >= 0:
            _native._set_current_index(self._name, before)

    def _names_one(self) -> bool:
        """None and negative indices leave the current device as it is."""
        if self._device is None or (isinstance(self._device, int) and self._device < 0):
            return False
        resolve(self._name)  # loads the backend
        return True


class DeviceModule(ModuleType):
    """The functions of the backend ``name``. Devices are given as index, text or device; None is the current one."""

    def __init__(self, name: str) -> None:
        super().__init__(f"tesserack.{name}", f"Devices of the backend {name}.")
        self._name = name
        self.device = functools.partial(DeviceContext, name)

    def __getattr__(self, name: str) -> Any:
        if name in _streams.NAMES:
            value = _streams.bind(name, self._name)
            setattr(self, name, value)
            return value
        if not name.startswith("__"):
            self.device_count()  # loads the backend, if it can be
            if name in (own := namespace(self._name)):
                return own[name]
        raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")

    def _each(self) -> list[_native.device]:
        return [_native._resolve_device(f"{self._name}:{index}") for index in range(self.device_count())]

    # --- devices ---------------------------------------------------------------------------------------------------

    def is_available(self) -> bool:
        """Whether there is a device; never raises. ``tesserack.backends.why_unavailable`` says why not."""
        return self.device_count() > 0

    def device_count(self) -> int:
        """The number of devices; 0 where the backend cannot be used."""
        try:
            _native._resolve_device(f"{self._name}:0")
            return int(_native._device_count(self._name))
        except Exception:
            return 0

    def is_initialized(self) -> bool:
        """Whether the backend is loaded."""
        return bool(_native._is_loaded(self._name))

    def init(self) -> None:
        """Load the backend now. ``BackendUnavailableError`` if it cannot be used."""
        resolve(self._name)

    def current_device(self) -> int:
        """The index that the backend's bare name means in this thread."""
        return resolve(self._name).index or 0

    def set_device(self, device: Any) -> None:
        """Set what the backend's bare name means in this thread; a negative index does nothing."""
        if not (isinstance(device, int) and device < 0):
            _native._set_current_index(self._name, resolve(self._name, device).index or 0)

    def get_device_properties(self, device: Any = None) -> DeviceProperties:
        """Name, memory, dtypes and limits of a device."""
        where = resolve(self._name, device)
        more = namespace(self._name).get("_device_properties")  # of a backend whose devices have more to tell
        return more(where.index, device_properties(where)) if more else device_properties(where)

    def get_device_name(self, device: Any = None) -> str:
        """What the device calls itself."""
        return self.get_device_properties(device).name

    def is_bf16_supported(self) -> bool:
        """Whether the current device computes with bfloat16."""
        return self.is_available() and "bfloat16" in self.get_device_properties().dtypes

    def synchronize(self, device: Any = None) -> None:
        """Wait until a device has finished all work given to it."""
        _native.synchronize(resolve(self._name, device))

    # --- memory ----------------------------------------------------------------------------------------------------

    def memory_stats(self, device: Any = None) -> dict[str, int]:
        """Bytes allocated and reserved, now and at most, also under PyTorch's names (``allocated_bytes.all.peak``).

        Empty where there is no device and none is named.
        """
        if device is None and not self.is_available():
            return {}
        where = resolve(self._name, device)
        counted: dict[str, int] = _native.memory_stats(where)
        for theirs, ours in _STATISTICS.items():
            counted |= {f"{theirs}.all.current": counted[ours], f"{theirs}.all.peak": counted[f"{ours}_peak"]}
        counted["num_device_alloc"] = counted["device_allocations"]
        more = namespace(self._name).get("_memory_statistics")  # of a backend that counts by itself
        return {**counted, **more(where.index)} if more else counted

    def memory_allocated(self, device: Any = None) -> int:
        """Bytes in live tensors."""
        return self.memory_stats(device).get("allocated", 0)

    def max_memory_allocated(self, device: Any = None) -> int:
        """The most bytes ever in live tensors at once, since ``reset_peak_memory_stats``."""
        return self.memory_stats(device).get("allocated_peak", 0)

    def memory_reserved(self, device: Any = None) -> int:
        """Bytes held from the device, cached ones included."""
        return self.memory_stats(device).get("reserved", 0)

    def max_memory_reserved(self, device: Any = None) -> int:
        """The most bytes ever held from the device."""
        return self.memory_stats(device).get("reserved_peak", 0)

    def reset_peak_memory_stats(self, device: Any = None) -> None:
        """Start measuring the peaks anew."""
        _native.reset_peak_memory_stats(resolve(self._name, device))

    def empty_cache(self) -> None:
        """Give memory that no live tensor uses back, on every device of the backend."""
        for device in self._each():
            _native.empty_cache(device)

    def mem_get_info(self, device: Any = None) -> tuple[int, int]:
        """Free and total bytes of the device. Where it does not tell the free ones: those not reserved here."""
        properties = self.get_device_properties(device)
        total = properties.total_memory
        return properties.free_memory or max(0, total - self.memory_reserved(device)), total

    # --- random numbers --------------------------------------------------------------------------------------------

    def manual_seed(self, seed: int) -> None:
        """Start the current device's generator from ``seed``; does nothing without a device."""
        if self.is_available():
            _native._default_generator(resolve(self._name)).manual_seed(seed)

    def manual_seed_all(self, seed: int) -> None:
        """Start the generators of all devices of the backend from ``seed``; does nothing without a device."""
        for device in self._each():
            _native._default_generator(device).manual_seed(seed)

    def initial_seed(self) -> int:
        """The seed the current device's generator started from."""
        return _native._default_generator(resolve(self._name)).initial_seed()

    def get_rng_state(self, device: Any = None) -> _native.Tensor:
        """The state of a device's generator, as a uint8 tensor."""
        return tesserack.get_rng_state(resolve(self._name, device))

    def set_rng_state(self, new_state: _native.Tensor, device: Any = None) -> None:
        """Restore what ``get_rng_state`` returned."""
        tesserack.set_rng_state(new_state, resolve(self._name, device))


_modules: dict[str, DeviceModule] = {}


def of(device: Any = None) -> DeviceModule:
    """The module of a backend, by its name or a device of it; of the default device if None."""
    name = device if isinstance(device, str) and ":" not in device else None
    if name is None:
        name = (_native.get_default_device() if device is None else _native.device(device)).type
    if name not in _modules:
        if not has_module(name):
            load(name)  # says what is installed
        _modules[name] = DeviceModule(name)
    return _modules[name]


def has_module(name: str) -> bool:
    """Whether a name is a backend's: installed, registered, or offered by the distribution and merely absent."""
    return name in list_backends() or name in declared_absent()
