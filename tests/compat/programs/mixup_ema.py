"""Mixup and label smoothing on digits, with an average of the weights."""

import torch
from common import noise, same_weights, tell
from sklearn.datasets import load_digits
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

use_cuda = torch.cuda.is_available()
digits = load_digits()
x = torch.from_numpy(digits.data / 16).float()
y = torch.from_numpy(digits.target).long()
model = nn.Sequential(nn.Linear(64, 32), nn.GELU(), nn.Linear(32, 10))
same_weights(model)
if use_cuda:
    model.cuda()
average = AveragedModel(model, device="cuda" if use_cuda else "cpu", multi_avg_fn=get_ema_multi_avg_fn(0.9))
criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.05)
for step in range(8):
    xb, yb = x[step * 64 : step * 64 + 64], y[step * 64 : step * 64 + 64]
    if use_cuda:
        xb, yb = xb.cuda(), yb.cuda()
    lam = float(noise.beta(0.4, 0.4))
    order = torch.from_numpy(noise.permutation(64))
    if use_cuda:
        order = order.cuda()
    out = model(lam * xb + (1 - lam) * xb[order])
    loss = lam * criterion(out, yb) + (1 - lam) * criterion(out, yb[order])
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    average.update_parameters(model)
    tell(loss)
average.eval()
with torch.no_grad():
    device = next(average.parameters()).device
    tell(criterion(average(x[1000:1100].to(device)), y[1000:1100].to(device)))
