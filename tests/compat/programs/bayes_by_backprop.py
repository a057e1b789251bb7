"""A Bayesian linear layer: weights are distributions, noise comes from outside."""

import torch
import torch.nn.functional as F
from common import randn, same_weights, tell
from torch import nn
from torch.distributions import Normal, kl_divergence


class BayesLinear(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.mu = nn.Parameter(torch.zeros(n_out, n_in))
        self.rho = nn.Parameter(torch.zeros(n_out, n_in))
        self.register_buffer("zero", torch.zeros(()))

    def forward(self, x):
        q = Normal(self.mu, F.softplus(self.rho - 3))
        self.kl = kl_divergence(q, Normal(self.zero, torch.ones_like(self.zero))).sum()
        return F.linear(x, q.loc + q.scale * randn(*self.mu.shape).to(x))


DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
x = torch.linspace(-1, 1, 64, device=DEVICE).unsqueeze(1)
y = torch.sin(3 * x) + 0.1 * randn(64, 1).to(DEVICE)
net = nn.Sequential(BayesLinear(1, 16), nn.Tanh(), BayesLinear(16, 1)).to(DEVICE)
same_weights(net)
opt = torch.optim.Adam(net.parameters(), 1e-2)
for _ in range(10):
    opt.zero_grad()
    loss = -Normal(net(x), 0.1).log_prob(y).mean() + sum(m.kl for m in net if hasattr(m, "kl")) / 640
    loss.backward()
    opt.step()
    tell(loss)
