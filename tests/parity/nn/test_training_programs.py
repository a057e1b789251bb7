"""Small whole programs that train, as users write them, on both libraries from the same numbers."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest


def normal(m: Any, *shape: int, seed: int = 0) -> Any:
    return m.tensor(np.random.RandomState(seed).randn(*shape).tolist())


def filled(m: Any, net: Any, seed: int = 1) -> Any:
    random = np.random.RandomState(seed)
    with m.no_grad():
        for p in net.parameters():
            p.copy_(m.tensor((random.randn(*p.shape) * 0.3).tolist()))
    return net


def classifier(m: Any) -> list[Any]:
    """Parameter groups, smoothed and weighted labels, clipping, a schedule."""
    nn = m.nn
    net = filled(m, nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 16), nn.GELU()))
    head = filled(m, nn.Linear(16, 3), 2)
    opt = m.optim.AdamW([{"params": net.parameters(), "lr": 1e-2}, {"params": head.parameters()}], weight_decay=0.1)
    schedule = m.optim.lr_scheduler.StepLR(opt, 3, 0.5)
    x, y = normal(m, 20, 5), m.tensor([0, 1, 2, 1] * 5)
    net.eval()
    seen = []
    for epoch in range(7):
        opt.zero_grad(set_to_none=bool(epoch % 2))
        weight = m.tensor([1.0, 2.0, 0.5])
        loss = nn.functional.cross_entropy(head(net(x)), y, weight=weight, label_smoothing=0.1)
        loss.backward()
        seen += [loss, nn.utils.clip_grad_norm_(net.parameters(), 0.5)]
        opt.step()
        schedule.step()
    again = m.optim.AdamW([{"params": net.parameters()}, {"params": head.parameters()}])
    again.load_state_dict(copy.deepcopy(opt.state_dict()))
    return [seen, m.tensor([g["lr"] for g in again.param_groups]), repr(net), list(net.state_dict()), head.weight]


def residual_network(m: Any) -> list[Any]:
    """Batch norm in training and evaluation, strides, shortcuts, pooling, momentum."""
    nn = m.nn

    class Block(nn.Module):
        def __init__(self, a: int, b: int, stride: int = 1) -> None:
            super().__init__()
            self.conv = nn.Conv2d(a, b, 3, stride=stride, padding=1, bias=False)
            self.norm = nn.BatchNorm2d(b)
            self.skip = nn.Identity() if a == b and stride == 1 else nn.Conv2d(a, b, 1, stride=stride)

        def forward(self, x: Any) -> Any:
            return m.relu(self.norm(self.conv(x)) + self.skip(x))

    net = nn.Sequential(Block(1, 4), nn.MaxPool2d(2), Block(4, 8, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    net.append(nn.Linear(8, 10))
    filled(m, net)
    opt = m.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, nesterov=True, weight_decay=1e-3)
    x, y = normal(m, 6, 1, 12, 12), m.tensor([1, 2, 3, 4, 5, 6])
    losses = []
    for _ in range(3):
        losses.append(nn.CrossEntropyLoss()(net(x), y))
        opt.zero_grad()
        losses[-1].backward()
        opt.step()
    out = net.eval()(x)
    return [losses, out, out.argmax(1), net.state_dict(), repr(net), [n for n, _ in net.named_modules()]]


def language_model(m: Any) -> list[Any]:
    """Tied weights, attention by hand and fused, a padding token that does not count, generation."""
    nn, functional = m.nn, m.nn.functional

    class Model(nn.Module):
        def __init__(self, words: int = 11, width: int = 8, heads: int = 2, longest: int = 6) -> None:
            super().__init__()
            self.heads = heads
            self.words = nn.Embedding(words, width, padding_idx=0)
            self.places = nn.Parameter(m.zeros(longest, width))
            self.qkv, self.norm = nn.Linear(width, 3 * width), nn.LayerNorm(width)
            self.head = nn.Linear(width, words, bias=False)
            self.head.weight = self.words.weight
            self.register_buffer("mask", m.tril(m.ones(longest, longest)).bool(), persistent=False)

        def attend(self, x: Any, fused: bool) -> Any:
            b, t, d = x.shape
            q, k, v = (z.view(b, t, self.heads, -1).transpose(1, 2) for z in self.qkv(x).chunk(3, dim=-1))
            if fused:
                y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            else:
                scores = (q @ k.transpose(-2, -1)) / math.sqrt(k.size(-1))
                y = scores.masked_fill(~self.mask[:t, :t], float("-inf")).softmax(-1) @ v
            return y.transpose(1, 2).contiguous().view(b, t, d)

        def forward(self, tokens: Any, fused: bool = False) -> Any:
            x = self.words(tokens) + self.places[: tokens.shape[1]]
            return self.head(x + self.attend(self.norm(x), fused))

    net = filled(m, Model())
    tokens = m.tensor(np.random.RandomState(3).randint(0, 11, (4, 7)).tolist())
    opt = m.optim.Adam(net.parameters(), lr=1e-2, betas=(0.9, 0.95), amsgrad=True)
    losses = []
    for step in range(4):
        logits = net(tokens[:, :-1], fused=step % 2 == 0).reshape(-1, 11)
        losses.append(functional.cross_entropy(logits, tokens[:, 1:].reshape(-1), ignore_index=0))
        opt.zero_grad()
        losses[-1].backward()
        opt.step()
    made = tokens[:1, :2]
    with m.no_grad():
        for _ in range(4):
            made = m.cat([made, net(made)[:, -1:].argmax(-1)], 1)
    names = [n for n, _ in net.named_parameters()]
    return [losses, made, net.words.weight.grad, net.head.weight is net.words.weight, names, list(net.state_dict())]


def variational_autoencoder(m: Any) -> list[Any]:
    """The losses of one, with the noise given."""
    functional = m.nn.functional
    encode, decode = filled(m, m.nn.Linear(6, 4)), filled(m, m.nn.Linear(2, 6), 5)
    x, noise = m.sigmoid(normal(m, 8, 6)), normal(m, 8, 2, seed=4)
    opt = m.optim.Adam([*encode.parameters(), *decode.parameters()], 1e-2)
    seen = []
    for _ in range(3):
        mean, log_var = encode(x).chunk(2, 1)
        logits = decode(mean + noise * (0.5 * log_var).exp())
        near = functional.binary_cross_entropy_with_logits(logits, x, reduction="sum", pos_weight=m.tensor(2.0))
        far = -0.5 * m.sum(1 + log_var - mean.pow(2) - log_var.exp())
        other = functional.kl_div(logits.log_softmax(1), x.softmax(1), reduction="batchmean")
        opt.zero_grad()
        ((near + far) / len(x) + other).backward()
        opt.step()
        seen += [near, far, other]
    return seen


def adversaries(m: Any) -> list[Any]:
    """Two optimisers in turn, frozen parameters, a penalty on the gradient."""
    nn = m.nn
    make = filled(m, nn.Sequential(nn.Linear(2, 8), nn.LeakyReLU(0.2), nn.Linear(8, 2), nn.Tanh()))
    judge = filled(m, nn.Sequential(nn.Linear(2, 8), nn.LeakyReLU(0.2, inplace=True), nn.Linear(8, 1)), 9)
    make_opt = m.optim.Adam(make.parameters(), 1e-2, betas=(0.5, 0.9))
    judge_opt = m.optim.SGD(judge.parameters(), 1e-2, momentum=0.5, dampening=0.1)
    seen = []
    for i in range(3):
        real, z, share = normal(m, 5, 2, seed=i), normal(m, 5, 2, seed=i + 50), normal(m, 5, 1, seed=i + 9).sigmoid()
        judge.requires_grad_(True)
        between = (share * real + (1 - share) * make(z).detach()).requires_grad_(True)
        (slope,) = m.autograd.grad(judge(between).sum(), between, create_graph=True)
        penalty = ((slope.norm(2, dim=1) - 1) ** 2).mean()
        judge_opt.zero_grad()
        (judge(make(z).detach()).mean() - judge(real).mean() + 10 * penalty).backward()
        judge_opt.step()
        judge.requires_grad_(False)
        loss = -judge(make(z)).mean()
        make_opt.zero_grad()
        loss.backward()
        make_opt.step()
        seen += [penalty, loss]
    return [seen, [p.grad for p in judge.parameters()], make[0].weight]


def own_optimizer(m: Any) -> list[Any]:
    """A subclass of Optimizer that overrides step, schedules and state dicts with it, low-rank layers put in place."""

    class Lion(m.optim.Optimizer):  # type: ignore[misc, name-defined]
        def __init__(self, params: Any, lr: float = 1e-2) -> None:
            super().__init__(params, {"lr": lr})

        @m.no_grad()
        def step(self, closure: Any = None) -> None:
            for group in self.param_groups:
                for p in group["params"]:
                    state = self.state[p]
                    if not state:
                        state["m"] = m.zeros_like(p)
                    p.add_((state["m"] * 0.9 + p.grad * 0.1).sign_(), alpha=-group["lr"])
                    state["m"].lerp_(p.grad, 0.01)

    class LowRank(m.nn.Module):
        def __init__(self, base: Any) -> None:
            super().__init__()
            self.base = base.requires_grad_(False)
            self.down = m.nn.Parameter(m.ones(2, base.in_features) * 0.1)
            self.up = m.nn.Parameter(m.zeros(base.out_features, 2))

        def forward(self, x: Any) -> Any:
            return self.base(x) + x @ self.down.T @ self.up.T

    net = filled(m, m.nn.Sequential(m.nn.Linear(3, 4), m.nn.ReLU(), m.nn.Linear(4, 2)))
    for name, layer in list(net.named_children()):
        if isinstance(layer, m.nn.Linear):
            setattr(net, name, LowRank(layer))
    opt = Lion(p for p in net.parameters() if p.requires_grad)
    schedule = m.optim.lr_scheduler.LambdaLR(opt, lambda epoch: 0.5**epoch)
    for _ in range(3):
        opt.zero_grad()
        net(normal(m, 5, 3)).pow(2).sum().backward()
        opt.step()
        schedule.step()
    again = Lion(p for p in net.parameters() if p.requires_grad)
    again.load_state_dict(copy.deepcopy(opt.state_dict()))
    trained = [n for n, p in net.named_parameters() if p.requires_grad]
    return [net(normal(m, 5, 3)), trained, repr(net), repr(opt), again.state_dict()]


def module_anatomy(m: Any) -> list[Any]:
    """Names, orders, reprs and answers of modules that hold every kind of thing."""
    nn = m.nn

    class Part(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(m.ones(2, 3))
            self.register_buffer("b", m.zeros(3))
            self.register_buffer("nothing", None)
            self.register_parameter("none", None)

        def extra_repr(self) -> str:
            return "w=2x3"

    net = nn.Module()
    net.parts = nn.ModuleList([Part(), nn.Linear(3, 3)])
    net.named = nn.ModuleDict({"a": nn.Conv2d(1, 2, 3, padding="same"), "b": nn.Flatten()})
    net.loose = nn.ParameterList([m.ones(1), m.zeros(2)])
    visited: list[str] = []
    net.apply(lambda module: visited.append(type(module).__name__))
    state = net.state_dict()
    some = {k: v for k, v in state.items() if k != "parts.0.w"} | {"stranger": m.ones(1)}
    answer = net.load_state_dict(some, strict=False)
    net.eval().parts[0].train()
    twin = copy.deepcopy(net).double()
    names = [[n for n, _ in f()] for f in (net.named_parameters, net.named_buffers, net.named_modules)]
    modes = [module.training for module in net.modules()]
    return [repr(net.parts), repr(net.named), names, visited, list(state), repr(answer), modes, twin.parts[0].w]


PROGRAMS: list[Callable[[Any], Any]] = [
    classifier, residual_network, language_model, variational_autoencoder, adversaries, own_optimizer, module_anatomy,
]  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_program(program: Callable[[Any], Any], compare_program: Callable[..., None]) -> None:
    """Every number, name and repr that the program returns is the same."""
    compare_program(program)
