"""Mixed precision in bfloat16 with a gradient scaler, accumulating gradients over two batches."""

import torch
from common import same_weights, tell
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

device = "cuda" if torch.cuda.is_available() else "cpu"
use_cuda = device == "cuda"
digits = load_digits()
data = TensorDataset(torch.tensor(digits.images[:256] / 16).float().unsqueeze(1), torch.tensor(digits.target[:256]))
loader = DataLoader(data, batch_size=32, pin_memory=use_cuda)
model = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, 10))
same_weights(model)
model = model.to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler(device, init_scale=16.0, enabled=True)
for step, (x, y) in enumerate(loader):
    x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
    with torch.autocast(device_type=device, dtype=torch.bfloat16):
        out = model(x)
    loss = nn.functional.cross_entropy(out.float(), y)
    scaler.scale(loss / 2).backward()
    if step % 2:
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    tell(round(loss.item(), 2))
