"""A siamese network with a triplet loss."""

import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F
from common import noise, same_weights, tell
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, Dataset


class Triplets(Dataset):
    def __init__(self):
        digits = load_digits(n_class=5)
        self.images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
        self.groups = [(digits.target == k).nonzero()[0] for k in range(5)]

    def __len__(self):
        return 320

    def __getitem__(self, index):
        a, b = noise.choice(5, size=2, replace=False)
        anchor, positive = noise.choice(self.groups[a], size=2, replace=False)
        return self.images[anchor], self.images[positive], self.images[noise.choice(self.groups[b])]


class SiameseNetwork(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten())
        self.fc = nn.Sequential(nn.Linear(72, 32), nn.PReLU(), nn.Linear(32, 8))

    def forward(self, x):
        return F.normalize(self.fc(self.features(x)), dim=1)


parser = argparse.ArgumentParser()
parser.add_argument("--no-accel", action="store_true", default=False, help="disables accelerator training")
args = parser.parse_args()
if not args.no_accel and torch.accelerator.is_available():
    device = torch.accelerator.current_accelerator()
    kwargs = {"pin_memory": True}
else:
    device, kwargs = torch.device("cpu"), {}
model = SiameseNetwork().to(device)
same_weights(model)
criterion = nn.TripletMarginLoss(margin=0.5)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=1e-2)
for anchor, positive, negative in DataLoader(Triplets(), batch_size=32, **kwargs):
    anchor, positive, negative = anchor.to(device), positive.to(device), negative.to(device)
    loss = criterion(model(anchor), model(positive), model(negative))
    loss = loss + 0.1 * (1 - F.cosine_similarity(model(anchor), model(positive))).mean()
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    tell(loss)
