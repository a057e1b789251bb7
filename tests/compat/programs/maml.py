"""Learning to learn sine waves, by gradients through a gradient step."""

import torch
from common import noise, same_weights, tell
from torch import nn
from torch.func import functional_call, grad

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
net = nn.Sequential(nn.Linear(1, 20), nn.Tanh(), nn.Linear(20, 1)).to(device)
same_weights(net)
meta = torch.optim.Adam(net.parameters(), lr=1e-2)


def loss_of(params, x, y):
    return nn.functional.mse_loss(functional_call(net, params, (x,)), y)


for _ in range(6):
    total = 0.0
    for _ in range(3):
        amplitude, phase = noise.uniform(0.5, 2), noise.uniform(0, 3)
        x = torch.from_numpy(noise.uniform(-3, 3, (20, 1)).astype("float32")).to(device)
        y = amplitude * torch.sin(x + phase)
        params = dict(net.named_parameters())
        slopes = grad(loss_of)(params, x[:10], y[:10])
        adapted = {name: p - 0.1 * slopes[name] for name, p in params.items()}
        total = total + loss_of(adapted, x[10:], y[10:])
    meta.zero_grad()
    total.backward()
    meta.step()
    tell(total)
