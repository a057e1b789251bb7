"""A denoising autoencoder with shared weights, reduced on a plateau."""

import torch
import torch.nn.functional as F
from common import randn, same_weights, tell
from sklearn.datasets import load_digits
from torch import nn


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(64, 24)
        self.bias = nn.Parameter(torch.zeros(64))
        self.again = self.encoder

    def forward(self, x):
        h = F.elu(self.encoder(x))
        return F.linear(h, self.again.weight.t(), self.bias), h


net = Tied()
cuda_available = torch.cuda.is_available()
if cuda_available:
    net = net.cuda()
assert len(list(net.parameters())) == 3
same_weights(net)
data = torch.from_numpy(load_digits().data[:256]).float() / 16
if cuda_available:
    data = data.cuda()
optimizer = torch.optim.SGD([{"params": [net.bias], "lr": 0.5}, {"params": net.encoder.parameters()}], lr=0.1)
scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, factor=0.5)
for _ in range(8):
    out, code = net(data + 0.2 * randn(*data.shape).type_as(data))
    loss = F.mse_loss(out, data) + 1e-3 * code.abs().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    scheduler.step(loss.item())
    tell(loss)
