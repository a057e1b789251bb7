"""The page of a running server: models, what they do, how long it takes."""

from __future__ import annotations

import time
from collections import defaultdict
from importlib.resources import files
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tesserack_serving.server.frontend import Frontend

__all__ = ["page", "state"]

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def page() -> bytes:
    """The page, which asks for ``status.json`` every second."""
    return files(__package__).joinpath("page.html").read_bytes()


def state(frontend: Frontend, samples: Samples) -> dict[str, Any]:
    """What the page shows."""
    by_model: dict[str, dict[str, Any]] = defaultdict(lambda: defaultdict(float))
    codes: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for (name, labels), value in samples.items():
        given = dict(labels)
        model = given.get("model", "")
        if name == "requests_total":
            codes[model][given["code"]] += value
        elif name.endswith(("_sum", "_count")):
            by_model[model][name] += value
        elif "state" in given:
            by_model[model][f"{name}_{given['state']}"] += value
        elif name == "tokens_total":
            by_model[model][name] += value
    board = frontend.board
    return {
        "ready": frontend.ready(),
        "draining": board.draining,
        "uptime": time.time() - frontend.began,
        "devices": [*frontend.options.devices],
        "workers": [{"number": k, "starts": board.starts(k)} for k in range(board.workers)],
        "models": [
            {
                "name": entry.name,
                "version": entry.version,
                "state": entry.state,
                "reason": entry.reason,
                "pending": board.pending(entry.slot),
                "queue": entry.queue,
                "codes": codes[entry.name],
                **_means(by_model[entry.name]),
            }
            for versions in frontend.entries().values()
            for entry in versions.values()
        ],
    }


def _means(found: dict[str, float]) -> dict[str, Any]:
    def mean(name: str) -> float:
        return found[f"{name}_sum"] / max(found[f"{name}_count"], 1)

    names = ("sequences_running", "sequences_waiting", "cache_pages_used", "cache_pages_free", "tokens_total")
    return {
        "requests": found["request_seconds_count"],
        "seconds": mean("request_seconds"),
        "waited": mean("queue_seconds"),
        "compute": mean("compute_seconds"),
        "together": mean("batch_requests"),
        **{name: found[name] for name in names if name in found},
    }
