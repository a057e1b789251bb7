"""Kernels of the generator on CUDA: how text is compiled, kept and launched."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from tesserack_kernelgen import Card, Device, DiskCache, launcher
from tesserack_kernelgen.cuda import CUDA as DIALECT

if TYPE_CHECKING:
    from tesserack_cuda.backend import CUDA

__all__ = ["CUDACard", "compile_text"]

_THREADS = 256


def compile_text(nvrtc: Any, source: str, architecture: str, *options: str) -> tuple[bytes, str]:
    """The cubin of a text for an architecture such as ``"sm_90"``, and the log. ``RuntimeError`` for a bad text."""
    program = nvrtc.createProgram(source, "kernel.cu", (), ())
    arguments = [f"-arch={architecture}", "-std=c++17", "-fmad=false", *options]
    try:
        nvrtc.compileProgram(program, arguments)
        return nvrtc.getCUBIN(program), nvrtc.getProgramLog(program)
    except nvrtc.NVRTCError as error:
        raise RuntimeError(
            f"cuda: a kernel does not compile for {architecture}: {nvrtc.getProgramLog(program)}"
        ) from error
    finally:
        nvrtc.destroyProgram(program)


class CUDACard(Card):
    """The generator's templates for the devices of the backend."""

    dialect = DIALECT

    def __init__(self, backend: CUDA):
        super().__init__()
        self.backend = backend
        backend.card = self
        self.entry = launcher.address("cuda")
        self.cache = DiskCache()
        self._devices: dict[int, Device] = {}

    def device(self, index: int) -> Device:
        known = self._devices.get(index)
        if known is None:
            known = self._devices[index] = self._describe(index)
        return known

    def architecture(self, index: int) -> str:
        """What kernels for a device are compiled for."""
        told = self.backend.attributes(index)
        return f"sm_{told['major']}{told['minor']}"

    def _describe(self, index: int) -> Device:
        told = self.backend.attributes(index)
        version = ".".join(map(str, self.backend.driver.nvrtc.getVersion()))
        return Device(
            index=index,
            identity=f"cuda|{self.architecture(index)}|nvrtc {version}",
            group=_THREADS,
            compute_units=int(told["multiProcessorCount"]),
            vector_bytes=16,
            fp64=True,
            serial=False,
            int64_atomics=True,
            fault=struct.pack("Q", self.backend.fault_buffer(index)),
            max_arguments=4096,
            local_bytes=int(told["sharedMemPerBlock"]),
        )

    def compile(self, device: Device, source: str, name: str) -> int:
        loaded = self.backend.driver
        key = self.cache.key(source, device.identity)
        binary = self.cache.get(key)
        if binary is None:
            binary, _ = compile_text(loaded.nvrtc, source, self.architecture(device.index))
            self.statistics.compiled += 1
            self.cache.put(key, binary)
        else:
            self.statistics.from_disk += 1
        self.backend.on(device.index)
        with self.backend.relaxed():
            module = loaded.driver.moduleLoadData(binary)  # stays loaded: plans hold its functions
        function = int(loaded.driver.moduleGetFunction(module, name))
        context = int(loaded.driver.ctxGetCurrent())
        return launcher.cuda_kernel(loaded.launch_kernel, loaded.set_context, function, context)
