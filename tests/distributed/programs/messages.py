"""Messages, objects, groups and meshes. Runs on each rank."""

import tesserack as ts
from tesserack import distributed as dist


def messages(n: int, me: int) -> None:
    if me == 0:
        dist.send(ts.arange(5), 1, tag=7)
        dist.send(ts.arange(3), 1, tag=8)
    if me == 1:
        second, first = ts.zeros(3, dtype=ts.int64), ts.zeros(5, dtype=ts.int64)
        assert dist.recv(second, 0, tag=8) == 0 and dist.recv(first, tag=7) == 0
        assert second.tolist() == [0, 1, 2] and first.tolist() == [0, 1, 2, 3, 4]
    large, got = ts.full((300_000,), float(me)), ts.empty(300_000)  # more than a mailbox holds
    works = [dist.isend(large, (me + 1) % n), dist.irecv(got, (me - 1) % n)]
    assert all(work.wait() for work in works) and got[-1].item() == (me - 1) % n
    sent = dist.P2POp(dist.isend, ts.tensor([me]), (me + 1) % n)
    came = dist.P2POp(dist.irecv, ts.tensor([-1]), (me - 1) % n)
    for work in dist.batch_isend_irecv([sent, came]):
        work.wait()
    assert came.tensor.item() == (me - 1) % n


def objects(n: int, me: int) -> None:
    found: list = [None] * n
    dist.all_gather_object(found, {"rank": me, "text": "a" * me})
    assert found == [{"rank": k, "text": "a" * k} for k in range(n)]
    values = ["from", ("rank", n - 1)] if me == n - 1 else [None, None]
    dist.broadcast_object_list(values, src=n - 1)
    assert values == ["from", ("rank", n - 1)]
    gathered = [None] * n if me == 0 else None
    dist.gather_object(me, gathered)
    assert gathered == (list(range(n)) if me == 0 else None)
    one: list = [None]
    dist.scatter_object_list(one, [str(k) for k in range(n)] if me == 0 else None)
    assert one == [str(me)]


def groups(n: int, me: int) -> None:
    ends = dist.new_group([0, n - 1])
    if me in (0, n - 1):
        x = ts.ones(1)
        dist.all_reduce(x, group=ends)
        assert x.item() == 2 and dist.get_process_group_ranks(ends) == [0, n - 1]
    else:
        assert ends is dist.GroupMember.NON_GROUP_MEMBER and dist.get_rank(ends) == -1
        assert dist.all_reduce(ts.ones(1), group=ends) is None
    mesh = dist.init_device_mesh("cpu", (1, n), mesh_dim_names=("data", "model"))
    assert mesh["model"].get_local_rank() == me and mesh["data"].size() == 1
    x = ts.tensor([me])
    dist.all_reduce(x, group=mesh.get_group("model"))
    assert x.item() == n * (n - 1) // 2


