"""Scripted and traced modules, and one rewritten by fx."""

from typing import List, Optional

import torch
from common import randn, same_weights, tell
from torch import Tensor, fx, nn


@torch.jit.script
def fused(x: Tensor, bias: Optional[Tensor] = None) -> Tensor:
    if bias is not None:
        x = x + bias
    return x * torch.sigmoid(1.702 * x)


class Block(nn.Module):
    __constants__ = ["depth"]

    def __init__(self, depth: int = 2):
        super().__init__()
        self.depth = depth
        self.layers = nn.ModuleList([nn.Linear(8, 8) for _ in range(depth)])

    def forward(self, x: Tensor) -> Tensor:
        kept: List[Tensor] = []
        for layer in self.layers:
            x = fused(layer(x), None)
            kept.append(x)
        return torch.stack(kept).mean(0)


class Plain(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 4)

    def forward(self, x):
        return torch.relu(self.fc(x)).sum(dim=-1)


def swap(module):
    graph = fx.Tracer().trace(module)
    for node in graph.nodes:
        if node.op == "call_function" and node.target is torch.relu:
            node.target = torch.tanh
    graph.lint()
    return fx.GraphModule(module, graph)


device = "cuda" if torch.cuda.is_available() else "cpu"
block = torch.jit.script(Block()).to(device)
head = swap(Plain()).to(device)
same_weights(block, head)
optimizer = torch.optim.Adamax([*block.parameters(), *head.parameters()], lr=1e-2)
x = randn(32, 8).to(device)
for _ in range(6):
    optimizer.zero_grad()
    loss = (head(block(x)) - x[:, 0]).square().mean()
    loss.backward()
    optimizer.step()
    tell(loss)
