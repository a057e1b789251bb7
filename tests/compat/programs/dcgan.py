"""A generative adversarial network of convolutions."""

import torch
import torch.nn as nn
import torch.optim as optim
from common import randn, same_weights, tell
from sklearn.datasets import load_digits

ngpu = 1
device = torch.device("cuda:0" if (torch.cuda.is_available() and ngpu > 0) else "cpu")
nz, ngf, ndf = 16, 8, 8
netG = nn.Sequential(
    nn.ConvTranspose2d(nz, ngf * 2, 4, 1, 0, bias=False),
    nn.BatchNorm2d(ngf * 2),
    nn.ReLU(True),
    nn.ConvTranspose2d(ngf * 2, 1, 4, 2, 1, bias=False),
    nn.Tanh(),
)
netD = nn.Sequential(
    nn.Conv2d(1, ndf, 4, 2, 1, bias=False),
    nn.LeakyReLU(0.2, inplace=True),
    nn.Conv2d(ndf, ndf * 2, 3, 1, 1, bias=False),
    nn.BatchNorm2d(ndf * 2),
    nn.LeakyReLU(0.2, inplace=True),
    nn.Conv2d(ndf * 2, 1, 4, 1, 0, bias=False),
    nn.Sigmoid(),
)
netG, netD = netG.to(device), netD.to(device)
if (device.type == "cuda") and (ngpu > 1):
    netD = nn.DataParallel(netD, list(range(ngpu)))
same_weights(netG, netD)
criterion = nn.BCELoss()
optimizerD = optim.Adam(netD.parameters(), lr=2e-4, betas=(0.5, 0.999))
optimizerG = optim.Adam(netG.parameters(), lr=2e-4, betas=(0.5, 0.999))
images = torch.tensor(load_digits().images[:320], dtype=torch.float).unsqueeze(1) / 8 - 1
for real in images.split(32):
    real = real.to(device)
    b_size = real.size(0)
    netD.zero_grad()
    label = torch.full((b_size,), 1.0, dtype=torch.float, device=device)
    errD_real = criterion(netD(real).view(-1), label)
    errD_real.backward()
    fake = netG(randn(b_size, nz, 1, 1).to(device))
    label.fill_(0.0)
    errD_fake = criterion(netD(fake.detach()).view(-1), label)
    errD_fake.backward()
    optimizerD.step()
    netG.zero_grad()
    label.fill_(1.0)
    errG = criterion(netD(fake).view(-1), label)
    errG.backward()
    optimizerG.step()
    tell(errD_real + errD_fake)
    tell(errG)
