"""A residual network with batch norm, mixed precision switches as programs have them, and a checkpoint."""

import io

import torch
import torch.nn as nn
from common import same_weights, tell
from sklearn.datasets import load_digits


class BasicBlock(nn.Module):
    expansion = 1

    def __init__(self, in_planes, planes, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(in_planes, planes, kernel_size=3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.conv2 = nn.Conv2d(planes, planes, kernel_size=3, stride=1, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.shortcut = nn.Sequential()
        if stride != 1 or in_planes != planes:
            self.shortcut = nn.Sequential(nn.Conv2d(in_planes, planes, 1, stride, bias=False), nn.BatchNorm2d(planes))

    def forward(self, x):
        out = torch.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += self.shortcut(x)
        return torch.relu(out)


class ResNet(nn.Module):
    def __init__(self, num_classes=10):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(8)
        self.layer1 = BasicBlock(8, 8)
        self.layer2 = BasicBlock(8, 16, 2)
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(16, num_classes)
        for m in self.modules():
            if isinstance(m, nn.Conv2d):
                nn.init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x):
        x = torch.relu(self.bn1(self.conv1(x)))
        x = self.layer2(self.layer1(x))
        return self.fc(torch.flatten(self.avgpool(x), 1))


torch.backends.cudnn.benchmark = True
torch.set_float32_matmul_precision("high")
device = "cuda" if torch.cuda.is_available() else "cpu"
use_amp = device == "cuda"
scaler = torch.amp.GradScaler("cuda", enabled=use_amp)
digits = load_digits()
x = torch.from_numpy(digits.images[:640]).float().unsqueeze(1) / 16
y = torch.from_numpy(digits.target[:640])
x, y = x.to(device), y.to(device)
net = ResNet().to(device)
if device == "cuda":
    net = torch.nn.DataParallel(net)
model = torch.compile(net, backend="eager")
same_weights(model)
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4, nesterov=True)
scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=10)
for xb, yb in zip(x.split(64), y.split(64)):
    with torch.autocast(device_type="cuda", enabled=use_amp):
        loss = criterion(model(xb), yb)
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    scheduler.step()
    tell(loss)
model.eval()
with torch.no_grad():
    tell(criterion(model(x), y))
assert sum(p.numel() for p in model.parameters() if p.requires_grad) > 1000
assert isinstance(io.BytesIO(), io.BytesIO)
