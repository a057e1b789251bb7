"""Prometheus metrics. Every process writes its own into a folder, whose sum ``/metrics`` and the page show."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead

__all__ = ["FrontendMetrics", "WorkerMetrics", "collect", "forget_process", "scrape"]

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_PREFIX = "tesserack_serving_"


class FrontendMetrics:
    """What is seen where requests arrive."""

    def __init__(self) -> None:
        registry = CollectorRegistry()
        self._answers = Counter(
            _PREFIX + "requests", "Requests by status.", ("model", "protocol", "code"), registry=registry
        )
        self._seconds = Histogram(
            _PREFIX + "request_seconds", "From arrival to answer.", ("model",), registry=registry, buckets=_SECONDS
        )
        self._counters: dict[tuple[str, str, int], Any] = {}
        self._histograms: dict[str, Any] = {}

    def answered(self, model: str, protocol: str, code: int, seconds: float) -> None:
        """A request has its answer."""
        key = (model, protocol, code)
        if key not in self._counters:
            self._counters[key] = self._answers.labels(model, protocol, str(code))
        if model not in self._histograms:
            self._histograms[model] = self._seconds.labels(model)
        self._counters[key].inc()
        self._histograms[model].observe(seconds)


class WorkerMetrics:
    """What is seen where models run."""

    def __init__(self, worker: int) -> None:
        registry, names = CollectorRegistry(), ("model", "version")
        self._rows = Histogram(
            _PREFIX + "batch_requests", "Requests that ran together.", names, registry=registry, buckets=_ROWS
        )
        self._queue = Histogram(
            _PREFIX + "queue_seconds", "From arrival to the batch.", names, registry=registry, buckets=_SECONDS
        )
        self._compute = Histogram(
            _PREFIX + "compute_seconds", "Of a batch or a step.", names, registry=registry, buckets=_SECONDS
        )
        self._tokens = Counter(_PREFIX + "tokens", "Tokens written.", names, registry=registry)
        self._sequences = Gauge(
            _PREFIX + "sequences",
            "Sequences of text.",
            (*names, "state"),
            registry=registry,
            multiprocess_mode="livesum",
        )
        self._pages = Gauge(
            _PREFIX + "cache_pages",
            "Pages of keys and values.",
            (*names, "state"),
            registry=registry,
            multiprocess_mode="livesum",
        )
        self._preemptions = Gauge(
            _PREFIX + "preemptions",
            "Sequences sent back to wait for pages.",
            names,
            registry=registry,
            multiprocess_mode="livesum",
        )

    def batch(self, config: Any, waited: Iterable[float], seconds: float) -> None:
        """A batch has run."""
        names = (config.name, config.version)
        waits = [*waited]
        self._rows.labels(*names).observe(len(waits))
        queue = self._queue.labels(*names)
        for wait in waits:
            queue.observe(wait)
        self._compute.labels(*names).observe(seconds)

    def step(self, config: Any, scheduler: Any, events: Sequence[Any], seconds: float) -> None:
        """A step of a text model has run."""
        names = (config.name, config.version)
        self._compute.labels(*names).observe(seconds)
        self._tokens.labels(*names).inc(len(events))
        self._sequences.labels(*names, "running").set(len(scheduler.running))
        self._sequences.labels(*names, "waiting").set(len(scheduler.waiting))
        self._pages.labels(*names, "used").set(scheduler.cache.blocks - scheduler.cache.free)
        self._pages.labels(*names, "free").set(scheduler.cache.free)
        self._preemptions.labels(*names).set(scheduler.preemptions)


def scrape() -> bytes:
    """All processes' metrics as text."""
    return bytes(generate_latest(_registry()))


def collect() -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """All samples: name and labels, value."""
    found = {}
    for family in _registry().collect():
        for sample in family.samples:
            found[sample.name.removeprefix(_PREFIX), tuple(sorted(sample.labels.items()))] = float(sample.value)
    return found


def _registry() -> CollectorRegistry:
    registry = CollectorRegistry()
    MultiProcessCollector(registry)
    return registry


def forget_process(pid: int) -> None:
    """The gauges of a process that has ended count no more."""
    if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
        mark_process_dead(pid)
