"""A GAN with weight normalisation and the hinge loss."""

import torch
import torch.nn.functional as F
from common import randn, same_weights, tell
from torch import nn
from torch.autograd import Variable
from torch.nn.utils.parametrizations import weight_norm

cuda = torch.cuda.is_available()
Tensor = torch.cuda.FloatTensor if cuda else torch.FloatTensor

generator = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), weight_norm(nn.Linear(16, 2)))
critic = nn.Sequential(nn.Linear(2, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))
same_weights(generator, critic)
if cuda:
    generator.cuda()
    critic.cuda()
with torch.no_grad():
    for layer in (critic[0], critic[2]):
        layer.weight.div_(torch.linalg.matrix_norm(layer.weight, 2))
g_opt = torch.optim.Adam(generator.parameters(), lr=1e-2, betas=(0.0, 0.9))
d_opt = torch.optim.Adam(critic.parameters(), lr=1e-2, betas=(0.0, 0.9))
for _ in range(6):
    real = Variable((randn(32, 2) * 0.3 + torch.tensor([1.0, -1.0])).type(Tensor))
    fake = generator(Variable(Tensor(randn(32, 4).numpy())))
    d_loss = F.relu(1 - critic(real)).mean() + F.relu(1 + critic(fake.detach())).mean()
    d_opt.zero_grad()
    d_loss.backward()
    d_opt.step()
    g_loss = -critic(fake).mean()
    g_opt.zero_grad()
    g_loss.backward()
    g_opt.step()
    tell(d_loss)
    tell(g_loss)
