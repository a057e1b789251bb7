"""A GPT over a mesh of processes: its matrices are cut along one dim, its batches along the other.

    tesserack launch --standalone --nproc-per-node 4 --no-torch examples/gpt_mesh.py --tensor 2
    python examples/gpt_mesh.py --alone    # one process with the whole model and whole batches: the same losses

Prints the loss of some steps, how many parameters each rank holds, and a sentence that the model has learned.
"""

from __future__ import annotations

import argparse

import tesserack as ts
from tesserack import distributed as dist
from tesserack import nn
from tesserack.distributed.tensor import DTensor, Replicate, Shard, init_device_mesh
from tesserack.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)
from tesserack.nn import functional as F

TEXT = "the ranks of a mesh hold the parts of a model, and the model is whole where the ranks agree. " * 8
WIDTH, HEADS, LAYERS, LENGTH, BATCH = 32, 4, 2, 32, 16


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))

    def forward(self, x: ts.Tensor) -> ts.Tensor:
        batch, length, _ = x.shape
        # A rank has its heads alone: how many follows from the width.
        q, k, v = (f(x).view(batch, length, -1, WIDTH // HEADS).transpose(1, 2) for f in (self.q, self.k, self.v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(batch, length, -1))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = Attention()
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: ts.Tensor) -> ts.Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    def __init__(self, letters: int) -> None:
        super().__init__()
        self.letters = nn.Embedding(letters, WIDTH)
        self.places = nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, letters)

    def forward(self, tokens: ts.Tensor) -> ts.Tensor:
        x = self.letters(tokens) + self.places(ts.arange(tokens.shape[1]).expand_as(tokens))
        return self.head(self.norm(self.blocks(x)))


# Between the products of matrices, activations are cut along the sequence; they are whole where matrices are cut.
PLAN = {
    "letters": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
    "places": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
    "blocks.*.norm[12]": SequenceParallel(),
    "blocks.*.attention": PrepareModuleInput(input_layouts=Shard(1), desired_input_layouts=Replicate()),
    "blocks.*.attention.[qkv]": ColwiseParallel(),
    "blocks.*.attention.out": RowwiseParallel(output_layouts=Shard(1)),
    "blocks.*.mlp": PrepareModuleInput(input_layouts=Shard(1), desired_input_layouts=Replicate()),
    "blocks.*.mlp.0": ColwiseParallel(),
    "blocks.*.mlp.2": RowwiseParallel(output_layouts=Shard(1)),
    "norm": SequenceParallel(),
    "head": ColwiseParallel(input_layouts=Shard(1), use_local_output=False),
}


def spoken(model: nn.Module, letters: str, start: str) -> str:
    """What the model goes on with; on every rank, which all take part."""
    text = start
    with ts.no_grad():
        while len(text) < LENGTH:
            tokens = ts.tensor([[letters.index(c) for c in text.ljust(LENGTH)]])
            scores = model(tokens)
            whole = scores.full_tensor() if isinstance(scores, DTensor) else scores
            text += letters[int(whole[0, len(text) - 1].argmax())]
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description="Train a GPT in tensor and data parallel.")
    parser.add_argument("--tensor", type=int, default=2, help="ranks that share a model's matrices (default: 2)")
    parser.add_argument("--steps", type=int, default=60, help="batches to train on (default: 60)")
    parser.add_argument("--alone", action="store_true", help="one process, without a launcher")
    args = parser.parse_args()
    if args.alone:
        dist.init_process_group(store=dist.HashStore(), rank=0, world_size=1)
    else:
        dist.init_process_group()
    ranks = dist.get_world_size()
    shared = 1 if args.alone else args.tensor
    mesh = init_device_mesh("cpu", (ranks // shared, shared), mesh_dim_names=("data", "tensor"))

    letters = "".join(sorted(set(TEXT)))
    text = ts.tensor([letters.index(c) for c in TEXT])
    ts.manual_seed(0)
    model = parallelize_module(GPT(len(letters)), mesh["tensor"], PLAN)
    held = sum((p.to_local() if isinstance(p, DTensor) else p).numel() for p in model.parameters())
    total = sum(p.numel() for p in model.parameters())
    parallel = nn.parallel.DistributedDataParallel(model, device_mesh=mesh["data"])
    optimizer = ts.optim.AdamW(parallel.parameters(), lr=3e-3)
    generator = ts.Generator().manual_seed(0)
    for step in range(args.steps):
        at = ts.randint(0, len(text) - LENGTH, (BATCH,), generator=generator)
        batch = ts.stack([text[k : k + LENGTH + 1] for k in at.tolist()])
        mine = batch.chunk(mesh["data"].size())[mesh.get_local_rank("data")]
        optimizer.zero_grad()
        with loss_parallel():
            scores = parallel(mine[:, :-1])
            loss = F.cross_entropy(scores.flatten(0, 1), mine[:, 1:].reshape(-1))
            loss.backward()
        optimizer.step()
        mean = loss.full_tensor().detach()
        dist.all_reduce(mean, dist.ReduceOp.AVG, mesh.get_group("data"))
        if dist.get_rank() == 0 and (step % 20 == 0 or step == args.steps - 1):
            print(f"step {step}  loss {mean.item():.4f}", flush=True)
    said = spoken(model, letters, "the ranks ")
    if dist.get_rank() == 0:
        print(f"{held} of {total} parameters on each of {ranks} ranks; it says: {said!r}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
