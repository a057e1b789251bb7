"""Collectives over tensors: ``torch.distributed``'s, by name and meaning.

Each takes ``group`` (None: the default one) and ``async_op``: then a :class:`Work` comes back, whose ``wait()`` says
when the tensors may be read. Tensors may be of any layout; those that are not dense where the communicator reads them,
on the host or on a card that has one, go through copies.
Outside of the group nothing happens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.distributed._engine import Engine
from tesserack.distributed._group import ProcessGroup
from tesserack.distributed._memory import check, flat, given, taken
from tesserack.distributed._reduce_op import RedOpType, ReduceOp
from tesserack.distributed._work import Work
from tesserack.distributed._world import resolve

__all__ = [
    "all_gather",
    "all_gather_into_tensor",
    "all_reduce",
    "all_to_all",
    "all_to_all_single",
    "barrier",
    "broadcast",
    "gather",
    "monitored_barrier",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_tensor",
    "scatter",
    "supports_complex",
]


_OF_COMPLEX = (RedOpType.SUM, RedOpType.AVG, RedOpType.PREMUL_SUM, RedOpType.PRODUCT)


def supports_complex(reduceOp: Any) -> bool:
    """Whether complex numbers can be combined so."""
    kind = reduceOp.op if isinstance(reduceOp, ReduceOp) else RedOpType(reduceOp)
    return kind in _OF_COMPLEX


def _reduction(op: str, asked: Any, tensor: Tensor) -> tuple[int, Any]:
    """The native number of a reduction, and a factor for each rank's tensor first."""
    check(op, tensor)
    kind = asked.op if isinstance(asked, ReduceOp) else RedOpType(asked)
    if kind is RedOpType.UNUSED:
        raise ValueError(f"{op}: expected a reduction, got {asked!r}")
    if tensor.is_complex() and kind not in _OF_COMPLEX:
        raise ValueError(f"{op} does not support {kind.name} on complex tensors")
    if kind is RedOpType.PREMUL_SUM:
        return RedOpType.SUM.value, asked._factor
    return kind.value, None


def _root(made: ProcessGroup, op: str, rank: int | None, group_rank: int | None, default: int | None = None) -> int:
    if group_rank is not None:
        if rank is not None:
            raise ValueError(f"{op}: expected the root as a rank of the world or of the group, got both")
        if not 0 <= group_rank < made.size():
            raise ValueError(f"{op}: expected a rank of the group below {made.size()}, got {group_rank}")
        return group_rank
    rank = default if rank is None else rank
    if rank is None:
        raise ValueError(f"{op}: expected the root's rank")
    return made.group_rank(rank, op)


def broadcast(
    tensor: Tensor, src: int | None = None, group: Any = None, async_op: bool = False, group_src: int | None = None
) -> Work | None:
    """The tensor of rank ``src``, in ``tensor`` on every rank."""
    made = resolve(group)
    if made is None:
        return None
    root = _root(made, "broadcast", src, group_src)
    call, carrier = made.call(), made.carrier(tensor)
    memory, finish = taken("broadcast", tensor, carrier, read=made.rank() == root)

    def job() -> None:
        carrier.broadcast(memory, root, call)
        if made.rank() != root:
            finish()

    return made.run("broadcast", call, job, async_op, [tensor], tensor, carrier=carrier)


def all_reduce(tensor: Tensor, op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False) -> Work | None:
    """Combine the tensors of all ranks elementwise, in place: the same bits on each. Sparse ones take SUM and AVG.

    >>> import tesserack as ts
    >>> store = ts.distributed.HashStore()
    >>> ts.distributed.init_process_group(store=store, rank=0, world_size=1)
    >>> x = ts.ones(2)
    >>> ts.distributed.all_reduce(x)
    >>> x
    tensor([1., 1.])
    >>> ts.distributed.destroy_process_group()
    """
    made = resolve(group)
    if made is None:
        return None
    if not async_op and (quick := made.quick()) is not None:
        try:
            if quick.all_reduce(tensor, op, made.seconds):
                return None
        except BaseException as error:
            raise made.told(error) from None
    if isinstance(tensor, Tensor) and tensor.layout is ts.sparse_coo:
        return _all_reduce_sparse(tensor, op, made, async_op)
    code, factor = _reduction("all_reduce", op, tensor)
    call, carrier = made.call(), made.carrier(tensor)
    memory, finish = taken("all_reduce", tensor, carrier, read=True)

    def job() -> None:
        if factor is not None:
            memory.mul_(factor)
        carrier.all_reduce(memory, memory, code, call)
        finish()

    return made.run("all_reduce", call, job, async_op, [tensor], tensor, carrier=carrier)


