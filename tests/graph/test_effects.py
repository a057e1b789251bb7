"""Calls that others take part in: never left out, doubled or moved, by any pass and in plans."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import tesserack as ts
from programs import record, same_bits
from tesserack import _native

PASSES = ("fold", "share_equal", "rewrite", "without_dead", "optimised")


@pytest.fixture
def group() -> Iterator[str]:
    ts.distributed.init_process_group(store=ts.distributed.HashStore(), rank=0, world_size=1)
    yield ts.distributed.group.WORLD.group_name
    ts.distributed.destroy_process_group()


def made(graph: _native._Graph) -> list[str]:
    """The collectives, in order."""
    names = [graph.node(k)["op"] for k in range(graph.num_nodes)]
    return [name.removeprefix("_c10d_functional::") for name in names if name.startswith("_c10d_functional::")]


def test_statistics_are_written_in_training() -> None:
    where = {op["name"]: op["effects"]["writes_where"] for op in _native._operators()}
    assert where["batch_norm"] == where["native_batch_norm"] == "training"
    assert where["instance_norm"] == "use_input_stats" and where["add_"] is None


def test_communicating_is_a_fact_of_the_schema(group: str) -> None:
    effects = {op["name"]: op["effects"]["communicates"] for op in _native._operators()}
    assert effects["_c10d_functional::all_reduce"] and effects["_c10d_functional::wait_tensor"]
    assert not any(told for name, told in effects.items() if "c10d" not in name)


def test_collectives_are_kept_as_often_and_in_the_order_they_are_made(group: str) -> None:
    ops = ts.ops._c10d_functional

    def program(x):
        a = ops.all_reduce(x, "sum", group)
        b = ops.all_reduce(x, "sum", group)  # the same call again
        ops.broadcast(x, 0, group)  # that nobody reads
        c = ops.all_gather_into_tensor(ts.ones(2), 1, group)  # of a constant
        return [a + b, c * 1.0]

    recorded, expected = record(program, ts.randn(3))
    order = ["all_reduce", "all_reduce", "broadcast", "all_gather_into_tensor"]
    for level in (recorded.outer_level(), recorded.leaf_level()):
        for special in (level, level.specialised()):
            assert made(special) == order
            for name in PASSES:
                assert made(getattr(special, name)()) == order, name
            frozen = special.optimised(True)
            assert made(frozen) == order
        runner = _native._GraphRunner(frozen, "at once")
        for _ in range(3):
            x = ts.randn(3)
            with ts.no_grad():
                got = runner.run([x])
            assert all(map(same_bits, got, program(x)))
        assert all(plan["called"] == 4 for plan in runner.plans())
    assert expected[0].shape == (3,)


@pytest.mark.parametrize("backend", ["local", "fake"])
def test_what_a_graph_would_leave_out_is_refused(backend: str) -> None:
    ts.distributed.init_process_group(backend, store=ts.distributed.HashStore(), rank=0, world_size=1)

    def program(x):
        y = x * 2
        ts.distributed.all_reduce(y)
        return [y]

    try:
        with pytest.raises(RuntimeError, match=r"all_reduce: expected no trace.*_c10d_functional"):
            record(program, ts.ones(2))
    finally:
        ts.distributed.destroy_process_group()
