"""An LSTM that forecasts a sine wave, with a custom dataset, sampler and collate function."""

import math
import os

import torch
from common import same_weights, tell
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "0")
device = "cuda:0" if torch.cuda.is_available() else "cpu"
wave = torch.sin(torch.arange(120) * 2 * math.pi / 20) + 0.3 * torch.cos(torch.arange(120) * 0.9)


class Windows(Dataset):
    def __len__(self):
        return len(wave) - 13

    def __getitem__(self, k):
        return wave[k : k + 12], wave[k + 12]


class EveryThird(Sampler):
    def __init__(self, data):
        self.data = data

    def __iter__(self):
        return iter(range(0, len(self.data), 3))

    def __len__(self):
        return (len(self.data) + 2) // 3


def collate(batch):
    xs, ys = zip(*batch)
    return torch.stack(xs).unsqueeze(-1), torch.stack(ys)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(1, 10, num_layers=2, batch_first=True)
        self.head = nn.Linear(10, 1)

    def forward(self, x):
        h0 = torch.zeros(2, x.size(0), 10).to(device)
        c0 = torch.zeros(2, x.size(0), 10).to(device)
        out, _ = self.lstm(x, (h0, c0))
        return self.head(out[:, -1]).squeeze(-1)


data = Windows()
net = Net().to(device)
same_weights(net)
optimizer = torch.optim.NAdam(net.parameters(), lr=1e-2)
for _ in range(2):
    for x, y in DataLoader(data, batch_size=9, sampler=EveryThird(data), collate_fn=collate):
        x, y = x.to(device), y.to(device)
        optimizer.zero_grad()
        loss = nn.functional.l1_loss(net(x), y)
        loss.backward()
        optimizer.step()
        tell(loss)