def _all_reduce_sparse(tensor: Tensor, op: Any, made: ProcessGroup, async_op: bool) -> Work | None:
    """The sum or average of sparse tensors, of which each rank gathers all elements."""
    kind = op.op if isinstance(op, ReduceOp) else RedOpType(op)
    if kind not in (RedOpType.SUM, RedOpType.AVG):
        raise ValueError(f"all_reduce: expected SUM or AVG of a sparse tensor, got {kind.name}; try .to_dense()")
    own = tensor.detach().coalesce()
    places, values = own.indices().t().contiguous().cpu(), own.values().contiguous()
    counts = [ts.zeros(1, dtype=ts.int64, device="cpu") for _ in range(made.size())]
    all_gather(counts, ts.tensor([len(places)], device="cpu"), made)
    sizes = [int(count.item()) for count in counts]
    every_place = [places.new_empty((n, places.shape[1])) for n in sizes]
    every_value = [values.new_empty((n, *values.shape[1:])) for n in sizes]
    all_gather(every_place, places, made)
    all_gather(every_value, values, made)
    found = ts.cat(every_place).t().to(tensor.device), ts.cat(every_value)
    total = ts.sparse_coo_tensor(*found, size=tensor.shape).coalesce()
    with ts.no_grad():
        tensor.copy_(total / made.size() if kind is RedOpType.AVG else total)
    if not async_op:
        return None
    done = Work([tensor])
    done._run(lambda: None)
    return done


def reduce(
    tensor: Tensor,
    dst: int | None = None,
    op: Any = ReduceOp.SUM,
    group: Any = None,
    async_op: bool = False,
    group_dst: int | None = None,
) -> Work | None:
    """Combine the tensors of all ranks in that of rank ``dst``; others keep theirs."""
    made = resolve(group)
    if made is None:
        return None
    root = _root(made, "reduce", dst, group_dst)
    code, factor = _reduction("reduce", op, tensor)
    call, carrier = made.call(), made.carrier(tensor)
    source = given("reduce", tensor, carrier)
    if factor is not None:
        source = source * factor
    memory, finish = taken("reduce", tensor, carrier) if made.rank() == root else (source, lambda: None)

    def job() -> None:
        carrier.reduce(source, memory, code, root, call)
        finish()

    return made.run("reduce", call, job, async_op, [tensor], tensor, carrier=carrier)


def _many(op: str, tensors: Sequence[Tensor], carrier: Engine) -> tuple[list[Tensor], Callable[[], None]]:
    pairs = [taken(op, t, carrier) for t in tensors]

    def finish() -> None:
        for _, bring in pairs:
            bring()

    return [memory for memory, _ in pairs], finish


def _check_list(op: str, tensors: Any, size: int, what: str) -> None:
    if not isinstance(tensors, (list, tuple)) or len(tensors) != size:
        got = len(tensors) if isinstance(tensors, (list, tuple)) else type(tensors).__name__
        raise ValueError(f"{op}: expected {what} to be a list of {size} tensors, one a rank, got {got}")
    for tensor in tensors:
        check(op, tensor)


def _check_alike(op: str, tensor: Tensor, tensors: Sequence[Tensor]) -> None:
    for each in tensors:
        if each.numel() != tensor.numel():
            raise ValueError(f"{op}: expected tensors of {tensor.numel()} elements in {op}_list, got {each.numel()}")


def _no_list(op: str, tensors: Any, what: str) -> None:
    if tensors:
        raise ValueError(f"{op}: expected {what} on the root alone, got {len(tensors)} tensors on another rank")


def all_gather(tensor_list: Sequence[Tensor], tensor: Tensor, group: Any = None, async_op: bool = False) -> Work | None:
    """Each rank's ``tensor``, in ``tensor_list`` of every rank; they may differ in size."""
    made = resolve(group)
    if made is None:
        return None
    _check_list("all_gather", tensor_list, made.size(), "tensor_list")
    flat("all_gather", [tensor, *tensor_list])
    call, carrier = made.call(), made.carrier(tensor)
    source = given("all_gather", tensor, carrier)
    mine = tensor_list[made.rank()]
    if mine.numel() != tensor.numel():
        raise ValueError(
            f"all_gather: expected tensor_list[{made.rank()}] to hold this rank's {tensor.numel()} elements, "
            f"got {mine.numel()}"
        )
    targets, finish = _many("all_gather", tensor_list, carrier)

    def job() -> None:
        carrier.all_gather(source, targets, call)
        finish()

    return made.run("all_gather", call, job, async_op, [list(tensor_list)], tensor, carrier=carrier)


