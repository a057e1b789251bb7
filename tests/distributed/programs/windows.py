"""Tensors in memory that all ranks map are reduced to the same bits as others, and leave nothing."""

import gc
import os
import signal

import pytest
import tesserack as ts
from tesserack import distributed as dist

DTYPES = [ts.float32, ts.float64, ts.float16, ts.bfloat16, ts.int32, ts.uint8, ts.bool, ts.int64]
OPS = [dist.ReduceOp.SUM, dist.ReduceOp.AVG, dist.ReduceOp.MAX, dist.ReduceOp.PRODUCT]


def filled(n: int, dtype: ts.dtype, seed: int) -> ts.Tensor:
    """Other elements on each rank."""
    made = ts.Generator().manual_seed(100 * seed + dist.get_rank())
    return (ts.randn(n, generator=made) * 3).to(dtype)


def shared(n: int, dtype: ts.dtype, group: "dist.ProcessGroup") -> ts.Tensor:
    """A tensor in a new window."""
    return group.allocate_tensor(n, dtype=dtype, device="cpu")


def expect_same(tensor: ts.Tensor, values: ts.Tensor, op: object, group: "dist.ProcessGroup") -> None:
    """Reduce the values in a window and apart from it."""
    tensor.copy_(values)
    apart = values.clone()
    for each in (tensor, apart):
        dist.all_reduce(each, op, group=group)
    assert ts.equal(tensor.view(ts.uint8), apart.view(ts.uint8)), (tensor.dtype, op, len(tensor))


def bits(group: "dist.ProcessGroup") -> None:
    """Whatever is reduced, wherever in the window."""
    rank = dist.get_rank(group)
    for dtype in DTYPES:
        memory = shared(200_003, dtype, group)
        for n, op in zip((199_990, 5000, 1, 100_001), OPS, strict=True):
            if op == dist.ReduceOp.AVG and not dtype.is_floating_point:
                continue
            expect_same(memory[:n], filled(n, dtype, n), op, group)
            expect_same(memory[rank * 3 : rank * 3 + n], filled(n, dtype, n), op, group)


def mixed(group: "dist.ProcessGroup") -> None:
    """Some ranks hold theirs in a window, some elsewhere, or in another window."""
    one, other = shared(300_000, ts.float32, group), shared(300_000, ts.float32, group)
    for places in ((one, None), (None, one), (one, other), (one, one)):
        values = filled(300_000, ts.float32, 5)
        expected = values.clone()
        dist.all_reduce(expected, group=group)
        place = places[min(dist.get_rank(group), 1)]
        mine = values.clone() if place is None else place.copy_(values)
        dist.all_reduce(mine, group=group)
        assert ts.equal(mine, expected)
        works = [dist.all_reduce(mine, dist.ReduceOp.MAX, group, async_op=True) for _ in range(3)]
        for work in works:
            work.wait()
        assert ts.equal(mine, expected)


def blocks() -> int:
    """Memory that the groups' files hold, in KiB."""
    total = 0
    for name in os.listdir("/proc/self/fd"):
        path = f"/proc/self/fd/{name}"
        if os.path.islink(path) and "memfd:tesserack-local" in os.readlink(path):
            total += os.stat(path).st_blocks // 2
    return total


def mapped() -> int:
    """This process's addresses, in KiB."""
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith("VmSize"))


def given_back() -> None:
    """A window goes with its last tensor, on each rank by itself."""
    memory = shared(1 << 20, ts.float32, dist.group.WORLD).fill_(1)
    dist.barrier()
    held, before = blocks(), mapped()
    for _ in range(8):
        again = shared(1 << 20, ts.float32, dist.group.WORLD).fill_(2)
        dist.all_reduce(again)
        part = again[5:7]
        del again
        assert part.tolist() == [2.0 * dist.get_world_size()] * 2
        del part
    gc.collect()
    dist.barrier()
    assert blocks() <= held + 1024 and mapped() < before + 2048
    assert memory.sum().item() == 1 << 20
    dist.barrier()
    if dist.get_rank() == 0:
        del memory  # the others' share stays theirs
    dist.barrier()
    if dist.get_rank() != 0:
        assert memory.sum().item() == 1 << 20


def children() -> None:
    """What a forked process lets go stays its parent's."""
    memory = shared(1 << 16, ts.float32, dist.group.WORLD).fill_(3)
    child = os.fork()
    if child == 0:
        del memory
        gc.collect()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert memory.eq(3).all()


def mistakes() -> None:
    """Sizes that differ are told of; the group has ended then."""
    with pytest.raises(dist.DistBackendError, match=r"different collectives: rank 0 allocate_tensor"):
        shared(1000 + dist.get_rank(), ts.float32, dist.group.WORLD)


def outlived() -> None:
    """A tensor may be there longer than its group; a rank that is killed ends the others."""
    memory = shared(1 << 20, ts.float32, dist.group.WORLD).fill_(1)
    dist.all_reduce(memory)
    rank, size = dist.get_rank(), dist.get_world_size()
    dist.destroy_process_group()
    gc.collect()
    memory.add_(1)
    assert memory.eq(size + 1).all()
    dist.init_process_group()
    memory = shared(1 << 22, ts.float32, dist.group.WORLD)
    dist.all_reduce(memory)
    if rank == size - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    with pytest.raises(dist.DistBackendError, match=f"all_reduce #.* rank {size - 1} has ended: its process is gone"):
        while True:
            dist.all_reduce(memory)


dist.init_process_group()
pairs = [dist.new_group([first, first + 1]) for first in range(dist.get_world_size() - 1)]
for made in (dist.group.WORLD, *pairs):
    if made is not dist.GroupMember.NON_GROUP_MEMBER:
        bits(made)
        mixed(made)
given_back()
children()
print("same bits", flush=True)
if "mistakes" in os.environ.get("WINDOWS_TRY", ""):
    mistakes()
elif dist.get_world_size() > 1:
    outlived()
