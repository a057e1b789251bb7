"""A variational autoencoder."""

import argparse

import torch
from common import randn, same_weights, tell
from sklearn.datasets import load_digits
from torch import nn, optim
from torch.nn import functional as F

parser = argparse.ArgumentParser(description="VAE Example")
parser.add_argument("--no-accel", action="store_true", help="disables accelerator")
parser.add_argument("--seed", type=int, default=1, metavar="S", help="random seed (default: 1)")
args = parser.parse_args()
torch.manual_seed(args.seed)
if not args.no_accel and torch.accelerator.is_available():
    device = torch.accelerator.current_accelerator()
else:
    device = torch.device("cpu")
print(f"Using device: {device}")


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(64, 40)
        self.fc21 = nn.Linear(40, 8)
        self.fc22 = nn.Linear(40, 8)
        self.fc3 = nn.Linear(8, 40)
        self.fc4 = nn.Linear(40, 64)

    def encode(self, x):
        h1 = F.relu(self.fc1(x))
        return self.fc21(h1), self.fc22(h1)

    def reparameterize(self, mu, logvar):
        std = torch.exp(0.5 * logvar)
        eps = randn(*std.shape).to(std.device)
        return mu + eps * std

    def decode(self, z):
        return torch.sigmoid(self.fc4(F.relu(self.fc3(z))))

    def forward(self, x):
        mu, logvar = self.encode(x.view(-1, 64))
        return self.decode(self.reparameterize(mu, logvar)), mu, logvar


def loss_function(recon_x, x, mu, logvar):
    BCE = F.binary_cross_entropy(recon_x, x.view(-1, 64), reduction="sum")
    KLD = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
    return BCE + KLD


data = torch.from_numpy(load_digits().images / 16).float()
model = VAE().to(device)
same_weights(model)
optimizer = optim.Adam(model.parameters(), lr=1e-3)
for batch in data[:1280].split(128):
    batch = batch.to(device)
    optimizer.zero_grad()
    recon, mu, logvar = model(batch)
    loss = loss_function(recon, batch, mu, logvar)
    loss.backward()
    optimizer.step()
    tell(loss.item() / len(batch))
