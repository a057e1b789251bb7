"""Finds a learning rate by a sweep, restores the state, and trains by a one-cycle schedule with early stopping."""

import argparse
import copy
import logging
import math
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from common import randn, same_weights, tell
from torch.utils.data import DataLoader, TensorDataset


class EarlyStopping:
    def __init__(self, patience=3, delta=0.0):
        self.patience, self.delta, self.best, self.bad, self.stop = patience, delta, math.inf, 0, False

    def __call__(self, value):
        if value < self.best - self.delta:
            self.best, self.bad = value, 0
        else:
            self.bad += 1
            self.stop = self.bad >= self.patience


class LRFinder:
    def __init__(self, model, optimizer, criterion, device=None):
        self.model, self.optimizer, self.criterion = model, optimizer, criterion
        self.history = {"lr": [], "loss": []}
        self.device = device or next(model.parameters()).device
        self.saved = copy.deepcopy(model.state_dict()), copy.deepcopy(optimizer.state_dict())

    def range_test(self, loader, end_lr=10.0, num_iter=12, smooth=0.1):
        start = self.optimizer.param_groups[0]["lr"]
        schedule = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda k: (end_lr / start) ** (k / num_iter))
        batches = iter(loader)
        for k in range(num_iter):
            try:
                x, y = next(batches)
            except StopIteration:
                batches = iter(loader)
                x, y = next(batches)
            x, y = x.to(self.device), y.to(self.device)
            self.optimizer.zero_grad()
            loss = self.criterion(self.model(x), y)
            loss.backward()
            self.optimizer.step()
            self.history["lr"].append(schedule.get_last_lr()[0])
            schedule.step()
            value = loss.item()
            if k:
                value = smooth * value + (1 - smooth) * self.history["loss"][-1]
            self.history["loss"].append(value)

    def reset(self):
        self.model.load_state_dict(self.saved[0])
        self.optimizer.load_state_dict(self.saved[1])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--no-cuda", action="store_true")
    args = parser.parse_args()
    logging.basicConfig(level=logging.WARNING)
    use_cuda = not args.no_cuda and torch.cuda.is_available()
    device = torch.device("cuda" if use_cuda else "cpu")
    kwargs = {"num_workers": 1, "pin_memory": True} if use_cuda else {}
    x = randn(60, 6)
    y = (x[:, :1] * x[:, 1:2] + 0.5 * x[:, 2:3].sin()).to(torch.float32)
    loader = DataLoader(TensorDataset(x, y), batch_size=15, **kwargs)
    model = nn.Sequential(nn.Linear(6, 24), nn.PReLU(), nn.Dropout(0.0), nn.Linear(24, 1)).to(device)
    same_weights(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    finder = LRFinder(model, optimizer, nn.MSELoss())
    finder.range_test(loader, end_lr=0.5)
    for loss in finder.history["loss"]:
        tell(loss)
    finder.reset()
    slopes = torch.gradient(torch.tensor(finder.history["loss"]))[0]
    rate = finder.history["lr"][slopes.argmin().item()]
    tell(rate)
    optimizer = torch.optim.Adam(
        [{"params": model[0].parameters()}, {"params": model[3].parameters(), "lr": rate}], lr=rate
    )
    steps = args.epochs * len(loader)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=rate, total_steps=steps, pct_start=0.3)
    stopping = EarlyStopping()
    began = time.time()
    for epoch in range(1, args.epochs + 1):
        for batch, (data, target) in enumerate(loader):
            data, target = data.to(device), target.to(device)
            optimizer.zero_grad(set_to_none=True)
            loss = F.smooth_l1_loss(model(data), target, beta=0.5)
            loss.backward()
            optimizer.step()
            schedule.step()
        print(f"Train Epoch: {epoch} [{batch + 1}/{len(loader)}] {loss.item():.4f} {schedule.get_last_lr()[0]:.2e}")
        tell(loss)
        stopping(loss.item())
        if stopping.stop:
            break
    assert time.time() >= began


if __name__ == "__main__":
    main()
