"""Summaries for TensorBoard's plugins: curves of precision and recall, own charts, meshes, hyperparameters."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

from tesserack.utils.tensorboard._images import to_array
from tesserack.utils.tensorboard._records import field_bytes, field_double, field_int, packed_ints
from tesserack.utils.tensorboard._summary import array_message, text_message, value

__all__ = ["custom_scalars", "hparams", "mesh", "pr_curve", "pr_curve_raw"]

_SMALLEST = 1e-7  # no division by zero


# --- precision and recall --------------------------------------------------------------------------------------------


def pr_curve(tag: str, labels: Any, predictions: Any, thresholds: int, weights: Any) -> bytes:
    """The curve of labels (0 or 1) and predictions (from 0 to 1), at equal thresholds, 127 at most."""
    import numpy as np

    count = min(thresholds, 127)
    truth, guess = (to_array(x).astype(np.float64).reshape(-1) for x in (labels, predictions))
    shares = np.ones_like(truth) if weights is None else to_array(weights).astype(np.float64).reshape(-1)
    at = np.floor(guess * (count - 1)).astype(np.int32)
    edges = (0, count - 1)
    hits, _ = np.histogram(at, count, edges, weights=truth * shares)
    errors, _ = np.histogram(at, count, edges, weights=(1 - truth) * shares)
    tp, fp = (np.cumsum(x[::-1])[::-1] for x in (hits, errors))  # what lies at or above each threshold
    tn, fn = fp[0] - fp, tp[0] - tp
    precision = tp / np.maximum(_SMALLEST, tp + fp)
    recall = tp / np.maximum(_SMALLEST, tp + fn)
    return _pr_message(tag, np.stack((tp, fp, tn, fn, precision, recall)))


def pr_curve_raw(tag: str, *curves: Any) -> bytes:
    """The curve by the counts of true and false positives and negatives, precision and recall."""
    import numpy as np

    return _pr_message(tag, np.stack([to_array(curve) for curve in curves]))


def _pr_message(tag: str, data: Any) -> bytes:
    plugin = field_int(1, 0) + field_int(2, data.shape[1])
    return value(tag, field_bytes(8, array_message(data.astype("float32"))), "pr_curves", plugin)


# --- charts ----------------------------------------------------------------------------------------------------------


def custom_scalars(layout: Mapping[str, Mapping[str, Sequence[Any]]]) -> bytes:
    """Charts of several curves: ``{category: {title: [kind, tags]}}``, kind "Multiline" or "Margin".

    ``ValueError`` for a margin chart without exactly three tags: value, lower and upper.
    """
    message = b""
    for category, charts in layout.items():
        body = field_bytes(1, category)
        for title, (kind, tags) in charts.items():
            body += field_bytes(2, field_bytes(1, title) + _chart(kind, tags))
        message += field_bytes(2, body)
    return value("custom_scalars__config__", field_bytes(8, text_message(message)), "custom_scalars")


def _chart(kind: str, tags: Sequence[str]) -> bytes:
    if kind != "Margin":
        return field_bytes(2, b"".join(field_bytes(1, tag) for tag in tags))
    if len(tags) != 3:
        raise ValueError(f"add_custom_scalars: expected three tags, value, lower and upper, got {len(tags)}")
    return field_bytes(3, field_bytes(1, b"".join(field_bytes(k, tag) for k, tag in enumerate(tags, 1))))


# --- meshes ----------------------------------------------------------------------------------------------------------


def mesh(tag: str, vertices: Any, colors: Any, faces: Any, config: Any) -> bytes:
    """Points (batch, number, 3) with colours and faces, each as one value. ``ValueError`` for other shapes."""
    parts = [("VERTEX", 1, vertices), ("FACE", 2, faces), ("COLOR", 3, colors)]
    parts = [part for part in parts if part[2] is not None]
    present = sum(1 << number for _, number, _ in parts)
    options = json.dumps(config, sort_keys=True) if config is not None else "{}"
    out = b""
    for name, number, values in parts:
        array = to_array(values).astype("float32")
        if array.ndim != 3:
            raise ValueError(f"add_mesh: expected shape (batch, number, 3), got {array.shape}")
        data = field_bytes(2, tag) + field_int(3, number) + field_bytes(5, options)
        data += packed_ints(6, array.shape) + field_int(7, present)
        out += value(f"{tag}_{name}", field_bytes(8, array_message(array)), "mesh", data)
    return out


# --- hyperparameters -------------------------------------------------------------------------------------------------

_KINDS = {"text": 1, "bool": 2, "number": 3}


def hparams(
    values: Mapping[str, Any], metrics: Mapping[str, Any], domains: Mapping[str, Sequence[Any]] | None
) -> tuple[bytes, bytes, bytes]:
    """What is tried, the values of this run, and its end. ``TypeError`` for what is no dict, ``ValueError`` for a value
    that is neither number, truth value, text nor tensor."""
    if not isinstance(values, Mapping) or not isinstance(metrics, Mapping):
        raise TypeError("add_hparams: expected hparam_dict and metric_dict to be dicts")
    domains = domains or {}
    if unknown := [name for name in domains if name not in values]:
        raise TypeError(f"add_hparams: hparam_domain_discrete names {unknown[0]!r}, which hparam_dict has not")
    infos = start = b""
    for name, given in values.items():
        if given is None:
            continue
        kind, shown = _value(name, given)
        start += field_bytes(1, field_bytes(1, name) + field_bytes(2, shown))
        info = field_bytes(1, name) + field_int(4, _KINDS[kind])
        if name in domains:
            info += field_bytes(5, b"".join(field_bytes(1, _value(name, one)[1]) for one in domains[name]))
        infos += field_bytes(4, info)
    for name in metrics:
        infos += field_bytes(5, field_bytes(1, field_bytes(2, name)))
    begun = start + field_double(5, time.time())
    ended = field_int(1, 1) + field_double(2, time.time())
    parts = (("experiment", 2, infos), ("session_start_info", 3, begun), ("session_end_info", 4, ended))
    first, second, third = (
        value(f"_hparams_/{tag}", b"", "hparams", field_int(1, 0) + field_bytes(number, body))
        for tag, number, body in parts
    )
    return first, second, third


def _value(name: str, given: Any) -> tuple[str, bytes]:
    """A value and its kind, as protobuf's well-known type Value."""
    if hasattr(given, "detach"):
        given = given.item()
    if isinstance(given, bool):
        return "bool", field_int(4, given)
    if isinstance(given, (int, float)):
        return "number", field_double(2, float(given))
    if isinstance(given, str):
        return "text", field_bytes(3, given)
    raise ValueError(f"add_hparams: {name} should be an int, float, str, bool or tensor, got {type(given).__name__}")
