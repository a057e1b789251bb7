"""Collectives as operators: what modes and graphs see of them."""

from typing import Any

import pytest
import tesserack as ts
from tesserack import distributed as dist
from tesserack.aten.modes import TorchDispatchMode
from tesserack.distributed import _functional_collectives as functional
from tesserack.fx._effects import is_impure_call


@pytest.fixture
def name() -> Any:
    """The name of a group of one of four ranks that are not there."""
    dist.init_process_group("fake", rank=1, world_size=4)
    yield dist.group.WORLD.group_name
    dist.destroy_process_group()


class Seen(TorchDispatchMode):
    """The names of operators that are called within."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


def test_functional_collectives_are_calls_of_operators(name: str) -> None:
    x = ts.ones(4, 3)
    with Seen() as seen:
        assert functional.all_reduce(x, "sum", None).shape == (4, 3)
        assert functional.all_gather_tensor(x, 0, None).shape == (16, 3)
        assert functional.all_gather_tensor(x, 1, None).shape == (4, 12)
        assert functional.reduce_scatter_tensor(x, "avg", 0, None).shape == (1, 3)
        assert functional.reduce_scatter_tensor(ts.ones(3, 8), dist.ReduceOp.MAX, 1, None).shape == (3, 2)
        assert functional.all_to_all_single(x, None, None, None).shape == (4, 3)
        assert functional.broadcast(x, 2, None).shape == (4, 3)
    text = " ".join(seen.names)
    for op in ("all_reduce", "all_gather_into_tensor", "reduce_scatter_tensor", "all_to_all_single", "broadcast"):
        assert f"_c10d_functional.{op}" in text or f"_c10d_functional::{op}" in text, seen.names


def test_operators_have_schemas_and_shapes_without_data(name: str) -> None:
    op = ts.ops._c10d_functional.all_gather_into_tensor
    assert "(Tensor input, int group_size, str group_name) -> Tensor" in op.schema
    assert op(ts.empty(4, 3, device="meta"), 1024, name).shape == (4096, 3)
    assert ts.ops._c10d_functional.all_reduce(ts.ones(2), "sum", name).shape == (2,)


def test_passes_over_graphs_keep_them() -> None:
    for op in ("all_reduce", "broadcast", "wait_tensor"):
        assert is_impure_call(getattr(ts.ops._c10d_functional, op), {}, False)
