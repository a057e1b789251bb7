"""DTensors: operators in every placement, and what a program does with them."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import tesserack as ts
from tesserack.testing import seeds


@pytest.mark.parametrize("ranks", [2, 4])
def test_operators_agree_with_whole_tensors_in_every_placement(launch: Any, ranks: int) -> None:
    every = 1 if seeds.full() else 9  # all placements, or a sample that changes with the seed
    done = launch("dtensor_ops.py", ranks, seeds.seed() % 9, every)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "fallbacks {}" in done.stdout


@pytest.mark.parametrize("ranks", [2, 4])
def test_placing_gradients_random_numbers_optimizers_files_and_errors(launch: Any, ranks: int) -> None:
    done = launch("dtensor_api.py", ranks)
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.parametrize("ranks", [2, 4])
def test_attention_over_parts_of_a_sequence_follows_one_process(launch: Any, ranks: int) -> None:
    done = launch("context_parallel.py", ranks)
    assert done.returncode == 0, done.stderr[-3000:]


PROGRAMS = [
    ("torch_tensor_parallel.py", 2, "plain"),
    ("torch_tensor_parallel.py", 4, "sequence"),
    ("torch_pipeline.py", 2),
    ("torch_pipeline.py", 4),
    ("torch_mesh.py", 4),
]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: f"{p[0][6:-3]}_{p[1]}")
def test_programs_for_pytorch_follow_one_process(launch: Any, program: Any) -> None:
    done = launch(*program, torch=True)
    assert done.returncode == 0, done.stderr[-3000:]


def test_the_example_prints_the_losses_of_one_process(launch: Any) -> None:
    program = Path(__file__).parents[2] / "examples" / "gpt_mesh.py"
    words = [sys.executable, str(program), "--alone", "--steps", "21"]
    alone = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    shared = launch(program, 4, "--steps", "21")
    assert shared.returncode == 0, shared.stderr
    losses = [line for line in alone.splitlines() if line.startswith("step")]
    assert losses and losses == [line for line in shared.stdout.splitlines() if line.startswith("step")]
    assert "13962 of 27540 parameters on each of 4 ranks" in shared.stdout


def test_plans_that_name_no_module_are_told_of() -> None:
    from tesserack import nn
    from tesserack.distributed.tensor.parallel import ColwiseParallel, parallelize_module

    ts.distributed.init_process_group(store=ts.distributed.HashStore(), rank=0, world_size=1)
    try:
        mesh = ts.distributed.init_device_mesh("cpu", (1,))
        model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
        with pytest.warns(UserWarning, match="'7.x' could not be resolved"):
            parallelize_module(model, mesh, {"7.x": ColwiseParallel()})
        with pytest.warns(UserWarning, match="nothing is done"):
            parallelize_module(model, mesh)
        with pytest.raises(NotImplementedError, match=r"nn\.Linear and nn\.Embedding"):
            parallelize_module(model, mesh, {"1": ColwiseParallel()})
        with pytest.raises(TypeError, match="Expect Union"):
            parallelize_module(model, mesh, 7)  # type: ignore[arg-type]
        assert "output_layouts=(Shard(dim=-1),)" in repr(ColwiseParallel())
    finally:
        ts.distributed.destroy_process_group()
