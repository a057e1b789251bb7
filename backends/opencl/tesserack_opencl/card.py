"""Kernels of the generator on OpenCL: how text is compiled, kept and launched."""

from __future__ import annotations

import os
import struct
import warnings
from typing import TYPE_CHECKING, Any

import pyopencl as cl
from tesserack import _native
from tesserack_kernelgen import Card, Device, DiskCache, launcher
from tesserack_kernelgen.opencl import OPENCL
from tesserack_kernelgen.templates import TEMPLATES

from tesserack_opencl.command_buffers import address

if TYPE_CHECKING:
    from tesserack_opencl.backend import OpenCL

__all__ = ["OpenCLCard"]

_OPTIONS = "PYOPENCL_BUILD_OPTIONS"  # what PyOpenCL adds to every build


class OpenCLCard(Card):
    """The generator's templates for the devices of the backend."""

    dialect = OPENCL

    def __init__(self, backend: OpenCL):
        super().__init__()
        self.backend = backend
        backend.card = self
        self.entry = launcher.address("opencl")
        self.cache = DiskCache()
        self._devices: dict[int, Device] = {}
        self._programs: list[Any] = []

    def device(self, index: int) -> Device:
        known = self._devices.get(index)
        if known is None:
            known = self._devices[index] = self._describe(index)
        return known

    def _describe(self, index: int) -> Device:
        found = self.backend.found(index)
        limit = int(found.device.max_work_group_size)
        group = min(256 if not found.cpu else 128, 1 << (limit.bit_length() - 1))
        return Device(
            index=index,
            identity=found.identity,
            group=group,
            compute_units=int(found.device.max_compute_units),
            vector_bytes=4 if found.cpu else 16,
            fp64=found.fp64,
            serial=found.cpu,
            int64_atomics=found.int64_atomics,
            fault=struct.pack("Q", self.backend.fault_buffer(index)),
            max_arguments=int(found.device.max_parameter_size),
            local_bytes=int(found.device.local_mem_size),
            simd_bytes=4 * int(found.device.native_vector_width_float),
            cache_bytes=int(found.device.global_mem_cache_size),
        )

    def forget(self, index: int) -> None:
        """A device has another context than before: plans, kernels and addresses of the other are not used again."""
        with self._lock:
            self._devices.pop(index, None)
            self._kernels = {key: kernel for key, kernel in self._kernels.items() if key[0] != index}
        for op in TEMPLATES:
            _native._kernel_changed(self.backend.name, op)

    def compile(self, device: Device, source: str, name: str) -> int:
        found = self.backend.found(device.index)
        options = filter(None, [os.environ.get(_OPTIONS)])
        key = self.cache.key(source, device.identity, *options)
        binary = self.cache.get(key)
        program = self._from_binary(found, binary) if binary else None
        if program is None:
            program = self._build(cl.Program(found.context, source), name)
            self.statistics.compiled += 1
            self.cache.put(key, program.get_info(cl.program_info.BINARIES)[0])
        else:
            self.statistics.from_disk += 1
        kernel = cl.Kernel(program, name)
        self._programs.append(kernel)  # lives as long as the launcher may use it
        queue = self.backend.queue(device.index, None)
        functions = address("clSetKernelArg"), address("clEnqueueNDRangeKernel")
        return launcher.opencl_kernel(*functions, kernel.int_ptr, queue.int_ptr)

    def _build(self, program: Any, name: str) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PyOpenCL warns of every remark of the compiler
            try:
                return program.build()
            except cl.Error as error:
                raise RuntimeError(f"opencl: the kernel {name} does not compile: {error}") from error

    def _from_binary(self, found: Any, binary: bytes) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                return cl.Program(found.context, [found.device], [binary]).build()
            except cl.Error:
                return None  # of another driver, or damaged: compiled again
