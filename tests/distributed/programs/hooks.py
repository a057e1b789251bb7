"""Gradients of a model on several ranks by each kind of communication hook. Runs on each rank."""

from datetime import timedelta

import tesserack as ts
from tesserack import distributed as dist
from tesserack import nn
from tesserack.distributed.algorithms.ddp_comm_hooks import (
    DDPCommHookType,
    post_localSGD_hook,
    quantization_hooks,
    register_ddp_comm_hook,
)

#: How far gradients may be from the mean of the ranks', as a share of the largest.
LOSES = {"QUANTIZE_PER_TENSOR": 0.02, "QUANTIZE_PER_CHANNEL": 0.02, "FP16_COMPRESS": 0.005, "BF16_COMPRESS": 0.02}


def net() -> nn.Module:
    ts.manual_seed(0)
    return nn.Sequential(nn.Linear(20, 40), nn.Tanh(), nn.Linear(40, 3))


def gradients(model: nn.Module, rank: int) -> ts.Tensor:
    ts.manual_seed(rank)
    model.zero_grad()
    (model(ts.randn(5, 20)) ** 2).mean().backward()
    return ts.cat([p.grad.flatten() for p in model.parameters()])


def expected(ranks: int) -> ts.Tensor:
    return sum(gradients(net(), rank) for rank in range(ranks)) / ranks


def main() -> None:
    dist.init_process_group(timeout=timedelta(seconds=1000))
    me, n = dist.get_rank(), dist.get_world_size()
    mean, own = expected(n), gradients(net(), me)
    for kind in DDPCommHookType:
        model = nn.parallel.DistributedDataParallel(net())
        register_ddp_comm_hook(kind, model)
        got, wanted = gradients(model, me), own if kind.name == "NOOP" else mean
        off = ((got - wanted).abs().max() / wanted.abs().max()).item()
        assert off <= LOSES.get(kind.name, 1e-5), (kind.name, off)
    model = nn.parallel.DistributedDataParallel(net())
    model.register_comm_hook(None, lambda g, b: quantization_hooks.quantization_perchannel_hook(g, b, 7))
    assert (gradients(model, me) - mean).abs().max() < 0.02 * mean.abs().max()
    told = model._get_ddp_logging_data()
    assert (told["world_size"], told["rank"], told["module_name"], told["num_parameter_tensors"]) == (
        n,
        me,
        "Sequential",
        4,
    )
    for within, after in ((dist.new_group(), mean), (dist.new_subgroups(1)[0], own)):
        model = nn.parallel.DistributedDataParallel(net())
        state = post_localSGD_hook.PostLocalSGDState(None, within, 2)
        model.register_comm_hook(state, post_localSGD_hook.post_localSGD_hook)
        for wanted in (mean, mean, after):
            assert (gradients(model, me) - wanted).abs().max() < 1e-5
    dist.destroy_process_group()


main()
