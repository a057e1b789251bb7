"""What ``tesserack.cuda`` has beyond the functions of every device, under PyTorch's names."""

from __future__ import annotations

import functools
import secrets
from collections.abc import Callable, Mapping
from types import MappingProxyType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import tesserack

from tesserack_cuda import graphed, graphs, properties, surface

if TYPE_CHECKING:
    from tesserack_cuda.backend import CUDA

__all__ = ["namespace"]


def namespace(backend: CUDA) -> Mapping[str, Any]:
    """The names, bound to the devices of a backend."""
    made = _Functions(backend)
    found: dict[str, Any] = {name: getattr(made, name) for name in vars(_Functions) if not name.startswith("_")}
    found |= surface.names(backend, made._index)
    found |= _graphs(backend)
    found["_memory_statistics"] = backend.memory.statistics
    found["_device_properties"] = functools.partial(properties.told_by_cuda, backend)
    found["amp"] = _amp(backend.name)
    found["nvtx"] = _nvtx()
    found["OutOfMemoryError"] = tesserack.OutOfMemoryError
    found["StreamContext"] = tesserack.stream
    return MappingProxyType(found)


class _Functions:
    def __init__(self, backend: CUDA):
        self._backend = backend

    @property
    def _module(self) -> Any:
        return tesserack.get_device_module(self._backend.name)

    def _index(self, device: Any) -> int:
        if device is None:
            return int(self._module.current_device())
        return device if isinstance(device, int) else tesserack.device(device).index or 0

    def get_device_capability(self, device: Any = None) -> tuple[int, int]:
        """The compute capability, as (major, minor)."""
        told = self._backend.attributes(self._index(device))
        return int(told["major"]), int(told["minor"])

    def get_arch_list(self) -> list[str]:
        """What kernels are compiled for: the devices that are there."""
        return sorted({self._backend.card.architecture(k) for k in range(self._module.device_count())})

    def can_device_access_peer(self, device: Any, peer_device: Any) -> bool:
        """Whether copies between two devices go directly."""
        return bool(self._backend.driver.runtime.deviceCanAccessPeer(self._index(device), self._index(peer_device)))

    def memory_summary(self, device: Any = None, abbreviated: bool = False) -> str:
        """The memory statistics of a device as text."""
        stats = self._module.memory_stats(device)
        return "\n".join(f"{key}: {value}" for key, value in stats.items())

    def reset_max_memory_allocated(self, device: Any = None) -> None:
        """As ``reset_peak_memory_stats``, which PyTorch recommends instead."""
        self._module.reset_peak_memory_stats(device)

    def memory_cached(self, device: Any = None) -> int:
        """The older name of ``memory_reserved``."""
        return int(self._module.memory_reserved(device))

    def max_memory_cached(self, device: Any = None) -> int:
        """The older name of ``max_memory_reserved``."""
        return int(self._module.max_memory_reserved(device))

    def kernel_statistics(self) -> dict[str, float]:
        """Kernels compiled and loaded from disk since the process began, the seconds that took, plans, launches."""
        return dict(self._backend.card.statistics.to_dict())

    def is_current_stream_capturing(self) -> bool:
        """Whether the current stream is captured. False where there is no device."""
        handle = self._module.current_stream().stream_id if self._module.is_available() else 0
        return bool(handle and self._backend.driver.runtime.streamIsCapturing(handle))

    def ipc_collect(self) -> None:
        """Nothing: memory is not shared with other processes."""

    def seed(self) -> None:
        """Start the current device's generator from a seed that nobody chose."""
        self._module.manual_seed(secrets.randbits(63))

    def seed_all(self) -> None:
        """Start the generators of all devices from a seed that nobody chose."""
        self._module.manual_seed_all(secrets.randbits(63))

    def get_rng_state_all(self) -> list[Any]:
        """The states of the generators of all devices."""
        return [self._module.get_rng_state(k) for k in range(self._module.device_count())]

    def set_rng_state_all(self, new_states: list[Any]) -> None:
        """Restore what ``get_rng_state_all`` returned."""
        for k, state in enumerate(new_states):
            self._module.set_rng_state(state, k)

    def utilization(self, device: Any = None) -> int:
        """Percent of the last moments in which kernels ran. ``ModuleNotFoundError`` without nvidia-ml-py."""
        return int(self._monitor(device, "nvmlDeviceGetUtilizationRates").gpu)

    def temperature(self, device: Any = None) -> int:
        """Degrees Celsius. ``ModuleNotFoundError`` without nvidia-ml-py."""
        return int(self._monitor(device, "nvmlDeviceGetTemperature", 0))

    def power_draw(self, device: Any = None) -> int:
        """Milliwatts. ``ModuleNotFoundError`` without nvidia-ml-py."""
        return int(self._monitor(device, "nvmlDeviceGetPowerUsage"))

    def clock_rate(self, device: Any = None) -> int:
        """Megahertz of the multiprocessors. ``ModuleNotFoundError`` without nvidia-ml-py."""
        return int(self._monitor(device, "nvmlDeviceGetClockInfo", 1))

    def _monitor(self, device: Any, function: str, *arguments: int) -> Any:
        try:
            import pynvml
        except ModuleNotFoundError as error:
            message = f"tesserack.cuda: NVIDIA's management library is not read; try pip install nvidia-ml-py ({error})"
            raise ModuleNotFoundError(message) from error
        pynvml.nvmlInit()
        try:
            bus = self._backend.driver.runtime.deviceGetPCIBusId(self._index(device))
            return getattr(pynvml, function)(pynvml.nvmlDeviceGetHandleByPciBusId(bus.encode()), *arguments)
        finally:
            pynvml.nvmlShutdown()


