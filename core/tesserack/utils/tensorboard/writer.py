"""Writing event files."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Sequence
from typing import Any

from tesserack.utils.tensorboard import _images, _summary
from tesserack.utils.tensorboard._event_file import FileWriter
from tesserack.utils.tensorboard._plugins import PluginMethods

__all__ = ["FileWriter", "SummaryWriter"]


class SummaryWriter(PluginMethods):
    """Writes what TensorBoard shows, into ``log_dir``, by default ``runs/<date>_<host><comment>``. Needs NumPy for all
    but numbers and texts; TensorBoard itself is not needed. With ``purge_step`` readers drop what earlier files of the
    folder hold for that step and later ones.
    """

    def __init__(
        self,
        log_dir: str | os.PathLike[str] | None = None,
        comment: str = "",
        purge_step: int | None = None,
        max_queue: int = 10,
        flush_secs: int = 120,
        filename_suffix: str = "",
    ) -> None:
        if not log_dir:
            stamp = time.strftime("%b%d_%H-%M-%S")
            log_dir = os.path.join("runs", f"{stamp}_{socket.gethostname()}{comment}")
        self.log_dir = os.fspath(log_dir)
        self.purge_step, self.max_queue = purge_step, max_queue
        self.flush_secs, self.filename_suffix = flush_secs, filename_suffix
        self.file_writer: FileWriter | None = None
        self.all_writers: dict[str, FileWriter] = {}
        self._get_file_writer()

    def _get_file_writer(self) -> FileWriter:
        if self.file_writer is None:
            self.file_writer = self._begun(self.log_dir)
            self.all_writers = {self.log_dir: self.file_writer}
            if self.purge_step is not None:
                self.file_writer.purge_from(self.purge_step)
                self.purge_step = None
        return self.file_writer

    def _begun(self, folder: str) -> FileWriter:
        return FileWriter(folder, self.max_queue, self.flush_secs, self.filename_suffix)

    def get_logdir(self) -> str:
        """The folder."""
        return self.log_dir

    def add_scalar(
        self,
        tag: str,
        scalar_value: Any,
        global_step: int | None = None,
        walltime: float | None = None,
        new_style: bool = False,
        double_precision: bool = False,
    ) -> None:
        """One number of a curve.

        ``NotImplementedError`` unless it is a number, an array or a tensor; ``AssertionError`` for several elements.
        """
        self._get_file_writer().add_summary(
            _summary.scalar(tag, scalar_value, new_style, double_precision), global_step, walltime
        )

    def add_scalars(
        self,
        main_tag: str,
        tag_scalar_dict: dict[str, Any],
        global_step: int | None = None,
        walltime: float | None = None,
    ) -> None:
        """Numbers of several curves in one diagram; each curve has a file of its own."""
        self._get_file_writer()
        for tag, value in tag_scalar_dict.items():
            folder = os.path.join(self.log_dir, f"{main_tag.replace('/', '_')}_{tag}")
            if folder not in self.all_writers:
                self.all_writers[folder] = self._begun(folder)
            self.all_writers[folder].add_summary(_summary.scalar(main_tag, value), global_step, walltime)

    def add_histogram(
        self,
        tag: str,
        values: Any,
        global_step: int | None = None,
        bins: Any = "tensorflow",
        walltime: float | None = None,
        max_bins: int | None = None,
    ) -> None:
        """How values are distributed, in bins that grow to both sides of zero or as ``numpy.histogram`` takes them."""
        self._get_file_writer().add_summary(_summary.histogram(tag, values, bins, max_bins), global_step, walltime)

    def add_histogram_raw(
        self,
        tag: str,
        min: float,
        max: float,
        num: float,
        sum: float,
        sum_squares: float,
        bucket_limits: Sequence[float],
        bucket_counts: Sequence[float],
        global_step: int | None = None,
        walltime: float | None = None,
    ) -> None:
        """A histogram that the program has counted, by the upper limits of its bins. ``ValueError`` for other
        numbers of limits than of counts."""
        if len(bucket_limits) != len(bucket_counts):
            raise ValueError("add_histogram_raw: len(bucket_limits) != len(bucket_counts); give one limit for each")
        data = (min, max, num, sum, sum_squares, bucket_limits, bucket_counts)
        self._get_file_writer().add_summary(_summary.histogram_raw(tag, *data), global_step, walltime)

    def add_tensor(self, tag: str, tensor: Any, global_step: int | None = None, walltime: float | None = None) -> None:
        """A tensor whole."""
        self._get_file_writer().add_summary(_summary.tensor(tag, tensor), global_step, walltime)

    def add_image(
        self,
        tag: str,
        img_tensor: Any,
        global_step: int | None = None,
        walltime: float | None = None,
        dataformats: str = "CHW",
    ) -> None:
        """An image: bytes, or floats from 0 to 1."""
        self._get_file_writer().add_summary(_summary.image(tag, img_tensor, dataformats), global_step, walltime)

    def add_images(
        self,
        tag: str,
        img_tensor: Any,
        global_step: int | None = None,
        walltime: float | None = None,
        dataformats: str = "NCHW",
    ) -> None:
        """Images as a grid, eight in a row."""
        self._get_file_writer().add_summary(_summary.image(tag, img_tensor, dataformats), global_step, walltime)

    def add_image_with_boxes(
        self,
        tag: str,
        img_tensor: Any,
        box_tensor: Any,
        global_step: int | None = None,
        walltime: float | None = None,
        rescale: float = 1,
        dataformats: str = "CHW",
        labels: str | list[str] | None = None,
    ) -> None:
        """An image with frames (number, 4): left, top, right, bottom; a label for each. Needs Pillow."""
        named = [labels] if isinstance(labels, str) else labels
        if named is not None and len(named) != box_tensor.shape[0]:
            named = None
        message = _summary.image_boxes(tag, img_tensor, box_tensor, rescale, dataformats, named)
        self._get_file_writer().add_summary(message, global_step, walltime)

    def add_video(
        self,
        tag: str,
        vid_tensor: Any,
        global_step: int | None = None,
        fps: float = 4,
        walltime: float | None = None,
    ) -> None:
        """Films (number, time, channels, height, width), of bytes or floats from 0 to 1. Needs Pillow."""
        self._get_file_writer().add_summary(_summary.video(tag, vid_tensor, fps), global_step, walltime)

    def add_audio(
        self,
        tag: str,
        snd_tensor: Any,
        global_step: int | None = None,
        sample_rate: int = 44100,
        walltime: float | None = None,
    ) -> None:
        """A sound (1, samples), from -1 to 1."""
        self._get_file_writer().add_summary(_summary.audio(tag, snd_tensor, sample_rate), global_step, walltime)

    def add_figure(
        self, tag: str, figure: Any, global_step: int | None = None, close: bool = True, walltime: float | None = None
    ) -> None:
        """A matplotlib figure, or a list of them as one image."""
        import numpy as np

        figures = figure if isinstance(figure, list) else [figure]
        pixels = [_images.figure_array(one) for one in figures]
        if isinstance(figure, list):
            self.add_images(tag, np.stack(pixels), global_step, walltime, "NHWC")
        else:
            self.add_image(tag, pixels[0], global_step, walltime, "HWC")
        if close:
            import matplotlib.pyplot as plt

            for one in figures:
                plt.close(one)

    def add_text(
        self, tag: str, text_string: str, global_step: int | None = None, walltime: float | None = None
    ) -> None:
        """A text, shown as Markdown."""
        self._get_file_writer().add_summary(_summary.text(tag, text_string), global_step, walltime)

    def flush(self) -> None:
        """Write out what is buffered."""
        for writer in self.all_writers.values():
            writer.flush()

    def close(self) -> None:
        """End the files; adding more begins a new one."""
        for writer in self.all_writers.values():
            writer.close()
        self.file_writer, self.all_writers = None, {}

    def __enter__(self) -> SummaryWriter:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
