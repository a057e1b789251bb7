"""Physics-informed network: u'' + pi^2 sin(pi x) = 0 on a 2D heat problem, with L-BFGS polishing."""

import itertools
import math

import torch
from common import randn, same_weights, tell
from torch import nn

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
torch.set_default_device(device)


def normal(*shape):
    return randn(*shape).to(device)


class Sine(nn.Module):
    def forward(self, x):
        return torch.sin(x)


class PINN(nn.Module):
    def __init__(self, layers=(2, 20, 20, 1)):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(a, b) for a, b in itertools.pairwise(layers)])
        self.act = nn.Tanh()
        self.alpha = nn.Parameter(torch.tensor([1.0]))

    def forward(self, x, t):
        h = torch.cat([x, t], dim=1)
        for value in self.layers[:-1]:
            h = self.act(value(h))
        return self.layers[-1](h)

    def residual(self, x, t):
        x.requires_grad_(True)
        t.requires_grad_(True)
        u = self(x, t)
        ones = torch.ones_like(u)
        (u_t,) = torch.autograd.grad(u, t, grad_outputs=ones, create_graph=True)
        u_x = torch.autograd.grad(u, x, ones, create_graph=True, retain_graph=True)[0]
        u_xx = torch.autograd.grad(u_x, x, torch.ones_like(u_x), create_graph=True)[0]
        return u_t - self.alpha * u_xx / math.pi**2


net = PINN()
same_weights(net)
g = torch.linspace(0, 1, 12)
X, T = torch.meshgrid(g, g, indexing="ij")
x, t = X.reshape(-1, 1).clone(), T.reshape(-1, 1).clone()
x0 = torch.linspace(0, 1, 30).unsqueeze(1)
t0 = torch.zeros_like(x0)
u0 = torch.sin(math.pi * x0)


def loss_fn():
    r = net.residual(x, t)
    bc = (
        net(torch.zeros(10, 1), torch.linspace(0, 1, 10)[:, None]).pow(2).mean()
        + net(torch.ones(10, 1), torch.linspace(0, 1, 10)[:, None]).square().mean()
    )
    return r.pow(2).mean() + nn.functional.mse_loss(net(x0, t0), u0) + bc


opt = torch.optim.Adam(net.parameters(), lr=1e-2, betas=(0.9, 0.99))
sched = torch.optim.lr_scheduler.ExponentialLR(opt, gamma=0.9)
for i in range(15):
    opt.zero_grad(set_to_none=True)
    value = loss_fn()
    value.backward()
    opt.step()
    sched.step()
    tell(value)
lb = torch.optim.LBFGS(
    net.parameters(), lr=0.5, max_iter=5, history_size=10, line_search_fn="strong_wolfe", tolerance_grad=1e-9
)


def closure():
    lb.zero_grad()
    value = loss_fn()
    value.backward()
    return value


for i in range(3):
    tell(lb.step(closure))
J = torch.autograd.functional.jacobian(lambda a: net(a, torch.zeros_like(a)), x0[:3]).squeeze()
H = torch.func.hessian(lambda a: net(a.view(1, 1), torch.zeros(1, 1)).squeeze())(torch.tensor(0.3))
tell(J.diagonal().sum())
tell(H)
print(
    torch.optim.lr_scheduler.ExponentialLR.__name__,
    f"{sched.get_last_lr()[0]:.6f}",
    {k: v.item() for k, v in next(iter(opt.state.values())).items() if k == "step"},
)
