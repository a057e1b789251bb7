"""An ImageNet-like script: samplers by epoch, loaders with workers, a rate by ranks, accuracy over all, the best."""

import copy
import os
import tempfile
import time

import torch
import torch.distributed as dist
from common import close, done, drawn, init
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


class Images(Dataset):
    def __init__(self, count: int) -> None:
        self.images = drawn(count, 3, 4, 4, seed=3)
        self.labels = (self.images.mean((1, 2, 3)) > 0).long()

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, k: int):
        return self.images[k], self.labels[k], k


class State:
    def __init__(self, model, optimizer) -> None:
        self.model, self.optimizer, self.epoch, self.best = model, optimizer, -1, 0.0

    def save(self, path: str) -> None:
        what = {"epoch": self.epoch, "best": self.best, "model": self.model.state_dict()}
        torch.save({**what, "optimizer": self.optimizer.state_dict()}, path + ".tmp")
        os.rename(path + ".tmp", path)

    def load(self, path: str) -> None:
        what = torch.load(path, map_location="cpu")
        self.epoch, self.best = what["epoch"], what["best"]
        self.model.load_state_dict(what["model"])
        self.optimizer.load_state_dict(what["optimizer"])


def accuracy(output, target, topk=(1,)):
    with torch.no_grad():
        _, found = output.topk(max(topk), 1, True, True)
        correct = found.t().eq(target.view(1, -1).expand_as(found.t()))
        return [correct[:k].reshape(-1).float().sum(0, keepdim=True) for k in topk]


rank, ranks = init()
train, val = Images(8 * ranks * 3), Images(4 * ranks + 1)
sampler = DistributedSampler(train, shuffle=True, seed=7, drop_last=True)
loader = DataLoader(train, batch_size=8, sampler=sampler, num_workers=1, persistent_workers=True)
val_loader = DataLoader(val, batch_size=3, sampler=DistributedSampler(val, shuffle=False))
torch.manual_seed(rank)
net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16, 2))
model = nn.parallel.DistributedDataParallel(net)
alone = copy.deepcopy(net)
optimizer = torch.optim.SGD(model.parameters(), 0.05 * ranks, momentum=0.9, nesterov=True)
other = torch.optim.SGD(alone.parameters(), 0.05 * ranks, momentum=0.9, nesterov=True)
state, criterion = State(model, optimizer), nn.CrossEntropyLoss()
box = [tempfile.mkdtemp() if rank == 0 else ""]
dist.broadcast_object_list(box, 0)
path, orders = os.path.join(box[0], "checkpoint.pt"), []
for epoch in range(3):
    sampler.set_epoch(epoch)
    state.epoch, end = epoch, time.time()
    for images, target, numbers in loader:
        optimizer.zero_grad()
        loss = criterion(model(images), target)
        loss.backward()
        optimizer.step()
        every = [torch.empty_like(numbers) for _ in range(ranks)]
        dist.all_gather(every, numbers)
        orders.append(torch.cat(every))
        other.zero_grad()
        criterion(alone(train.images[orders[-1]]), train.labels[orders[-1]]).backward()
        other.step()
    counts = torch.zeros(2)
    model.eval()
    with torch.no_grad():
        for images, target, _ in val_loader:
            (right,) = accuracy(model(images), target)
            counts += torch.tensor([right.item(), len(target)])
    model.train()
    dist.all_reduce(counts)
    state.best = max(state.best, (counts[0] / counts[1]).item())
    if rank == 0:
        state.save(path)
    dist.barrier()
for mine, wanted in zip(net.parameters(), alone.parameters(), strict=True):
    close(mine, wanted, 1e-5)
first, second = torch.cat(orders[:3]), torch.cat(orders[3:6])
assert sorted(first.tolist()) == list(range(len(train))) and first.tolist() != second.tolist()
state.epoch = -1
state.load(path)
assert state.epoch == 2 and 0 < state.best <= 1
done("epochs")
