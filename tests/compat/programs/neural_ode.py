"""A spiral learned by a neural differential equation: steps of Runge-Kutta, gradients by the adjoint equation."""

import argparse
from itertools import pairwise

import torch
from common import same_weights, tell
from torch import nn


class Dynamics(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 2))

    def forward(self, t, y):
        return self.net(y**3)


def rk4(func, t, dt, y):
    k1 = func(t, y)
    k2 = func(t + dt / 2, tuple(a + dt / 2 * k for a, k in zip(y, k1)))
    k3 = func(t + dt / 2, tuple(a + dt / 2 * k for a, k in zip(y, k2)))
    k4 = func(t + dt, tuple(a + dt * k for a, k in zip(y, k3)))
    return tuple(a + dt / 6 * (p + 2 * q + 2 * r + s) for a, p, q, r, s in zip(y, k1, k2, k3, k4))


class Adjoint(torch.autograd.Function):
    @staticmethod
    def forward(ctx, func, y0, t, *params):
        ctx.func = func
        with torch.no_grad():
            states = [y0]
            for start, end in pairwise(t):
                states.append(rk4(lambda s, y: (func(s, y[0]),), start, end - start, (states[-1],))[0])
        states = torch.stack(states)
        ctx.save_for_backward(t, states, *params)
        return states

    @staticmethod
    def backward(ctx, grad):
        t, states, *params = ctx.saved_tensors
        func = ctx.func

        def augmented(s, state):
            y, a = state[0], state[1]
            with torch.enable_grad():
                y = y.detach().requires_grad_(True)
                f = func(s, y)
                found = torch.autograd.grad(f, (y, *params), -a, allow_unused=True)
            found = [torch.zeros_like(p) if g is None else g for g, p in zip(found, (y, *params))]
            return (f.detach(), *found)

        a = grad[-1]
        sums = tuple(torch.zeros_like(p) for p in params)
        for i in range(len(t) - 1, 0, -1):
            _, a, *sums = rk4(augmented, t[i], t[i - 1] - t[i], (states[i], a, *sums))
            a = a + grad[i - 1]
        return (None, a, None, *sums)


parser = argparse.ArgumentParser("spiral")
parser.add_argument("--gpu", type=int, default=0)
args = parser.parse_args()
device = torch.device("cuda:" + str(args.gpu) if torch.cuda.is_available() else "cpu")

matrix = torch.tensor([[-0.1, 2.0], [-2.0, -0.1]]).to(device)
t = torch.linspace(0.0, 1.0, 9).to(device)
start = torch.tensor([[2.0, 0.0]]).to(device)
with torch.no_grad():
    truth = [start]
    for k in range(len(t) - 1):
        truth.append(rk4(lambda s, y: ((y[0] ** 3) @ matrix,), t[k], t[1] - t[0], (truth[-1],))[0])
    truth = torch.stack(truth)

func = Dynamics().to(device)
same_weights(func)
optimizer = torch.optim.RMSprop(func.parameters(), lr=2e-3)
for _ in range(8):
    optimizer.zero_grad()
    found = Adjoint.apply(func, start, t, *func.parameters())
    loss = (found - truth).abs().mean()
    loss.backward()
    optimizer.step()
    tell(loss)
