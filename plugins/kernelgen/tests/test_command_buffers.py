"""The recorder of OpenCL work, on functions that note how they are called."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tesserack_kernelgen import command_buffers, launcher
from tesserack_kernelgen.command_buffers import Functions

QUEUE, OTHER, KERNEL, PROGRAM, BUFFER, EVENT = 0x100, 0x200, 0x300, 0x400, 0x500, 0x600
_P, _I, _U, _S = ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, ctypes.c_size_t
_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "clCreateKernel": (_P, _P, ctypes.c_char_p, ctypes.POINTER(_I)),
    "clGetKernelInfo": (_I, _P, _U, _S, _P, ctypes.POINTER(_S)),
    "clSetKernelArg": (_I, _P, _U, _S, _P),
    "clReleaseKernel": (_I, _P),
    "clWaitForEvents": (_I, _U, ctypes.POINTER(_P)),
    "clReleaseEvent": (_I, _P),
    "clCreateCommandBufferKHR": (_P, _U, ctypes.POINTER(_P), ctypes.POINTER(ctypes.c_uint64), ctypes.POINTER(_I)),
    "clFinalizeCommandBufferKHR": (_I, _P),
    "clReleaseCommandBufferKHR": (_I, _P),
    "clEnqueueCommandBufferKHR": (_I, _U, ctypes.POINTER(_P), _P, _U, _P, ctypes.POINTER(_P)),
    "clCommandNDRangeKernelKHR": (_I, _P, _P, _P, _P, _U, _P, ctypes.POINTER(_S), _P, _U, _P, _P, _P),
    "clCommandCopyBufferKHR": (_I, _P, _P, _P, _P, _S, _S, _S, _U, _P, _P, _P),
}
_WITH_PROPERTIES = (_I, _P, _P, _P, _P, _P, _S, _S, _S, _U, _P, _P, _P)


class Driver:
    """A driver that keeps no order of its own: what it was asked, in ``asked``, and what it refuses, by name."""

    def __init__(self, copy_properties: bool = False, simultaneous_use: bool = True):
        self.asked: list[tuple[Any, ...]] = []
        self.refuses: dict[str, int] = {}
        self.kernels = 0
        self.functions = Functions(copy_properties=copy_properties, simultaneous_use=simultaneous_use)
        signatures = {**_SIGNATURES, **({"clCommandCopyBufferKHR": _WITH_PROPERTIES} if copy_properties else {})}
        self._kept = [self._function(name, signature) for name, signature in signatures.items()]
        self._launched = self._function("clEnqueueNDRangeKernel", (_I, *[_P] * 9))
        self.kernel = launcher.opencl_kernel(
            self.functions.clSetKernelArg, ctypes.cast(self._launched, _P).value or 0, KERNEL, QUEUE
        )

    def _function(self, name: str, signature: tuple[Any, ...]) -> Any:
        own: Callable[..., Any] = getattr(self, name, lambda *arguments: 0)

        def called(*arguments: Any) -> Any:
            code = self.refuses.get(name, 0)
            told = own(*arguments)
            if signature[0] is _P:
                arguments[-1][0] = code
                return 0 if code else told
            self.asked.append((name, *(told if isinstance(told, tuple) else ())))
            return code

        made = ctypes.CFUNCTYPE(*signature)(called)
        if hasattr(self.functions, name):
            setattr(self.functions, name, ctypes.cast(made, _P).value)
        return made

    def clCreateKernel(self, program: int, name: bytes, code: Any) -> int:
        assert (program, name) == (PROGRAM, b"trial")
        self.kernels += 1
        return KERNEL + self.kernels

    def clGetKernelInfo(self, kernel: int, what: int, size: int, value: int | None, needed: Any) -> int:
        assert kernel == KERNEL
        told = b"trial\0" if what == 0x1190 else PROGRAM.to_bytes(8, "little")
        if needed:
            needed[0] = len(told)
        if value:
            assert size == len(told)
            ctypes.memmove(value, told, size)
        return 0

    def clSetKernelArg(self, kernel: int, index: int, size: int, value: int) -> tuple[Any, ...]:
        return kernel - KERNEL, index, int.from_bytes(ctypes.string_at(value, size), "little")

    def clCreateCommandBufferKHR(self, count: int, queues: Any, properties: Any, code: Any) -> int:
        self.asked.append(("create", count, queues[0], properties[:3] if properties else None))
        return BUFFER

    def clEnqueueCommandBufferKHR(
        self, count: int, queues: Any, buffer: int, n: int, events: Any, event: Any
    ) -> tuple[Any, ...]:
        if event:
            event[0] = EVENT
        return count, queues[0], buffer

    def clCommandNDRangeKernelKHR(self, buffer: int, queue: Any, properties: Any, kernel: int, *_: Any) -> tuple[Any]:
        assert buffer == BUFFER and queue is None and properties is None
        return (kernel - KERNEL,)

    def clCommandCopyBufferKHR(self, *arguments: Any) -> tuple[Any, ...]:
        return arguments

    def names(self) -> list[str]:
        return [asked[0] for asked in self.asked]

    def record(self, *adds: int) -> tuple[int, int]:
        """Launches with these arguments, recorded."""
        assert command_buffers.record(self.functions, QUEUE) == 0
        for add in adds:
            launcher.opencl_launch(self.kernel, ctypes.c_int32(add))
        return command_buffers.end(QUEUE)


@pytest.fixture(autouse=True)
def nothing_is_left_open() -> Iterator[None]:
    yield
    assert command_buffers.end(QUEUE) == (-59, 0)


def test_each_command_has_a_kernel_of_its_own_with_the_arguments_of_then() -> None:
    driver = Driver()
    before = launcher.launches()
    status, recording = driver.record(7, 9)
    assert status == 0 and recording and launcher.launches() == before
    assert driver.asked[0] == ("create", 1, QUEUE, [0x1293, 1, 0])
    assert [a for a in driver.asked if a[0] == "clSetKernelArg"] == [
        ("clSetKernelArg", 1, 0, 7),
        ("clSetKernelArg", 2, 0, 9),
    ]
    assert [a for a in driver.asked if "NDRange" in a[0]] == [
        ("clCommandNDRangeKernelKHR", 1),
        ("clCommandNDRangeKernelKHR", 2),
    ]
    assert driver.names().count("clReleaseKernel") == 2 and driver.names()[-1] == "clFinalizeCommandBufferKHR"
    launcher.opencl_launch(driver.kernel, ctypes.c_int32(1))
    assert driver.names()[-1] == "clEnqueueNDRangeKernel", "it is launched again"
    command_buffers.release(recording)
    assert driver.names()[-1] == "clReleaseCommandBufferKHR"


def test_a_replay_is_one_launch_on_the_queue_named() -> None:
    driver = Driver()
    _, recording = driver.record(7)
    before = launcher.launches()
    for queue in (QUEUE, OTHER, QUEUE):
        assert command_buffers.replay(recording, queue) == 0
        assert driver.asked[-1] == ("clEnqueueCommandBufferKHR", 1, queue, BUFFER)
    assert launcher.launches() == before + 3 and "clWaitForEvents" not in driver.names()
    command_buffers.release(recording)


def test_a_replay_waits_for_the_one_before_where_the_driver_has_one_at_a_time() -> None:
    driver = Driver(simultaneous_use=False)
    _, recording = driver.record(7)
    assert driver.asked[0] == ("create", 1, QUEUE, None)
    driver.asked.clear()
    assert [command_buffers.replay(recording, OTHER) for _ in range(2)] == [0, 0]
    command_buffers.release(recording)
    queued = "clEnqueueCommandBufferKHR"
    freed = ["clReleaseEvent", "clReleaseCommandBufferKHR"]
    assert driver.names() == [queued, "clWaitForEvents", "clReleaseEvent", queued, *freed]


@pytest.mark.parametrize("properties", [False, True])
def test_copies_have_the_signature_of_their_version(properties: bool) -> None:
    driver = Driver(copy_properties=properties)
    assert command_buffers.record(driver.functions, QUEUE) == 0
    assert command_buffers.copy(QUEUE, 11, 12, 3, 4, 5) == 0
    assert driver.asked[-1][1:] == (BUFFER, None, *([None] if properties else []), 11, 12, 3, 4, 5, 0, None, None, None)
    status, recording = command_buffers.end(QUEUE)
    assert status == 0
    command_buffers.release(recording)


@pytest.mark.parametrize("name", ["clCreateKernel", "clSetKernelArg", "clCommandNDRangeKernelKHR", "clGetKernelInfo"])
def test_what_the_driver_refuses_is_no_part_of_a_recording(name: str) -> None:
    driver = Driver()
    assert command_buffers.record(driver.functions, QUEUE) == 0
    assert launcher.opencl_launch(driver.kernel, ctypes.c_int32(1)) == 0
    driver.refuses[name] = -5
    assert launcher.opencl_launch(driver.kernel, ctypes.c_int32(2)) != 0
    driver.refuses.clear()
    assert launcher.opencl_launch(driver.kernel, ctypes.c_int32(3)) == 0
    assert command_buffers.end(QUEUE) == (-5, 0) and driver.names()[-1] == "clReleaseCommandBufferKHR"


def test_a_queue_is_recorded_once_at_a_time() -> None:
    driver = Driver()
    assert command_buffers.record(driver.functions, QUEUE) == 0
    assert command_buffers.record(driver.functions, QUEUE) == -59
    assert command_buffers.record(driver.functions, OTHER) == 0
    for queue in (QUEUE, OTHER):
        status, recording = command_buffers.end(queue)
        assert status == 0 and command_buffers.replay(recording, queue) == 0
        command_buffers.release(recording)
    assert "clEnqueueCommandBufferKHR" not in driver.names(), "there was nothing to replay"


def test_a_driver_that_makes_no_buffer_is_asked_again() -> None:
    driver = Driver()
    driver.refuses["clCreateCommandBufferKHR"] = -1140
    assert command_buffers.record(driver.functions, QUEUE) == -1140
    driver.refuses.clear()
    status, recording = driver.record(1)
    assert status == 0
    command_buffers.release(recording)


def test_what_is_forgotten_is_not_spoken_of() -> None:
    driver = Driver()
    assert command_buffers.record(driver.functions, QUEUE) == 0
    driver.asked.clear()
    command_buffers.forget(QUEUE)
    assert driver.asked == [] and command_buffers.end(QUEUE) == (-59, 0)
