"""GNNs by hand: GCN/GAT/GIN with scatter_reduce, index_add, segment softmax, sparse adjacency, pooling; link prediction."""

from collections import namedtuple

import torch
import torch.nn as nn
import torch.nn.functional as F
from common import noise, randn, same_weights, tell

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
torch.set_default_device(device)


def normal(*shape):
    return randn(*shape).to(device)


Data = namedtuple("Data", "x edge_index batch y")
N, E = 30, 90
ei = torch.from_numpy(noise.randint(0, N, (2, E))).to(device).long()
ei = torch.cat([ei, ei.flip(0)], 1)
ei = torch.unique(ei, dim=1)
ei = ei[:, ei[0] != ei[1]]
data = Data(normal(N, 6), ei, torch.arange(N) // 10, torch.from_numpy(noise.randint(0, 3, N)).to(device))


def seg_softmax(s, idx, n):
    mx = torch.full((n, s.size(1)), float("-inf")).scatter_reduce_(
        0, idx[:, None].expand_as(s), s, reduce="amax", include_self=True
    )
    e = (s - mx[idx]).exp()
    return e / (torch.zeros(n, s.size(1)).index_add(0, idx, e)[idx] + 1e-16)


class GAT(nn.Module):
    def __init__(self, i, o, h=2):
        super().__init__()
        self.h, self.o = h, o
        self.w = nn.Linear(i, h * o, bias=False)
        self.a = nn.Parameter(torch.empty(2, h, o))
        nn.init.xavier_uniform_(self.a)

    def forward(self, x, ei):
        s, d = ei.unbind(0)
        z = self.w(x).view(-1, self.h, self.o)
        al, ar = torch.einsum("nho,kho->knh", z, self.a).unbind()
        w = seg_softmax(F.leaky_relu(al[s] + ar[d], 0.2), d, x.size(0))
        out = torch.zeros_like(z).scatter_add_(0, d[:, None, None].expand(-1, self.h, self.o), z[s] * w.unsqueeze(-1))
        return F.elu(out.flatten(1))


class GIN(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.eps = nn.Parameter(torch.zeros(1))
        self.mlp = nn.Sequential(nn.Linear(i, o), nn.BatchNorm1d(o), nn.PReLU(o), nn.Linear(o, o))

    def forward(self, x, ei):
        agg = torch.zeros_like(x).index_add_(0, ei[1], x.index_select(0, ei[0]), alpha=0.5)
        return self.mlp((1 + self.eps) * x + agg)


class GCN(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.lin = nn.Linear(i, o)

    def forward(self, x, ei):
        n = x.size(0)
        full = torch.cat([ei, torch.arange(n).expand(2, -1)], 1)
        deg = torch.bincount(full[1], minlength=n).float()
        w = deg.rsqrt()[full[0]] * deg.rsqrt()[full[1]]
        A = torch.sparse_coo_tensor(full.flip(0), w, (n, n)).coalesce()
        return torch.sparse.mm(A, self.lin(x))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.gat, self.gin, self.gcn = GAT(6, 5), GIN(10, 8), GCN(8, 3)
        self.dp = nn.Dropout(0.0)
        self.ro = nn.Bilinear(3, 3, 2)

    def forward(self, d):
        h = self.gcn(self.dp(self.gin(self.gat(d.x, d.edge_index), d.edge_index)), d.edge_index)
        g = torch.zeros(3, 3).scatter_reduce(0, d.batch[:, None].expand(-1, 3), h, "mean", include_self=False)
        mx = torch.zeros(3, 3).index_reduce_(0, d.batch, h, "amax", include_self=False)
        return h, self.ro(g, mx)


net = Net()
same_weights(net)
opt = torch.optim.RAdam(net.parameters(), lr=1e-2, weight_decay=5e-4, decoupled_weight_decay=True)
mask = torch.zeros(N, dtype=torch.bool).index_fill_(0, torch.arange(0, N, 2), True)
for i in range(8):
    h, g = net(data)
    loss = F.nll_loss(h[mask].log_softmax(1), data.y[mask]) + F.cross_entropy(
        g, torch.tensor([0, 1, 0]), weight=torch.tensor([1.0, 2.0])
    )
    opt.zero_grad()
    loss.backward()
    opt.step()
    tell(loss)
with torch.no_grad():
    h, _ = net(data)
    pos = (h[ei[0]] * h[ei[1]]).sum(-1)
    neg = torch.triu((h @ h.T), 1).masked_select(torch.ones(N, N).triu(1).bool())
    tell(
        F.binary_cross_entropy_with_logits(
            torch.cat([pos, neg]),
            torch.cat([torch.ones_like(pos), torch.zeros_like(neg)]),
            pos_weight=torch.tensor(2.0),
        )
    )
    A = torch.zeros(N, N).index_put_((ei[0], ei[1]), torch.tensor(1.0), accumulate=True)
    csr = A.to_sparse_csr()
    tell((csr @ h).sum())
    print(csr.crow_indices()[-1], A.to_sparse().indices().shape, torch.equal(A, A.T))
    L = torch.diag(A.sum(1)) - A
    tell(torch.linalg.eigvalsh(L)[1])
    tell(torch.trace(torch.linalg.matrix_power(A, 3)) / 6)
    r = torch.full((N,), 1 / N)
    for _ in range(20):
        r = 0.15 / N + 0.85 * (A / A.sum(1, keepdim=True).clamp(min=1)).T @ r
    v, ix = r.topk(3)
    print(ix.tolist())
    tell(v.sum())
    comp = torch.arange(N)
    while True:
        new = comp.scatter_reduce(0, ei[1], comp[ei[0]], "amin")
        if torch.equal(new, comp):
            break
        comp = new
    u, inv, cnt = torch.unique(comp, return_inverse=True, return_counts=True)
    print(u.tolist(), cnt.tolist(), inv[:5].tolist())
print(net)
