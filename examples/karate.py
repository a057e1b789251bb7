"""A graph network tells who stays with whom in a karate club that splits, from the word of its two leaders.

    python examples/karate.py --epochs 100

Zachary's club (1977) of 34 members, from networkx: who meets whom outside the club. Only the instructor and the
president are labelled. The layers average over neighbours as Kipf and Welling's do (2017).
"""

from __future__ import annotations

import sys
from typing import Any

import tesserack as ts
from common import finish, needed, parse_arguments
from tesserack import nn, optim
from tesserack.nn import functional as F
from tesserack.utils.progress import Progress


class GraphConvolution(nn.Module):
    """A linear layer, then for each node a weighted sum over its neighbours and itself."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.linear = nn.Linear(inputs, outputs)

    def forward(self, x: ts.Tensor, edges: ts.Tensor, weights: ts.Tensor) -> ts.Tensor:
        """x: (nodes, inputs); edges: (2, n), from and to; weights: (n,)."""
        x = self.linear(x)
        return ts.zeros_like(x).index_add(0, edges[1], x[edges[0]] * weights[:, None])


class Network(nn.Module):
    """Two such layers, scores for both sides."""

    def __init__(self, nodes: int) -> None:
        super().__init__()
        self.first, self.second = GraphConvolution(nodes, 16), GraphConvolution(16, 2)

    def forward(self, x: ts.Tensor, edges: ts.Tensor, weights: ts.Tensor) -> ts.Tensor:
        x = F.dropout(self.first(x, edges, weights).relu(), 0.3, self.training)
        return self.second(x, edges, weights)


def load_club(device: Any) -> tuple[ts.Tensor, ts.Tensor, ts.Tensor]:
    """Edges both ways and of each with itself (2, n), their weights (n,), and the side each member took (34,)."""
    club = needed("networkx").karate_club_graph()
    pairs = [*club.edges, *((b, a) for a, b in club.edges), *((n, n) for n in club.nodes)]
    edges = ts.tensor(pairs).t().contiguous()
    degree = ts.bincount(edges[0]).float()
    weights = (degree[edges[0]] * degree[edges[1]]).rsqrt()
    sides = ts.tensor([int(club.nodes[n]["club"] == "Officer") for n in club.nodes])
    return edges.to(device), weights.to(device), sides.to(device)


def main() -> int:
    args = parse_arguments("Train a graph network on Zachary's karate club.", epochs=100, quick=20)
    edges, weights, sides = load_club(args.device)
    members = len(sides)
    x, leaders = ts.eye(members, device=args.device), ts.tensor([0, members - 1], device=args.device)
    model = Network(members).to(args.device)
    optimizer = optim.Adam(model.parameters(), lr=1e-2, weight_decay=5e-3)
    history: dict[str, list[float]] = {"loss": [], "accuracy": []}
    with Progress(args.epochs, unit="epochs") as bar:
        for _ in range(args.epochs):
            model.train()
            loss = F.cross_entropy(model(x, edges, weights)[leaders], sides[leaders])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            model.eval()
            accuracy = ts.metrics.Accuracy()
            with ts.no_grad():
                accuracy.update(model(x, edges, weights), sides)
            history["loss"].append(loss.item())
            history["accuracy"].append(accuracy.compute())
            bar.advance(loss=history["loss"][-1], accuracy=history["accuracy"][-1])
    print(f"sides told right: {round(history['accuracy'][-1] * members)} of {members} members, from 2 labels")
    finish("karate", args, model, history)
    return 0


if __name__ == "__main__":
    sys.exit(main())
