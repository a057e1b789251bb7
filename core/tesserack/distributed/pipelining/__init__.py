"""Models cut into stages, one after another on several ranks: ``torch.distributed.pipelining``."""

from tesserack.distributed.pipelining._pipe import Pipe, SplitPoint, pipe_split, pipeline
from tesserack.distributed.pipelining.schedules import (
    Schedule1F1B,
    ScheduleDualPipeV,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
    ScheduleInterleavedZeroBubble,
    ScheduleLoopedBFS,
    ScheduleZBVZeroBubble,
)
from tesserack.distributed.pipelining.schedules import _ScheduleForwardOnly as _ScheduleForwardOnly
from tesserack.distributed.pipelining.stage import PipelineStage, build_stage

__all__ = [
    "Pipe",
    "PipelineStage",
    "Schedule1F1B",
    "ScheduleDualPipeV",
    "ScheduleGPipe",
    "ScheduleInterleaved1F1B",
    "ScheduleInterleavedZeroBubble",
    "ScheduleLoopedBFS",
    "ScheduleZBVZeroBubble",
    "SplitPoint",
    "build_stage",
    "pipe_split",
    "pipeline",
]
