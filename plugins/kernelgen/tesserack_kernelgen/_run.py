"""Runs a plan by ctypes, for cores that do not."""

from __future__ import annotations

import ctypes
import functools
from typing import Any

from tesserack.backends._plan import WORKSPACE, Block, Buffer, LaunchPlan


class _Argument(ctypes.Structure):
    _fields_ = (
        ("struct_size", ctypes.c_size_t),
        ("value", ctypes.c_void_p),
        ("size", ctypes.c_size_t),
        ("kind", ctypes.c_int32),
        ("reserved", ctypes.c_int32),
    )


class _Launch(ctypes.Structure):
    _fields_ = (
        ("struct_size", ctypes.c_size_t),
        ("host", ctypes.c_void_p),
        ("stream", ctypes.c_void_p),
        ("kernel", ctypes.c_void_p),
        ("device_index", ctypes.c_int32),
        ("n_arguments", ctypes.c_int32),
        ("argument_size", ctypes.c_size_t),
        ("arguments", ctypes.c_void_p),
        ("groups", ctypes.c_uint64 * 3),
        ("group_size", ctypes.c_uint32 * 3),
        ("shared_bytes", ctypes.c_uint32),
    )


_Function = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)


def running(backend: Any, kernel: Any) -> Any:
    """The kernel, with its plan run at once."""

    @functools.wraps(kernel)
    def run(
        *,
        outputs: Any,
        inputs: Any,
        params: Any,
        op: Any,
        opcode: Any,
        compute_dtype: Any,
        program: Any,
        device: Any,
        stream: Any,
    ) -> Any:
        plan = kernel(
            outputs=outputs,
            inputs=inputs,
            params=params,
            op=op,
            opcode=opcode,
            compute_dtype=compute_dtype,
            program=program,
            device=device,
        )
        if plan is NotImplemented:
            return plan
        _execute(plan, (*outputs, *inputs), backend, device, stream)
        return None

    del run.__wrapped__
    return run


def _execute(plan: LaunchPlan, operands: Any, backend: Any, device: int, stream: Any) -> None:
    scratch = backend.alloc(device, plan.workspace, stream) if plan.workspace else None
    for launch in plan.launches:
        arguments = (_Argument * len(launch.arguments))()
        keep = []
        for slot, argument in zip(arguments, launch.arguments, strict=True):
            if isinstance(argument, Buffer):
                handle = scratch if argument.operand == WORKSPACE else operands[argument.operand].handle
                data: Any = ctypes.c_void_p(handle)
                size = 8
            else:
                assert isinstance(argument, Block)
                data = ctypes.create_string_buffer(argument.data, len(argument.data))
                size = len(argument.data)
            keep.append(data)
            slot.struct_size, slot.value, slot.size = ctypes.sizeof(_Argument), ctypes.addressof(data), size
            slot.kind = int(isinstance(argument, Block))
        made = _Launch(ctypes.sizeof(_Launch), None, stream, launch.kernel, device, len(arguments))
        made.argument_size, made.arguments = ctypes.sizeof(_Argument), ctypes.addressof(arguments)
        made.groups[:], made.group_size[:] = launch.groups, launch.group_size
        status = _Function(launch.entry)(ctypes.addressof(made))
        if status:
            raise RuntimeError(f"launch failed with status {status}")
    if scratch is not None:
        backend.free(device, scratch, plan.workspace, stream)
