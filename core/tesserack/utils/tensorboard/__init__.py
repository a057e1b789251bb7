"""Event files for TensorBoard, written without it."""

from tesserack.utils.tensorboard.writer import FileWriter, SummaryWriter

__all__ = ["FileWriter", "SummaryWriter"]
