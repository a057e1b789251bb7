"""Names of ``torch.cuda`` that older programs touch: typed tensors, the runtime's functions, memory snapshots."""

from __future__ import annotations

import contextlib
import functools
import os
import pickle
import types
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import tesserack
from tesserack import _native
from tesserack._tensor import typed as _typed

from tesserack_cuda.properties import CudaDeviceProperties

if TYPE_CHECKING:
    from tesserack_cuda.backend import CUDA

__all__ = ["names"]

_VENDOR = "com.nvidia.cuda"
_SYNC_MODES = {"default": 0, "warn": 1, "error": 2}


def names(backend: CUDA, index: Callable[[Any], int]) -> dict[str, Any]:
    """The names; ``index`` is the number of a device given as PyTorch allows."""
    _show_handles()
    made = _Surface(backend, index)
    found = {name: getattr(made, name) for name in vars(_Surface) if not name.startswith("__")}
    found |= _typed_tensors(backend.name)
    found |= {
        "_CudaDeviceProperties": CudaDeviceProperties,
        "has_half": True,
        "has_magma": False,
        "memory": _memory(backend, index),
        "nccl": _nccl(backend),
        "profiler": _profiler(backend),
    }
    return found


def _show_handles() -> None:
    """Give streams of NVIDIA's devices the names by which other libraries share them."""

    def handle(stream: Any) -> int:
        backend: Any = _native._python_backend(stream.device.type)
        if getattr(backend, "vendor", None) != _VENDOR:
            raise AttributeError(f"Stream: cuda_stream is of NVIDIA's devices; this one is of {stream.device}")
        return int(stream.stream_id)

    kind: Any = _native.Stream
    kind.cuda_stream = property(handle, doc="The cudaStream_t.")
    kind.__cuda_stream__ = lambda stream: (0, handle(stream))  # the protocol's version first


class _Surface:
    def __init__(self, backend: CUDA, index: Callable[[Any], int]):
        self._backend, self._index = backend, index
        self._guard: Any = None
        self._sync_mode = 0

    def ExternalStream(self, stream_ptr: int, device: Any = None) -> Any:
        """A stream that another library made, by its cudaStream_t; it must outlive what is returned."""
        return _native._external_stream(_native.device(f"{self._backend.name}:{self._index(device)}"), stream_ptr)

    def get_stream_from_external(self, data_ptr: int, device: Any = None) -> Any:
        """As :meth:`ExternalStream`."""
        return self.ExternalStream(data_ptr, device)

    def is_tf32_supported(self) -> bool:
        """Whether the current device multiplies in tf32."""
        return bool(self._backend.probed() and self._backend.attributes(self._index(None))["major"] >= 8)

    def set_per_process_memory_fraction(self, fraction: float, device: Any = None) -> None:
        """Limit CuPy's pool on a device to a part of its memory. ``ValueError`` outside of 0 to 1."""
        if not isinstance(fraction, (int, float)):
            raise TypeError(f"Invalid type for fraction argument, must be `float`: got {type(fraction).__name__}")
        if not 0 <= fraction <= 1:
            raise ValueError(f"Invalid fraction value: {fraction}. Allowed range: 0~1")
        self._backend.on(self._index(device))
        self._backend.driver.pool.set_limit(fraction=float(fraction))

    def get_per_process_memory_fraction(self, device: Any = None) -> float:
        """The part of a device's memory that CuPy's pool is limited to; 1.0 where it is not."""
        number = self._index(device)
        limit, total = self._backend.memory.statistics(number)["pool_limit"], self._backend.on(number).memGetInfo()[1]
        return limit / total if limit else 1.0

    def set_sync_debug_mode(self, debug_mode: int | str) -> None:
        """Have waits for the device reported: 0 or "default" not, 1 or "warn" in the log, 2 or "error" as errors.

        Of this thread, by ``tesserack.transfer_guard``.
        """
        mode = _SYNC_MODES.get(debug_mode, -1) if isinstance(debug_mode, str) else debug_mode
        if mode not in (0, 1, 2):
            raise RuntimeError("invalid value of debug_mode, expected one of `default`, `warn`, `error`")
        tesserack.transfer_guard(("off", "log", "error")[mode], ["synchronize"])
        self._sync_mode = mode

    def get_sync_debug_mode(self) -> int:
        """What :meth:`set_sync_debug_mode` set."""
        return self._sync_mode

    def cudart(self) -> SimpleNamespace:
        """Functions of CUDA's runtime under their names there; each returns its status, 0, or raises."""
        runtime = self._backend.driver.runtime

        def done(function: Callable[..., Any]) -> Callable[..., int]:
            @functools.wraps(function)
            def call(*arguments: Any) -> int:
                function(*arguments)
                return 0

            return call

        return SimpleNamespace(
            cudaError=SimpleNamespace(success=0),
            cudaGetErrorString=lambda status: f"CUDA error {status}",
            cudaHostRegister=done(lambda address, size, flags: runtime.hostRegister(address, size, flags)),
            cudaHostUnregister=done(lambda address: runtime.hostUnregister(address)),
            cudaMemGetInfo=lambda device: self._backend.on(self._index(device)).memGetInfo(),
            cudaProfilerStart=done(lambda: runtime.profilerStart()),
            cudaProfilerStop=done(lambda: runtime.profilerStop()),
        )

    def _is_in_bad_fork(self) -> bool:
        """Whether this process was forked from one that had begun to use the driver, and cannot."""
        return self._backend.begun_by not in (0, os.getpid())

    def _get_pynvml_handler(self, device: Any = None) -> Any:
        """NVML's handle of a device. ``ModuleNotFoundError`` without nvidia-ml-py."""
        try:
            import pynvml
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError("nvidia-ml-py does not seem to be installed or it can't be imported.") from error
        pynvml.nvmlInit()
        bus = self._backend.driver.runtime.deviceGetPCIBusId(self._index(device))
        return pynvml.nvmlDeviceGetHandleByPciBusId(bus.encode())


