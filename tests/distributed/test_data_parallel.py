"""Training on several ranks, and the launcher that starts them."""

import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import tesserack as ts
from tesserack import nn


@pytest.mark.parametrize("ranks", [2, 4])
def test_ranks_follow_one_process_on_the_whole_batch(launch: Any, ranks: int) -> None:
    done = launch("data_parallel.py", ranks)
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.parametrize("ranks", [2, 3])
def test_gradients_in_the_memory_of_buckets_are_those_of_plain_modules(launch: Any, ranks: int) -> None:
    done = launch("buckets/homes.py", ranks)
    assert done.returncode == 0 and done.stdout.count("same gradients") == ranks, done.stderr[-3000:]


@pytest.mark.parametrize(("spare", "buckets"), [("none", 1), ("some", 2)])
def test_ranks_agree_on_buckets_whatever_each_has_to_spare(launch: Any, spare: str, buckets: int) -> None:
    done = launch("buckets/spare.py", 2, spare, str(buckets))
    assert done.returncode == 0 and done.stdout.count("same gradients") == 2, done.stderr[-3000:]


def test_compiled_modules_have_the_gradients_of_plain_ones(launch: Any) -> None:
    done = launch("compiled.py", 2)
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.fixture
def alone() -> Any:
    """A world of one rank."""
    ts.distributed.init_process_group(store=ts.distributed.HashStore(), rank=0, world_size=1)
    yield ts.distributed
    ts.distributed.destroy_process_group()


class Half(nn.Module):
    """Uses the first of its layers alone."""

    def __init__(self) -> None:
        super().__init__()
        self.used, self.idle = nn.Linear(2, 2), nn.Linear(2, 2)

    def forward(self, x: ts.Tensor) -> ts.Tensor:
        return self.used(x)


def test_parameters_without_a_gradient_are_named(alone: Any) -> None:
    model = nn.parallel.DistributedDataParallel(Half())
    model(ts.ones(1, 2)).sum().backward()
    with pytest.raises(RuntimeError, match=r"find_unused_parameters=True.*idle.weight, idle.bias.*rank 0: 2 3"):
        model(ts.ones(1, 2))


def test_unused_parameters_keep_no_gradient_where_that_is_allowed(alone: Any) -> None:
    model = nn.parallel.DistributedDataParallel(Half(), find_unused_parameters=True)
    for _ in range(2):
        model(ts.ones(1, 2)).sum().backward()
    assert model.module.idle.weight.grad is None
    assert model.module.used.bias.grad.tolist() == [2.0, 2.0]


def test_the_old_names_of_a_group_exist_before_there_is_one() -> None:
    assert ts.distributed.group.WORLD is None and not ts.distributed.is_initialized()
    with pytest.raises(ValueError, match="init_process_group"):
        ts.distributed.get_rank()


def test_who_is_in_a_group(alone: Any) -> None:
    assert not alone._rank_not_in_group(None) and not alone._rank_not_in_group(alone.group.WORLD)
    assert alone._rank_not_in_group(alone.GroupMember.NON_GROUP_MEMBER)


def test_a_group_is_left_once() -> None:
    ts.distributed.init_process_group(store=ts.distributed.HashStore(), rank=0, world_size=1)
    group = ts.distributed.new_group()
    ts.distributed.destroy_process_group(group)
    with pytest.raises(ValueError, match="Invalid process group specified"):
        ts.distributed.destroy_process_group(group)
    ts.distributed.destroy_process_group()
    with pytest.raises(AssertionError, match="Process group cannot be None"):
        ts.distributed.destroy_process_group()
    with pytest.raises(ValueError, match="Invalid process group specified"):
        ts.distributed.destroy_process_group(group)


def test_the_time_that_a_group_waits_may_change(alone: Any) -> None:
    ts.distributed._set_pg_timeout(timedelta(seconds=7))
    group = ts.distributed.group.WORLD
    assert group.call().timeout == 7 and ts.distributed.new_group().call().timeout == 7
    with pytest.raises(TypeError, match=r"expected timeout to be a datetime.timedelta, got float"):
        ts.distributed._set_pg_timeout(7.0)


