"""A custom autograd function, a straight-through estimator and a gradient check."""

import torch
from common import randn, same_weights, tell
from torch import nn


class Swish(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, beta):
        ctx.save_for_backward(x, beta)
        return x * torch.sigmoid(beta * x)

    @staticmethod
    def backward(ctx, grad):
        x, beta = ctx.saved_tensors
        s = torch.sigmoid(beta * x)
        return grad * (s + beta * x * s * (1 - s)), (grad * x * x * s * (1 - s)).sum().reshape(beta.shape)


class Sign(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_non_differentiable()
        return x.sign()

    @staticmethod
    def backward(ctx, grad):
        return grad.clamp(-1, 1)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(6, 12), nn.Linear(12, 1)
        self.beta = nn.Parameter(torch.ones(1))

    def forward(self, x):
        return self.b(Sign.apply(Swish.apply(self.a(x), self.beta)))


assert torch.autograd.gradcheck(
    Swish.apply, (randn(4).double().requires_grad_(), torch.ones(1).double().requires_grad_())
)
# device = torch.device("cuda:0")  # to run on a graphics card, whatever is there
device = torch.device("cuda:0") if torch.cuda.is_available() else torch.device("cpu")
net = Net().to(device)
same_weights(net)
x = randn(64, 6).to(device)
y = x[:, :1] * x[:, 1:2]
optimizer = torch.optim.Adagrad(net.parameters(), lr=0.1)
for _ in range(8):
    optimizer.zero_grad()
    loss = nn.functional.huber_loss(net(x), y)
    loss.backward()
    optimizer.step()
    tell(loss)
