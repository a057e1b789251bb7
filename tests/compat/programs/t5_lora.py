"""T5-like encoder-decoder with relative bias, KV cache, beam search, LoRA, speculative decoding."""

import math

import torch
import torch.nn.functional as F
import torch.nn.utils.parametrize as parametrize
from common import noise, randn, same_weights, tell
from torch import nn

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
torch.set_default_device(device)


def normal(*shape):
    return randn(*shape).to(device)


class RelBias(nn.Module):
    def __init__(self, heads, buckets=8, maxd=16, bidirectional=True):
        super().__init__()
        self.emb = nn.Embedding(buckets, heads)
        self.b, self.m, self.bi = buckets, maxd, bidirectional

    def forward(self, q, k, offset=0):
        rel = torch.arange(k)[None, :] - (torch.arange(q)[:, None] + offset)
        n, ret = self.b, 0
        if self.bi:
            n //= 2
            ret = (rel > 0).long() * n
            rel = rel.abs()
        else:
            rel = -torch.minimum(rel, torch.zeros_like(rel))
        exact = n // 2
        large = (
            exact + (torch.log(rel.float() / exact + 1e-6) / math.log(self.m / exact) * (n - exact)).to(torch.long)
        ).clamp(max=n - 1)
        return self.emb(ret + torch.where(rel < exact, rel, large)).permute(2, 0, 1).unsqueeze(0)


class Attn(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.h = h
        self.q, self.k, self.v, self.o = (nn.Linear(d, d, bias=False) for _ in range(4))

    def forward(self, x, mem=None, bias=None, cache=None):
        def sh(t):
            return t.unflatten(-1, (self.h, -1)).transpose(1, 2)

        q, src = sh(self.q(x)), x if mem is None else mem
        k, v = sh(self.k(src)), sh(self.v(src))
        if cache is not None:
            if "k" in cache:
                k, v = torch.cat([cache["k"], k], 2), torch.cat([cache["v"], v], 2)
            cache["k"], cache["v"] = k, v
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=1.0)
        return self.o(y.transpose(1, 2).flatten(2))


class Layer(nn.Module):
    def __init__(self, d, h, cross):
        super().__init__()
        self.sa = Attn(d, h)
        self.ca = Attn(d, h) if cross else None
        self.n = nn.ModuleList([nn.LayerNorm(d, bias=False) for _ in range(3)])
        self.wi0, self.wi1, self.wo = (
            nn.Linear(d, 2 * d, bias=False),
            nn.Linear(d, 2 * d, bias=False),
            nn.Linear(2 * d, d, bias=False),
        )

    def forward(self, x, bias, mem=None, mask=None, cache=None):
        x = x + self.sa(self.n[0](x), bias=bias, cache=cache)
        if self.ca is not None:
            x = x + self.ca(self.n[1](x), mem, mask)
        y = self.n[2](x)
        return x + self.wo(F.gelu(self.wi0(y), approximate="tanh") * self.wi1(y))


class T5(nn.Module):
    def __init__(self, V=18, d=16, h=2, L=2):
        super().__init__()
        self.emb = nn.Embedding(V, d, padding_idx=0)
        self.enc = nn.ModuleList([Layer(d, h, False) for _ in range(L)])
        self.dec = nn.ModuleList([Layer(d, h, True) for _ in range(L)])
        self.eb, self.db = RelBias(h), RelBias(h, bidirectional=False)
        self.lm = nn.Linear(d, V, bias=False)

    def encode(self, s):
        pad = torch.zeros(s.shape).masked_fill(s == 0, torch.finfo(torch.float32).min)[:, None, None]
        x = self.emb(s)
        b = self.eb(s.size(1), s.size(1)) + pad
        for layer in self.enc:
            x = layer(x, b)
        return x, pad

    def decode(self, t, mem, pad, caches=None, past=0):
        n = t.size(1)
        causal = torch.full((n, past + n), float("-inf")).triu(past + 1)
        b = self.db(n, past + n, past) + causal
        x = self.emb(t)
        for i, layer in enumerate(self.dec):
            x = layer(x, b, mem, pad, None if caches is None else caches[i])
        return self.lm(x)


m = T5()
same_weights(m)
src = torch.from_numpy(noise.randint(1, 18, (6, 7))).to(device)
src[::2, 5:] = 0
tgt = src.flip(1).clone()
dec_in = torch.cat([torch.ones(6, 1, dtype=torch.long), tgt[:, :-1]], 1)
opt = torch.optim.Adafactor(m.parameters(), lr=2e-2)
for i in range(6):
    loss = F.cross_entropy(m.decode(dec_in, *m.encode(src)).transpose(1, 2), tgt, ignore_index=0)
    opt.zero_grad()
    loss.backward()
    opt.step()
    tell(loss)
m.eval()
with torch.no_grad():
    mem, pad = m.encode(src)
    full = m.decode(dec_in, mem, pad)
    caches = [{} for _ in m.dec]
    outs = []
    for j in range(dec_in.size(1)):
        outs.append(m.decode(dec_in[:, j : j + 1], mem, pad, caches, j))
    tell((torch.cat(outs, 1) - full).abs().max() + 1)
    beams = [(torch.tensor([[1]]), 0.0)]
    for _ in range(5):
        cand = []
        for seq, sc in beams:
            lp = m.decode(seq, mem[:1], pad[:1])[0, -1].log_softmax(-1)
            v, ix = lp.topk(3)
            cand += [(torch.cat([seq, ix[k].view(1, 1)], 1), sc + v[k].item()) for k in range(3)]
        beams = sorted(cand, key=lambda c: -c[1])[:3]
    print(beams[0][0].tolist())
    tell(beams[0][1])


class LoRA(nn.Module):
    def __init__(self, w, r=2):
        super().__init__()
        self.A = nn.Parameter(torch.zeros(r, w.size(1)))
        self.B = nn.Parameter(torch.zeros(w.size(0), r))

    def forward(self, w):
        return w + self.B @ self.A


for p in m.parameters():
    p.requires_grad_(False)
mods = [mod for name, mod in m.named_modules() if isinstance(mod, nn.Linear) and name.endswith((".q", ".v"))]
for mod in mods:
    parametrize.register_parametrization(mod, "weight", LoRA(mod.weight))
same_weights(*[mod.parametrizations.weight[0] for mod in mods])
opt = torch.optim.SGD([p for p in m.parameters() if p.requires_grad], lr=0.05, momentum=0.9, nesterov=True)
m.train()
for i in range(4):
    with parametrize.cached():
        loss = F.cross_entropy(m.decode(dec_in, *m.encode(src)).flatten(0, 1), tgt.flatten(), ignore_index=0)
    opt.zero_grad()
    loss.backward()
    opt.step()
    tell(loss)
print(
    len([n for n, p in m.named_parameters() if p.requires_grad]),
    type(mods[0]).__name__,
    parametrize.is_parametrized(mods[0], "weight"),
)
for mod in mods:
    parametrize.remove_parametrizations(mod, "weight", leave_parametrized=True)
tell(sum(mod.weight.norm() for mod in mods))
