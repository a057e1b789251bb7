"""In which order the stages of a pipeline compute: ``torch.distributed.pipelining.schedules``."""

from tesserack.distributed.pipelining._dual_pipe import ScheduleDualPipeV
from tesserack.distributed.pipelining._schedules import (
    PipelineScheduleMulti,
    PipelineScheduleSingle,
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
    ScheduleLoopedBFS,
    _PipelineSchedule,
)
from tesserack.distributed.pipelining._schedules import _ScheduleForwardOnly as _ScheduleForwardOnly
from tesserack.distributed.pipelining._zero_bubble import ScheduleInterleavedZeroBubble, ScheduleZBVZeroBubble

__all__ = [
    "PipelineScheduleMulti",
    "PipelineScheduleSingle",
    "Schedule1F1B",
    "ScheduleDualPipeV",
    "ScheduleGPipe",
    "ScheduleInterleaved1F1B",
    "ScheduleInterleavedZeroBubble",
    "ScheduleLoopedBFS",
    "ScheduleZBVZeroBubble",
    "get_schedule_class",
]


def get_schedule_class(schedule_name: str) -> type[_PipelineSchedule]:
    """The schedule of a name, whatever its case: GPipe, 1F1B, Interleaved1F1B, LoopedBFS,
    InterleavedZeroBubble, ZBVZeroBubble, DualPipeV.

    >>> get_schedule_class("1f1b").__name__
    'Schedule1F1B'
    """
    known = {
        "1F1B": Schedule1F1B,
        "Interleaved1F1B": ScheduleInterleaved1F1B,
        "GPipe": ScheduleGPipe,
        "LoopedBFS": ScheduleLoopedBFS,
        "InterleavedZeroBubble": ScheduleInterleavedZeroBubble,
        "ZBVZeroBubble": ScheduleZBVZeroBubble,
        "DualPipeV": ScheduleDualPipeV,
        "PipelineScheduleSingle": PipelineScheduleSingle,
        "PipelineScheduleMulti": PipelineScheduleMulti,
    }
    found = next((kind for name, kind in known.items() if name.lower() == schedule_name.lower()), None)
    if found is None:
        raise ValueError(f"Unknown schedule name '{schedule_name}'. The valid options are {list(known)}")
    return found  # type: ignore[return-value]