def test_ranks_that_fail_are_started_again(launch: Any, tmp_path: Path) -> None:
    program = tmp_path / "again.py"
    program.write_text(
        "import os, sys\n"
        "count = int(os.environ['TORCHELASTIC_RESTART_COUNT'])\n"
        "print('rank', os.environ['RANK'], 'attempt', count, flush=True)\n"
        "sys.exit(3 if count < 2 and os.environ['RANK'] == '1' else 0)\n"
    )
    done = launch(program, 2, options=("--max-restarts", "2", "--tee", "3", "--log-dir", str(tmp_path / "logs")))
    assert done.returncode == 0, done.stderr
    assert "[default1]:rank 1 attempt 2" in done.stdout and "starting again (0 left)" in done.stderr
    assert [p.read_text() for p in (tmp_path / "logs").rglob("attempt_2/1/stdout.log")] == ["rank 1 attempt 2\n"]
    assert launch(program, 2, options=("--max-restarts", "1")).returncode == 1


def test_the_example_prints_the_losses_of_one_process(launch: Any) -> None:
    pytest.importorskip("sklearn", reason="the scans come with scikit-learn")
    program = Path(__file__).parents[2] / "examples" / "digits_ranks.py"
    words = [sys.executable, str(program), "--alone", "--epochs", "2"]
    alone = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    shared = launch(program, 2, "--epochs", "2")
    assert shared.returncode == 0, shared.stderr
    losses = [line for line in alone.splitlines() if line.startswith("epoch")]
    assert losses and losses == [line for line in shared.stdout.splitlines() if line.startswith("epoch")]


def test_gradients_are_reduced_by_each_kind_of_hook(launch: Any) -> None:
    done = launch("hooks.py", 2)
    assert done.returncode == 0, done.stderr[-3000:]


def test_gradients_that_some_have_none_of(launch: Any) -> None:
    done = launch("ddp_details.py", 2)
    assert done.returncode == 0, done.stderr[-3000:]


def test_collectives_are_seen_by_the_profiler(alone: Any) -> None:
    with ts.profiler.profile(record_shapes=True) as seen:
        ts.distributed.all_reduce(ts.ones(3, 4))
        ts.distributed.all_gather([ts.ones(2)], ts.ones(2), async_op=True).wait()
        ts.distributed.all_to_all_single(ts.ones(5), ts.ones(5))
    found = [(e.name.partition(":")[2], e.is_async, e.input_shapes) for e in seen.events() if e.is_async]
    assert found == [("all_reduce", True, [[3, 4]]), ("all_gather", True, [[2]]), ("all_to_all", True, [[5]])]


def test_reductions_go_on_beside_backward(launch: Any, tmp_path: Path) -> None:
    done = launch("buckets/overlapping.py", 2, tmp_path, variables={"TESSERACK_COMM": "tcp"})
    assert done.returncode == 0 and done.stdout.count("OVERLAPPED") == 2, done.stdout + done.stderr[-3000:]


def test_debug_levels_are_those_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    before = ts.distributed.get_debug_level()
    try:
        monkeypatch.setenv("TORCH_DISTRIBUTED_DEBUG", "detail")
        ts.distributed.set_debug_level_from_env()
        assert ts.distributed.get_debug_level() is ts.distributed.DebugLevel.DETAIL
        monkeypatch.setenv("TORCH_DISTRIBUTED_DEBUG", "much")
        with pytest.raises(RuntimeError, match="expected OFF, INFO or DETAIL, got 'much'"):
            ts.distributed.set_debug_level_from_env()
        with pytest.raises(TypeError, match="expected a DebugLevel"):
            ts.distributed.set_debug_level("INFO")  # type: ignore[arg-type]  # what is tested
    finally:
        ts.distributed.set_debug_level(before)
