"""Sub-pixel convolutions: twice the resolution."""

import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.nn.init as init
from common import same_weights, tell
from sklearn.datasets import load_digits


class Net(nn.Module):
    def __init__(self, upscale_factor):
        super().__init__()
        self.relu = nn.ReLU()
        self.conv1 = nn.Conv2d(1, 16, (5, 5), (1, 1), (2, 2))
        self.conv2 = nn.Conv2d(16, 16, (3, 3), (1, 1), (1, 1))
        self.conv3 = nn.Conv2d(16, upscale_factor**2, (3, 3), (1, 1), (1, 1))
        self.pixel_shuffle = nn.PixelShuffle(upscale_factor)
        init.orthogonal_(self.conv1.weight, init.calculate_gain("relu"))

    def forward(self, x):
        x = self.relu(self.conv1(x))
        x = self.relu(self.conv2(x))
        return self.pixel_shuffle(self.conv3(x))


images = torch.as_tensor(load_digits().images[:256], dtype=torch.float32)[:, None] / 16
small = F.interpolate(images, scale_factor=0.5, mode="bilinear", align_corners=False)
parser = argparse.ArgumentParser(description="PyTorch Super Res Example")
parser.add_argument("--upscale_factor", type=int, default=2, help="super resolution upscale factor")
parser.add_argument("--device", default="auto", help="such as cpu or cuda:0")
opt = parser.parse_args()
if opt.device == "auto":
    opt.device = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else "cpu"
device = torch.device(opt.device)
model = Net(upscale_factor=opt.upscale_factor).to(device)
same_weights(model)
criterion = nn.MSELoss()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for epoch in range(2):
    for x, y in zip(small.chunk(8), images.chunk(8)):
        x, y = x.to(device), y.to(device)
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        tell(loss)
    psnr = 10 * torch.log10(1 / loss.detach())
tell(psnr)
