"""Devices of all platforms that can build a kernel, with what each can do."""

from __future__ import annotations

import ctypes
import functools
import os
import threading
import warnings
from dataclasses import dataclass, replace
from typing import Any

import pyopencl as cl

from tesserack_opencl.command_buffers import examine

__all__ = ["Found", "find", "identify", "recorded", "renew"]

_SWITCH = "TESSERACK_OPENCL_COMMAND_BUFFERS"  # "0": no driver records; "1": all that can, those of processors too

_UUID = 0x106A  # CL_DEVICE_UUID_KHR, which PyOpenCL does not ask for

_TRIVIAL = "__kernel void trivial(__global int* x) { x[0] = 41 + 1; }"


@dataclass(frozen=True)
class Found:
    """A device that works, and a context of its own."""

    device: Any
    context: Any
    fp64: bool
    half: bool
    int64_atomics: bool

    @property
    def cpu(self) -> bool:
        """Whether it is the processor of the host."""
        return bool(self.device.type & cl.device_type.CPU)

    @property
    def identity(self) -> str:
        """Device and driver, as the key of kernels kept on disk."""
        d = self.device
        return "|".join((d.platform.name, d.platform.version, d.name, d.version, d.driver_version))


def _works(context: Any, device: Any) -> None:
    """Build and run a kernel. A driver that cannot compile for its device shows it here alone."""
    import numpy as np

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = cl.Program(context, _TRIVIAL).build(devices=[device])
    queue = cl.CommandQueue(context, device)
    memory = cl.Buffer(context, cl.mem_flags.READ_WRITE, 4)
    cl.Kernel(program, "trivial")(queue, (1,), None, memory)
    answer = np.zeros(1, np.int32)
    cl.enqueue_copy(queue, answer, memory)
    if answer[0] != 42:
        raise RuntimeError(f"a trivial kernel gave {answer[0]} for 42")


def _try(device: Any) -> Found:
    context = cl.Context([device])
    _works(context, device)
    extensions = device.extensions.split()
    atomics = {"cl_khr_int64_base_atomics"} <= {*extensions}
    return Found(device, context, "cl_khr_fp64" in extensions, "cl_khr_fp16" in extensions, atomics)


_once = threading.Lock()
_renewed: dict[int, Found] = {}  # devices that were lost, by number


def find() -> tuple[tuple[Found, ...], str]:
    """The devices, GPUs first, and why others were left out."""
    with _once:  # threads that ask first at the same time are to get the same contexts
        found, reason = _search()
        return tuple(_renewed.get(number, one) for number, one in enumerate(found)), reason


def recorded(found: tuple[Found, ...], wanted: bool | None = None) -> bool:
    """Whether drivers record launches: it is wanted, and all of them can. By default it is where one is a card's: PoCL
    does a replay launch by launch, as the core does without it.
    """
    asked = os.environ.get(_SWITCH)
    if wanted is None:
        wanted = asked == "1" or (asked != "0" and not all(one.cpu for one in found))
    return wanted and bool(found) and all(examine(one.context, one.device)[0] is not None for one in found)


def renew(device: int) -> None:
    """A context of its own anew for a device, in place of one that is lost."""
    found = find()[0]
    context = cl.Context([found[device].device])
    _works(context, found[device].device)
    with _once:
        _renewed[device] = replace(found[device], context=context)


def identify(found: Found) -> dict[str, Any]:
    """The device's uuid and where it is plugged in, of what its driver tells."""
    told: dict[str, Any] = {}
    extensions = found.device.extensions.split()
    if "cl_khr_device_uuid" in extensions:
        uuid = (ctypes.c_ubyte * 16)()
        ask = ctypes.CDLL(cl._cl.__file__).clGetDeviceInfo
        handle = ctypes.c_void_p(found.device.int_ptr)
        if ask(handle, ctypes.c_uint32(_UUID), ctypes.c_size_t(16), uuid, None) == 0 and any(uuid):
            told["uuid"] = bytes(uuid)
    if "cl_nv_device_attribute_query" in extensions:
        d = found.device
        slot = int(d.pci_slot_id_nv)
        told["bus"] = f"{int(d.pci_domain_id_nv):04x}:{int(d.pci_bus_id_nv):02x}:{slot >> 3:02x}.{slot & 7}"
    return told


@functools.cache
def _search() -> tuple[tuple[Found, ...], str]:
    found: list[Found] = []
    reasons: list[str] = []
    try:
        platforms = cl.get_platforms()
    except cl.Error as error:
        return (), f"no OpenCL platform ({error}); install a driver, such as the Debian package pocl-opencl-icd"
    for platform in platforms:
        try:
            devices = platform.get_devices()
        except cl.Error as error:
            reasons.append(f"{platform.name}: no devices ({error})")
            continue
        for device in devices:
            try:
                found.append(_try(device))
            except Exception as error:  # a driver may fail in any way; the other devices are not to suffer
                lines = str(error).strip().splitlines()
                reasons.append(f"{platform.name}, {device.name.strip()}: {lines[0] if lines else type(error).__name__}")
    # One processor shown by two platforms is one device: the first that works.
    unique = {(f.device.type, f.device.name.rpartition("-")[2] if f.cpu else id(f)): f for f in reversed(found)}
    kept = sorted(unique.values(), key=lambda f: (f.cpu, found.index(f)))
    return tuple(kept), "; ".join(reasons) or "no OpenCL device found"