def all_gather_into_tensor(
    output_tensor: Tensor, input_tensor: Tensor, group: Any = None, async_op: bool = False
) -> Work | None:
    """Each rank's tensor, side by side along dim 0 of one tensor (or stacked) on every rank."""
    made = resolve(group)
    if made is None:
        return None
    flat("all_gather_into_tensor", [output_tensor, input_tensor])
    if output_tensor.numel() != input_tensor.numel() * made.size():
        raise ValueError(
            "all_gather_into_tensor: output tensor size must be equal to world_size times input tensor size, got "
            f"{list(output_tensor.shape)} for {made.size()} times {list(input_tensor.shape)}"
        )
    call, carrier = made.call(), made.carrier(input_tensor)
    source = given("all_gather_into_tensor", input_tensor, carrier)
    memory, finish = taken("all_gather_into_tensor", output_tensor, carrier)
    parts = list(memory.view(-1).chunk(made.size())) if memory.numel() else [memory] * made.size()

    def job() -> None:
        carrier.all_gather(source, parts, call)
        finish()

    return made.run("all_gather_into_tensor", call, job, async_op, [output_tensor], input_tensor, carrier=carrier)


def gather(
    tensor: Tensor,
    gather_list: Sequence[Tensor] | None = None,
    dst: int | None = None,
    group: Any = None,
    async_op: bool = False,
    group_dst: int | None = None,
) -> Work | None:
    """Each rank's ``tensor``, in ``gather_list`` of rank ``dst`` (by default 0); all are of one size."""
    made = resolve(group)
    if made is None:
        return None
    root = _root(made, "gather", dst, group_dst, 0)
    if made.rank() == root:
        _check_list("gather", gather_list, made.size(), "gather_list")
        flat("gather", [tensor, *(gather_list or ())])
        for each in gather_list or ():
            if each.numel() != tensor.numel():
                raise ValueError(
                    f"gather: expected tensors of {tensor.numel()} elements, got {each.numel()} in gather_list"
                )
    else:
        _no_list("gather", gather_list, "gather_list")
    call, carrier = made.call(), made.carrier(tensor)
    source = given("gather", tensor, carrier)
    targets, finish = _many("gather", gather_list or (), carrier)
    counts = [tensor.numel()] * made.size()

    def job() -> None:
        carrier.gather(source, targets, counts, root, call)
        finish()

    return made.run("gather", call, job, async_op, [list(gather_list or ())], tensor, carrier=carrier)


def scatter(
    tensor: Tensor,
    scatter_list: Sequence[Tensor] | None = None,
    src: int | None = None,
    group: Any = None,
    async_op: bool = False,
    group_src: int | None = None,
) -> Work | None:
    """One of ``scatter_list`` of rank ``src`` (by default 0), in ``tensor`` of each rank; all are of one size."""
    made = resolve(group)
    if made is None:
        return None
    root = _root(made, "scatter", src, group_src, 0)
    if made.rank() == root:
        _check_list("scatter", scatter_list, made.size(), "scatter_list")
        flat("scatter", [tensor, *(scatter_list or ())])
        for each in scatter_list or ():
            if each.numel() != tensor.numel():
                raise ValueError(
                    f"scatter: expected tensors of {tensor.numel()} elements, got {each.numel()} in scatter_list"
                )
    else:
        _no_list("scatter", scatter_list, "scatter_list")
    call, carrier = made.call(), made.carrier(tensor)
    sources = [given("scatter", t, carrier) for t in scatter_list or ()]
    memory, finish = taken("scatter", tensor, carrier)
    counts = [tensor.numel()] * made.size()

    def job() -> None:
        carrier.scatter(sources, memory, counts, root, call)
        finish()

    return made.run("scatter", call, job, async_op, [tensor], tensor, carrier=carrier)


def reduce_scatter(
    output: Tensor, input_list: Sequence[Tensor], op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False
) -> Work | None:
    """Combine a list of tensors over all ranks, and keep the one with this rank's number."""
    made = resolve(group)
    if made is None:
        return None
    _check_list("reduce_scatter", input_list, made.size(), "input_list")
    flat("reduce_scatter", [output, *input_list])
    if input_list[made.rank()].numel() != output.numel():
        raise ValueError(
            f"reduce_scatter: expected output of {input_list[made.rank()].numel()} elements, got {output.numel()}"
        )
    carrier = made.carrier(output)
    sources = [given("reduce_scatter", t, carrier) for t in input_list]
    return _reduce_scatter(made, carrier, "reduce_scatter", output, sources, op, async_op)


def _reduce_scatter(
    made: ProcessGroup, carrier: Engine, name: str, output: Tensor, sources: list[Tensor], op: Any, async_op: bool
) -> Work | None:
    code, factor = _reduction(name, op, output)
    if factor is not None:
        sources = [t * factor for t in sources]
    call = made.call()
    memory, finish = taken(name, output, carrier)

    def job() -> None:
        carrier.reduce_scatter(sources, memory, code, call)
        finish()

    return made.run(name, call, job, async_op, [output], output, carrier=carrier)


