"""Contrastive pictures: two views of each, told apart by NT-Xent; then a linear probe on what was learned."""

import argparse
import copy

import torch
import torch.nn as nn
import torch.nn.functional as F
from common import noise, same_weights, tell
from sklearn.datasets import load_digits
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, SequentialLR
from torch.utils.data import DataLoader, Dataset


class Views(Dataset):
    def __init__(self, images):
        self.images = images

    def __len__(self):
        return len(self.images)

    def view(self, image):
        rows, columns = noise.randint(-1, 2, 2)
        image = torch.roll(image, (int(rows), int(columns)), dims=(-2, -1))
        if noise.rand() < 0.5:
            image = image.flip(-1)
        return image + 0.05 * torch.from_numpy(noise.randn(*image.shape).astype("float32"))

    def __getitem__(self, index):
        return self.view(self.images[index]), self.view(self.images[index]), index


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.SiLU(), nn.Conv2d(8, 16, 3, 2, 1), nn.SiLU()
        )
        self.projector = nn.Sequential(nn.Linear(16, 16, bias=False), nn.ReLU(inplace=True), nn.Linear(16, 8))

    def forward(self, x):
        h = self.body(x).mean(dim=(-2, -1))
        return h, F.normalize(self.projector(h), dim=-1)


def nt_xent(a, b, temperature=0.5):
    z = torch.cat([a, b])
    scores = z @ z.mT / temperature
    scores.fill_diagonal_(float("-inf"))
    count = len(a)
    labels = torch.cat([torch.arange(count) + count, torch.arange(count)]).to(z.device)
    return F.cross_entropy(scores, labels)


parser = argparse.ArgumentParser()
parser.add_argument("--disable-cuda", action="store_true", help="Disable CUDA")
parser.add_argument("--gpu-index", default=0, type=int, help="Gpu index.")
args = parser.parse_args()
if not args.disable_cuda and torch.cuda.is_available():
    args.device = torch.device("cuda")
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = True
else:
    args.device, args.gpu_index = torch.device("cpu"), -1
images, labels = load_digits(return_X_y=True)
images = torch.from_numpy(images[:96].astype("float32")).view(-1, 1, 8, 8) / 16
labels = torch.from_numpy(labels[:96])
model = Encoder().to(args.device)
same_weights(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
warm, cool = LinearLR(optimizer, 0.1, total_iters=2), CosineAnnealingLR(optimizer, T_max=6)
schedule = SequentialLR(optimizer, [warm, cool], milestones=[2])
loader = DataLoader(Views(images), batch_size=48, drop_last=True, pin_memory=args.device.type == "cuda")
with torch.cuda.device(args.gpu_index):  # no effect if the index is negative
    for _ in range(4):
        for a, b, index in loader:
            a, b = a.to(args.device), b.to(args.device)
            loss = nt_xent(model(a)[1], model(b)[1])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            tell(loss)

frozen = copy.deepcopy(model).requires_grad_(False).eval()
probe = nn.Linear(16, 10).to(args.device)
images, labels = images.to(args.device), labels.to(args.device)
same_weights(probe)
fit = torch.optim.LBFGS(probe.parameters(), lr=0.5, max_iter=5)


def closure():
    fit.zero_grad()
    loss = F.cross_entropy(probe(frozen(images)[0]), labels)
    loss.backward()
    return loss


tell(fit.step(closure))
tell(closure())