def _graphs(backend: CUDA) -> dict[str, Any]:
    """Captured graphs, bound to the backend; ``graphs`` holds them once more, as a module of PyTorch's does."""
    bound = {"_backend": backend, "__module__": f"tesserack.{backend.name}"}
    names: dict[str, Any] = {
        "CUDAGraph": type("CUDAGraph", (graphs.CUDAGraph,), {**bound, "__doc__": graphs.CUDAGraph.__doc__}),
        "graph": type("graph", (graphs.graph,), {**bound, "__doc__": graphs.graph.__doc__}),
        "graph_pool_handle": graphs.graph_pool_handle,
    }

    @functools.wraps(graphed.make_graphed_callables)
    def make_graphed_callables(*args: Any, **kwargs: Any) -> Any:
        makers = graphed.Makers(names["graph"], names["CUDAGraph"], tesserack.get_device_module(backend.name))
        return graphed.make_graphed_callables(makers, *args, **kwargs)

    names["make_graphed_callables"] = make_graphed_callables
    return {**names, "graphs": SimpleNamespace(**names)}


def _amp(name: str) -> SimpleNamespace:
    """``amp``: the older spellings of ``tesserack.amp`` for one device."""
    from tesserack import amp
    from tesserack.amp import custom_bwd, custom_fwd

    class autocast(amp.autocast):
        """``tesserack.amp.autocast`` for the device, with the arguments in their older order."""

        def __init__(self, enabled: bool = True, dtype: Any = tesserack.float16, cache_enabled: bool = True) -> None:
            super().__init__(name, dtype, enabled, cache_enabled)

    class GradScaler(amp.GradScaler):
        """``tesserack.amp.GradScaler`` for the device."""

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(name, *args, **kwargs)

    return SimpleNamespace(
        autocast=autocast,
        GradScaler=GradScaler,
        custom_fwd=functools.partial(custom_fwd, device_type=name),
        custom_bwd=functools.partial(custom_bwd, device_type=name),
    )


def _nvtx() -> SimpleNamespace:
    """``nvtx``: ranges for NVIDIA's profiler, through CuPy's bindings."""

    def bound(name: str) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            from cupy_backends.cuda.libs import nvtx

            return getattr(nvtx, name)(*arguments)

        call.__name__ = call.__qualname__ = name
        return call

    class range:
        """A context that is one range."""

        def __init__(self, msg: str):
            self.msg = msg

        def __enter__(self) -> None:
            push(self.msg)

        def __exit__(self, *error: object) -> None:
            pop()

    push, pop = bound("RangePush"), bound("RangePop")
    return SimpleNamespace(range=range, range_push=push, range_pop=pop, mark=bound("Mark"))
