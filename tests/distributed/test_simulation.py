"""The cost model of links, and one rank of a large world run without the others."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import tesserack as ts
from tesserack import distributed as dist
from tesserack import nn
from tesserack.distributed.fsdp import fully_shard
from tesserack.distributed.simulation import Cluster, Link, Sample, choose_bucket, fit, simulate
from tesserack.distributed.simulation._cluster import OPS

PROGRAMS = Path(__file__).parent / "programs"
CLUSTER = Cluster(Link(3e-6, 300e9), Link(10e-6, 25e9), per_node=8)


@pytest.mark.parametrize("op", OPS)
def test_costs_grow_with_ranks_and_bytes(op: str) -> None:
    for ranks in (2, 8, 16, 4096):
        costs = [CLUSTER.seconds(op, size, range(ranks)) for size in (0, 1 << 10, 1 << 30)]
        assert costs == sorted(costs) and costs[0] > 0, (ranks, costs)
    assert CLUSTER.seconds(op, 1 << 30, range(1)) == 0
    # Ranks of one machine have its link; one of each have that between machines.
    assert CLUSTER.seconds(op, 1 << 20, range(8)) < CLUSTER.seconds(op, 1 << 20, range(0, 64, 8))


def test_rings_and_trees_are_those_of_the_books() -> None:
    one = Cluster(Link(1e-5, 1e9), Link(1e-5, 1e9), per_node=10_000)
    n, p = 1 << 30, 16
    assert one.seconds("all_reduce", n, range(p)) == pytest.approx(2 * 15 * 1e-5 + 2 * 15 / 16 * n / 1e9)
    # 2 * 4095 latencies of a ring would be 82 ms.
    assert one.seconds("all_reduce", 8, range(4096)) == pytest.approx(2 * 12 * 1e-5, rel=1e-3)
    with pytest.raises(ValueError, match="expected one of all_reduce"):
        one.seconds("all_together", 1, range(2))


def test_a_link_is_found_again_from_times_that_vary() -> None:
    link = Link(2e-5, 4e9, 1e-6)
    cluster = Cluster(link, link, per_node=64)
    samples = [
        Sample(op, size, ranks, cluster.seconds(op, size, range(ranks)) * (1 + 0.1 * math.sin(7 * k + size)))
        for k, op in enumerate(("all_reduce", "all_gather", "reduce_scatter", "broadcast"))
        for size in (1 << 10, 1 << 16, 1 << 20, 1 << 24)
        for ranks in (2, 4, 8)
    ]
    found = fit(samples)
    assert found.link.latency == pytest.approx(2e-5, rel=0.2) and found.link.bandwidth == pytest.approx(4e9, rel=0.03)
    assert 0.01 < found.median_error < 0.1 and found.worst_error < 0.3
    with pytest.raises(ValueError, match="three samples"):
        fit(samples[:2])


def test_measured_collectives_are_fitted_on_several_ranks(launch: Any, tmp_path: Path) -> None:
    file = tmp_path / "links.json"
    done = launch("measuring.py", 2, file)
    assert done.returncode == 0, done.stderr
    told = json.loads(file.read_text())
    assert told["samples"] == 12 and told["latency"] >= 0 and told["bandwidth"] > 1e6 and told["error"] < 2, told


def test_communication_beside_computation_costs_nothing() -> None:
    """By a clock of products: 2 MFLOP at 1 GFLOP/s are 2 ms."""
    slow = Cluster(Link(0, 1e9), Link(0, 1e9), per_node=2)
    with simulate(slow, 2, flops=1e9) as report:
        a, data = ts.ones(100, 100), ts.ones(500_000)
        work = dist.all_reduce(data, async_op=True)  # 2 MB: 2 ms
        a @ a
        work.wait()
        assert report.exposed == pytest.approx(0, abs=1e-9)
        dist.all_reduce(data)
    assert report.compute == pytest.approx(2e-3) and report.communication == pytest.approx(4e-3)
    assert report.exposed == pytest.approx(2e-3) and report.hidden == pytest.approx(0.5)
    assert report.calls == {"all_reduce": 2} and report.moved == {"all_reduce": 4_000_000}
    assert "50% hidden" in str(report) and not dist.is_initialized()


def test_a_step_of_a_model_divided_over_4096_ranks() -> None:
    """Its parameters, gathered by units; memory as of a rank, not of the world."""
    width, layers = 256, 4
    with simulate(CLUSTER, 4096, rank=5) as report:
        model = nn.Sequential(*[nn.Linear(width, width) for _ in range(layers)])
        for layer in model:
            fully_shard(layer)
        optimizer = ts.optim.AdamW(model.parameters())
        model(ts.ones(2, width)).sum().backward()
        optimizer.step()
        held = sum(p.to_local().numel() for p in model.parameters())
    whole = layers * (width * width + width)
    assert held < whole / 8  # row by row: 256 rows for 4096 ranks
    assert report.calls["reduce_scatter"] >= layers and report.calls["all_gather"] >= layers
    assert report.seconds > report.compute > 0 and report.peak_memory > 4 * width * width


def test_models_too_large_for_here_have_a_time_on_meta() -> None:
    with simulate(CLUSTER, 4096, flops=4e14, device="meta") as report, ts.device("meta"):
        model = nn.parallel.DistributedDataParallel(nn.Sequential(*[nn.Linear(8192, 8192) for _ in range(8)]))
        model(ts.ones(4096, 8192)).sum().backward()
    products = 8 * 3 - 1  # the first layer's input has no gradient
    assert report.compute == pytest.approx(products * 2 * 4096 * 8192**2 / 4e14, rel=1e-3)
    assert report.moved["all_reduce"] == 4 * 8 * (8192**2 + 8192) and report.exposed > 0


def test_programs_run_unchanged_with_the_others_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"RANK": "7", "WORLD_SIZE": "1000", "TESSERACK_COMM": "fake"}.items():
        monkeypatch.setenv(name, value)
    dist.init_process_group("gloo")
    try:
        assert (dist.get_rank(), dist.get_world_size()) == (7, 1000)
        x = ts.ones(3)
        dist.all_reduce(x)
        group = dist.new_group(range(0, 1000, 7))
        assert dist.get_world_size(group) == 143
    finally:
        dist.destroy_process_group()


def test_buckets_are_larger_where_latency_is() -> None:
    model = nn.Sequential(*[nn.Linear(1024, 1024, device="meta") for _ in range(64)])
    near = choose_bucket(model, Cluster(Link(1e-7, 25e9), Link(1e-7, 25e9)), 64, 0.02)
    far = choose_bucket(model, Cluster(Link(1e-6, 25e9), Link(2e-3, 25e9)), 64, 0.02)
    assert near.bucket_cap_mb < far.bucket_cap_mb
    assert far.seconds[far.bucket_cap_mb] == min(far.seconds.values())
    with pytest.raises(ValueError, match="parameters that require a gradient"):
        choose_bucket(nn.ReLU(), CLUSTER, 2, 0.1)


def test_a_simulation_wants_no_group_and_a_rank_of_its_world() -> None:
    with pytest.raises(ValueError, match="a rank below 4"), simulate(CLUSTER, 4, rank=4):
        pass
    with simulate(CLUSTER, 4), pytest.raises(ValueError, match="no process group"), simulate(CLUSTER, 4):
        pass
    assert "tesserack.distributed.simulation" in sys.modules and not dist.is_initialized()


@pytest.mark.parametrize("kind, ranks", [("ddp", 2), ("zero", 2), ("fsdp", 3), ("fully_shard", 4), ("tensor", 4)])
def test_memory_is_that_of_a_real_rank(launch: Any, kind: str, ranks: int) -> None:
    words = [sys.executable, str(PROGRAMS / "peaks.py"), kind, str(ranks)]
    environment = {key: value for key, value in os.environ.items() if key not in ("RANK", "WORLD_SIZE")}
    alone = subprocess.run(words, capture_output=True, text=True, timeout=900, env=environment)
    assert alone.returncode == 0, alone.stderr[-3000:]
    predicted, found = pytest.approx(int(alone.stdout), rel=0.1), []
    while not found or (found[-1] != predicted and len(found) < 3):  # more is in flight at once where others come late
        real = launch("peaks.py", ranks, kind, ranks)
        assert real.returncode == 0, real.stderr[-3000:]
        found.append(int(real.stdout))
    assert found[-1] == predicted, found
