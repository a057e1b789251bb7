"""A model on several ranks follows the same model on one, trained on the whole batch. Runs on each rank."""

import tesserack as ts
from tesserack import distributed as dist
from tesserack import nn
from tesserack.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from tesserack.nn.parallel import DistributedDataParallel as DDP

BATCH, STEPS = 24, 50


class Net(nn.Module):
    """Batch normalisation, tied weights, and a layer that takes no part where ``idle``."""

    def __init__(self, idle: bool = False) -> None:
        super().__init__()
        ts.manual_seed(0)
        self.conv, self.norm = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4)
        self.one = nn.Linear(4 * 36, 12)
        self.two, self.three = nn.Linear(12, 12), nn.Linear(12, 12)
        self.three.weight = self.two.weight
        self.unused = nn.Linear(3, 3) if idle else None

    def forward(self, x: ts.Tensor) -> ts.Tensor:
        x = self.one(self.norm(self.conv(x)).relu().flatten(1)).relu()
        return self.three(self.two(x).relu())[:, :3]


def trained(model: nn.Module, x: ts.Tensor, y: ts.Tensor, weight: float = 1.0, parts: int = 1) -> None:
    optimizer = ts.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for _ in range(STEPS):
        optimizer.zero_grad()
        for k in range(parts):
            held = model.no_sync() if parts > 1 and k < parts - 1 and isinstance(model, DDP) else ts.enable_grad()
            with held:
                loss = nn.functional.cross_entropy(model(x[k::parts]), y[k::parts], reduction="sum")
                (loss * weight / BATCH).backward()
        optimizer.step()


def furthest(a: nn.Module, b: nn.Module) -> float:
    return max((p - q).abs().max().item() for p, q in zip(a.parameters(), b.parameters(), strict=True))


def main() -> None:
    dist.init_process_group()
    n, me = dist.get_world_size(), dist.get_rank()
    generator = ts.Generator().manual_seed(1)
    x, y = ts.randn(BATCH, 1, 8, 8, generator=generator), ts.randint(0, 3, (BATCH,), generator=generator)
    edges = [0, *(BATCH * (k + 1) // n - (1 if k < n - 1 else 0) for k in range(n))]  # uneven parts
    mine = slice(edges[me], edges[me + 1])
    options = [{}, {"gradient_as_bucket_view": True}, {"static_graph": True}, {"bucket_cap_mb": 1e-4}]
    for given in [*options, {"find_unused_parameters": True}]:
        idle = "find_unused_parameters" in given
        alone, shared = Net(idle), DDP(nn.SyncBatchNorm.convert_sync_batchnorm(Net(idle)), **given)
        trained(alone, x, y)
        trained(shared, x[mine], y[mine], weight=n)
        assert furthest(alone, shared.module) < 1e-5, (given, furthest(alone, shared.module))
        assert (alone.norm.running_var - shared.module.norm.running_var).abs().max().item() < 1e-5
    plain = [Net(), DDP(Net())]
    for model in (plain[0], plain[1].module):
        model.norm.eval()
    for model, weight, part in ((plain[0], 1.0, slice(None)), (plain[1], float(n), slice(me, None, n))):
        trained(model, x[part], y[part], weight, parts=2)
    assert furthest(plain[0], plain[1].module) < 1e-5
    hooks(x.flatten(1)[:, :8], n, me)
    uneven(n, me)
    dist.destroy_process_group()


def hooks(x: ts.Tensor, n: int, me: int) -> None:
    target = x.sum(1, keepdim=True)
    for state, hook in (
        (None, default_hooks.allreduce_hook),
        (None, default_hooks.fp16_compress_hook),
        (None, default_hooks.bf16_compress_hook),
        (None, default_hooks.fp16_compress_wrapper(default_hooks.allreduce_hook)),
        (powerSGD_hook.PowerSGDState(None, 2, 2), powerSGD_hook.powerSGD_hook),
        (powerSGD_hook.PowerSGDState(None, 2, 2), powerSGD_hook.batched_powerSGD_hook),
    ):
        ts.manual_seed(2)
        model = DDP(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1)))
        model.register_comm_hook(state, hook)
        optimizer, losses = ts.optim.SGD(model.parameters(), lr=0.02), []
        for _ in range(60):
            optimizer.zero_grad()
            loss = (model(x[me::n]) - target[me::n]).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        assert losses[-1] < 0.3 * losses[0], (hook, losses[0], losses[-1])
        agree(model, n)


def uneven(n: int, me: int) -> None:
    model = DDP(nn.Linear(2, 1))
    optimizer = ts.optim.SGD(model.parameters(), lr=0.1)
    with model.join():
        for _ in range(2 + me):
            optimizer.zero_grad()
            model(ts.ones(1, 2)).sum().backward()
            optimizer.step()
    agree(model, n)


def agree(model: nn.Module, n: int) -> None:
    found: list = [None] * n
    dist.all_gather_object(found, [p.tolist() for p in model.parameters()])
    assert all(each == found[0] for each in found)


if __name__ == "__main__":
    main()
