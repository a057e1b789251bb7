"""Writing event files."""

from __future__ import annotations

import os
import socket
import time
from typing import Any

from tesserack.utils.tensorboard import _summary
from tesserack.utils.tensorboard._records import event, record

__all__ = ["FileWriter", "SummaryWriter"]


class FileWriter:
    """One event file in a folder."""

    _count = 0

    def __init__(self, log_dir: str, filename_suffix: str = "", flush_secs: int = 120) -> None:
        os.makedirs(log_dir, exist_ok=True)
        FileWriter._count += 1
        now = time.time()
        name = f"events.out.tfevents.{int(now):010d}.{socket.gethostname()}.{os.getpid()}.{FileWriter._count}"
        self.path = os.path.join(log_dir, name + filename_suffix)
        self._log_dir, self._flush_secs, self._flushed = log_dir, flush_secs, now
        self._file = open(self.path, "wb")  # noqa: SIM115
        self._file.write(record(event(now, None, version="brain.Event:2")))
        self._file.flush()

    def get_logdir(self) -> str:
        """The folder."""
        return self._log_dir

    def add_summary(self, summary: bytes, global_step: int | None = None, walltime: float | None = None) -> None:
        """Write a summary message."""
        now = time.time()
        self._file.write(record(event(now if walltime is None else walltime, global_step or 0, summary=summary)))
        if now - self._flushed > self._flush_secs:
            self.flush()

    def flush(self) -> None:
        """Write out what is buffered."""
        self._flushed = time.time()
        self._file.flush()

    def close(self) -> None:
        """End the file."""
        self._file.close()


class SummaryWriter:
    """Writes what TensorBoard shows, into ``log_dir``, by default ``runs/<date>_<host><comment>``. Needs NumPy for all
    but numbers and texts; TensorBoard itself is not needed.
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
        self._suffix, self._flush_secs = filename_suffix, flush_secs
        self.file_writer: FileWriter | None = FileWriter(self.log_dir, filename_suffix, flush_secs)
        self.all_writers: dict[str, FileWriter] = {self.log_dir: self.file_writer}

    def _writer(self) -> FileWriter:
        if self.file_writer is None:
            self.file_writer = FileWriter(self.log_dir, self._suffix, self._flush_secs)
            self.all_writers = {self.log_dir: self.file_writer}
        return self.file_writer

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
        """One number of a curve."""
        self._writer().add_summary(_summary.scalar(tag, scalar_value), global_step, walltime)

    def add_scalars(
        self,
        main_tag: str,
        tag_scalar_dict: dict[str, Any],
        global_step: int | None = None,
        walltime: float | None = None,
    ) -> None:
        """Numbers of several curves in one diagram; each curve has a file of its own."""
        self._writer()
        for tag, value in tag_scalar_dict.items():
            folder = os.path.join(self.log_dir, f"{main_tag.replace('/', '_')}_{tag}")
            if folder not in self.all_writers:
                self.all_writers[folder] = FileWriter(folder, self._suffix, self._flush_secs)
            self.all_writers[folder].add_summary(_summary.scalar(main_tag, value), global_step, walltime)

    def add_histogram(
        self,
        tag: str,
        values: Any,
        global_step: int | None = None,
        bins: Any = 64,
        walltime: float | None = None,
        max_bins: int | None = None,
    ) -> None:
        """How values are distributed."""
        count = bins if isinstance(bins, int) else max_bins or 64
        self._writer().add_summary(_summary.histogram(tag, values, count), global_step, walltime)

    def add_image(
        self,
        tag: str,
        img_tensor: Any,
        global_step: int | None = None,
        walltime: float | None = None,
        dataformats: str = "CHW",
    ) -> None:
        """An image: bytes, or floats from 0 to 1."""
        self._writer().add_summary(_summary.image(tag, img_tensor, dataformats), global_step, walltime)

    def add_images(
        self,
        tag: str,
        img_tensor: Any,
        global_step: int | None = None,
        walltime: float | None = None,
        dataformats: str = "NCHW",
    ) -> None:
        """Images side by side."""
        self._writer().add_summary(_summary.image(tag, img_tensor, dataformats), global_step, walltime)

    def add_figure(
        self, tag: str, figure: Any, global_step: int | None = None, close: bool = True, walltime: float | None = None
    ) -> None:
        """A matplotlib figure, or a list of them, as images."""
        figures = figure if isinstance(figure, list) else [figure]
        for k, one in enumerate(figures):
            name = tag if len(figures) == 1 else f"{tag}/{k}"
            self.add_image(name, _summary.figure_array(one), global_step, walltime, "HWC")
        if close:
            import matplotlib.pyplot as plt

            for one in figures:
                plt.close(one)

    def add_text(
        self, tag: str, text_string: str, global_step: int | None = None, walltime: float | None = None
    ) -> None:
        """A text, shown as Markdown."""
        self._writer().add_summary(_summary.text(tag, text_string), global_step, walltime)

    def add_hparams(
        self,
        hparam_dict: dict[str, Any],
        metric_dict: dict[str, Any],
        hparam_domain_discrete: Any = None,
        run_name: str | None = None,
        global_step: int | None = None,
    ) -> None:
        """Hyperparameters with the metrics they led to: the metrics as numbers, all of it as a table."""
        self.add_text("hparams", _summary.hparams(hparam_dict, metric_dict), global_step)
        for name, value in metric_dict.items():
            self.add_scalar(name, value, global_step)

    def add_graph(
        self, model: Any, input_to_model: Any = None, verbose: bool = False, use_strict_trace: bool = True
    ) -> None:
        """The model as text: its parts as they print."""
        self.add_text("graph", f"```\n{model}\n```")

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