def methods(n: int, me: int) -> None:
    group, x, total = dist.group.WORLD, ts.full((2,), float(me)), float(n * (n - 1) // 2)
    group.allreduce([x]).wait()
    assert x.tolist() == [total] * 2
    options = dist.AllreduceOptions()
    options.reduceOp = dist.ReduceOp.MAX
    x.fill_(me)
    group.allreduce(x, options).wait()
    assert x.tolist() == [n - 1.0] * 2
    x.fill_(me)
    group.broadcast(x, root=n - 1).wait()
    assert x.tolist() == [n - 1.0] * 2
    parts, mine = [ts.zeros(1) for _ in range(n)], ts.tensor([float(me)])
    group.allgather([parts], [mine]).wait()
    assert [part.item() for part in parts] == list(range(n))
    whole = ts.zeros(n)
    group._allgather_base(whole, mine).wait()
    assert whole.tolist() == list(range(n))
    kept = ts.zeros(1)
    group.reduce_scatter(kept, [ts.full((1,), float(k)) for k in range(n)]).wait()
    assert kept.item() == n * me
    group._reduce_scatter_base(kept, ts.arange(float(n))).wait()
    assert kept.item() == n * me
    came = ts.zeros(n)
    group.alltoall_base(came, ts.full((n,), float(me)), [], []).wait()
    assert came.tolist() == list(range(n))
    group.gather([parts] if me == 0 else [], [mine], root=0).wait()
    group.scatter([kept], [parts] if me == 0 else []).wait()
    assert kept.item() == me
    works = [group.send([mine], (me + 1) % n, 3), group.recv([kept], (me - 1) % n, 3)]
    assert all(work.wait() for work in works) and kept.item() == (me - 1) % n
    group.barrier().wait()


def forms_of_groups(n: int, me: int) -> None:
    from tesserack.distributed import _functional_collectives as functional

    x, mesh = ts.full((2,), float(me)), dist.init_device_mesh("cpu", (1, n), mesh_dim_names=("data", "model"))
    total = n * (n - 1) / 2
    for group in (dist.group.WORLD, list(range(n)), [list(range(n))], mesh["model"], (mesh, 1)):
        assert functional.all_reduce(x, "sum", group).tolist() == [total] * 2
        assert functional.all_gather_tensor(x, 0, group).shape == (2 * n,)
    alone = [[rank] for rank in range(n)]
    assert functional.all_reduce(x, "sum", alone).tolist() == x.tolist()
    turned = functional.permute_tensor(x, [(k + 1) % n for k in range(n)], dist.group.WORLD)
    assert turned.tolist() == [float((me - 1) % n)] * 2
    try:
        dist.all_reduce(ts.ones(1, dtype=ts.complex64), dist.ReduceOp.MAX)
    except ValueError as error:
        assert "MAX on complex" in str(error)
    else:
        raise AssertionError
    assert str(dist.ReduceOp.SUM) == "RedOpType.SUM"


def groups_of_groups(n: int, me: int) -> None:
    """Each part of the world divides itself, at the same time as the others do."""
    mine, parts = dist.new_subgroups_by_enumeration([list(range(0, n, 2)), list(range(1, n, 2))])
    members, x = list(range(me % 2, n, 2)), ts.tensor([float(me)])
    whole, (same,) = dist.new_subgroups(len(members), group=mine)
    assert whole is same and dist.get_process_group_ranks(whole) == members
    dist.all_reduce(x, group=whole)
    assert x.item() == sum(members)
    alone, each = dist.new_subgroups(1, group=mine)
    assert len(each) == len(members) and dist.get_process_group_ranks(alone) == [me]
    for width in (0, len(members) + 1):
        try:
            dist.new_subgroups(width, group=mine)
        except ValueError as error:
            assert f"divides the world's {len(members)}, got {width}" in str(error)
        else:
            raise AssertionError
    for group in (*each, whole, *parts):
        dist.destroy_process_group(group)


def dims_of_meshes(n: int, me: int) -> None:
    mesh = dist.init_device_mesh("cpu", (1, n, 1), mesh_dim_names=("pp", "dp", "cp"))
    joined = mesh["dp", "cp"]._flatten("dp_cp")
    assert joined.mesh.tolist() == list(range(n)) and mesh["dp_cp"] is joined and joined.mesh_dim_names == ("dp_cp",)
    assert mesh["dp", "cp"]._flatten("dp_cp") is joined and joined._flatten() is joined and joined.root is mesh
    x = ts.tensor([me])
    dist.all_reduce(x, group=mesh["dp_cp"].get_group())
    assert x.item() == n * (n - 1) // 2
    both = mesh["pp", "dp_cp"]
    assert both.shape == (1, n) and both["dp_cp"].size() == n and both.get_group("dp_cp") is joined.get_group()
    world = dist.init_device_mesh("cpu", (n,), mesh_dim_names=("world",))
    cut = world._unflatten("world", (n, 1), ("dp", "tp"))
    assert cut.mesh.tolist() == [[k] for k in range(n)] and cut["dp"].get_local_rank() == me
    dist.all_reduce(x, group=cut["tp"].get_group())
    assert x.item() == n * (n - 1) // 2
    for wrong in (
        lambda: mesh["dp", "cp"]._flatten("pp"),
        lambda: world._unflatten(0, (n,), ("a", "b")),
        lambda: mesh["cp", "dp"],
        lambda: mesh["dp_cp", "pp"],
    ):
        try:
            wrong()
        except (KeyError, ValueError, RuntimeError):
            continue
        raise AssertionError
    assert mesh.get_coordinate() == (0, me, 0)
    try:
        dist.init_device_mesh("cpu", (1, n), mesh_dim_names=("a", "a"))
    except RuntimeError as error:
        assert "must be unique" in str(error)


def sparse_sums(n: int, me: int) -> None:
    def held() -> ts.Tensor:
        return ts.sparse_coo_tensor([[me, me, n]], [[1.0, 2.0], [1.0, 0.0], [float(me), 1.0]], (n + 1, 2))

    x, y = held(), held()
    dist.all_reduce(x)
    expected = ts.tensor([[2.0, 2.0]] * n + [[n * (n - 1) / 2, float(n)]])
    assert x.is_sparse and x.to_dense().tolist() == expected.tolist()
    work = dist.all_reduce(y, dist.ReduceOp.AVG, async_op=True)
    assert work.wait() and ts.allclose(y.to_dense(), expected / n)
    empty = ts.sparse_coo_tensor([[0]] if me else [[]], [5.0] if me else [], (3,))
    dist.all_reduce(empty)
    assert empty.to_dense().tolist() == [5.0 * (n - 1), 0, 0]
    try:
        dist.all_reduce(x, dist.ReduceOp.MAX)
    except ValueError as error:
        assert "of a sparse tensor, got MAX" in str(error)
    else:
        raise AssertionError


def gradients(n: int, me: int) -> None:
    from tesserack.distributed.nn import functional as F

    x = ts.full((2,), float(me + 1), requires_grad=True)
    (F.all_reduce(x) * (me + 1)).sum().backward()
    assert x.grad.tolist() == [n * (n + 1) / 2] * 2
    x.grad = None
    sum(part.sum() * (k + 1) for k, part in enumerate(F.all_gather(x))).backward()
    assert x.grad.tolist() == [n * (me + 1.0)] * 2


if __name__ == "__main__":
    dist.init_process_group()
    parts = (
        messages,
        objects,
        groups,
        methods,
        forms_of_groups,
        groups_of_groups,
        dims_of_meshes,
        sparse_sums,
        gradients,
    )
    for part in parts:
        part(dist.get_world_size(), dist.get_rank())
        dist.barrier()
    dist.destroy_process_group()
