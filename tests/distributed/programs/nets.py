"""A model for ranks to train together, and how they do."""

import contextlib

import tesserack as ts
from tesserack import distributed as dist
from tesserack import nn
from tesserack.distributed.fsdp import FSDPModule
from tesserack.distributed.fsdp import FullyShardedDataParallel as FSDP
from tesserack.nn import functional as F

BATCH, STEPS, WIDTH = 24, 50, 12


class Block(nn.Module):
    """Layers whose result is added to what they were given."""

    def __init__(self, hidden: int = 17) -> None:
        super().__init__()
        self.norm, self.one, self.two = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, hidden), nn.Linear(hidden, WIDTH)

    def forward(self, x: ts.Tensor, scale: ts.Tensor | None = None) -> ts.Tensor:
        y = self.two(self.one(self.norm(x)).relu())
        return x + (y if scale is None else y * scale)


class Net(nn.Module):
    """Embeddings whose weight the last layer shares, blocks, and a buffer."""

    def __init__(self, hidden: int = 17) -> None:
        super().__init__()
        ts.manual_seed(0)
        self.embed = nn.Embedding(7, WIDTH)
        self.blocks = nn.ModuleList(Block(hidden) for _ in range(3))
        self.head = nn.Linear(WIDTH, 7)
        self.head.weight = self.embed.weight
        self.register_buffer("scale", ts.ones(1))

    def forward(self, x: ts.Tensor) -> ts.Tensor:
        y = self.embed(x)
        for k, block in enumerate(self.blocks):
            y = block(y, scale=self.scale) if k else block(y)
        return self.head(y).mean(1)


def trained(model: nn.Module, x: ts.Tensor, y: ts.Tensor, weight: float = 1.0, **options: object) -> ts.optim.Optimizer:
    """Train for some steps; ``parts`` adds the gradients of so many, ``clip`` limits them."""
    parts, clip, steps = int(options.get("parts", 1)), options.get("clip"), int(options.get("steps", STEPS))
    optimizer = options.get("optimizer") or ts.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.01)
    for _ in range(steps):
        optimizer.zero_grad()
        for k in range(parts):
            last = k == parts - 1
            if isinstance(model, FSDPModule):
                model.set_requires_gradient_sync(last)
            with contextlib.nullcontext() if last or not isinstance(model, FSDP) else model.no_sync():
                loss = F.cross_entropy(model(x[k::parts]).float(), y[k::parts], reduction="sum") * weight / BATCH
                loss.backward()
        if clip is not None:
            norm = (
                model.clip_grad_norm_(clip)
                if isinstance(model, FSDP)
                else nn.utils.clip_grad_norm_(model.parameters(), clip)
            )
            assert getattr(norm, "full_tensor", lambda norm=norm: norm)().item() > clip
        optimizer.step()
    return optimizer


def data() -> tuple[ts.Tensor, ts.Tensor]:
    generator = ts.Generator().manual_seed(1)
    return ts.randint(0, 7, (BATCH, 5), generator=generator), ts.randint(0, 7, (BATCH,), generator=generator)


def alike(tensor: ts.Tensor, n: int) -> bool:
    found: list = [None] * n
    dist.all_gather_object(found, tensor.tolist())
    return all(each == found[0] for each in found)
