"""A small llama cut over ranks: rotary attention by heads, gated feed-forward, norms on parts of the sequence."""

import copy

import torch
from common import close, done, init
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.nn import functional as F

WIDTH, HEADS, WORDS, LENGTH = 32, 4, 24, 8


class RMSNorm(nn.Module):
    def __init__(self, dim: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps, self.weight = eps, nn.Parameter(torch.ones(dim))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


def rotated(x, angles):
    a, b = x.float().reshape(*x.shape[:-1], -1, 2).unbind(-1)
    cos, sin = angles.cos()[None, :, None], angles.sin()[None, :, None]
    return torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(3).type_as(x)


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.n_heads = HEADS
        self.wq, self.wk, self.wv, self.wo = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))

    def forward(self, x, angles):
        batch, length, _ = x.shape
        q, k, v = (w(x).view(batch, length, -1, WIDTH // HEADS) for w in (self.wq, self.wk, self.wv))
        q, k, v = (t.transpose(1, 2) for t in (rotated(q, angles), rotated(k, angles), v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.wo(y.transpose(1, 2).contiguous().view(batch, length, -1))


class FeedForward(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w1, self.w3 = nn.Linear(WIDTH, 48, bias=False), nn.Linear(WIDTH, 48, bias=False)
        self.w2 = nn.Linear(48, WIDTH, bias=False)

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention, self.feed_forward = Attention(), FeedForward()
        self.attention_norm, self.ffn_norm = RMSNorm(WIDTH), RMSNorm(WIDTH)

    def forward(self, x, angles):
        h = x + self.attention(self.attention_norm(x), angles)
        return h + self.feed_forward(self.ffn_norm(h))


class Llama(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tok_embeddings, self.norm = nn.Embedding(WORDS, WIDTH), RMSNorm(WIDTH)
        self.layers = nn.ModuleList([Layer() for _ in range(2)])
        self.output = nn.Linear(WIDTH, WORDS, bias=False)
        at = torch.outer(torch.arange(LENGTH).float(), 1.0 / 100 ** (torch.arange(0, 8, 2).float() / 8))
        self.register_buffer("angles", at, persistent=False)

    def forward(self, words):
        h = self.tok_embeddings(words)
        for layer in self.layers:
            h = layer(h, self.angles)
        return self.output(self.norm(h))


rank, ranks = init()
mesh = init_device_mesh("cpu", (ranks,), mesh_dim_names=("tp",))
torch.manual_seed(0)
model = Llama()
alone = copy.deepcopy(model)
parallelize_module(
    model,
    mesh,
    {
        "tok_embeddings": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
        "norm": SequenceParallel(),
        "output": ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate()),
    },
)
for layer in model.layers:
    layer.attention.n_heads //= ranks
    parallelize_module(
        layer,
        mesh,
        {
            "attention_norm": SequenceParallel(),
            "attention": PrepareModuleInput(input_layouts=(Shard(1), None), desired_input_layouts=(Replicate(), None)),
            "attention.wq": ColwiseParallel(),
            "attention.wk": ColwiseParallel(),
            "attention.wv": ColwiseParallel(),
            "attention.wo": RowwiseParallel(output_layouts=Shard(1)),
            "ffn_norm": SequenceParallel(),
            "feed_forward": PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)),
            "feed_forward.w1": ColwiseParallel(),
            "feed_forward.w2": RowwiseParallel(output_layouts=Shard(1)),
            "feed_forward.w3": ColwiseParallel(),
        },
    )
mine, other = torch.optim.AdamW(model.parameters(), 3e-3), torch.optim.AdamW(alone.parameters(), 3e-3)
for step in range(12):
    words = torch.randint(0, WORDS, (3, LENGTH), generator=torch.Generator().manual_seed(step))
    losses = []
    for net, optimizer in ((model, mine), (alone, other)):
        optimizer.zero_grad()
        losses.append(F.cross_entropy(net(words).flatten(0, 1), words.roll(-1, 1).flatten()))
        losses[-1].backward()
        optimizer.step()
    close(losses[0], losses[1], 1e-4, step)
for (name, cut), whole in zip(model.named_parameters(), alone.parameters(), strict=True):
    close(cut.full_tensor() if isinstance(cut, DTensor) else cut, whole, 1e-3, name)
done("llama_tp")
