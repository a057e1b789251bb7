"""A decoder with rotary embeddings as complex numbers, RMS norms, grouped queries, gated layers and a cache of keys."""

import math
from dataclasses import dataclass
from typing import Optional, Tuple

import torch
import torch.nn.functional as F
from common import noise, same_weights, tell
from torch import nn


@dataclass
class ModelArgs:
    dim: int = 32
    n_layers: int = 2
    n_heads: int = 4
    n_kv_heads: Optional[int] = 2
    vocab_size: int = 20
    multiple_of: int = 8
    norm_eps: float = 1e-5
    max_batch_size: int = 4
    max_seq_len: int = 24


class RMSNorm(torch.nn.Module):
    def __init__(self, dim: int, eps: float = 1e-6):
        super().__init__()
        self.eps, self.weight = eps, nn.Parameter(torch.ones(dim))

    def _norm(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)

    def forward(self, x):
        return self._norm(x.float()).type_as(x) * self.weight


def precompute_freqs_cis(dim: int, end: int, theta: float = 10000.0) -> torch.Tensor:
    freqs = 1.0 / (theta ** (torch.arange(0, dim, 2)[: (dim // 2)].float() / dim))
    freqs = torch.outer(torch.arange(end, device=freqs.device), freqs).float()
    return torch.polar(torch.ones_like(freqs), freqs)


def apply_rotary_emb(xq: torch.Tensor, xk: torch.Tensor, freqs_cis: torch.Tensor) -> Tuple[torch.Tensor, torch.Tensor]:
    xq_ = torch.view_as_complex(xq.float().reshape(*xq.shape[:-1], -1, 2))
    xk_ = torch.view_as_complex(xk.float().reshape(*xk.shape[:-1], -1, 2))
    freqs_cis = freqs_cis.view(1, xq_.shape[1], 1, xq_.shape[-1])
    xq_out = torch.view_as_real(xq_ * freqs_cis).flatten(3)
    xk_out = torch.view_as_real(xk_ * freqs_cis).flatten(3)
    return xq_out.type_as(xq), xk_out.type_as(xk)


class Attention(nn.Module):
    def __init__(self, args: ModelArgs):
        super().__init__()
        self.heads, self.kv_heads = args.n_heads, args.n_kv_heads or args.n_heads
        self.head_dim = args.dim // args.n_heads
        self.wq = nn.Linear(args.dim, self.heads * self.head_dim, bias=False)
        self.wk = nn.Linear(args.dim, self.kv_heads * self.head_dim, bias=False)
        self.wv = nn.Linear(args.dim, self.kv_heads * self.head_dim, bias=False)
        self.wo = nn.Linear(self.heads * self.head_dim, args.dim, bias=False)
        shape = (args.max_batch_size, args.max_seq_len, self.kv_heads, self.head_dim)
        self.register_buffer("cache_k", torch.zeros(shape), persistent=False)
        self.register_buffer("cache_v", torch.zeros(shape), persistent=False)

    def forward(self, x, start_pos, freqs_cis, mask):
        bsz, seqlen, _ = x.shape
        xq = self.wq(x).view(bsz, seqlen, self.heads, self.head_dim)
        keys = self.wk(x).view(bsz, seqlen, self.kv_heads, self.head_dim)
        values = self.wv(x).view(bsz, seqlen, self.kv_heads, self.head_dim)
        xq, keys = apply_rotary_emb(xq, keys, freqs_cis=freqs_cis)
        if start_pos is not None:
            self.cache_k[:bsz, start_pos : start_pos + seqlen] = keys
            self.cache_v[:bsz, start_pos : start_pos + seqlen] = values
            keys, values = self.cache_k[:bsz, : start_pos + seqlen], self.cache_v[:bsz, : start_pos + seqlen]
        keys = keys.repeat_interleave(self.heads // self.kv_heads, dim=2).transpose(1, 2)
        values = values.repeat_interleave(self.heads // self.kv_heads, dim=2).transpose(1, 2)
        scores = torch.matmul(xq.transpose(1, 2), keys.transpose(2, 3)) / math.sqrt(self.head_dim)
        if mask is not None:
            scores = scores + mask
        scores = F.softmax(scores.float(), dim=-1).type_as(xq)
        return self.wo(torch.matmul(scores, values).transpose(1, 2).contiguous().view(bsz, seqlen, -1))


class FeedForward(nn.Module):
    def __init__(self, dim: int, hidden_dim: int, multiple_of: int):
        super().__init__()
        hidden_dim = multiple_of * ((int(2 * hidden_dim / 3) + multiple_of - 1) // multiple_of)
        self.w1, self.w3 = nn.Linear(dim, hidden_dim, bias=False), nn.Linear(dim, hidden_dim, bias=False)
        self.w2 = nn.Linear(hidden_dim, dim, bias=False)

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class TransformerBlock(nn.Module):
    def __init__(self, args: ModelArgs):
        super().__init__()
        self.attention, self.feed_forward = Attention(args), FeedForward(args.dim, 4 * args.dim, args.multiple_of)
        self.attention_norm, self.ffn_norm = RMSNorm(args.dim, args.norm_eps), RMSNorm(args.dim, args.norm_eps)

    def forward(self, x, start_pos, freqs_cis, mask):
        h = x + self.attention(self.attention_norm(x), start_pos, freqs_cis, mask)
        return h + self.feed_forward(self.ffn_norm(h))


class Transformer(nn.Module):
    def __init__(self, params: ModelArgs):
        super().__init__()
        self.params = params
        self.tok_embeddings = nn.Embedding(params.vocab_size, params.dim)
        self.layers = torch.nn.ModuleList()
        for _ in range(params.n_layers):
            self.layers.append(TransformerBlock(params))
        self.norm = RMSNorm(params.dim, eps=params.norm_eps)
        self.output = nn.Linear(params.dim, params.vocab_size, bias=False)
        self.freqs_cis = precompute_freqs_cis(params.dim // params.n_heads, params.max_seq_len * 2)

    def forward(self, tokens: torch.Tensor, start_pos: Optional[int] = None):
        _bsz, seqlen = tokens.shape
        h = self.tok_embeddings(tokens)
        self.freqs_cis = self.freqs_cis.to(h.device)
        first = start_pos or 0
        mask = None
        if seqlen > 1:
            mask = torch.full((seqlen, seqlen), float("-inf"), device=tokens.device)
            mask = torch.triu(mask, diagonal=1)
            mask = torch.hstack([torch.zeros((seqlen, first), device=tokens.device), mask]).type_as(h)
        for layer in self.layers:
            h = layer(h, start_pos, self.freqs_cis[first : first + seqlen], mask)
        return self.output(self.norm(h)).float()


@torch.inference_mode()
def generate(model, prompts, max_gen_len):
    device = model.output.weight.device
    total_len = min(model.params.max_seq_len, max_gen_len + max(len(t) for t in prompts))
    tokens = torch.full((len(prompts), total_len), -1, dtype=torch.long, device=device)
    for k, t in enumerate(prompts):
        tokens[k, : len(t)] = torch.tensor(t, dtype=torch.long, device=device)
    prev_pos, input_text_mask = 0, tokens != -1
    for cur_pos in range(min(len(t) for t in prompts), total_len):
        logits = model(tokens[:, prev_pos:cur_pos], prev_pos)
        next_token = torch.argmax(logits[:, -1], dim=-1).reshape(-1)
        tokens[:, cur_pos] = torch.where(input_text_mask[:, cur_pos], tokens[:, cur_pos], next_token)
        prev_pos = cur_pos
    return tokens.tolist()


device = "cuda:0" if torch.cuda.is_available() else "cpu"
model = Transformer(ModelArgs())
same_weights(model)
model = model.to(device)
text = torch.from_numpy((np_ids := noise.randint(0, 4, 300).cumsum() % 20).astype("int64"))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.95), eps=1e-5)
for step in range(8):
    starts = noise.randint(0, len(np_ids) - 17, 4)
    batch = torch.stack([text[i : i + 17] for i in starts]).to(device, non_blocking=True)
    logits = model(batch[:, :-1])
    loss = F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    tell(loss)
model.eval()
whole = model(text[None, :12].to(device))[:, -1]
cached = torch.cat([model(text[None, i : i + 1].to(device), i) for i in range(12)], 1)[:, -1]
tell((whole - cached).abs().max() < 1e-4)
tell(sum(map(sum, generate(model, [text[:5].tolist(), text[9:12].tolist()], 4))))
