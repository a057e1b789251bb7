"""A GPT trained from files of tokens, with a configurator, compiled, in mixed precision; saved, and taken up again."""

import math
import os
import pickle
import sys
import tempfile
import time
from contextlib import nullcontext

import numpy as np
import torch
import torch.nn as nn
from common import noise, same_weights, tell
from torch.nn import functional as F

# -- what a command line may change: gpt_resume.py --max_iters=20 --compile=False
out_dir = tempfile.mkdtemp()
eval_interval, eval_iters, log_interval = 4, 2, 2
always_save_checkpoint = True
gradient_accumulation_steps, batch_size, block_size = 2, 4, 16
n_layer, n_head, n_embd, dropout, bias = 2, 2, 16, 0.0, False
learning_rate, max_iters, weight_decay, beta1, beta2, grad_clip = 5e-3, 8, 1e-1, 0.9, 0.95, 1.0
decay_lr, warmup_iters, lr_decay_iters, min_lr = True, 2, 8, 5e-4
device = "cuda" if torch.cuda.is_available() else "cpu"
dtype = "bfloat16" if torch.cuda.is_available() and torch.cuda.is_bf16_supported() else "float32"
compile = True
config_keys = [k for k, v in globals().items() if not k.startswith("_") and isinstance(v, (int, float, bool, str))]
for arg in sys.argv[1:]:
    key, val = arg.removeprefix("--").split("=")
    globals()[key] = type(globals()[key])(eval(val) if not isinstance(globals()[key], str) else val)
config = {k: globals()[k] for k in config_keys}


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(n_embd, bias=bias), nn.LayerNorm(n_embd, bias=bias)
        self.c_attn, self.c_proj = nn.Linear(n_embd, 3 * n_embd, bias=bias), nn.Linear(n_embd, n_embd, bias=bias)
        self.mlp = nn.Sequential(
            nn.Linear(n_embd, 4 * n_embd, bias=bias),
            nn.GELU(approximate="tanh"),
            nn.Linear(4 * n_embd, n_embd, bias=bias),
        )

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = self.c_attn(self.ln_1(x)).split(C, dim=2)
        q, k, v = (t.view(B, T, n_head, C // n_head).transpose(1, 2) for t in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout if self.training else 0, is_causal=True)
        x = x + self.c_proj(y.transpose(1, 2).contiguous().view(B, T, C))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self, vocab_size):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab_size, n_embd), nn.Embedding(block_size, n_embd)
        self.h = nn.ModuleList([Block() for _ in range(n_layer)])
        self.ln_f, self.lm_head = nn.LayerNorm(n_embd, bias=bias), nn.Linear(n_embd, vocab_size, bias=False)
        self.wte.weight = self.lm_head.weight

    def forward(self, idx, targets):
        x = self.wte(idx) + self.wpe(torch.arange(idx.size(1), device=idx.device))
        for block in self.h:
            x = block(x)
        logits = self.lm_head(self.ln_f(x))
        return logits, F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1))


# -- files, as a preparing script leaves them
text = "a tale told by an idiot full of sound and fury signifying nothing " * 12
vocabulary = sorted(set(text))
meta = {"vocab_size": len(vocabulary), "stoi": {c: i for i, c in enumerate(vocabulary)}}
ids = np.array([meta["stoi"][c] for c in text], dtype=np.uint16)
ids[:600].tofile(os.path.join(out_dir, "train.bin"))
ids[600:].tofile(os.path.join(out_dir, "val.bin"))
with open(os.path.join(out_dir, "meta.pkl"), "wb") as f:
    pickle.dump(meta, f)

torch.manual_seed(1337)
torch.backends.cuda.matmul.allow_tf32 = True
device_type = "cuda" if "cuda" in device else "cpu"
ptdtype = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}[dtype]
ctx = nullcontext() if device_type == "cpu" else torch.amp.autocast(device_type=device_type, dtype=ptdtype)


def get_batch(split):
    data = np.memmap(os.path.join(out_dir, f"{split}.bin"), dtype=np.uint16, mode="r")
    ix = noise.randint(len(data) - block_size, size=batch_size)
    x = torch.stack([torch.from_numpy((data[i : i + block_size]).astype(np.int64)) for i in ix])
    y = torch.stack([torch.from_numpy((data[i + 1 : i + 1 + block_size]).astype(np.int64)) for i in ix])
    if device_type == "cuda":
        return x.pin_memory().to(device, non_blocking=True), y.pin_memory().to(device, non_blocking=True)
    return x.to(device), y.to(device)


def start(init_from):
    model = GPT(meta["vocab_size"])
    checkpoint = None
    if init_from == "scratch":
        same_weights(model)
    else:
        checkpoint = torch.load(os.path.join(out_dir, "ckpt.pt"), map_location=device)
        state_dict, unwanted_prefix = checkpoint["model"], "_orig_mod."
        for k in list(state_dict):
            if k.startswith(unwanted_prefix):
                state_dict[k[len(unwanted_prefix) :]] = state_dict.pop(k)
        model.load_state_dict(state_dict)
    model.to(device)
    scaler = torch.cuda.amp.GradScaler(enabled=(dtype == "float16"))
    decay = [p for p in model.parameters() if p.dim() >= 2]
    rest = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": decay, "weight_decay": weight_decay}, {"params": rest, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=learning_rate, betas=(beta1, beta2), fused=device_type == "cuda")
    if checkpoint:
        optimizer.load_state_dict(checkpoint["optimizer"])
    return model, optimizer, scaler, checkpoint["iter_num"] if checkpoint else 0


@torch.no_grad()
def estimate_loss(model):
    out = {}
    model.eval()
    for split in ["train", "val"]:
        losses = torch.zeros(eval_iters)
        for k in range(eval_iters):
            with ctx:
                _, loss = model(*get_batch(split))
            losses[k] = loss.item()
        out[split] = losses.mean()
    model.train()
    return out


def get_lr(it):
    if it < warmup_iters:
        return learning_rate * (it + 1) / (warmup_iters + 1)
    if it > lr_decay_iters:
        return min_lr
    ratio = (it - warmup_iters) / (lr_decay_iters - warmup_iters)
    return min_lr + 0.5 * (1.0 + math.cos(math.pi * ratio)) * (learning_rate - min_lr)


def train(init_from, until):
    raw_model, optimizer, scaler, iter_num = start(init_from)
    model = torch.compile(raw_model, backend="eager") if compile else raw_model
    X, Y = get_batch("train")
    t0 = time.time()
    while iter_num < until:
        for param_group in optimizer.param_groups:
            param_group["lr"] = get_lr(iter_num) if decay_lr else learning_rate
        if iter_num % eval_interval == 0:
            losses = estimate_loss(model)
            print(f"step {iter_num}: train loss {losses['train']:.4f}, val loss {losses['val']:.4f}")
            tell(losses["val"])
        for _ in range(gradient_accumulation_steps):
            with ctx:
                _, loss = model(X, Y)
                loss = loss / gradient_accumulation_steps
            X, Y = get_batch("train")
            scaler.scale(loss).backward()
        if grad_clip != 0.0:
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), grad_clip)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
        if iter_num % log_interval == 0:
            print(f"iter {iter_num}: time {(time.time() - t0) * 1000:.2f}ms, lr {get_lr(iter_num):.1e}")
        tell(loss.item() * gradient_accumulation_steps)
        iter_num += 1
    if always_save_checkpoint:
        checkpoint = {
            "model": model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "iter_num": iter_num,
            "config": config,
        }
        torch.save(checkpoint, os.path.join(out_dir, "ckpt.pt"))


train("scratch", max_iters // 2)
train("resume", max_iters)
