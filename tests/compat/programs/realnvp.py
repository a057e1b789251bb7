"""A normalizing flow of coupling layers on two moons."""

import torch
from common import same_weights, tell
from sklearn.datasets import make_moons
from torch import nn
from torch.distributions import MultivariateNormal


class Coupling(nn.Module):
    def __init__(self, flip):
        super().__init__()
        self.flip = flip
        self.net = nn.Sequential(nn.Linear(1, 16), nn.LeakyReLU(), nn.Linear(16, 2))

    def forward(self, x):
        a, b = x.chunk(2, dim=1)
        if self.flip:
            a, b = b, a
        s, t = self.net(a).chunk(2, dim=1)
        s = torch.tanh(s)
        b = b * s.exp() + t
        return torch.cat([b, a] if self.flip else [a, b], dim=1), s.sum(1)


device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
layers = nn.ModuleList([Coupling(k % 2 == 1) for k in range(4)]).to(device)
same_weights(layers)
prior = MultivariateNormal(torch.zeros(2).to(device), torch.eye(2).to(device))
data = torch.tensor(make_moons(200, noise=0.05, random_state=0)[0], dtype=torch.float32, device=device)
optimizer = torch.optim.Adam(layers.parameters(), lr=5e-3)
for _ in range(8):
    z, log_det = data, data.new_zeros(len(data))
    for layer in layers:
        z, d = layer(z)
        log_det = log_det + d
    loss = -(prior.log_prob(z) + log_det).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    tell(loss)
