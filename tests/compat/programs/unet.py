"""A U-Net that segments bright strokes, with dice loss."""

import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F
from common import same_weights, tell
from sklearn.datasets import load_digits


class DoubleConv(nn.Module):
    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.double_conv = nn.Sequential(
            nn.Conv2d(in_channels, out_channels, kernel_size=3, padding=1, bias=False),
            nn.GroupNorm(2, out_channels),
            nn.ReLU(inplace=True),
            nn.Conv2d(out_channels, out_channels, kernel_size=3, padding=1),
            nn.InstanceNorm2d(out_channels, affine=True),
            nn.ReLU(inplace=True),
        )

    def forward(self, x):
        return self.double_conv(x)


class Up(nn.Module):
    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.up = nn.ConvTranspose2d(in_channels, in_channels // 2, kernel_size=2, stride=2)
        self.conv = DoubleConv(in_channels, out_channels)

    def forward(self, x1, x2):
        x1 = self.up(x1)
        diff = x2.size()[2] - x1.size()[2]
        x1 = F.pad(x1, [diff // 2, diff - diff // 2, diff // 2, diff - diff // 2])
        return self.conv(torch.cat([x2, x1], dim=1))


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.inc, self.down = DoubleConv(1, 8), nn.Sequential(nn.MaxPool2d(2), DoubleConv(8, 16))
        self.up, self.outc = Up(16, 8), nn.Conv2d(8, 1, kernel_size=1)

    def forward(self, x):
        x1 = self.inc(x)
        return self.outc(self.up(self.down(x1), x1))


def dice_loss(logits, target, eps=1.0):
    p = torch.sigmoid(logits)
    inter = (p * target).sum(dim=(1, 2, 3))
    return (1 - (2 * inter + eps) / (p.sum((1, 2, 3)) + target.sum((1, 2, 3)) + eps)).mean()


parser = argparse.ArgumentParser()
parser.add_argument("--amp", action="store_true", default=False, help="Use mixed precision")
args = parser.parse_args()
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
images = torch.tensor(load_digits().images[:192], dtype=torch.float32).unsqueeze(1) / 16
masks = (images > 0.5).float()
model = UNet()
same_weights(model)
model = model.to(memory_format=torch.channels_last)
model.to(device=device)
grad_scaler = torch.amp.GradScaler(device.type, enabled=args.amp)
optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3, alpha=0.99, momentum=0.9)
for x, m in zip(images.split(32), masks.split(32)):
    x = x.to(device=device, dtype=torch.float32, memory_format=torch.channels_last)
    m = m.to(device=device, dtype=torch.float32)
    with torch.autocast(device.type if device.type != "mps" else "cpu", enabled=args.amp):
        logits = model(x)
        loss = F.binary_cross_entropy_with_logits(logits, m) + dice_loss(logits, m)
    optimizer.zero_grad(set_to_none=True)
    grad_scaler.scale(loss).backward()
    grad_scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 10.0)
    grad_scaler.step(optimizer)
    grad_scaler.update()
    tell(loss)
