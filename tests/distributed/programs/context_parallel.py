"""Attention whose sequence is cut over ranks gives what it gives whole, and so do its gradients. Runs on each rank."""

from typing import Any

import tesserack as ts
from tesserack import distributed as dist
from tesserack import nn
from tesserack.distributed.tensor import init_device_mesh
from tesserack.distributed.tensor.experimental import context_parallel
from tesserack.distributed.tensor.experimental._attention import (
    _cp_options,
    context_parallel_unshard,
    set_rotate_method,
)
from tesserack.nn import functional as F

LENGTH, WIDTH, HEADS = 16, 16, 4


class Block(nn.Module):
    def __init__(self, kv_heads: int) -> None:
        super().__init__()
        self.kv, self.q, self.out = (nn.Linear(WIDTH, w) for w in (2 * kv_heads * 4, WIDTH, WIDTH))
        self.kv_heads = kv_heads

    def forward(self, x: Any, places: Any, causal: bool) -> Any:
        b, t, _ = x.shape
        q = (self.q(x) + places).view(b, t, HEADS, 4).transpose(1, 2)
        k, v = self.kv(x).view(b, t, 2, self.kv_heads, 4).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=self.kv_heads != HEADS)
        return self.out(y.transpose(1, 2).reshape(b, t, WIDTH))


def check(mesh: Any, causal: bool, kv_heads: int, dtype: Any) -> None:
    ts.manual_seed(0)
    model = Block(kv_heads).to(dtype)
    x, y, places = (ts.randn(2, LENGTH, WIDTH, dtype=dtype) for _ in range(3))
    expected = model(x, places, causal)
    (expected * y).sum().backward()
    wanted = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    before = [t.clone() for t in (x, y, places)]
    with context_parallel(mesh, buffers=[x, y, places], buffer_seq_dims=[1, 1, 1], no_restore_buffers={y}):
        assert x.shape[1] == LENGTH // mesh.size()
        out = model(x, places, causal)
        (out * y).sum().backward()
    assert x.shape == before[0].shape and (x == before[0]).all() and y.shape[1] == LENGTH // mesh.size()
    tolerance = 1e-5 if dtype is ts.float32 else 1e-10
    (whole,) = context_parallel_unshard(mesh, [out], [1])
    assert (whole - expected).abs().max().item() < tolerance
    for p, grad in zip(model.parameters(), wanted, strict=True):
        dist.all_reduce(p.grad)
        assert (p.grad - grad).abs().max().item() < 10 * tolerance


def main() -> None:
    dist.init_process_group()
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("cp",))
    for rotate in ("allgather", "alltoall"):
        set_rotate_method(rotate)
        for balanced in (True, False):
            _cp_options.enable_load_balance = balanced
            check(mesh, True, HEADS, ts.float32)
            check(mesh, False, 2, ts.float32)
        check(mesh, True, 2, ts.float64)
    q = ts.ones(1, 1, 4, 4)
    with context_parallel(mesh):
        for bad in ({"attn_mask": ts.zeros(4, 4)}, {"dropout_p": 0.5}):
            try:
                F.scaled_dot_product_attention(q, q, q, **bad)
            except NotImplementedError as error:
                assert "without attn_mask and dropout" in str(error)
            else:
                raise AssertionError(bad)
    dist.destroy_process_group()


main()
