"""What cards that have NCCL do, one for each rank: ``card_ranks.py training|collectives|failing``. Runs on each rank.

The driver and NCCL are simulated; ranks, groups and what they call are not.
"""

import contextlib
import os
import sys
from datetime import timedelta
from typing import Any

import matrix
import tesserack as ts
from nccl_of_processes import NcclOfProcesses
from simulated import NAME, Simulated
from tesserack import _native, nn
from tesserack import distributed as dist
from tesserack.distributed.fsdp import fully_shard
from tesserack_cuda import set_up
from tesserack_cuda.backend import CUDA

RANK = int(os.environ["RANK"])
DEVICE = f"{NAME}:{RANK}"


def register() -> NcclOfProcesses:
    driver = Simulated(devices=4, memory=1 << 28)
    driver.libraries["nccl"] = made = NcclOfProcesses(driver)
    backend = CUDA(NAME, driver.load)
    set_up(backend)
    native: Any = _native
    native._register_python_backend(backend, __file__)
    native._set_current_index(NAME, RANK)
    return made


def net() -> nn.Module:
    ts.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))


def trained(model: nn.Module, x: ts.Tensor, y: ts.Tensor) -> nn.Module:
    optimizer = ts.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for _ in range(3):
        optimizer.zero_grad()
        (model(x) - y).square().mean().backward()
        optimizer.step()
    return model


def training(nccl: NcclOfProcesses) -> None:
    n = dist.get_world_size()
    ts.manual_seed(1)
    x, y = ts.randn(8, 8), ts.randn(8, 2)
    expected = trained(net(), x, y)(x)
    here = x[RANK::n].to(DEVICE), y[RANK::n].to(DEVICE)
    hooked = nn.parallel.DistributedDataParallel(net().to(DEVICE))
    hooked.register_comm_hook(None, dist.algorithms.ddp_comm_hooks.default_hooks.allreduce_hook)
    models = [nn.parallel.DistributedDataParallel(net().to(DEVICE)), hooked]
    models.append(fully_shard(net().to(DEVICE), mesh=dist.init_device_mesh(NAME, (n,))))
    for model, op in zip(models, ("all_reduce", "all_reduce", "reduce_scatter"), strict=True):
        before = nccl.calls.count(op)
        trained(model, *here)
        assert nccl.calls.count(op) >= before + 3, nccl.calls
        assert (model(x.to(DEVICE)).cpu() - expected).abs().max().item() < 1e-4


def collectives(nccl: NcclOfProcesses) -> None:
    cases = [case for case in matrix.small() if case[1] in (ts.float32, ts.bfloat16, ts.int64, ts.bool)][::61]
    for number, case in enumerate(cases):
        trial = matrix.Trial(case, DEVICE, number)
        trial.start()
        trial.finish()
    assert {"all_reduce", "broadcast", "all_gather", "reduce", "send"} <= set(nccl.calls), set(nccl.calls)


def failing() -> None:
    """The last rank does not come."""
    x, last = ts.ones(3, device=DEVICE), dist.get_world_size() - 1
    dist.all_reduce(x)
    dist.barrier()
    dist._set_pg_timeout(timedelta(seconds=2))
    if last == RANK:
        with contextlib.suppress(dist.DistNetworkError):  # who keeps the store ends once it has told
            dist.group.WORLD.store.get("told")
        os._exit(0)
    try:
        dist.all_reduce(x)
        ts.synchronize(DEVICE)
        dist.all_reduce(x)
    except dist.DistBackendError as error:
        assert f"rank {last} did not come within 2 s" in str(error), error
        dist.group.WORLD.store.set("told", "")
        os.write(1, b"TOLD\n")
    os._exit(0)


nccl = register()
dist.init_process_group()
ts.backends.set_fallback("error" if sys.argv[1] == "training" else "allow")
if sys.argv[1] == "failing":
    failing()
(training if sys.argv[1] == "training" else collectives)(nccl)
dist.barrier()  # the first rank keeps what the simulated library needs
dist.destroy_process_group()
assert "destroy" in nccl.calls
os.write(1, b"WENT BY NCCL\n")  # at once: ranks share the pipe
