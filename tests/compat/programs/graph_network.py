"""A graph convolutional network by sparse sums, on a graph of neighbours."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from common import same_weights, tell
from sklearn.datasets import load_iris
from sklearn.neighbors import kneighbors_graph


class GCNConv(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(in_features, out_features))
        self.bias = nn.Parameter(torch.zeros(out_features))
        nn.init.xavier_uniform_(self.weight)

    def forward(self, x, edge_index, norm):
        row, col = edge_index
        messages = (x @ self.weight)[col] * norm.unsqueeze(-1)
        out = torch.zeros(x.size(0), messages.size(1)).to(x.device).index_add_(0, row, messages)
        return out + self.bias


class GCN(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = GCNConv(4, 16), GCNConv(16, 3)

    def forward(self, x, edge_index, norm):
        x = F.elu(self.conv1(x, edge_index, norm))
        return self.conv2(x, edge_index, norm)


iris = load_iris()
x = torch.tensor(iris.data, dtype=torch.float32)
x = (x - x.mean(0)) / x.std(0)
y = torch.tensor(iris.target)
graph = kneighbors_graph(iris.data, 6, include_self=True).tocoo()
edge_index = torch.stack([torch.from_numpy(graph.row).long(), torch.from_numpy(graph.col).long()])
degree = torch.zeros(x.size(0)).scatter_add_(0, edge_index[0], torch.ones(edge_index.size(1)))
norm = degree.pow(-0.5)[edge_index[0]] * degree.pow(-0.5)[edge_index[1]]
train_mask = torch.zeros(150, dtype=torch.bool)
train_mask[::3] = True
if torch.cuda.is_available():
    device = torch.device("cuda")
elif hasattr(torch.backends, "mps") and torch.backends.mps.is_available():
    device = torch.device("mps")
else:
    device = torch.device("cpu")
x, y, edge_index, norm, train_mask = (t.to(device) for t in (x, y, edge_index, norm, train_mask))
model = GCN().to(device)
same_weights(model)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
for epoch in range(20):
    model.train()
    optimizer.zero_grad()
    out = model(x, edge_index, norm)
    loss = F.cross_entropy(out[train_mask], y[train_mask])
    loss.backward()
    optimizer.step()
    tell(loss)
with torch.no_grad():
    accuracy = (model(x, edge_index, norm).argmax(1) == y)[~train_mask].float().mean()
assert accuracy > 0.6, accuracy
