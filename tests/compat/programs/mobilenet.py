"""Inverted residuals with squeeze and excitation, as in MobileNetV3."""

import argparse

import torch
import torch.backends.cudnn as cudnn
from common import randn, same_weights, tell
from torch import nn


class SqueezeExcite(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.f = nn.Sequential(
            nn.Conv2d(c, c // 2, 1), nn.ReLU(inplace=True), nn.Conv2d(c // 2, c, 1), nn.Hardsigmoid()
        )

    def forward(self, x):
        return x * self.f(self.pool(x))


class Inverted(nn.Module):
    def __init__(self, c_in, c_out, stride):
        super().__init__()
        wide = c_in * 2
        self.same = stride == 1 and c_in == c_out
        self.body = nn.Sequential(
            nn.Conv2d(c_in, wide, 1, bias=False),
            nn.BatchNorm2d(wide),
            nn.Hardswish(),
            nn.Conv2d(wide, wide, 3, stride, 1, groups=wide, bias=False),
            nn.BatchNorm2d(wide),
            SqueezeExcite(wide),
            nn.Conv2d(wide, c_out, 1, bias=False),
            nn.BatchNorm2d(c_out),
        )

    def forward(self, x):
        return x + self.body(x) if self.same else self.body(x)


parser = argparse.ArgumentParser()
parser.add_argument("--gpu", default=None, type=int, help="GPU id to use.")
args = parser.parse_args()
if torch.cuda.is_available():
    device = torch.device(f"cuda:{args.gpu}") if args.gpu else torch.device("cuda")
    cudnn.benchmark = True
else:
    device = torch.device("cpu")
net = nn.Sequential(
    nn.Conv2d(3, 8, 3, 2, 1),
    Inverted(8, 8, 1),
    Inverted(8, 12, 2),
    nn.AdaptiveAvgPool2d(1),
    nn.Flatten(),
    nn.Linear(12, 4),
)
same_weights(net)
if not torch.cuda.is_available():
    print("using CPU, this will be slow")
elif args.gpu is not None:
    torch.cuda.set_device(args.gpu)
    net = net.cuda(args.gpu)
else:
    net = torch.nn.DataParallel(net).cuda()
criterion = nn.CrossEntropyLoss().to(device)
x, y = randn(8, 3, 16, 16), torch.arange(8) % 4
x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
optimizer = torch.optim.RMSprop(net.parameters(), lr=1e-3, momentum=0.9, alpha=0.9)
for _ in range(5):
    optimizer.zero_grad()
    loss = criterion(net(x), y)
    loss.backward()
    optimizer.step()
    tell(loss)
