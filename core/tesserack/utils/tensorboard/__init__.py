"""Event files for TensorBoard, written without it."""

from tesserack.utils.tensorboard._event_file import FileWriter
from tesserack.utils.tensorboard.writer import SummaryWriter

__all__ = ["FileWriter", "SummaryWriter"]
