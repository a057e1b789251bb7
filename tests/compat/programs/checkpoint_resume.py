"""Training that stops, is saved with its optimizer and schedule, and goes on."""

import os
import tempfile

import torch
from common import randn, same_weights, tell
from torch import nn
from torch.utils.checkpoint import checkpoint

use_gpu = torch.cuda.is_available()
x, y = randn(32, 10), randn(32, 2)
if use_gpu:
    x, y = x.cuda(), y.cuda()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(10, 16), nn.Linear(16, 2)
        self.norm = nn.BatchNorm1d(16)

    def forward(self, x):
        h = checkpoint(lambda t: torch.relu(self.a(t)), x, use_reentrant=False)
        return self.b(self.norm(h))


def make():
    net = Net().cuda() if use_gpu else Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    return net, optimizer, torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=8)


def train(net, optimizer, scheduler, steps):
    for _ in range(steps):
        optimizer.zero_grad()
        loss = (net(x) - y).pow(2).mean()
        loss.backward()
        optimizer.step()
        scheduler.step()
        tell(loss)


net, optimizer, scheduler = make()
same_weights(net)
train(net, optimizer, scheduler, 4)
path = os.path.join(tempfile.mkdtemp(), "checkpoint.pt")
parts = {"net": net, "optimizer": optimizer, "scheduler": scheduler}
torch.save({"epoch": 4, **{name: part.state_dict() for name, part in parts.items()}}, path)
net, optimizer, scheduler = make()
saved = torch.load(path, map_location=lambda storage, loc: storage, weights_only=True)
for name, part in {"net": net, "optimizer": optimizer, "scheduler": scheduler}.items():
    part.load_state_dict(saved[name])
train(net, optimizer, scheduler, 4)
