"""A student learns from a teacher's logits."""

import torch
import torch.nn.functional as F
from common import same_weights, tell
from sklearn.datasets import load_digits
from torch import nn

DEVICE = torch.device(f"cuda:{torch.cuda.current_device()}" if torch.cuda.is_available() else "cpu")
digits = load_digits()
x, y = torch.tensor(digits.data / 16, dtype=torch.float32), torch.tensor(digits.target)
teacher = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
student = nn.Sequential(nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, 10))
teacher, student = teacher.to(DEVICE), student.to(DEVICE)
same_weights(teacher, student)
teacher.requires_grad_(False).eval()
optimizer = torch.optim.SGD(student.parameters(), lr=0.5, momentum=0.9, nesterov=True)
scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.5, total_steps=10)
T = 4.0
for step in range(10):
    xb, yb = x[step * 32 : (step + 1) * 32], y[step * 32 : (step + 1) * 32]
    xb, yb = xb.to(DEVICE, non_blocking=True), yb.to(DEVICE, non_blocking=True)
    with torch.no_grad():
        soft = F.softmax(teacher(xb) / T, dim=1)
    out = student(xb)
    loss = F.kl_div(F.log_softmax(out / T, dim=1), soft, reduction="batchmean") * T * T + 0.5 * F.cross_entropy(out, yb)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    scheduler.step()
    tell(loss)
