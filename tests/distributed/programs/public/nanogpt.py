"""A GPT in the manner of nanoGPT's train.py: accumulation by a flag of the wrapper, warm-up, decay groups, clipping."""

import copy
import math
import os
from contextlib import nullcontext

import torch
from common import close, done, init
from torch import nn
from torch.distributed import all_reduce
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.ln_1, self.ln_2, self.heads = nn.LayerNorm(width), nn.LayerNorm(width), heads
        self.c_attn, self.c_proj = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.mlp = nn.ModuleDict({"c_fc": nn.Linear(width, 4 * width), "c_proj": nn.Linear(4 * width, width)})

    def forward(self, x):
        b, t, c = x.size()
        q, k, v = self.c_attn(self.ln_1(x)).split(c, dim=2)
        q, k, v = (part.view(b, t, self.heads, c // self.heads).transpose(1, 2) for part in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.c_proj(y.transpose(1, 2).contiguous().view(b, t, c))
        return x + self.mlp.c_proj(F.gelu(self.mlp.c_fc(self.ln_2(x))))


class GPT(nn.Module):
    def __init__(self, vocabulary: int = 23, width: int = 16, length: int = 12) -> None:
        super().__init__()
        self.transformer = nn.ModuleDict(
            {
                "wte": nn.Embedding(vocabulary, width),
                "wpe": nn.Embedding(length, width),
                "h": nn.ModuleList([Block(width, 4) for _ in range(2)]),
                "ln_f": nn.LayerNorm(width),
            }
        )
        self.lm_head = nn.Linear(width, vocabulary, bias=False)
        self.transformer.wte.weight = self.lm_head.weight
        self.apply(self._init_weights)
        for name, parameter in self.named_parameters():
            if name.endswith("c_proj.weight"):
                torch.nn.init.normal_(parameter, mean=0.0, std=0.02 / math.sqrt(4))

    def _init_weights(self, module):
        if isinstance(module, nn.Linear):
            torch.nn.init.normal_(module.weight, mean=0.0, std=0.02)
            if module.bias is not None:
                torch.nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding):
            torch.nn.init.normal_(module.weight, mean=0.0, std=0.02)

    def forward(self, idx, targets):
        pos = torch.arange(0, idx.size(1), dtype=torch.long)
        x = self.transformer.wte(idx) + self.transformer.wpe(pos)
        for block in self.transformer.h:
            x = block(x)
        logits = self.lm_head(self.transformer.ln_f(x))
        return logits, F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1)

    def configure_optimizers(self, decay, rate):
        named = {name: p for name, p in self.named_parameters() if p.requires_grad}
        groups = [
            {"params": [p for p in named.values() if p.dim() >= 2], "weight_decay": decay},
            {"params": [p for p in named.values() if p.dim() < 2], "weight_decay": 0.0},
        ]
        return torch.optim.AdamW(groups, lr=rate, betas=(0.9, 0.95))


def get_lr(step: int) -> float:
    if step < 5:
        return 1e-2 * (step + 1) / 6
    return 1e-3 + 0.5 * (1.0 + math.cos(math.pi * (step - 5) / 15)) * 9e-3


def batches(step: int, micro: int, ranks: int):
    source = torch.Generator().manual_seed(1000 * step + micro)
    text = torch.randint(0, 23, (4 * ranks, 13), generator=source)
    return text[:, :-1].contiguous(), text[:, 1:].contiguous()


rank, ranks = init()
ddp, micro_steps = int(os.environ.get("RANK", -1)) != -1, 3
torch.manual_seed(1337)
model = GPT()
alone = copy.deepcopy(model)
optimizer, other = model.configure_optimizers(0.1, 1e-2), alone.configure_optimizers(0.1, 1e-2)
model = DDP(model) if ddp else model
raw_model = model.module if ddp else model
for step in range(20):
    for group in optimizer.param_groups + other.param_groups:
        group["lr"] = get_lr(step)
    total = torch.zeros(())
    for micro in range(micro_steps):
        x, y = batches(step, micro, ranks)
        model.require_backward_grad_sync = micro == micro_steps - 1
        with nullcontext():
            _, loss = model(x[rank::ranks], y[rank::ranks].contiguous())
            loss = loss / micro_steps
        total += loss.detach()
        loss.backward()
        _, whole = alone(x, y)
        (whole / micro_steps).backward()
    close(
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5), torch.nn.utils.clip_grad_norm_(alone.parameters(), 0.5)
    )
    optimizer.step()
    other.step()
    optimizer.zero_grad(set_to_none=True)
    other.zero_grad(set_to_none=True)
    all_reduce(total)
for (name, mine), theirs in zip(raw_model.named_parameters(), alone.parameters(), strict=True):
    close(mine, theirs, 2e-4, name)
done("nanogpt")
