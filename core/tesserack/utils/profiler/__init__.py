"""What a program spends its time on: :class:`profile` records operators, :class:`record_function` names ranges."""

from tesserack.utils.profiler._record import record_function
from tesserack.utils.profiler.profiler import (
    ProfilerAction,
    ProfilerActivity,
    profile,
    schedule,
    supported_activities,
    tensorboard_trace_handler,
)

__all__ = [
    "ProfilerAction",
    "ProfilerActivity",
    "profile",
    "record_function",
    "schedule",
    "supported_activities",
    "tensorboard_trace_handler",
]
