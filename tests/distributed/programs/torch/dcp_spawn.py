"""Written for PyTorch: asynchronous checkpoints of an application's state, by processes that the program spawns."""

import os
import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.stateful import Stateful
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import fully_shard


class AppState(Stateful):
    def __init__(self, model, optimizer=None):
        self.model = model
        self.optimizer = optimizer

    def state_dict(self):
        model_state_dict, optimizer_state_dict = get_state_dict(self.model, self.optimizer)
        return {"model": model_state_dict, "optim": optimizer_state_dict}

    def load_state_dict(self, state_dict):
        set_state_dict(
            self.model, self.optimizer, model_state_dict=state_dict["model"], optim_state_dict=state_dict["optim"]
        )


class ToyModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.net1 = nn.Linear(16, 16)
        self.relu = nn.ReLU()
        self.net2 = nn.Linear(16, 8)

    def forward(self, x):
        return self.net2(self.relu(self.net1(x)))


def setup(rank, world_size, port):
    os.environ["MASTER_ADDR"] = "localhost"
    os.environ["MASTER_PORT"] = port
    dist.init_process_group("gloo", rank=rank, world_size=world_size)


def run(rank, world_size, folder, port):
    setup(rank, world_size, port)
    torch.manual_seed(0)
    model = FSDP(ToyModel())
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    checkpoint_future = None
    for step in range(3):
        optimizer.zero_grad()
        model(torch.rand(8, 16)).sum().backward()
        optimizer.step()
        if checkpoint_future is not None:
            checkpoint_future.result()
        state_dict = {"app": AppState(model, optimizer)}
        checkpoint_future = dcp.async_save(state_dict, checkpoint_id=f"{folder}/step{step}")
    checkpoint_future.result()
    x = torch.ones(1, 16)
    with torch.no_grad():
        expected = model(x)
    again = fully_shard(ToyModel())
    optimizer = torch.optim.Adam(again.parameters(), lr=0.5)
    dcp.load({"app": AppState(again, optimizer)}, checkpoint_id=f"{folder}/step2")
    with torch.no_grad():
        assert torch.allclose(again(x), expected, atol=1e-6)
    assert optimizer.param_groups[0]["lr"] == 0.1
    dist.barrier()
    if rank == 0:
        dcp_to_torch_save(f"{folder}/step2", f"{folder}/step2.pt")
        plain = ToyModel()
        plain.load_state_dict(torch.load(f"{folder}/step2.pt", weights_only=True)["app"]["model"])
        assert torch.allclose(plain(x), expected, atol=1e-6)
        print("resumed", len(os.listdir(f"{folder}/step2")), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    world_size = 2
    mp.spawn(run, args=(world_size, sys.argv[1], sys.argv[2]), nprocs=world_size, join=True)