def reduce_scatter_tensor(
    output: Tensor, input: Tensor, op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False
) -> Work | None:
    """Combine a tensor over all ranks, and keep this rank's part of its dim 0 (or of those stacked)."""
    made = resolve(group)
    if made is None:
        return None
    flat("reduce_scatter_tensor", [output, input])
    if input.numel() != output.numel() * made.size():
        raise ValueError(
            "reduce_scatter_tensor: input tensor must be the same size as output size times world size, got "
            f"{list(input.shape)} for {made.size()} times {list(output.shape)}"
        )
    carrier = made.carrier(output)
    source = given("reduce_scatter_tensor", input, carrier).view(-1)
    parts = list(source.chunk(made.size())) if source.numel() else [source] * made.size()
    return _reduce_scatter(made, carrier, "reduce_scatter_tensor", output, parts, op, async_op)


def all_to_all(
    output_tensor_list: Sequence[Tensor], input_tensor_list: Sequence[Tensor], group: Any = None, async_op: bool = False
) -> Work | None:
    """From each rank a tensor to each; sizes may differ as long as giver and taker agree."""
    made = resolve(group)
    if made is None:
        return None
    _check_list("all_to_all", output_tensor_list, made.size(), "output_tensor_list")
    _check_list("all_to_all", input_tensor_list, made.size(), "input_tensor_list")
    flat("all_to_all", [*output_tensor_list, *input_tensor_list])
    call, carrier = made.call(), made.carrier(input_tensor_list[0])
    sources = [given("all_to_all", t, carrier) for t in input_tensor_list]
    targets, finish = _many("all_to_all", output_tensor_list, carrier)

    def job() -> None:
        carrier.all_to_all(sources, targets, call)
        finish()

    return made.run(
        "all_to_all", call, job, async_op, [list(output_tensor_list)], input_tensor_list[0], carrier=carrier
    )


def _splits(op: str, tensor: Tensor, sizes: Sequence[int] | None, ranks: int, what: str) -> list[int]:
    rows = tensor.shape[0] if tensor.ndim else tensor.numel()
    if not sizes:
        if rows % ranks:
            raise RuntimeError(f"{op}: expected dim 0 of {what} to divide by {ranks}, got {rows}; or give split sizes")
        return [rows // ranks] * ranks
    if len(sizes) != ranks or sum(sizes) != rows or min(sizes) < 0:
        raise RuntimeError(f"{op}: Split sizes doesn't match total dim 0 size of {what}: {list(sizes)} for {rows}")
    return list(sizes)


def all_to_all_single(
    output: Tensor,
    input: Tensor,
    output_split_sizes: Sequence[int] | None = None,
    input_split_sizes: Sequence[int] | None = None,
    group: Any = None,
    async_op: bool = False,
) -> Work | None:
    """Rows of ``input`` to each rank, and rows from each in ``output``: equal parts, or as the split sizes say."""
    made = resolve(group)
    if made is None:
        return None
    flat("all_to_all_single", [output, input])
    call, carrier = made.call(), made.carrier(input)
    source = given("all_to_all_single", input, carrier)
    memory, finish = taken("all_to_all_single", output, carrier)
    sources = source.split(_splits("all_to_all_single", source, input_split_sizes, made.size(), "input"))
    targets = memory.split(_splits("all_to_all_single", memory, output_split_sizes, made.size(), "output"))

    def job() -> None:
        carrier.all_to_all(sources, targets, call)
        finish()

    return made.run("all_to_all_single", call, job, async_op, [output], input, carrier=carrier)


def barrier(group: Any = None, async_op: bool = False, device_ids: Any = None, timeout: Any = None) -> Work | None:
    """Wait until every rank has come here, for ``timeout`` at most (by default the group's)."""
    made = resolve(group)
    if made is None:
        return None
    if not async_op and timeout is None and (quick := made.quick()) is not None:
        try:
            if quick.barrier(made.seconds):
                return None
        except BaseException as error:
            raise made.told(error) from None
    call = made.call(timeout)
    return made.run("barrier", call, lambda: made.engine.barrier(call), async_op, [])


def monitored_barrier(group: Any = None, timeout: Any = None, wait_all_ranks: bool = False) -> None:
    """As :func:`barrier`, within a time of its own; the error names the ranks that did not come."""
    made = resolve(group)
    if made is None:
        return
    call = made.call(timeout)
    made.run("monitored_barrier", call, lambda: made.engine.barrier(call), False, [])
