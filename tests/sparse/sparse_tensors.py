"""Sparse tensors for tests, and the dense ones they are compared with."""

from __future__ import annotations

import numpy as np
import tesserack as ts

LAYOUTS = ["sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc"]
EVERY = [ts.bool, ts.uint8, ts.int16, ts.int32, ts.int64, ts.float16, ts.bfloat16, ts.float32, ts.float64]


def array(t):
    t = t.detach()
    t = t.to_dense() if t.layout is not ts.strided else t
    return t.cpu().float().numpy() if t.dtype in (ts.bfloat16, ts.float16) else t.cpu().numpy()


def values(seed=0, shape=(4, 6)):
    rng = np.random.default_rng(seed)
    return np.where(rng.random(shape) < 0.5, rng.integers(1, 5, shape) * 0.5, 0.0)


def dense(device, dtype=ts.float64, seed=0, shape=(4, 6)):
    return ts.as_tensor(values(seed, shape), device=device).to(dtype)


def sparse(device, layout="sparse_coo", dtype=ts.float64, seed=0, shape=(4, 6)):
    blocked = {"blocksize": (2, 3 if shape[1] % 3 == 0 else 2)} if layout in ("sparse_bsr", "sparse_bsc") else {}
    return dense(device, dtype, seed, shape).to_sparse(layout=getattr(ts, layout), **blocked)


def uncoalesced(device, dtype=ts.float64):
    at = ts.tensor([[3, 0, 3, 1, 0], [1, 5, 1, 0, 5]], device=device)
    return ts.sparse_coo_tensor(at, ts.tensor([1, 2, 3, 4, 5], dtype=dtype, device=device), (4, 6))
