"""Denoising diffusion of points, with an average of the weights."""

import copy

import torch
import torch.nn as nn
import torch.nn.functional as F
from common import noise, randn, same_weights, tell
from sklearn.datasets import make_moons


class SinusoidalEmbedding(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.size = size

    def forward(self, t):
        half = self.size // 2
        freq = torch.exp(-torch.log(torch.tensor([10000.0])) / (half - 1) * torch.arange(half)).to(t.device)
        angles = t[:, None].float() * freq[None, :]
        return torch.cat([torch.sin(angles), torch.cos(angles)], dim=-1)


class MLP(nn.Module):
    def __init__(self, hidden=48):
        super().__init__()
        self.time = SinusoidalEmbedding(16)
        self.net = nn.Sequential(
            nn.Linear(18, hidden), nn.SiLU(), nn.Linear(hidden, hidden), nn.SiLU(), nn.Linear(hidden, 2)
        )

    def forward(self, x, t):
        return self.net(torch.cat((x, self.time(t)), dim=-1))


if torch.cuda.is_available():
    device = "cuda"
elif torch.backends.mps.is_available():
    device = "mps"
else:
    device = "cpu"
steps = 50
betas = torch.linspace(1e-4, 0.02, steps, device=device)
alphas_cumprod = torch.cumprod(1.0 - betas, dim=0)
data = torch.tensor(make_moons(1024, noise=0.05, random_state=0)[0]).float()
model = MLP().to(device)
same_weights(model)
ema = copy.deepcopy(model).requires_grad_(False)
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
for x0 in data.split(64):
    x0 = x0.to(device)
    t = torch.from_numpy(noise.randint(0, steps, size=(x0.shape[0],))).to(device)
    eps = randn(*x0.shape).to(device)
    a = alphas_cumprod.gather(0, t)[:, None]
    loss = F.mse_loss(model(a.sqrt() * x0 + (1 - a).sqrt() * eps, t), eps)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        for p, q in zip(ema.parameters(), model.parameters()):
            p.lerp_(q, 0.1)
    tell(loss)

with torch.inference_mode():
    x = randn(128, 2).to(device)
    for k in reversed(range(steps)):
        t = torch.full((128,), k, device=device, dtype=torch.long)
        e = ema(x, t)
        x = (x - betas[k] / (1 - alphas_cumprod[k]).sqrt() * e) / (1 - betas[k]).sqrt()
        if k > 0:
            x += betas[k].sqrt() * randn(128, 2).to(device)
tell(x.abs().mean())
