"""Written for PyTorch: FSDP2 from the meta device, resumed from whole state dicts in either of two ways."""

import argparse
import os
import time

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    _init_optim_state,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Shard, distribute_tensor


class Attention(nn.Module):
    def __init__(self, dim, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.wq = nn.Linear(dim, dim, bias=False)
        self.wk = nn.Linear(dim, dim, bias=False)
        self.wv = nn.Linear(dim, dim, bias=False)
        self.wo = nn.Linear(dim, dim, bias=False)

    def forward(self, x):
        bsz, seq_len, dim = x.size()
        q, k, v = (
            w(x).view(bsz, seq_len, self.n_heads, dim // self.n_heads).transpose(1, 2)
            for w in (self.wq, self.wk, self.wv)
        )
        out = F.scaled_dot_product_attention(q, k, v, None, 0.0, is_causal=True)
        return self.wo(out.transpose(1, 2).contiguous().view(bsz, seq_len, -1))


class Block(nn.Module):
    def __init__(self, dim, n_heads):
        super().__init__()
        self.attention_norm, self.ffn_norm = nn.LayerNorm(dim), nn.RMSNorm(dim)
        self.attention = Attention(dim, n_heads)
        self.feed_forward = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x):
        h = x + self.attention(self.attention_norm(x))
        return h + self.feed_forward(self.ffn_norm(h))


class Transformer(nn.Module):
    def __init__(self, vocab, seq_len, dim=16, n_heads=4, n_layers=4):
        super().__init__()
        self.tok_embeddings = nn.Embedding(vocab, dim)
        self.pos_embeddings = nn.Embedding(seq_len, dim)
        self.layers = nn.ModuleList(Block(dim, n_heads) for _ in range(n_layers))
        self.norm = nn.LayerNorm(dim)
        self.output = nn.Linear(dim, vocab, bias=False)

    def forward(self, tokens):
        h = self.tok_embeddings(tokens) + self.pos_embeddings(torch.arange(tokens.size(1), device=tokens.device))
        for layer in self.layers:
            h = layer(h)
        return self.output(self.norm(h)).float()


def load_by_dtensor(model, optim, saved):
    sharded = {}
    meta = model.state_dict()
    for name, full in saved["model"].items():
        sharded[name] = nn.Parameter(distribute_tensor(full, meta[name].device_mesh, meta[name].placements))
    model.load_state_dict(sharded, strict=False, assign=True)
    optim = optim(model)
    _init_optim_state(optim)
    state, groups = optim.state_dict()["state"], optim.state_dict()["param_groups"]
    for group, full_group in zip(groups, saved["optim"]["param_groups"], strict=True):
        group.update({k: v for k, v in full_group.items() if k != "params"})
    for pid, own in state.items():
        for attr, value in own.items():
            full = saved["optim"]["state"][pid][attr]
            is_sharded = isinstance(value, DTensor)
            own[attr] = distribute_tensor(full, value.device_mesh, value.placements) if is_sharded else full
    optim.load_state_dict({"param_groups": groups, "state": state})
    return optim


def whole_by_dtensor(model, optim):
    rank = torch.distributed.get_rank()
    params = {name: p.full_tensor().cpu() for name, p in model.state_dict().items()}
    state = {}
    for pid, own in optim.state_dict()["state"].items():
        state[pid] = {k: v.full_tensor().cpu() if isinstance(v, DTensor) else v for k, v in own.items()}
    saved = {"model": params, "optim": {"param_groups": optim.state_dict()["param_groups"], "state": state}}
    return saved if rank == 0 else {}


def main(args):
    rank = int(os.environ["LOCAL_RANK"])
    if torch.accelerator.is_available():
        device_type = torch.accelerator.current_accelerator().type
        device = torch.device(f"{device_type}:{rank}")
        torch.accelerator.set_device_index(rank)
    else:
        device = torch.device("cpu")
    backend = torch.distributed.get_default_backend_for_device(device)
    torch.distributed.init_process_group(backend=backend)
    torch.manual_seed(0)
    vocab, seq_len = 64, 16
    with torch.device("meta"):
        model = Transformer(vocab, seq_len)
    mesh = init_device_mesh(device.type, (torch.distributed.get_world_size(),), mesh_dim_names=("dp",))
    kwargs = {"mesh": mesh}
    if args.mixed_precision:
        kwargs["mp_policy"] = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in model.layers:
        fully_shard(layer, **kwargs)
    fully_shard(model, **kwargs)
    assert isinstance(model, Transformer) and isinstance(model, FSDPModule)

    def adam(model):
        return torch.optim.Adam(model.parameters(), lr=1e-2)

    path = os.path.join(args.folder, f"{args.api}.pt")
    full = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
    if not os.path.exists(path):
        model.to_empty(device=device)
        for module in model.modules():
            if hasattr(module, "reset_parameters"):
                module.reset_parameters()
        optim = adam(model)
    elif args.api == "dcp":
        saved = torch.load(path, mmap=True, weights_only=True, map_location="cpu") if rank == 0 else {}
        model.to_empty(device=device)
        set_model_state_dict(model, saved.get("model", {}), options=full)
        optim = adam(model)
        set_optimizer_state_dict(model, optim, saved.get("optim", {}), options=full)
    else:
        optim = load_by_dtensor(model, adam, torch.load(path, mmap=True, weights_only=True, map_location="cpu"))
    for param in model.parameters():
        assert param.placements == (Shard(0),) and param.dtype == torch.float32
    if args.mixed_precision:
        model.unshard()
        assert all(p.dtype == torch.bfloat16 for p in model.parameters(recurse=False))
        model.reshard()
    layers = list(model.layers)
    for k, layer in enumerate(layers):
        layer.set_modules_to_forward_prefetch(layers[k + 1 : k + 3])
        layer.set_modules_to_backward_prefetch(layers[max(k - 2, 0) : k][::-1])
    begin = time.perf_counter()
    for _ in range(10):
        model.unshard(async_op=True)
        x = torch.randint(0, vocab, (8, seq_len), device=device)
        loss = F.cross_entropy(model(x)[:, :-1].flatten(0, 1), x[:, :-1].flatten())
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
        assert isinstance(norm, DTensor) and norm.full_tensor().item() > 0
        optim.step()
        optim.zero_grad()
    if rank == 0:
        print(f"loss {loss.item():.4f} steps {int(next(iter(optim.state.values()))['step'])}", flush=True)
        print(f"time {time.perf_counter() - begin:.2f}")
    if args.api == "dcp":
        only_first = StateDictOptions(full_state_dict=True, cpu_offload=True)
        saved = {
            "model": get_model_state_dict(model, options=only_first),
            "optim": get_optimizer_state_dict(model, optim, options=only_first),
        }
    else:
        saved = whole_by_dtensor(model, optim)
    torch.distributed.barrier()
    if rank == 0:
        torch.save(saved, path)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--api", default="dcp", choices=["dcp", "dtensor"])
    parser.add_argument("--mixed-precision", action="store_true")
    main(parser.parse_args())
