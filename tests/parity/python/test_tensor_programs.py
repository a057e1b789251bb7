"""Small whole programs on tensors and their graphs, as users write them, on both libraries from the same numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest


def normal(m: Any, *shape: int, seed: int = 0, grad: bool = False) -> Any:
    values = np.random.RandomState(seed).randn(*shape).tolist()
    return m.tensor(values, dtype=m.float64, requires_grad=grad)


def refused(call: Callable[[], Any]) -> str:
    """The class of the exception that the call raises."""
    with pytest.raises(Exception) as caught:
        call()
    return caught.type.__name__


def by_hand(m: Any) -> list[Any]:
    """Logistic regression, k-means and the first principal component without any optimiser."""
    x = normal(m, 30, 4)
    y = (x[:, 0] + 0.5 * x[:, 1] > 0).to(x.dtype)
    w, b = m.zeros(4, dtype=m.float64, requires_grad=True), m.zeros((), dtype=m.double, requires_grad=True)
    for _ in range(5):
        p = m.sigmoid(x @ w + b)
        loss = -(y * p.clamp(1e-7, 1 - 1e-7).log() + (1 - y) * m.log1p(-p)).mean() + 0.01 * w.square().sum()
        loss.backward()
        with m.no_grad():
            for q in (w, b):
                q -= 0.5 * q.grad
                q.grad.zero_()
    centres = x[:3].clone()
    for _ in range(4):
        nearest = m.cdist(x, centres).argmin(dim=1)
        centres = m.stack([x[nearest == k].mean(0) if (nearest == k).any() else centres[k] for k in range(3)])
    v = m.ones(4, dtype=m.float64)
    for _ in range(50):
        v = m.cov(x.T) @ v
        v /= v.norm()
    counts = m.unique(nearest, return_counts=True)
    return [w, b, ((p > 0.5) == y.bool()).float().mean(), centres, counts, v.abs(), x.quantile(0.3, dim=0)]


def policy_gradient(m: Any) -> list[Any]:
    """Log-probabilities picked by gather and by index, discounted returns, a clipped ratio."""
    logits = normal(m, 6, 3, grad=True)
    actions, rewards = m.tensor([0, 2, 1, 1, 0, 2]), m.tensor([1.0, 0, -1, 2, 0.5, 1], dtype=m.float64)
    discounts = m.pow(0.9, m.arange(6))
    returns = (discounts * rewards).flip(0).cumsum(0).flip(0) / discounts
    advantage = (returns - returns.mean()) / (returns.std() + 1e-8)
    log_p = logits.log_softmax(-1)
    chosen = log_p.gather(1, actions[:, None]).squeeze(1)
    entropy = -(log_p.exp() * log_p).sum(-1).mean()
    loss = -(chosen * advantage).mean() - 0.01 * entropy
    ratio = m.exp(log_p[m.arange(6), actions] - 0.9 * chosen.detach())
    clipped = -m.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
    grads = [m.autograd.grad(f, logits, retain_graph=True)[0] for f in (loss, clipped)]
    table = m.zeros(6, 3, dtype=m.float64).scatter_(1, actions.unsqueeze(1), rewards.unsqueeze(1))
    return [returns, loss, clipped, grads, table, discounts]


def inner_loops(m: Any) -> list[Any]:
    """A learner whose steps are differentiated, products with a Hessian, a differential equation in the loss."""
    w, seen = normal(m, 3, grad=True), []
    for task in range(2):
        x, y, fast = normal(m, 5, 3, seed=task), normal(m, 5, seed=task + 10), w
        for _ in range(2):
            (slope,) = m.autograd.grad(((x @ fast - y) ** 2).mean(), fast, create_graph=True)
            fast = fast - 0.1 * slope
        seen.append(m.autograd.grad(((x @ fast - y) ** 2).mean(), w)[0])

    def energy(z: Any) -> Any:
        return (z**3).sum() + z.prod() + m.sin(z).dot(z)

    (slope,) = m.autograd.grad(energy(w), w, create_graph=True)
    rows = m.stack([m.autograd.grad(slope[i], w, retain_graph=True)[0] for i in range(3)])
    at = m.linspace(0, 1, 7, dtype=m.float64).view(-1, 1).requires_grad_()
    u = m.tanh(at @ normal(m, 1, 8)) @ w.new_ones(8, 1)
    (du,) = m.autograd.grad(u, at, m.ones_like(u), create_graph=True)
    (ddu,) = m.autograd.grad(du, at, m.ones_like(du), create_graph=True)
    residual = ((ddu + math.pi**2 * m.sin(math.pi * at)) ** 2).mean()
    return [seen, rows, m.autograd.functional.hessian(energy, w), residual, m.autograd.grad(residual, at)]


def messages_on_a_graph(m: Any) -> list[Any]:
    """Sums, means, extremes and softmax over the edges into each node, differentiated twice."""
    source, target = m.tensor([[0, 1, 2, 3, 0, 2], [1, 2, 3, 0, 2, 1]])
    x = normal(m, 4, 3, grad=True)
    message, at = x[source] * normal(m, 6, seed=3)[:, None], target[:, None].expand(-1, 3)
    degree = m.bincount(target, minlength=4).clamp(min=1).unsqueeze(1)
    total = m.zeros_like(x).index_add(0, target, message) / degree
    greatest = m.full_like(x, -1e9).scatter_reduce(0, at, message, "amax", include_self=False)
    mean = m.zeros(4, 3, dtype=x.dtype).scatter_reduce_(0, at, message, "mean", include_self=False)
    score = (x[source] * x[target]).sum(-1)
    weight = (score - score.max()).exp()
    share = weight / m.zeros(4, dtype=x.dtype).scatter_add(0, target, weight)[target]
    loss = m.relu(total).sum() + greatest.sum() + mean.pow(2).sum() + (share**2).sum()
    (slope,) = m.autograd.grad(loss, x, create_graph=True)
    return [total, greatest, mean, share, slope, m.autograd.grad(slope.sum(), x)]


def own_functions(m: Any) -> list[Any]:
    """autograd.Function with several outputs, numbers, in-place work, outputs without gradients and mistakes."""
    base, log = m.autograd.Function, []

    class MulAdd(base):  # type: ignore[misc, valid-type]
        @staticmethod
        def forward(ctx: Any, a: Any, b: Any, k: int) -> Any:
            ctx.save_for_backward(a, b)
            ctx.k = k
            return a * b * k, a + b

        @staticmethod
        def backward(ctx: Any, product: Any, total: Any) -> Any:
            a, b = ctx.saved_tensors
            log.append(ctx.needs_input_grad)
            return product * b * ctx.k + total, product * a * ctx.k + total, None

    class Doubled(base):  # type: ignore[misc, valid-type]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.mark_dirty(x)
            return x.mul_(2)

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * 2

    class Rounded(base):  # type: ignore[misc, valid-type]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            whole = x.round().long()
            ctx.mark_non_differentiable(whole)
            return x.round(), whole

        @staticmethod
        def backward(ctx: Any, g: Any, _: Any) -> Any:
            return g

    class TooMany(Rounded):
        @staticmethod
        def backward(ctx: Any, g: Any, _: Any) -> Any:
            return g, g

    a, b = normal(m, 3, grad=True), normal(m, 3, seed=1, grad=True)
    product, _ = MulAdd.apply(a, b, 3)
    grads = m.autograd.grad(product.sum(), (a, b), create_graph=True)
    second = m.autograd.grad(grads[0].sum(), b)
    MulAdd.apply(a, b.detach(), 2)[1].sum().backward()
    y = a * 1
    same = Doubled.apply(y) is y
    (y * y.detach()).sum().backward()
    near, whole = Rounded.apply(a)
    near.sum().backward()
    error = refused(lambda: TooMany.apply(a)[0].sum().backward())
    return [grads, second, a.grad, same, whole, whole.requires_grad, log, error, type(product.grad_fn).__name__]


def watching_the_graph(m: Any) -> list[Any]:
    """Hooks of every kind, and saved tensors kept elsewhere."""
    log: list[Any] = []
    absent: list[Any] = []
    graph = m.autograd.graph
    a = normal(m, 3, grad=True)
    b = a * 2
    c = b.exp()
    b.retain_grad()
    handle = b.register_hook(lambda g: g * 10)
    a.register_hook(lambda g: log.append(g))
    a.register_post_accumulate_grad_hook(lambda p: log.append(p.grad.clone()))
    c.grad_fn.register_prehook(lambda gs: (gs[0] + 1,))
    c.grad_fn.register_hook(lambda inputs, outputs: log.append((len(inputs), len(outputs))))
    graph.register_multi_grad_hook((a, b), lambda gs: absent.append([g is None for g in gs]))
    c.sum().backward(retain_graph=True)
    handle.remove()
    c.sum().backward()
    with graph.saved_tensors_hooks(lambda t: t.detach().tolist(), lambda v: m.tensor(v, dtype=m.float64)):
        squares = (a * a).sum()
    squares.backward()
    names = [node.name() for node, _ in c.grad_fn.next_functions]
    return [log, absent, a.grad, b.grad, names]


def decoding(m: Any) -> list[Any]:
    """Beams, nucleus sampling's mask, the most likely path, overlaps of boxes, rotated positions."""
    scores = normal(m, 5, 7).log_softmax(-1)
    beams: list[tuple[list[int], float]] = [([], 0.0)]
    for row in scores:
        grown = [(s + [j], total + row[j].item()) for s, total in beams for j in row.topk(2).indices.tolist()]
        beams = sorted(grown, key=lambda beam: -beam[1])[:3]
    ordered, at = normal(m, 2, 8).sort(descending=True)
    drop = ordered.softmax(-1).cumsum(-1) > 0.7
    drop[..., 1:] = drop[..., :-1].clone()
    drop[..., 0] = False
    kept = normal(m, 2, 8).masked_fill(drop.scatter(1, at, drop), -float("inf")).softmax(-1)
    best, back = scores[0, :3], []
    for row in scores[1:, :3]:
        best, came = (best[:, None] + normal(m, 3, 3, seed=2)).max(0)
        best = best + row
        back.append(came)
    one = m.tensor([[0.0, 0, 2, 2], [1, 1, 3, 3]])
    two = m.tensor([[1.0, 1, 2, 2], [0, 0, 3, 3], [5, 5, 6, 6]])
    sides = (m.min(one[:, None, 2:], two[:, 2:]) - m.max(one[:, None, :2], two[:, :2])).clamp(min=0)
    angle = m.outer(m.arange(4).double(), 1 / 10000 ** (m.arange(0, 6, 2).double() / 6)).repeat(1, 2)
    q = normal(m, 2, 4, 6)
    turned = q * angle.cos() + m.cat((-q[..., 3:], q[..., :3]), -1) * angle.sin()
    return [[s for s, _ in beams], kept, best, m.stack(back), sides.prod(-1), (sides > 0).nonzero(), turned]


PROGRAMS: list[Callable[[Any], Any]] = [
    by_hand, policy_gradient, inner_loops, messages_on_a_graph, own_functions, watching_the_graph, decoding,
]  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_program(program: Callable[[Any], Any], compare_program: Callable[..., None]) -> None:
    """Every number and name that the program returns is the same."""
    compare_program(program)
