"""The part of :class:`SummaryWriter` that writes for TensorBoard's plugins."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

from tesserack.utils.tensorboard import _embedding, _plugin_data
from tesserack.utils.tensorboard._event_file import FileWriter

__all__ = ["PluginMethods"]


class PluginMethods:
    """Curves of precision and recall, vectors, meshes, own charts, hyperparameters, graphs."""

    log_dir: str

    def _get_file_writer(self) -> FileWriter:
        raise NotImplementedError

    def add_pr_curve(
        self,
        tag: str,
        labels: Any,
        predictions: Any,
        global_step: int | None = None,
        num_thresholds: int = 127,
        weights: Any = None,
        walltime: float | None = None,
    ) -> None:
        """Precision over recall, of labels (0 or 1) and predictions from 0 to 1, of one shape."""
        message = _plugin_data.pr_curve(tag, labels, predictions, num_thresholds, weights)
        self._get_file_writer().add_summary(message, global_step, walltime)

    def add_pr_curve_raw(
        self,
        tag: str,
        true_positive_counts: Any,
        false_positive_counts: Any,
        true_negative_counts: Any,
        false_negative_counts: Any,
        precision: Any,
        recall: Any,
        global_step: int | None = None,
        num_thresholds: int = 127,
        weights: Any = None,
        walltime: float | None = None,
    ) -> None:
        """Precision over recall by what a program has counted, one number for each threshold."""
        counts = (true_positive_counts, false_positive_counts, true_negative_counts, false_negative_counts)
        message = _plugin_data.pr_curve_raw(tag, *counts, precision, recall)
        self._get_file_writer().add_summary(message, global_step, walltime)

    def add_embedding(
        self,
        mat: Any,
        metadata: Sequence[Any] | None = None,
        label_img: Any = None,
        global_step: int | None = None,
        tag: str = "default",
        metadata_header: Sequence[str] | None = None,
    ) -> None:
        """Vectors (number, dims) for the projector, with labels and pictures (number, channels, height, width)."""
        folder = self._get_file_writer().get_logdir()
        _embedding.write(folder, tag, global_step, mat, metadata, label_img, metadata_header)

    def add_mesh(
        self,
        tag: str,
        vertices: Any,
        colors: Any = None,
        faces: Any = None,
        config_dict: Mapping[str, Any] | None = None,
        global_step: int | None = None,
        walltime: float | None = None,
    ) -> None:
        """Points in space (batch, number, 3), with colours from 0 to 255 and triangles of their indices."""
        message = _plugin_data.mesh(tag, vertices, colors, faces, config_dict)
        self._get_file_writer().add_summary(message, global_step, walltime)

    def add_custom_scalars(self, layout: Mapping[str, Mapping[str, Sequence[Any]]]) -> None:
        """Charts of several curves: ``{category: {title: ["Multiline" or "Margin", tags]}}``. Once per writer."""
        self._get_file_writer().add_summary(_plugin_data.custom_scalars(layout))

    def add_custom_scalars_multilinechart(
        self, tags: Sequence[str], category: str = "default", title: str = "untitled"
    ) -> None:
        """One chart of several curves."""
        self.add_custom_scalars({category: {title: ["Multiline", tags]}})

    def add_custom_scalars_marginchart(
        self, tags: Sequence[str], category: str = "default", title: str = "untitled"
    ) -> None:
        """One chart of a curve between two others. ``ValueError`` unless there are three tags."""
        self.add_custom_scalars({category: {title: ["Margin", tags]}})

    def add_hparams(
        self,
        hparam_dict: Mapping[str, Any],
        metric_dict: Mapping[str, Any],
        hparam_domain_discrete: Mapping[str, Sequence[Any]] | None = None,
        run_name: str | None = None,
        global_step: int | None = None,
    ) -> None:
        """Hyperparameters with the metrics they led to, in a folder of their own, which the time names by default."""
        messages = _plugin_data.hparams(hparam_dict, metric_dict, hparam_domain_discrete)
        folder = os.path.join(self._get_file_writer().get_logdir(), run_name or str(time.time()))
        with type(self)(log_dir=folder) as writer:  # type: ignore[call-arg, attr-defined]
            for message in messages:
                writer._get_file_writer().add_summary(message, global_step)
            for name, value in metric_dict.items():
                writer.add_scalar(name, value, global_step)

    def add_graph(
        self, model: Any, input_to_model: Any = None, verbose: bool = False, use_strict_trace: bool = True
    ) -> None:
        """The operators of one run of the model on a tensor or a tuple of arguments, grouped by its modules."""
        from tesserack.utils.tensorboard import _graph

        self._get_file_writer().add_graph(_graph.graph_of(model, input_to_model, verbose))

    def add_onnx_graph(self, prototxt: str | os.PathLike[str]) -> None:
        """The graph of an ONNX file. Needs the package onnx."""
        from tesserack.utils.tensorboard import _graph

        self._get_file_writer().add_graph(_graph.onnx_graph(os.fspath(prototxt)))
