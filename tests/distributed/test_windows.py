"""Memory that all ranks map, and what is reduced in it."""

from typing import Any

import pytest
import tesserack as ts
from tesserack import distributed as dist


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_what_lies_in_a_window_is_reduced_to_the_same_bits(launch: Any, ranks: int) -> None:
    done = launch("windows.py", ranks)
    assert done.stdout.count("same bits") == ranks, done.stderr[-3000:]
    assert "Error:" not in done.stderr and "AssertionError" not in done.stderr, done.stderr[-3000:]


def test_windows_of_different_sizes_are_an_error_on_all_ranks(launch: Any) -> None:
    done = launch("windows.py", 2, variables={"WINDOWS_TRY": "mistakes"})
    assert done.returncode == 0, done.stderr[-3000:]


def test_communicators_without_such_memory_say_so() -> None:
    dist.init_process_group("tcp", store=dist.HashStore(), rank=0, world_size=1)
    group = dist.group.WORLD._get_backend(ts.device("cpu"))
    assert not group.supports_tensor_alloc("cpu")
    with pytest.raises(RuntimeError, match=r"allocate_tensor: expected a communicator that shares memory of cpu"):
        group.allocate_tensor(3, dtype=ts.float32, device="cpu")
    dist.destroy_process_group()
    dist.init_process_group(store=dist.HashStore(), rank=0, world_size=1)
    group = dist.group.WORLD._get_backend(ts.device("cpu"))
    assert group.supports_tensor_alloc("cpu") and not group.supports_tensor_alloc("meta")
    assert group.allocate_tensor(3, dtype=ts.float64, device="cpu").shape == (3,)
    before = ts.memory_stats("cpu")["allocated"]
    memory = group.allocate_tensor(1 << 20, dtype=ts.float64, device="cpu")[5:]
    assert ts.memory_stats("cpu")["allocated"] - before == 1 << 23
    del memory
    assert ts.memory_stats("cpu")["allocated"] == before
    assert group.allocate_tensor(0, dtype=ts.float64, device="cpu").shape == (0,)
    dist.destroy_process_group()
