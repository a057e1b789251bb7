"""Every collective by random calls, each compared with NumPy: ``collectives.py SEED``. Runs on each rank."""

import sys

import numpy as np
import tesserack as ts
from tesserack import distributed as dist
from tesserack.distributed._coalesced import all_reduce_parts

REAL = (ts.float32, ts.float64, ts.int32, ts.int64, ts.uint8, ts.int8, ts.int16)
OTHER = (ts.float16, ts.bfloat16, ts.bool, ts.complex64, ts.complex128)
SHAPES = ((), (0,), (1,), (7,), (3, 5), (2, 0, 3), (1000,), (257, 33), (300_000,))
OPS = {"SUM": np.add, "PRODUCT": np.multiply, "MIN": np.minimum, "MAX": np.maximum}


def drawn(rng: np.random.Generator, shape: tuple[int, ...], dtype: ts.dtype, strided: bool) -> ts.Tensor:
    """Small whole numbers, so that every order of additions gives the same."""
    values = ts.from_numpy(np.asarray(rng.integers(0, 3, shape))).to(dtype)
    if strided and values.ndim == 2 and values.numel():
        return values.t().contiguous().t()
    return values


def wide(tensor: ts.Tensor) -> np.ndarray:
    """Exact values for NumPy."""
    return tensor.to(
        ts.complex128 if tensor.is_complex() else ts.float64 if tensor.is_floating_point() else ts.int64
    ).numpy()


def same(tensor: ts.Tensor, expected: np.ndarray, told: str) -> None:
    got = wide(tensor)
    if tensor.dtype in (ts.uint8, ts.int8, ts.int16):
        expected = expected.astype(str(tensor.dtype).rpartition(".")[2]).astype(np.int64)
    if tensor.dtype is ts.bool:
        expected = (expected != 0).astype(np.int64)
    assert got.shape == expected.shape and np.array_equal(got, expected), f"{told}: {got} for {expected}"


def turn(seed: int, n: int, me: int) -> None:
    """One random call; all ranks draw the same numbers, and so know what the others hold."""
    rng = np.random.default_rng(seed)
    dtype = [*REAL, *OTHER][rng.integers(len(REAL) + len(OTHER))]
    shape, strided = SHAPES[rng.integers(len(SHAPES))], bool(rng.integers(2))
    held = [drawn(np.random.default_rng([seed, rank]), shape, dtype, strided) for rank in range(n)]
    mine, root, later = held[me].clone(), int(rng.integers(n)), bool(rng.integers(2))
    kind = str(
        rng.choice(
            ["all_reduce", "broadcast", "reduce", "all_gather", "gather", "scatter", "reduce_scatter", "all_to_all"]
        )
    )
    told = f"seed {seed}: {kind} of {dtype} {shape}, root {root}"
    name = str(rng.choice(list(OPS))) if dtype in REAL else "SUM"
    op, combine = getattr(dist.ReduceOp, name), OPS[name]
    total = wide(held[0])
    for other in held[1:]:
        total = combine(total, wide(other))
    lists = [[held[(a + b) % n] for b in range(n)] for a in range(n)]
    if kind == "all_reduce":
        work = dist.all_reduce(mine, op, async_op=later)
    elif kind == "broadcast":
        work = dist.broadcast(mine, root, async_op=later)
    elif kind == "reduce":
        work = dist.reduce(mine, root, op, async_op=later)
    elif kind == "all_gather":
        parts = [ts.empty_like(mine) for _ in range(n)]
        work = dist.all_gather(parts, mine, async_op=later)
    elif kind == "gather":
        parts = [ts.empty_like(mine) for _ in range(n)] if me == root else []
        work = dist.gather(mine, parts, root, async_op=later)
    elif kind == "scatter":
        work = dist.scatter(mine, lists[root] if me == root else [], root, async_op=later)
    elif kind == "reduce_scatter":
        work = dist.reduce_scatter(mine, [held[(me + k) % n].clone() for k in range(n)], op, async_op=later)
    else:
        parts = [ts.empty_like(mine) for _ in range(n)]
        work = dist.all_to_all(parts, lists[me], async_op=later)
    if later:
        assert work is not None and work.wait()
    expected = {"broadcast": wide(held[root]), "scatter": wide(lists[root][me])}.get(kind, total)
    if kind == "reduce" and me != root:
        expected = wide(held[me])
    if kind in ("all_reduce", "broadcast", "reduce", "scatter", "reduce_scatter"):
        same(mine, expected, told)
    for rank, part in enumerate(parts if kind in ("all_gather", "gather", "all_to_all") else []):
        same(part, wide(lists[rank][me] if kind == "all_to_all" else held[rank]), told)


def parts(seed: int, n: int, me: int) -> None:
    """A reduction of what lies apart on some ranks, and in one tensor on others."""
    engine = dist.group.WORLD.engine
    if not engine.takes_parts:
        return
    rng = np.random.default_rng(seed)
    sizes = [int(k) for k in rng.choice([0, 1, 7, 900, 40_000, 70_001], int(rng.integers(1, 6)))]
    dtype, op = [(ts.float32, dist.ReduceOp.SUM), (ts.int64, dist.ReduceOp.MAX), (ts.bfloat16, dist.ReduceOp.AVG)][
        seed % 3
    ]
    held = [np.random.default_rng([seed, rank]).integers(0, 3, sum(sizes)) for rank in range(n)]
    expected = np.max(held, axis=0) if op == dist.ReduceOp.MAX else np.sum(held, axis=0)
    whole = ts.from_numpy(held[me]).to(dtype)
    if rng.integers(2, size=n)[me]:
        apart = [part.clone() for part in whole.split(sizes)]
        all_reduce_parts(apart, op, dist.group.WORLD, True).wait()
        whole = ts.cat(apart)
    else:
        dist.all_reduce(whole, op)
    if op == dist.ReduceOp.AVG:
        assert ts.equal(whole, (ts.from_numpy(expected).float() / n).bfloat16()), f"seed {seed}: {sizes}"
    else:
        same(whole, expected, f"seed {seed}: {sizes}")


def main() -> None:
    dist.init_process_group()
    n, me, seed = dist.get_world_size(), dist.get_rank(), int(sys.argv[1])
    for count in range(int(sys.argv[2])):
        turn(seed + count, n, me)
        parts(seed + count, n, me)
    x = ts.full((70_000,), 1.0 + me, dtype=ts.bfloat16)
    dist.all_reduce(x, dist.ReduceOp.AVG)
    assert x[-1].item() == (1 + n) / 2
    rows = ts.arange(n * (n + 1) // 2 + n).float() + 100 * me  # rank k gets k + 1 rows of each, the last one more
    given = [k + 1 for k in range(n)]
    given[-1] += rows.numel() - sum(given)
    gotten = ts.empty(given[me] * n)
    dist.all_to_all_single(gotten, rows, [given[me]] * n, given)
    start = sum(given[:me])
    assert gotten.tolist() == [100.0 * k + start + j for k in range(n) for j in range(given[me])]
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
