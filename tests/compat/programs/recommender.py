"""Matrix factorisation and a bag of tags with sparse gradients: SparseAdam for the tables, SGD for the rest."""

import copy
import io

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from common import same_weights, tell

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
USERS, ITEMS, TAGS = 60, 80, 25
state = np.random.RandomState(3)
taste, kind = state.randn(USERS, 3), state.randn(ITEMS, 3)
pairs = [(u, i) for u in range(USERS) for i in range(ITEMS) if state.rand() < 0.25]
users = torch.tensor([u for u, _ in pairs]).to(device)
items = torch.tensor([i for _, i in pairs]).to(device)
ratings = torch.tensor([(taste[u] * kind[i]).sum() for u, i in pairs], dtype=torch.float32).clamp(-3, 3).to(device)
tags = [state.choice(TAGS - 1, state.randint(1, 5), replace=False) + 1 for _ in range(ITEMS)]


class Recommender(nn.Module):
    def __init__(self, dim=8):
        super().__init__()
        self.user = nn.Embedding(USERS, dim, sparse=True)
        self.item = nn.Embedding(ITEMS, dim, sparse=True)
        self.bias = nn.Embedding(ITEMS, 1, sparse=True)
        self.tags = nn.EmbeddingBag(TAGS, dim, mode="mean", sparse=True)
        self.head = nn.Sequential(nn.Linear(3 * dim, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, user, item):
        picked = [tags[i] for i in item.tolist()]
        offsets = torch.tensor(np.cumsum([0] + [len(t) for t in picked[:-1]])).to(item.device)
        bag = self.tags(torch.tensor(np.concatenate(picked)).to(item.device), offsets)
        u, i = self.user(user), self.item(item)
        return (u * i).sum(1) + self.bias(item)[:, 0] + self.head(torch.cat([u, i, bag], 1))[:, 0]


model = Recommender().to(device)
same_weights(model)
tables = [p for n, p in model.named_parameters() if not n.startswith("head")]
optimizers = [
    torch.optim.SparseAdam(tables, lr=0.02),
    torch.optim.SGD(model.head.parameters(), lr=0.02, momentum=0.9),
]
order = np.random.RandomState(4)
for step in range(25):
    batch = torch.tensor(order.choice(len(pairs), 64, replace=False)).to(device)
    for optimizer in optimizers:
        optimizer.zero_grad()
    loss = F.mse_loss(model(users[batch], items[batch]), ratings[batch])
    loss.backward()
    assert model.user.weight.grad.is_sparse and not model.head[0].weight.grad.is_sparse
    for optimizer in optimizers:
        optimizer.step()
    tell(loss)

file = io.BytesIO()
torch.save({"model": model.state_dict(), "tables": optimizers[0].state_dict()}, file)
file.seek(0)
again = copy.deepcopy(model)
again.load_state_dict(torch.load(file, map_location=device)["model"])
adagrad = torch.optim.Adagrad(again.parameters(), lr=0.05)
for step in range(10):
    batch = torch.tensor(order.choice(len(pairs), 64, replace=False)).to(device)
    adagrad.zero_grad()
    loss = F.mse_loss(again(users[batch], items[batch]), ratings[batch])
    loss.backward()
    adagrad.step()
    tell(loss)
