"""The workers of one attempt: actors in a placement group, numbered by node."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

import ray
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from tesserack_ray.config import ScalingConfig, TesserackConfig
from tesserack_ray.session import Report, TrainContext
from tesserack_ray.worker import Worker

__all__ = ["Group"]

_SETTLING = 3.0  # seconds that resources may take to be free again
_THREADS = 4  # of an actor: the train loop's, and those that answer


def _named(ranks: list[int]) -> str:
    return ", ".join(f"rank {k}" for k in ranks)


class Group:
    """As many workers as fit. ``TimeoutError`` where the least number does not, within the time to start."""

    def __init__(self, scaling: ScalingConfig, config: TesserackConfig) -> None:
        self._scaling, self._config = scaling, config
        self.workers: list[Any] = []
        self._runs: list[Any] = []
        self._limit = config.timeout.total_seconds()  # of every wait for workers
        self._waiting_since: float | None = None  # some have reported, and not all
        self._end = time.monotonic() + config.start_timeout.total_seconds()
        self._placed = self._place()
        try:
            self._start()
        except BaseException:
            self.end()
            raise

    def _fitting(self, resources: dict[str, float] | None = None) -> int:
        """How many bundles the cluster's free resources hold, as far as sums tell."""
        free, bundle = ray.available_resources() if resources is None else resources, self._scaling.bundle
        return min(int(free.get(name, 0) / amount) for name, amount in bundle.items())

    def _settle(self, most: int) -> None:
        """What an attempt before this one held is given back a little later."""
        wanted, end = min(most, self._fitting(ray.cluster_resources())), time.monotonic() + _SETTLING
        while self._fitting() < wanted and time.monotonic() < end:
            time.sleep(0.1)

    def _place(self) -> Any:
        least, most = self._scaling.bounds
        self._settle(most)
        while True:
            left = self._end - time.monotonic()
            size = max(least, min(most, self._fitting()))
            group = placement_group([self._scaling.bundle] * size, strategy=self._scaling.placement_strategy)
            # More than the least may turn out not to fit, node by node: then soon try what is free by then.
            if group.wait(timeout_seconds=max(0.1, left if size == least else min(left, 10.0))):
                self.size = size
                return group
            remove_placement_group(group)
            if left <= 0:
                raise TimeoutError(
                    f"fit: expected room for {least} workers of {self._scaling.bundle}, strategy "
                    f"{self._scaling.placement_strategy}, within {self._config.start_timeout}; "
                    f"the cluster has {ray.cluster_resources()}"
                )

    def _start(self) -> None:
        bundle = self._scaling.bundle
        others = {name: amount for name, amount in bundle.items() if name not in ("CPU", "GPU")}
        actor = ray.remote(Worker)
        made = []
        for index in range(self.size):
            strategy = PlacementGroupSchedulingStrategy(self._placed, placement_group_bundle_index=index)
            options = {"num_cpus": bundle.get("CPU", 0), "num_gpus": bundle.get("GPU", 0), "resources": others}
            made.append(actor.options(**options, scheduling_strategy=strategy, max_concurrency=_THREADS).remote())
        self.workers = made
        left = max(1.0, self._end - time.monotonic())
        places = ray.get([worker.place.remote() for worker in made], timeout=left)
        nodes = list(dict.fromkeys(node for node, _, _ in places))
        order = sorted(range(self.size), key=lambda k: (nodes.index(places[k][0]), k))
        self.workers = [made[k] for k in order]
        self.places = [places[k] for k in order]

    def run(
        self, loop: Callable[..., Any], arguments: tuple[Any, ...], context: TrainContext, last: str | None, number: int
    ) -> None:
        """Give each its rank, and begin the train loop."""
        nodes = list(dict.fromkeys(node for node, _, _ in self.places))
        master = self.places[0][1], self._answers([self.workers[0].free_port.remote()])[0]
        begun = []
        for rank, (worker, (node, _, _)) in enumerate(zip(self.workers, self.places, strict=True)):
            on_node = [k for k, place in enumerate(self.places) if place[0] == node]
            told = TrainContext(
                rank,
                self.size,
                on_node.index(rank),
                len(on_node),
                nodes.index(node),
                context.experiment_name,
                context.storage,
                context.attempt,
            )
            begun.append(worker.begin.remote(told, master, last, number))
        self._answers(begun)
        self._runs = [worker.run.remote(loop, arguments, self._config) for worker in self.workers]

    def ended(self, timeout: float) -> bool:
        """Whether all train loops have ended. Raises what one of them did, the first that is seen."""
        if self._runs:
            done, self._runs = ray.wait(self._runs, num_returns=len(self._runs), timeout=timeout)
            ray.get(done)
        return not self._runs

    def reports(self, timeout: float) -> list[Report] | None:
        """One report of each rank, once all have made it. ``RuntimeError`` where some of them have ended."""
        over = len(self._runs) < self.size
        found = self._answers([worker.pending.remote(timeout) for worker in self.workers])
        if over and any(found):
            named = _named([k for k, report in enumerate(found) if report is not None])
            raise RuntimeError(
                f"report: expected every rank to report equally often; {named} did once more than others"
            )
        missing = [k for k, report in enumerate(found) if report is None]
        if not missing:
            self._waiting_since = None
            return found
        if len(missing) < self.size:
            self._waiting_since = self._waiting_since or time.monotonic()
            if time.monotonic() - self._waiting_since > self._limit:
                raise TimeoutError(f"report: {_named(missing)} did not report within {self._limit:g} s of the others")
        return None

    def go_on(self) -> None:
        """The reports are taken."""
        self._answers([worker.taken.remote() for worker in self.workers])

    def _answers(self, calls: list[Any]) -> list[Any]:
        """What workers answer. Raises what a train loop did meanwhile, else ``TimeoutError``: one may be stopped."""
        end = time.monotonic() + self._limit
        while True:
            _, waiting = ray.wait(calls, num_returns=len(calls), timeout=min(1.0, self._limit))
            if not waiting:
                return list(ray.get(calls))
            self.ended(0)
            if time.monotonic() > end:
                silent = [k for k, call in enumerate(calls) if call in waiting]
                raise TimeoutError(f"fit: {_named(silent)} did not answer within {self._limit:g} s; it may be stopped")

    def end(self) -> None:
        """Nothing of the attempt stays."""
        for worker in self.workers:
            with contextlib.suppress(Exception):
                ray.kill(worker, no_restart=True)
        self.workers = []
        with contextlib.suppress(Exception):
            remove_placement_group(self._placed)
