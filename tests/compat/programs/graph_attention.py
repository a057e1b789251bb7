"""A graph attention network: messages over edges, weighed by attention among a node's neighbours."""

import torch
import torch.nn.functional as F
from common import noise, randn, same_weights, tell
from torch import Tensor, nn


class GATConv(nn.Module):
    def __init__(self, inputs: int, outputs: int, heads: int, concat: bool = True, slope: float = 0.2):
        super().__init__()
        self.heads, self.outputs, self.concat, self.slope = heads, outputs, concat, slope
        self.lin = nn.Linear(inputs, heads * outputs, bias=False)
        self.att_src = nn.Parameter(torch.empty(1, heads, outputs))
        self.att_dst = nn.Parameter(torch.empty(1, heads, outputs))
        self.bias = nn.Parameter(torch.zeros(heads * outputs if concat else outputs))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.xavier_uniform_(self.att_src)
        nn.init.xavier_uniform_(self.att_dst)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        source, target = edge_index
        h = self.lin(x).view(-1, self.heads, self.outputs)
        scores = (h * self.att_src).sum(-1)[source] + (h * self.att_dst).sum(-1)[target]
        scores = F.leaky_relu(scores, self.slope)
        index = target.unsqueeze(1).expand_as(scores)
        largest = torch.full((len(x), self.heads), -torch.inf, device=x.device).scatter_reduce(0, index, scores, "amax")
        weights = (scores - largest[target]).exp()
        total = torch.zeros(len(x), self.heads, device=x.device).scatter_add_(0, index, weights)
        weights = weights / (total[target] + 1e-16)
        out = torch.zeros_like(h).index_add_(0, target, h[source] * weights.unsqueeze(-1))
        return (out.flatten(1) if self.concat else out.mean(dim=1)) + self.bias

    def extra_repr(self) -> str:
        return f"heads={self.heads}"


class GAT(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = GATConv(8, 4, heads=3)
        self.conv2 = GATConv(12, 3, heads=2, concat=False)

    def forward(self, x, edge_index):
        return F.log_softmax(self.conv2(F.elu(self.conv1(x, edge_index)), edge_index), dim=-1)


classes = torch.from_numpy(noise.randint(0, 3, 30))
x = randn(30, 8) + F.one_hot(classes, 8)
adjacency = (classes[:, None] == classes[None]) & (randn(30, 30) > 0.8) | torch.eye(30, dtype=torch.bool)
edge_index = adjacency.nonzero().t().contiguous()
mask = torch.arange(30) % 3 > 0
device = torch.accelerator.current_accelerator(check_available=True) or torch.device("cpu")
x, classes, mask, edge_index = (t.to(device) for t in (x, classes, mask, edge_index))
model = GAT().to(device)
same_weights(model)
optimizer = torch.optim.Adam(model.parameters(), lr=0.02, weight_decay=5e-4)
for _ in range(10):
    model.train()
    optimizer.zero_grad()
    loss = F.nll_loss(model(x, edge_index)[mask], classes[mask])
    loss.backward()
    optimizer.step()
    tell(loss)
model.eval()
with torch.inference_mode():
    tell((model(x, edge_index).argmax(-1)[~mask] == classes[~mask]).float().mean())
