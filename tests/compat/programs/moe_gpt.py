"""A compiled decoder whose layers send each word to two of four experts; its checkpoint names the original module."""

import io
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from common import noise, randn, same_weights, tell
from torch import nn


@dataclass
class Config:
    vocab_size: int = 20
    n_embd: int = 16
    n_head: int = 2
    n_layer: int = 2
    n_experts: int = 4
    top_k: int = 2
    block_size: int = 12


class Experts(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.w1 = nn.Parameter(torch.empty(c.n_experts, c.n_embd, 2 * c.n_embd))
        self.w2 = nn.Parameter(torch.empty(c.n_experts, 2 * c.n_embd, c.n_embd))

    def forward(self, x):
        return torch.bmm(F.gelu(torch.bmm(x, self.w1), approximate="tanh"), self.w2)


class SparseMoE(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c, self.route, self.noise = c, nn.Linear(c.n_embd, c.n_experts), nn.Linear(c.n_embd, c.n_experts)
        self.experts, self.aux = Experts(c), None
        self.register_buffer("counts", torch.zeros(c.n_experts, dtype=torch.int64), persistent=False)

    def forward(self, x):
        k, n, capacity = self.c.top_k, self.c.n_experts, x.shape[0] * x.shape[1] * self.c.top_k // self.c.n_experts
        flat, logits = x.reshape(-1, x.shape[-1]), self.route(x).flatten(0, 1)
        noisy = logits + randn(*logits.shape).to(x.device) * F.softplus(self.noise(flat))
        top, index = noisy.topk(k, dim=-1)
        gate = F.softmax(torch.full_like(noisy, float("-inf")).scatter(-1, index, top), dim=-1)
        mask = F.one_hot(index, n)
        position = mask.permute(1, 0, 2).reshape(-1, n).cumsum(0).view(k, -1, n).permute(1, 0, 2) * mask
        token, choice, expert = ((position > 0) & (position <= capacity)).nonzero(as_tuple=True)
        slot = position[token, choice, expert] - 1
        given = flat.new_zeros(n, capacity, flat.shape[-1]).index_put((expert, slot), flat[token], accumulate=True)
        result = torch.zeros_like(flat)
        result.index_add_(0, token, self.experts(given)[expert, slot] * gate[token, expert].unsqueeze(-1))
        self.counts += torch.bincount(index.flatten(), minlength=n)
        balance = n * torch.dot(F.softmax(logits, -1).mean(0), mask.float().sum(1).mean(0))
        self.aux = balance + 1e-3 * torch.logsumexp(logits, dim=-1).square().mean()
        return result.view_as(x)


class Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.heads, self.qkv = c.n_head, nn.Linear(c.n_embd, 3 * c.n_embd, bias=False)
        self.out, self.moe = nn.Linear(c.n_embd, c.n_embd, bias=False), SparseMoE(c)
        self.norm1, self.norm2 = nn.RMSNorm(c.n_embd), nn.RMSNorm(c.n_embd, eps=1e-6)

    def forward(self, x):
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.qkv(self.norm1(x)).chunk(3, -1))
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        x = x + self.out(attended)
        return x + self.moe(self.norm2(x))


class LM(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.emb, self.pos = nn.Embedding(c.vocab_size, c.n_embd), nn.Embedding(c.block_size, c.n_embd)
        self.blocks = nn.ModuleList([Block(c) for _ in range(c.n_layer)])
        self.head = nn.Linear(c.n_embd, c.vocab_size, bias=False)
        self.emb.weight = self.head.weight

    def forward(self, ids, targets):
        x = self.emb(ids) + self.pos(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        loss = F.cross_entropy(self.head(x).flatten(0, 1), targets.flatten())
        return loss + 1e-2 * sum(block.moe.aux for block in self.blocks)


device = "cuda" if torch.cuda.is_available() else "cpu"
raw_model = LM(Config())
same_weights(raw_model)
raw_model.to(device)
model = torch.compile(raw_model, backend="eager")
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.95))
text = torch.from_numpy(((noise.randint(0, 4, 200)).cumsum() % 20).astype("int64"))
for step in range(6):
    starts = noise.randint(0, 200 - 13, 4)
    batch = torch.stack([text[i : i + 13] for i in starts]).to(device)
    loss = model(batch[:, :-1], batch[:, 1:])
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    tell(loss)
file = io.BytesIO()
torch.save({"model": model.state_dict(), "counts": model.blocks[0].moe.counts}, file)
file.seek(0)
checkpoint = torch.load(file, map_location=device)
tell(sum(key.startswith("_orig_mod.") for key in checkpoint["model"]))
model.load_state_dict(checkpoint["model"])
state = {key.removeprefix("_orig_mod."): value for key, value in checkpoint["model"].items()}
tell(len(model._orig_mod.load_state_dict(state).missing_keys) + checkpoint["counts"].sum())
