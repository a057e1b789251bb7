"""A network traced as a graph: activations replaced, shapes noted, norms folded, features taken out."""

import torch
import torch.nn.functional as F
from common import randn, same_weights, tell
from torch import fx, nn
from torch.fx.experimental.optimization import fuse
from torch.fx.passes.shape_prop import ShapeProp


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.bn = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.blocks = nn.ModuleList([nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8)) for _ in range(2)])
        self.fc = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.bn(self.conv(x)))
        for block in self.blocks:
            x = torch.relu(block(x) + x)
        return self.fc(x.mean(dim=(2, 3)))


class Features(nn.Module):
    def __init__(self, traced, names):
        super().__init__()
        graph, env, outputs = fx.Graph(), {}, {}
        for node in traced.graph.nodes:
            if node.op == "output":
                break
            env[node] = graph.node_copy(node, lambda n: env[n])
            if node.name in names:
                outputs[node.name] = env[node]
        graph.output(outputs)
        self.body = fx.GraphModule(traced, graph)

    def forward(self, x):
        return self.body(x)


device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
net = Net()
same_weights(net)
traced = fx.symbolic_trace(net.to(device))
tell(len(fx.replace_pattern(traced, lambda x: torch.relu(x), lambda x: F.silu(x))))
optimizer = torch.optim.SGD(traced.parameters(), lr=0.05, momentum=0.9)
x, y = randn(8, 3, 6, 6).to(device), torch.arange(8, device=device) % 4
for _ in range(6):
    loss = F.cross_entropy(traced(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    tell(loss)
traced.eval()
ShapeProp(traced).propagate(x)
tell(sum(node.meta["tensor_meta"].shape.numel() for node in traced.graph.nodes if "tensor_meta" in node.meta))
folded = fuse(traced)
tell(sum(isinstance(m, nn.BatchNorm2d) for m in folded.modules()))
tell(folded(x).std())
for value in Features(traced, ["conv", "mean"])(x).values():
    tell(value.norm())
