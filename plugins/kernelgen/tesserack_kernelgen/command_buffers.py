"""Recordings of OpenCL work by the native launcher, by ctypes: what a queue is given goes to a command buffer.

Functions give OpenCL's statuses, 0 where all went well.
"""

from __future__ import annotations

import ctypes

from tesserack_kernelgen.launcher import _library

__all__ = ["Functions", "copy", "end", "forget", "record", "release", "replay"]


class Functions(ctypes.Structure):
    """Addresses of OpenCL's functions, ``Functions`` of ``native/opencl_recording.cpp``.

    Args:
        copy_properties: whether ``clCommandCopyBufferKHR`` takes properties, as it does since 0.9.6.
        simultaneous_use: whether a replay may be queued while one before is under way; else the host waits for it.
    """

    #: The functions by their names in OpenCL, those of the extension after the first six.
    NAMES = (
        "clCreateKernel",
        "clGetKernelInfo",
        "clSetKernelArg",
        "clReleaseKernel",
        "clWaitForEvents",
        "clReleaseEvent",
        "clCreateCommandBufferKHR",
        "clFinalizeCommandBufferKHR",
        "clReleaseCommandBufferKHR",
        "clEnqueueCommandBufferKHR",
        "clCommandNDRangeKernelKHR",
        "clCommandCopyBufferKHR",
    )
    _fields_ = (
        *((name, ctypes.c_void_p) for name in NAMES),
        ("copy_properties", ctypes.c_int32),
        ("simultaneous_use", ctypes.c_int32),
    )


def record(functions: Functions, queue: int) -> int:
    """Launches and copies that a queue is given from now on are written down. -59: they are already."""
    size = ctypes.c_size_t(ctypes.sizeof(functions))
    return int(_library().tesserack_opencl_record(ctypes.byref(functions), size, ctypes.c_void_p(queue)))


def copy(queue: int, source: int, target: int, source_offset: int, target_offset: int, nbytes: int) -> int:
    """A copy between buffers, as part of what the queue is given."""
    places = map(ctypes.c_void_p, (queue, source, target))
    sizes = map(ctypes.c_size_t, (source_offset, target_offset, nbytes))
    return int(_library().tesserack_opencl_record_copy(*places, *sizes))


def end(queue: int) -> tuple[int, int]:
    """The status, and the recording, or 0 where the driver refused a part of it. The writing has ended in any case."""
    made = ctypes.c_void_p()
    status = _library().tesserack_opencl_recorded(ctypes.c_void_p(queue), ctypes.byref(made))
    return int(status), made.value or 0


def replay(recording: int, queue: int) -> int:
    """What was recorded is queued, on a queue of the same context with the same properties."""
    return int(_library().tesserack_opencl_replay(ctypes.c_void_p(recording), ctypes.c_void_p(queue)))


def release(recording: int) -> None:
    """The recording goes, once what is under way is done."""
    _library().tesserack_opencl_release_recording(ctypes.c_void_p(recording))


def forget(queue: int) -> None:
    """A queue is gone with its context: so is what was being recorded for it, without a word to the driver."""
    _library().tesserack_opencl_forget_recorded(ctypes.c_void_p(queue))
