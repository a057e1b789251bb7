"""A graph convolutional network with a sparse adjacency, normalised as D^-1/2 (A + I) D^-1/2: the first of them were
written so. Attention over neighbours follows, by a sparse softmax."""

import argparse
import math

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn as nn
import torch.nn.functional as F
from common import same_weights, tell
from sklearn.datasets import load_iris
from sklearn.neighbors import kneighbors_graph


def normalize_adj(mx):
    rowsum = np.array(mx.sum(1)).flatten()
    r_inv_sqrt = np.power(rowsum, -0.5)
    r_inv_sqrt[np.isinf(r_inv_sqrt)] = 0.0
    scale = sp.diags(r_inv_sqrt)
    return mx.dot(scale).transpose().dot(scale)


def sparse_mx_to_torch_sparse_tensor(sparse_mx):
    sparse_mx = sparse_mx.tocoo().astype(np.float32)
    indices = torch.from_numpy(np.vstack((sparse_mx.row, sparse_mx.col)).astype(np.int64))
    values = torch.from_numpy(sparse_mx.data)
    return torch.sparse_coo_tensor(indices, values, torch.Size(sparse_mx.shape))


class GraphConvolution(nn.Module):
    def __init__(self, in_features, out_features, bias=True):
        super().__init__()
        self.weight = nn.Parameter(torch.FloatTensor(in_features, out_features))
        if bias:
            self.bias = nn.Parameter(torch.FloatTensor(out_features))
        else:
            self.register_parameter("bias", None)
        stdv = 1.0 / math.sqrt(self.weight.size(1))
        self.weight.data.uniform_(-stdv, stdv)
        self.bias.data.uniform_(-stdv, stdv)

    def forward(self, input, adj):
        support = torch.mm(input, self.weight)
        output = torch.spmm(adj, support)
        return output + self.bias if self.bias is not None else output


class GCN(nn.Module):
    def __init__(self, nfeat, nhid, nclass):
        super().__init__()
        self.gc1 = GraphConvolution(nfeat, nhid)
        self.gc2 = GraphConvolution(nhid, nclass)

    def forward(self, x, adj):
        x = F.relu(self.gc1(x, adj))
        return F.log_softmax(self.gc2(x, adj), dim=1)


class SparseAttention(nn.Module):
    def __init__(self, nfeat, nclass):
        super().__init__()
        self.query, self.key = nn.Linear(nfeat, 8), nn.Linear(nfeat, 8)
        self.value = nn.Linear(nfeat, nclass)

    def forward(self, x, adj):
        row, col = adj.indices()
        scores = (self.query(x)[row] * self.key(x)[col]).sum(-1) / math.sqrt(8)
        weights = torch.sparse.softmax(torch.sparse_coo_tensor(adj.indices(), scores, adj.shape), dim=1)
        return torch.sparse.mm(weights, self.value(x)).log_softmax(1)


parser = argparse.ArgumentParser()
parser.add_argument("--no-cuda", action="store_true", default=False, help="Disables CUDA training.")
parser.add_argument("--seed", type=int, default=42, help="Random seed.")
args = parser.parse_args()
args.cuda = not args.no_cuda and torch.cuda.is_available()
np.random.seed(args.seed)
torch.manual_seed(args.seed)
if args.cuda:
    torch.cuda.manual_seed(args.seed)
iris = load_iris()
features = torch.tensor(iris.data, dtype=torch.float32)
features = F.normalize(features - features.mean(0))
labels = torch.tensor(iris.target)
graph = kneighbors_graph(iris.data, 5)
graph = graph + graph.T.multiply(graph < graph.T) - graph.multiply(graph < graph.T)
adj = sparse_mx_to_torch_sparse_tensor(normalize_adj(graph + sp.eye(graph.shape[0])))
assert adj.is_sparse and adj.layout == torch.sparse_coo
train = torch.arange(0, 150, 3)

model = GCN(4, 16, 3)
same_weights(model)
if args.cuda:
    model.cuda()
    features, adj = features.cuda(), adj.cuda()
    labels, train = labels.cuda(), train.cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=0.02, weight_decay=5e-4)
for epoch in range(15):
    model.train()
    optimizer.zero_grad()
    output = model(features, adj)
    loss = F.nll_loss(output[train], labels[train])
    loss.backward()
    optimizer.step()
    tell(loss)
tell(model(features, adj.to_sparse_csr()).detach().exp().sum(0)[1])

coalesced = adj.coalesce()
model = SparseAttention(4, 3)
same_weights(model)
if args.cuda:
    model.cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
for epoch in range(10):
    optimizer.zero_grad()
    loss = F.nll_loss(model(features, coalesced)[train], labels[train])
    loss.backward()
    optimizer.step()
    tell(loss)
