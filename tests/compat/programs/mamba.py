"""Selective SSM (Mamba-like) with a scan, depthwise causal conv, RMSNorm, tied head."""

import math
from dataclasses import dataclass
from typing import Optional

import torch
import torch.nn.functional as F
from common import noise, randn, same_weights, tell
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
torch.set_default_device(device)


def normal(*shape):
    return randn(*shape).to(device)


@dataclass
class Cfg:
    d: int = 16
    n: int = 4
    expand: int = 2
    conv: int = 4
    layers: int = 2
    vocab: int = 20
    dt_rank: Optional[int] = None

    def __post_init__(self):
        self.inner = self.d * self.expand
        if self.dt_rank is None:
            self.dt_rank = math.ceil(self.d / 16)


class Block(nn.Module):
    def __init__(self, c: Cfg):
        super().__init__()
        self.c = c
        self.norm = nn.RMSNorm(c.d, eps=1e-5)
        self.in_proj = nn.Linear(c.d, 2 * c.inner, bias=False)
        self.conv1d = nn.Conv1d(c.inner, c.inner, c.conv, groups=c.inner, padding=c.conv - 1)
        self.x_proj = nn.Linear(c.inner, c.dt_rank + 2 * c.n, bias=False)
        self.dt_proj = nn.Linear(c.dt_rank, c.inner)
        self.A_log = nn.Parameter(torch.log(torch.arange(1, c.n + 1, dtype=torch.float32)).repeat(c.inner, 1))
        self.D = nn.Parameter(torch.ones(c.inner))
        self.out = nn.Linear(c.inner, c.d, bias=False)
        self.A_log._no_weight_decay = True

    def ssm(self, u: Tensor) -> Tensor:
        A = -torch.exp(self.A_log.float())
        dt, B, C = self.x_proj(u).split([self.c.dt_rank, self.c.n, self.c.n], dim=-1)
        dt = F.softplus(self.dt_proj(dt))
        dA = torch.exp(torch.einsum("bld,dn->bldn", dt, A))
        dBu = torch.einsum("bld,bln,bld->bldn", dt, B, u)
        h = u.new_zeros(u.size(0), self.c.inner, self.c.n)
        ys = []
        for i in range(u.size(1)):
            h = torch.addcmul(dBu[:, i], dA[:, i], h)
            ys.append(torch.einsum("bdn,bn->bd", h, C[:, i]))
        return torch.stack(ys, dim=1) + u * self.D

    def forward(self, x):
        z, g = self.in_proj(self.norm(x)).chunk(2, dim=-1)
        z = self.conv1d(z.transpose(1, 2))[..., : x.size(1)].transpose(1, 2)
        return x + self.out(self.ssm(F.silu(z)) * F.silu(g))


class LM(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.emb = nn.Embedding(c.vocab, c.d)
        self.blocks = nn.ModuleList(Block(c) for _ in range(c.layers))
        self.norm = nn.RMSNorm(c.d)
        self.head = nn.Linear(c.d, c.vocab, bias=False)
        self.head.weight = self.emb.weight

    def forward(self, ids, ckpt=False):
        x = self.emb(ids)
        for b in self.blocks:
            x = checkpoint(b, x, use_reentrant=False) if ckpt else b(x)
        return self.head(self.norm(x))


c = Cfg()
m = LM(c)
keep = {n: p.clone() for n, p in m.named_parameters() if "A_log" in n}
same_weights(m)
with torch.no_grad():
    for n, p in m.named_parameters():
        if n in keep:
            p.copy_(keep[n])
decay = [p for n, p in m.named_parameters() if p.dim() >= 2 and not getattr(p, "_no_weight_decay", False)]
rest = [p for p in m.parameters() if not any(p is q for q in decay)]
opt = torch.optim.AdamW(
    [{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}],
    lr=5e-3,
    betas=(0.9, 0.95),
    fused=False,
)
sched = torch.optim.lr_scheduler.SequentialLR(
    opt,
    [torch.optim.lr_scheduler.LinearLR(opt, 0.1, total_iters=3), torch.optim.lr_scheduler.CosineAnnealingLR(opt, 9)],
    milestones=[3],
)
ids = torch.from_numpy(noise.randint(0, 20, (4, 17))).to(device)
for i in range(8):
    logits = m(ids[:, :-1], ckpt=i % 2 == 1)
    loss = F.cross_entropy(logits.reshape(-1, 20), ids[:, 1:].reshape(-1), label_smoothing=0.05)
    opt.zero_grad()
    loss.backward()
    opt.step()
    sched.step()
    tell(loss)
m.eval()
with torch.no_grad():
    out = ids[:1, :4]
    for _ in range(6):
        p = m(out)[:, -1].div(0.8).softmax(-1)
        top = torch.topk(p, 5)
        out = torch.cat([out, top.indices[:, :1]], 1)
print(out.tolist(), sum(p.numel() for p in m.parameters()), [f"{x:.6f}" for x in sched.get_last_lr()])
tell(top.values.sum())
