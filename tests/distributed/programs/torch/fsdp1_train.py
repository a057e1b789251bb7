"""Written for PyTorch: FSDP1 with policies, a sampler, mixed precision, checkpointed activations, a gradient scaler."""

import functools
import os
import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn, optim
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    CheckpointImpl,
    apply_activation_checkpointing,
    checkpoint_wrapper,
)
from torch.distributed.fsdp import (
    BackwardPrefetch,
    CPUOffload,
    FullStateDictConfig,
    MixedPrecision,
    ShardingStrategy,
    StateDictType,
)
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler
from torch.distributed.fsdp.wrap import enable_wrap, size_based_auto_wrap_policy, transformer_auto_wrap_policy, wrap
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, 1)
        self.conv2 = nn.Conv2d(8, 8, 3, 1)
        self.dropout = nn.Dropout(0.1)
        self.fc1 = nn.Linear(8 * 36, 64)
        self.fc2 = nn.Linear(64, 4)

    def forward(self, x):
        x = F.relu(self.conv2(F.relu(self.conv1(x))))
        x = F.max_pool2d(x, 2)
        x = torch.flatten(x, 1)
        x = self.fc2(self.dropout(F.relu(self.fc1(x))))
        return F.log_softmax(x, dim=1)


def images():
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(256) % 4
    x = torch.randn(256, 1, 16, 16, generator=generator) * 0.3
    for k in range(256):
        row, column = divmod(int(labels[k]), 2)
        x[k, 0, 8 * row : 8 * row + 8, 8 * column : 8 * column + 8] += 1
    return TensorDataset(x, labels)


def train_images(rank, world_size):
    data = images()
    sampler = DistributedSampler(data, rank=rank, num_replicas=world_size, shuffle=True)
    loader = DataLoader(data, batch_size=16, sampler=sampler)
    policy = functools.partial(size_based_auto_wrap_policy, min_num_params=1000)
    model = FSDP(Net(), auto_wrap_policy=policy, cpu_offload=CPUOffload(offload_params=True), sync_module_states=True)
    assert "FullyShardedDataParallel" in str(model) and "_fsdp_wrapped_module" in str(model)
    optimizer = optim.Adadelta(model.parameters(), lr=1.0)
    scheduler = StepLR(optimizer, step_size=1, gamma=0.7)
    for epoch in range(3):
        model.train()
        sampler.set_epoch(epoch)
        sums = torch.zeros(2)
        for x, y in loader:
            optimizer.zero_grad()
            loss = F.nll_loss(model(x), y, reduction="sum")
            loss.backward()
            optimizer.step()
            sums[0] += loss.item()
            sums[1] += len(x)
        dist.all_reduce(sums, op=dist.ReduceOp.SUM)
        scheduler.step()
    model.eval()
    with torch.no_grad():
        x, y = images()[:]
        right = (model(x).argmax(dim=1) == y).float().mean().item()
    states = model.state_dict()
    plain = Net().eval()
    plain.load_state_dict(states)
    with torch.no_grad():
        assert torch.equal(plain(x).argmax(1), model(x).argmax(1))
    if rank == 0:
        print(f"images loss {sums[0] / sums[1]:.4f} accuracy {right:.3f}", flush=True)


class T(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(16, 32)
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, dropout=0.0), 2)
        self.head = nn.Linear(32, 16)

    def forward(self, x):
        return self.head(self.encoder(self.embed(x)))


def train_text(rank, world_size):
    torch.manual_seed(1)
    policy = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={nn.TransformerEncoderLayer})
    half = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16, buffer_dtype=torch.bfloat16)
    model = FSDP(
        T(),
        auto_wrap_policy=policy,
        mixed_precision=half,
        sharding_strategy=ShardingStrategy.FULL_SHARD,
        backward_prefetch=BackwardPrefetch.BACKWARD_PRE,
        device_id=None,
        limit_all_gathers=True,
        use_orig_params=True,
    )
    wrapper = functools.partial(checkpoint_wrapper, checkpoint_impl=CheckpointImpl.NO_REENTRANT)
    apply_activation_checkpointing(
        model, checkpoint_wrapper_fn=wrapper, check_fn=lambda m: isinstance(m, nn.TransformerEncoderLayer)
    )
    optimizer = optim.AdamW(model.parameters(), lr=5e-3)
    scaler = ShardedGradScaler()
    generator = torch.Generator().manual_seed(rank)
    for _ in range(30):
        x = torch.randint(0, 16, (8, 6), generator=generator)
        optimizer.zero_grad(set_to_none=True)
        loss = F.cross_entropy(model(x).float().flatten(0, 1), x.flatten())
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        norm = model.clip_grad_norm_(1.0)
        scaler.step(optimizer)
        scaler.update()
    save_policy = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, save_policy):
        state = model.state_dict()
    optim_state = FSDP.full_optim_state_dict(model, optimizer)
    if rank == 0:
        T().load_state_dict(state)
        assert "encoder.layers.0.linear1.weight" in optim_state["state"]
        print(f"text loss {loss.item():.4f} norm {float(norm):.3f}", flush=True)
    sharded = FSDP.scatter_full_optim_state_dict(optim_state if rank == 0 else None, model, optim=optimizer)
    optimizer.load_state_dict(sharded)


def by_hand(rank):
    with enable_wrap(wrapper_cls=FSDP, process_group=dist.group.WORLD):
        model = wrap(nn.Sequential(wrap(nn.Linear(4, 4)), nn.ReLU(), nn.Linear(4, 4)))
    assert isinstance(model, FSDP) and isinstance(model.module[0], FSDP)
    with model.no_sync():
        model(torch.ones(1, 4)).sum().backward()
    model(torch.ones(1, 4)).sum().backward()
    with FSDP.summon_full_params(model):
        assert model.module[2].weight.shape == (4, 4)
    if rank == 0:
        print("by hand", len(list(model.parameters())))


def main():
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.manual_seed(0)
    train_images(rank, world_size)
    train_text(rank, world_size)
    by_hand(rank)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    sys.exit(main())