class _OnDevice(_typed._TypedMeta):
    """Typed tensors of one backend."""

    def __call__(cls, *args: Any, device: Any = None) -> Any:
        return super().__call__(*args, device=device or cls.device)


def _typed_tensors(name: str) -> dict[str, Any]:
    found = {}
    for kind in _typed.__all__:
        of = getattr(_typed, kind)
        found[kind] = _OnDevice(
            kind, (), {"dtype": of.dtype, "device": name, "__doc__": of.__doc__, "__module__": f"tesserack.{name}"}
        )
    return found


# --- modules ----------------------------------------------------------------------------------------------------------


def _memory(backend: CUDA, index: Callable[[Any], int]) -> types.ModuleType:
    """``memory``: the functions of the package, and what PyTorch records of allocations, here by blocks of the pool."""

    def _record_memory_history(
        enabled: str | bool | None = "all",
        context: str | None = "all",
        stacks: str = "all",
        max_entries: int = 1 << 20,
        device: Any = None,
        **others: Any,
    ) -> None:
        """Record blocks taken from CuPy's pool and given back; ``None`` or False ends that and forgets them."""
        if enabled not in (None, True, False, "state", "all"):
            raise ValueError(f"_record_memory_history: expected None, 'state' or 'all', got {enabled!r}")
        backend.memory.record(max_entries if enabled else 0, context in ("all", "alloc") and bool(enabled))

    def _snapshot(device: Any = None) -> dict[str, Any]:
        """Blocks that the core holds of CuPy's pool, and what was recorded, as PyTorch arranges them."""
        count = tesserack.get_device_module(backend.name).device_count()
        return backend.memory.snapshot(count)

    def _dump_snapshot(filename: str = "dump_snapshot.pickle") -> None:
        """Write :func:`_snapshot` as a pickle."""
        with open(filename, "wb") as file:
            pickle.dump(_snapshot(), file)

    made = types.ModuleType(f"tesserack.{backend.name}.memory")
    recorded = {f.__name__: f for f in (_record_memory_history, _snapshot, _dump_snapshot)}
    made.__dict__.update(recorded, memory_snapshot=lambda: _snapshot()["segments"])
    kept = ("memory_", "max_memory_", "reset_", "empty_cache", "mem_get_info", "set_per_process", "get_per_process")

    def forwarded(name: str) -> Any:
        if name.startswith(kept):
            return getattr(tesserack.get_device_module(backend.name), name)
        raise AttributeError(f"module {made.__name__!r} has no attribute {name!r}")

    made.__dict__["__getattr__"] = forwarded
    return made


def _nccl(backend: CUDA) -> SimpleNamespace:
    """``nccl``: what programs ask of it; collectives are the business of ``tesserack.distributed``."""

    def version() -> tuple[int, int, int]:
        """The version. ``RuntimeError`` where it is not installed."""
        found = backend.driver.library("nccl")
        if found is None:
            raise RuntimeError("nccl: NCCL is not installed; try pip install nvidia-nccl-cu13")
        number = int(found.get_version())
        return number // 10000, number // 100 % 100, number % 100

    def is_available(tensors: Any = ()) -> bool:
        """Whether it is installed, and all tensors are on devices of this backend."""
        return backend.driver.library("nccl") is not None and all(x.device.type == backend.name for x in tensors)

    def unique_id() -> bytes:
        """What the ranks of a new communicator share."""
        return bytes(backend.driver.library("nccl").get_unique_id())

    return SimpleNamespace(version=version, is_available=is_available, unique_id=unique_id)


def _profiler(backend: CUDA) -> SimpleNamespace:
    """``profiler``: tells NVIDIA's profilers where to begin and end."""

    def start() -> None:
        """Begin to collect."""
        backend.driver.runtime.profilerStart()

    def stop() -> None:
        """End it."""
        backend.driver.runtime.profilerStop()

    @contextlib.contextmanager
    def profile() -> Iterator[None]:
        """A context that is collected."""
        start()
        try:
            yield
        finally:
            stop()

    return SimpleNamespace(start=start, stop=stop, profile=profile)
