"""A transformer in tensor parallel, Megatron's way, with and without sequence parallelism, follows one process.

Written for PyTorch, and run as it is.
"""

import sys

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)

VOCAB, WIDTH, HEADS, LENGTH, BATCH, STEPS = 32, 16, 4, 8, 4, 50


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.wq, self.wk, self.wv = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(3))
        self.wo = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        b, t, _ = x.shape
        # -1: a rank has its part of the heads
        q, k, v = (w(x).view(b, t, -1, WIDTH // HEADS).transpose(1, 2) for w in (self.wq, self.wk, self.wv))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.wo(y.transpose(1, 2).reshape(b, t, -1))


class FeedForward(nn.Module):
    def __init__(self):
        super().__init__()
        self.w1, self.w2, self.w3 = nn.Linear(WIDTH, 40), nn.Linear(40, WIDTH), nn.Linear(WIDTH, 40)

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention, self.feed_forward = Attention(), FeedForward()
        self.attention_norm, self.ffn_norm = nn.LayerNorm(WIDTH), nn.RMSNorm(WIDTH)

    def forward(self, x):
        x = x + self.attention(self.attention_norm(x))
        return x + self.feed_forward(self.ffn_norm(x))


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok_embeddings = nn.Embedding(VOCAB, WIDTH)
        self.layers = nn.ModuleList(Block() for _ in range(2))
        self.norm = nn.RMSNorm(WIDTH)
        self.output = nn.Linear(WIDTH, VOCAB, bias=False)

    def forward(self, tokens):
        x = self.tok_embeddings(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.output(self.norm(x))


def plain_plan():
    return {
        "tok_embeddings": RowwiseParallel(input_layouts=Replicate()),
        "layers.*.attention.w[qkv]": ColwiseParallel(),
        "layers.*.attention.wo": RowwiseParallel(),
        "layers.*.feed_forward.w[13]": ColwiseParallel(),
        "layers.*.feed_forward.w2": RowwiseParallel(),
        "output": ColwiseParallel(use_local_output=False),
    }


def sequence_plan():
    inside = PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),))
    return {
        "tok_embeddings": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
        "layers.*.attention_norm": SequenceParallel(),
        "layers.*.attention": inside,
        "layers.*.attention.w[qkv]": ColwiseParallel(),
        "layers.*.attention.wo": RowwiseParallel(output_layouts=Shard(1)),
        "layers.*.ffn_norm": SequenceParallel(),
        "layers.*.feed_forward": inside,
        "layers.*.feed_forward.w[13]": ColwiseParallel(),
        "layers.*.feed_forward.w2": RowwiseParallel(output_layouts=Shard(1)),
        "norm": SequenceParallel(),
        "output": ColwiseParallel(input_layouts=Shard(1), use_local_output=False),
    }


def losses_of(model, parallel, optimizer):
    generator = torch.Generator().manual_seed(3)
    found = []
    for _ in range(STEPS):
        tokens = torch.randint(0, VOCAB, (BATCH, LENGTH + 1), generator=generator)
        optimizer.zero_grad()
        if parallel:
            with loss_parallel():
                loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
                loss.backward()
        else:
            loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
            loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


def whole(tensor):
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def main():
    dist.init_process_group("gloo")
    n = dist.get_world_size()
    mesh = init_device_mesh("cpu", (n,), mesh_dim_names=("tp",))
    torch.manual_seed(0)
    alone = Transformer()
    start = {name: value.clone() for name, value in alone.state_dict().items()}
    optimizer = torch.optim.AdamW(alone.parameters(), lr=1e-2)
    expected = losses_of(alone, False, optimizer)
    assert expected[-1] < expected[0]
    for plan in [
        {"plain": plain_plan, "sequence": sequence_plan}[name] for name in sys.argv[1:] or ("plain", "sequence")
    ]:
        model = Transformer()
        model.load_state_dict(start)
        model = parallelize_module(model, mesh["tp"], plan())
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        found = losses_of(model, True, optimizer)
        assert max(abs(a - b) for a, b in zip(found, expected, strict=True)) < 1e-5, (plan, found, expected)
        for (name, p), q in zip(model.named_parameters(), alone.parameters(), strict=True):
            assert (whole(p) - q).abs().max().item() < 1e-4, (plan, name)
        placed = {name: p for name, p in model.named_parameters() if isinstance(p, DTensor)}
        cut = {name: p for name, p in placed.items() if p.placements != (Replicate(),)}
        assert len(cut) == 20 and "tok_embeddings.weight" in cut
        # Each rank holds its part of what is cut, and of what the optimizer keeps.
        for p in cut.values():
            for t in (p, optimizer.state[p]["exp_avg"]):
                assert t.to_local().numel() * n == p.numel(), (t.placements, p.placements)
        if dist.get_rank() == 0:
            print(f"{plan.__name__}: loss {found[0]:.6f} to {found[-1]:.6f}")
    dist.destroy_process_group()


main()
