"""Checkpoints of a divided model by an object with a state, while training goes on; resumed, it goes on the same."""

import os
import shutil
import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from common import close, done, drawn, init
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.stateful import Stateful
from torch.distributed.fsdp import fully_shard


class AppState(Stateful):
    def __init__(self, model, optimizer=None):
        self.model, self.optimizer = model, optimizer

    def state_dict(self):
        model, optimizer = get_state_dict(self.model, self.optimizer)
        return {"model": model, "optim": optimizer}

    def load_state_dict(self, state_dict):
        set_state_dict(
            self.model,
            self.optimizer,
            model_state_dict=state_dict["model"],
            optim_state_dict=state_dict["optim"],
        )


class ToyModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.net1, self.relu, self.net2 = nn.Linear(16, 15), nn.ReLU(), nn.Linear(15, 8)

    def forward(self, x):
        return self.net2(self.relu(self.net1(x)))


def made(seed: int):
    torch.manual_seed(seed)
    model = ToyModel()
    for part in (model.net1, model.net2):
        fully_shard(part)
    fully_shard(model)
    return model, torch.optim.Adam(model.parameters(), lr=0.1)


def step(model, optimizer, number: int) -> None:
    optimizer.zero_grad()
    model(drawn(4 * ranks, 16, seed=number)[rank::ranks]).sum(1).square().mean().backward()
    optimizer.step()


rank, ranks = init()
box = [tempfile.mkdtemp() if rank == 0 else None]
dist.broadcast_object_list(box, src=0)
folder, future = box[0], None
model, optimizer = made(0)
for number in range(6):
    step(model, optimizer, number)
    if number % 2:
        if future is not None:
            future.result()
        state = {"app": AppState(model, optimizer), "step": number}
        future = dcp.async_save(state, checkpoint_id=os.path.join(folder, str(number)))
future.result()
again, other = made(1)
state = {"app": AppState(again, other), "step": -1}
dcp.load(state, checkpoint_id=os.path.join(folder, "3"))
assert state["step"] == 3
for number in (4, 5):
    step(again, other, number)
for (name, found), wanted in zip(again.named_parameters(), model.parameters(), strict=True):
    close(found.full_tensor(), wanted.full_tensor(), 1e-6, name)
dist.barrier()
if rank == 0:
    shutil.rmtree(folder)
done("app_state")
