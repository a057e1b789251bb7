"""Optimizers over ranks: divided state, steps within backward, means of parameters. Runs on each rank."""

from collections import OrderedDict

import tesserack as ts
from nets import Net, alike, data
from tesserack import distributed as dist
from tesserack import nn
from tesserack.distributed.algorithms.join import Join
from tesserack.distributed.algorithms.model_averaging import averagers, utils
from tesserack.distributed.algorithms.model_averaging.hierarchical_model_averager import HierarchicalModelAverager
from tesserack.distributed.fsdp import fully_shard
from tesserack.distributed.optim import (
    PostLocalSGDOptimizer,
    ZeroRedundancyOptimizer,
    _apply_optimizer_in_backward,
)
from tesserack.nn import functional as F
from tesserack.nn.parallel import DistributedDataParallel as DDP


def steps(model: nn.Module, optimizer: ts.optim.Optimizer, x: ts.Tensor, y: ts.Tensor, weight: float, n: int) -> None:
    schedule = ts.optim.lr_scheduler.ExponentialLR(optimizer, 0.99)
    for _ in range(n):
        optimizer.zero_grad()
        (F.cross_entropy(model(x), y, reduction="sum") * weight / 24).backward()
        optimizer.step()
        schedule.step()


def furthest(a: nn.Module, b: nn.Module) -> float:
    return max((p - q).abs().max().item() for p, q in zip(a.parameters(), b.parameters(), strict=True))


def main() -> None:
    dist.init_process_group()
    n, me = dist.get_world_size(), dist.get_rank()
    x, y = data()
    mine = slice(me, None, n)
    for joined in (False, True):
        alone, shared = Net(), DDP(Net())
        expected = ts.optim.AdamW(alone.parameters(), lr=0.01, weight_decay=0.1)
        zero = ZeroRedundancyOptimizer(
            shared.parameters(), ts.optim.AdamW, parameters_as_bucket_view=joined, lr=0.01, weight_decay=0.1
        )
        steps(alone, expected, x, y, 1.0, 50)
        steps(shared, zero, x[mine], y[mine], n, 50)
        assert furthest(alone, shared.module) < 1e-5
        held = sum(s["exp_avg"].numel() for s in zero.optim.state.values())
        whole = sum(s["exp_avg"].numel() for s in expected.state.values())
        assert held < 0.75 * whole / n * 2 and sum(map(len, (zero.optim.state,))) < len(expected.state)
        saves(zero, expected, shared, alone, (x, y, mine), n, me)
    grows(n)
    uneven(me)
    averages(n, me)
    within_backward(x, y, mine, n)
    absent()
    dist.destroy_process_group()


def saves(zero, expected, shared, alone, given, n: int, me: int) -> None:
    x, y, mine = given
    try:
        zero.state_dict()
    except RuntimeError as error:
        assert "consolidate_state_dict" in str(error)
    else:
        raise AssertionError("a state dict was given without the others' states")
    zero.consolidate_state_dict(to=n - 1)
    if me == n - 1:
        state = zero.state_dict()
        for number, own in expected.state_dict()["state"].items():
            for key, value in own.items():
                assert (state["state"][number][key] - value).abs().max().item() < 1e-5, key
        assert [g["lr"] for g in state["param_groups"]] == [g["lr"] for g in expected.param_groups]
    again = ZeroRedundancyOptimizer(shared.parameters(), ts.optim.AdamW, lr=1.0)
    again.load_state_dict(expected.state_dict())
    steps(alone, expected, x, y, 1.0, 5)
    steps(shared, again, x[mine], y[mine], n, 5)
    assert furthest(alone, shared.module) < 1e-5


def grows(n: int) -> None:
    ts.manual_seed(0)
    models = [nn.Linear(4, 4), nn.Linear(4, 4)]
    models[1].load_state_dict(models[0].state_dict())
    optimizers = [
        ts.optim.SGD([models[0].weight], lr=0.1, momentum=0.9),
        ZeroRedundancyOptimizer([models[1].weight], ts.optim.SGD, lr=0.1, momentum=0.9),
    ]
    for turn in range(4):
        groups = len(optimizers[0].param_groups)  # on ranks that hold nothing of one as well
        assert [len(o.param_groups) for o in (optimizers[1], optimizers[1].optim)] == [groups, groups]
        for model, optimizer in zip(models, optimizers, strict=True):
            if turn == 2:
                optimizer.add_param_group({"params": [model.bias], "lr": 0.5})
            optimizer.zero_grad()
            model(ts.ones(1, 4)).square().sum().backward()
            optimizer.step()
    assert furthest(*models) < 1e-6


def uneven(me: int) -> None:
    model = DDP(nn.Linear(2, 1), gradient_as_bucket_view=True)
    zero = ZeroRedundancyOptimizer(model.parameters(), ts.optim.SGD, lr=0.1)
    before = model.module.weight.detach().clone()
    with Join([model, zero]):
        for _ in range(2 + me):
            zero.zero_grad()
            model(ts.ones(1, 2)).sum().backward()
            zero.step()
    found: list = [None] * dist.get_world_size()
    dist.all_gather_object(found, [p.tolist() for p in model.parameters()])
    assert all(each == found[0] for each in found)
    assert (before - model.module.weight).min().item() > 0.19


def averages(n: int, me: int) -> None:
    parameter = ts.nn.Parameter(ts.full((3,), float(me)))
    utils.average_parameters([parameter])
    assert parameter.tolist() == [(n - 1) / 2] * 3
    averager = averagers.PeriodicModelAverager(period=2, warmup_steps=2)
    optimizer = PostLocalSGDOptimizer(ts.optim.SGD([parameter], lr=1.0), averager)
    spread = []
    for _ in range(5):
        parameter.grad = ts.full((3,), float(me))
        optimizer.step()
        spread.append(alike(parameter.detach(), n))
    assert spread == [False, False, True, False, True], spread
    assert optimizer.state_dict()["step"] == 5
    if n == 4:
        several = HierarchicalModelAverager(OrderedDict([(1, 2), (2, 4)]))
        parameter.grad = ts.zeros(3)
        for expected in ([1.5] * 4, [0.5, 0.5, 2.5, 2.5]):
            parameter.data.fill_(float(me))
            several.average_parameters([parameter])
            assert parameter[0].item() == expected[me]


def within_backward(x: ts.Tensor, y: ts.Tensor, mine: slice, n: int) -> None:
    alone, shared = Net(), Net()
    fully_shard(shared)
    optimizer = ts.optim.SGD(alone.parameters(), lr=0.1)
    _apply_optimizer_in_backward(ts.optim.SGD, shared.parameters(), {"lr": 0.1})
    for _ in range(10):
        optimizer.zero_grad()
        (F.cross_entropy(alone(x), y, reduction="sum") / 24).backward()
        optimizer.step()
        (F.cross_entropy(shared(x[mine]), y[mine], reduction="sum") * n / 24).backward()
        assert all(p.grad is None for p in shared.parameters())
    whole = [p.full_tensor() for p in shared.parameters()]
    assert max((p - q).abs().max().item() for p, q in zip(alone.parameters(), whole, strict=True)) < 1e-5


def absent() -> None:
    try:
        ZeroRedundancyOptimizer([ts.nn.Parameter(ts.ones(1))], ts.optim.SGD, overlap_with_ddp=True, lr=0.1)
    except NotImplementedError as error:
        assert "absent" in str(error)
    else:
        raise AssertionError("expected an error")


if __name__ == "__main__":
    main()
