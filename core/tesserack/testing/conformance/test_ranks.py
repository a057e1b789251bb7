"""A card's communicator: collectives in every dtype it takes, uneven parts, ranks that are late, places in memory."""

# The names of tesserack and tesserack.nn are collected, which type checkers do not see.
# mypy: disable-error-code="attr-defined,no-any-return"
from __future__ import annotations

import functools
import itertools
import operator
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest

import tesserack as ts
from tesserack import _native
from tesserack.testing.conformance.card import Card
from tesserack.testing.conformance.direct.ranks import REDUCTIONS, Ranks

_SIZES = (4, 2, 1)
_LATE = 0.2  # seconds
_LOAD = 150_000  # elements of the work around a collective
COUNT = 1000
DTYPES = (
    *("bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"),
    *("float16", "bfloat16", "float32", "float64", "complex64", "complex128"),
)
FLOATING = ("float16", "bfloat16", "float32", "float64", "complex64", "complex128")


@pytest.fixture(scope="module")
def ranks(card: Card) -> Iterator[Ranks]:
    """On as many devices as the card has of four or two: averages are exact."""
    if not _native._communicator_table(card.name)[0]:
        pytest.skip("has no communicator")
    made = Ranks(card.name, next(n for n in _SIZES if n <= card.capabilities["device_count"]))
    yield made
    made.close()


def values(rank: int, count: int, dtype: str, card: Card) -> Any:
    """Small whole numbers, different on every rank: sums and products of a few are exact in each dtype."""
    plain = (np.arange(count) * 5 + rank * 3) % 4
    if dtype.startswith("complex"):
        plain = plain + 1j * ((np.arange(count) + rank) % 3)
    elif dtype == "bool":
        plain = (np.arange(count) >> rank) % 2  # every pair of values occurs
    return ts.tensor(plain.tolist(), dtype=getattr(ts, dtype)).to(f"{card.name}:{rank}")


def room(ranks: Ranks, counts: Any, dtype: str) -> list[Any]:
    """Outputs full of something else; ``counts`` is one for all, or one for each rank."""
    each = counts if isinstance(counts, list) else [counts] * ranks.size
    return [ts.ones(n, dtype=getattr(ts, dtype), device=f"{ranks.name}:{rank}") for rank, n in enumerate(each)]


def there(x: Any) -> Any:
    """On the host, with booleans as the bytes they are."""
    return x.view(ts.uint8).cpu().numpy() if x.dtype is ts.bool else x.cpu().to(_wide(x.dtype)).numpy()


def _wide(dtype: Any) -> Any:
    return {ts.bfloat16: ts.float32, ts.float16: ts.float32}.get(dtype, dtype)


def agree(found: Any, wanted: Any, subject: str, rank: int) -> None:
    """Element by element, exactly."""
    got = there(found)
    wrong = np.flatnonzero(got != wanted)
    if got.shape != wanted.shape or wrong.size:
        at = int(wrong[0])
        pytest.fail(
            f"{subject}: rank {rank}, element {at} of {got.size}: expected {wanted[at]}, got {got[at]}", pytrace=False
        )


def reduced(parts: list[Any], how: str, dtype: str) -> Any:
    """What the contract says: of truth values, sum and max mean any, prod and min all."""
    if dtype == "bool":
        return functools.reduce(np.maximum if how in ("sum", "max") else np.minimum, parts)
    if how in ("sum", "average"):
        total = functools.reduce(operator.add, parts)
        return total / len(parts) if how == "average" else total
    join: Any = {"prod": operator.mul, "max": np.maximum, "min": np.minimum}[how]
    return functools.reduce(join, parts)


def skip_unless(ranks: Ranks, kind: str, dtype: str) -> None:
    if not ranks.takes(kind, dtype):
        pytest.skip(f"its table leaves out {kind} or {dtype}")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("how", [*REDUCTIONS])
def test_reductions(how: str, dtype: str, ranks: Ranks, card: Card) -> None:
    """all_reduce, reduce and reduce_scatter. What has no meaning is declined: averages of whole numbers."""
    skip_unless(ranks, "all_reduce", dtype)
    card.needs(dtype)
    subject = f"all_reduce, {how} of {dtype} on {card.name}"
    meaningless = (how == "average" and dtype not in FLOATING) or (
        how in ("max", "min") and dtype.startswith("complex")
    )
    sources = [values(rank, COUNT, dtype, card) for rank in range(ranks.size)]
    targets = room(ranks, COUNT, dtype)
    done = ranks.all("all_reduce", sources, targets, count=COUNT, reduction=REDUCTIONS[how])
    if meaningless:
        assert not done, f"{subject}: has no meaning; the core asks elsewhere where it is declined"
        return  # declined, as it should be
    if not done:
        pytest.skip("declines it")
    wanted = reduced([there(x) for x in sources], how, dtype).astype(there(targets[0]).dtype)
    for rank in range(ranks.size):
        agree(targets[rank], wanted, subject, rank)
    scattered = [x.clone() for x in sources]
    if ranks.takes("reduce", dtype) and ranks.all(
        "reduce",
        sources,
        kept := room(ranks, COUNT, dtype),
        count=COUNT,
        reduction=REDUCTIONS[how],
        peer=ranks.size - 1,
    ):
        agree(kept[-1], wanted, subject.replace("all_reduce", "reduce"), ranks.size - 1)
    each = COUNT // ranks.size
    if ranks.takes("reduce_scatter", dtype) and ranks.all(
        "reduce_scatter", scattered, kept := room(ranks, each, dtype), count=each, reduction=REDUCTIONS[how]
    ):
        for rank in range(ranks.size):
            part = wanted[rank * each : (rank + 1) * each]
            agree(kept[rank], part, subject.replace("all_reduce", "reduce_scatter"), rank)
    for rank in range(ranks.size):  # what is read is not written
        agree(sources[rank], there(values(rank, COUNT, dtype, card)), f"the source of {subject}", rank)


def test_whole_numbers_stay_exact(ranks: Ranks, card: Card) -> None:
    """Beyond what a double holds."""
    skip_unless(ranks, "all_reduce", "int64")
    sources = [ts.tensor([2**53 + 1 + rank, -(2**60) - 1], device=f"{card.name}:{rank}") for rank in range(ranks.size)]
    targets = room(ranks, 2, "int64")
    if ranks.all("all_reduce", sources, targets, count=2, reduction=REDUCTIONS["sum"]):
        wanted = sum(there(x) for x in sources)
        for rank in range(ranks.size):
            agree(targets[rank], wanted, f"all_reduce, sum of int64 beyond 2^53 on {card.name}", rank)


_MANY = (1 << 18) + 3  # more than a piece, whatever the card moves at once


@pytest.mark.parametrize("kind", ("all_reduce", "broadcast", "all_gather", "all_to_all"))
def test_many_elements(kind: str, ranks: Ranks, card: Card) -> None:
    """More than one piece, and what follows the last whole one."""
    skip_unless(ranks, kind, "float32")
    size = ranks.size
    count = _MANY // size * size if kind == "all_to_all" else _MANY
    plain = [((np.arange(count) * 7919 + rank) % 1009).astype(np.float32) for rank in range(size)]
    sources = [ts.from_numpy(x).to(f"{card.name}:{rank}") for rank, x in enumerate(plain)]
    targets = room(ranks, count * (size if kind == "all_gather" else 1), "float32")
    if not ranks.all(kind, sources, targets, count=count, reduction=REDUCTIONS["sum"], peer=0):
        pytest.skip("declines it")
    each, whole = count // size, sum(plain)
    for rank in range(size):
        exchanged = [x[rank * each : (rank + 1) * each] for x in plain]
        parts: dict[str, list[Any]] = {
            "all_reduce": [whole],
            "broadcast": plain[:1],
            "all_gather": plain,
            "all_to_all": exchanged,
        }
        agree(targets[rank], np.concatenate(parts[kind]), f"{kind} of float32, {count} elements, on {card.name}", rank)


@pytest.mark.parametrize("how", ("max", "min"))
def test_extremes_of_nan(how: str, ranks: Ranks, card: Card) -> None:
    """NaN on any rank is NaN for all, as it is for kernels."""
    skip_unless(ranks, "all_reduce", "float32")
    for at in range(ranks.size):
        plain = [np.array([1.0 + rank, np.nan if rank == at else 2.0, -3.0], np.float32) for rank in range(ranks.size)]
        sources = [ts.from_numpy(x).to(f"{card.name}:{rank}") for rank, x in enumerate(plain)]
        targets = room(ranks, 3, "float32")
        if not ranks.all("all_reduce", sources, targets, count=3, reduction=REDUCTIONS[how]):
            pytest.skip("declines it")
        for rank in range(ranks.size):
            lost = not np.isnan(there(targets[rank])[1])
            assert not lost, f"all_reduce, {how} of float32 on {card.name}: rank {rank}: NaN of rank {at} is lost"


@pytest.mark.parametrize("dtype", DTYPES)
def test_moves(dtype: str, ranks: Ranks, card: Card) -> None:
    """Broadcast from each rank, gather, scatter, all_gather, all_to_all: every element in its place."""
    card.needs(dtype)
    each = 37
    size = ranks.size
    whole = [values(rank, each * size, dtype, card) for rank in range(size)]
    parts = [x[:each].contiguous() for x in whole]
    joined = np.concatenate([there(x) for x in parts])
    for root in range(size):
        _broadcast(dtype, ranks, root, parts)
        if ranks.takes("gather", dtype) and ranks.all(
            "gather", parts, got := room(ranks, each * size, dtype), count=each, peer=root
        ):
            agree(got[root], joined, f"gather of {dtype} to rank {root} on {card.name}", root)
        if ranks.takes("scatter", dtype) and ranks.all(
            "scatter", whole, got := room(ranks, each, dtype), count=each, peer=root
        ):
            for rank in range(size):
                part = there(whole[root])[rank * each : (rank + 1) * each]
                agree(got[rank], part, f"scatter of {dtype} from rank {root} on {card.name}", rank)
    if ranks.takes("all_gather", dtype) and ranks.all(
        "all_gather", parts, got := room(ranks, each * size, dtype), count=each
    ):
        for rank in range(size):
            agree(got[rank], joined, f"all_gather of {dtype} on {card.name}", rank)
    if ranks.takes("all_to_all", dtype) and ranks.all(
        "all_to_all", whole, got := room(ranks, each * size, dtype), count=each * size
    ):
        for rank in range(size):
            wanted = np.concatenate([there(x)[rank * each : (rank + 1) * each] for x in whole])
            agree(got[rank], wanted, f"all_to_all of {dtype} on {card.name}", rank)


def _broadcast(dtype: str, ranks: Ranks, root: int, parts: list[Any]) -> None:
    got = room(ranks, parts[0].numel(), dtype)
    if ranks.takes("broadcast", dtype) and ranks.all("broadcast", parts, got, count=parts[0].numel(), peer=root):
        for rank in range(ranks.size):
            agree(got[rank], there(parts[root]), f"broadcast of {dtype} from rank {root} on {ranks.name}", rank)


@pytest.mark.parametrize("least", [2, 0])
def test_uneven_parts(least: int, ranks: Ranks, card: Card) -> None:
    """Counts that differ by rank, one of them nothing, of elements of each size."""
    for dtype in filter(card.supports, ("float32", "float64", "float16", "uint8")):
        _uneven_parts(least, dtype, ranks, card)


def _uneven_parts(least: int, dtype: str, ranks: Ranks, card: Card) -> None:
    size = ranks.size
    counts = [least + 3 * rank for rank in range(size)]
    starts = np.cumsum([0, *counts]).tolist()
    parts = [values(rank, n, dtype, card) for rank, n in enumerate(counts)]
    joined = np.concatenate([there(x) for x in parts])
    if ranks.takes("all_gather", dtype) and ranks.all(
        "all_gather", parts, got := room(ranks, sum(counts), dtype), count=tuple(counts), counts=counts
    ):
        for rank in range(size):
            agree(got[rank], joined, f"all_gather of uneven parts of {dtype} on {card.name}", rank)
    whole = [values(rank, sum(counts), dtype, card) for rank in range(size)]
    total = sum(there(x) for x in whole)
    if ranks.takes("reduce_scatter", dtype) and ranks.all(
        "reduce_scatter", whole, got := room(ranks, counts, dtype), count=tuple(counts), counts=counts, reduction=0
    ):
        for rank in range(size):
            wanted = total[starts[rank] : starts[rank + 1]]
            agree(got[rank], wanted, f"reduce_scatter of uneven parts of {dtype} on {card.name}", rank)


def test_uneven_exchanges(ranks: Ranks, card: Card) -> None:
    """all_to_all with counts of each rank's own, some of them nothing."""
    size, dtype = ranks.size, "float32"
    skip_unless(ranks, "all_to_all", dtype)
    given = [[(rank + to) % 3 for to in range(size)] for rank in range(size)]
    gotten = [[given[rank][to] for rank in range(size)] for to in range(size)]
    sent = [values(rank, sum(given[rank]) + 1, dtype, card) for rank in range(size)]
    got = room(ranks, [sum(n) + 1 for n in gotten], dtype)
    counts = tuple(sum(n) for n in given)
    if not ranks.all("all_to_all", sent, got, count=counts, counts=tuple(given), gotten=tuple(gotten)):
        pytest.skip("declines it")
    for to in range(size):
        pieces = [there(sent[rank])[sum(given[rank][:to]) :][: given[rank][to]] for rank in range(size)]
        agree(got[to], np.concatenate([*pieces, [1]]), f"all_to_all of uneven parts on {card.name}", to)


class Form(NamedTuple):
    """How a collective is called with ``each`` elements for a rank, and what every rank, or the root alone, gets."""

    given: int
    asked: int  # the field `count`
    wanted: Callable[[list[Any], int], Any]  # from what all gave, for a rank
    everywhere: bool = True


def forms(size: int, each: int, root: int) -> dict[str, Form]:
    """Of all collectives but messages."""
    whole = size * each

    def part(x: Any, rank: int) -> Any:
        return x[rank * each : (rank + 1) * each]

    return {
        "all_reduce": Form(whole, whole, lambda x, rank: sum(x)),
        "reduce": Form(whole, whole, lambda x, rank: sum(x), False),
        "broadcast": Form(whole, whole, lambda x, rank: x[root]),
        "all_gather": Form(each, each, lambda x, rank: np.concatenate(x)),
        "gather": Form(each, each, lambda x, rank: np.concatenate(x), False),
        "scatter": Form(whole, each, lambda x, rank: part(x[root], rank)),
        "reduce_scatter": Form(whole, each, lambda x, rank: part(sum(x), rank)),
        "all_to_all": Form(whole, whole, lambda x, rank: np.concatenate([part(y, rank) for y in x])),
    }


@pytest.mark.parametrize("late", ["first", "last"])
def test_a_rank_that_is_late(late: str, ranks: Ranks, card: Card) -> None:
    """The others wait for it, and get what it has when it comes, not what its memory held before."""
    if ranks.size < 2:
        pytest.skip("has one device")
    skip_unless(ranks, "all_reduce", "float32")
    slow = 0 if late == "first" else ranks.size - 1
    for kind, form in forms(ranks.size, COUNT // ranks.size, slow).items():
        sources = [ts.zeros(form.given, device=f"{card.name}:{rank}") for rank in range(ranks.size)]
        plain = [np.full(form.given, rank + 1.0, np.float32) for rank in range(ranks.size)]
        targets = room(ranks, [form.wanted(plain, rank).size for rank in range(ranks.size)], "float32")

        def before(rank: int, sources: list[Any] = sources) -> None:
            if rank == slow:
                time.sleep(_LATE)
            sources[rank].fill_(rank + 1.0)

        options: Any = {"count": form.asked, "peer": slow, "reduction": REDUCTIONS["sum"]}
        if not ranks.takes(kind, "float32") or not ranks.all(kind, sources, targets, before, **options):
            continue
        for rank in range(ranks.size) if form.everywhere else (slow,):
            subject = f"{kind} with rank {slow} {_LATE} s late on {card.name}"
            agree(targets[rank], form.wanted(plain, rank), subject, rank)


#: What comes next on the stream, and what is wrong if the result then is.
_NEXT = {
    "nothing": "does not wait for what the stream was given before",
    "reads": "what the stream is given next does not wait for it",
    "writes": "reads its source when the stream has gone on",
}


def _among_work(ranks: Ranks, kind: str, form: Form, options: Any, streams: list[Any], then: str) -> list[Any] | None:
    """The results of a collective between other work of its streams; None: declined."""
    devices = [f"{ranks.name}:{rank}" for rank in range(ranks.size)]
    loads = [ts.zeros(_LOAD, device=device) for device in devices]
    sources = [ts.zeros(form.given, device=device) for device in devices]
    plain = [np.zeros(form.given, np.float32)] * ranks.size
    targets = room(ranks, [form.wanted(plain, rank).size for rank in range(ranks.size)], "float32")
    results: list[Any] = [*targets]
    for device in devices:
        ts.synchronize(device)
    ranks.sequence += 1

    def work(rank: int) -> int:
        with ts.stream(streams[rank]):
            load = loads[rank]
            for _ in range(12):  # a while
                load = load + 1
            sources[rank].copy_((load[:1] + (rank - 11)).expand(form.given))
            status = ranks.call(rank, kind, sources[rank], targets[rank], waits=False, **options)
            if then == "reads":
                results[rank] = targets[rank].clone()
            elif then == "writes":
                sources[rank].fill_(-1)
        return status

    statuses = ranks.each(work)
    for device in devices:
        ts.synchronize(device)
    return None if statuses[0] else results


@pytest.mark.parametrize("where", ["default", "own"])
def test_collectives_keep_to_their_stream(where: str, ranks: Ranks, card: Card) -> None:
    """Done in its order, as a kernel is: after what it was given before, and before what it is given next."""
    skip_unless(ranks, "all_reduce", "float32")
    if where == "own" and not card.capabilities["streams"]:
        pytest.skip("lacks streams")
    devices = [f"{card.name}:{rank}" for rank in range(ranks.size)]
    streams = [ts.Stream(device=x) if where == "own" else ts.default_stream(x) for x in devices]
    place = "a stream of its own" if where == "own" else "the default stream"
    root = ranks.size - 1
    for (kind, form), (then, cause) in itertools.product(
        forms(ranks.size, COUNT // ranks.size, root).items(), _NEXT.items()
    ):
        options: Any = {"count": form.asked, "peer": root, "reduction": REDUCTIONS["sum"]}
        takes = ranks.takes(kind, "float32")
        if not takes or not (found := _among_work(ranks, kind, form, options, streams, then)):
            continue
        plain = [np.full(form.given, rank + 1.0, np.float32) for rank in range(ranks.size)]
        for rank in range(ranks.size) if form.everywhere else (root,):
            subject = f"{kind} on {place} on {card.name}, without a wait of the host: {cause}"
            agree(found[rank], form.wanted(plain, rank), subject, rank)


def test_places_in_memory(ranks: Ranks, card: Card) -> None:
    """Offsets of source and target, results in the place of the source, and nothing beside."""
    skip_unless(ranks, "all_reduce", "float32")
    root = ranks.size - 1
    for kind, form in forms(ranks.size, COUNT // ranks.size, root).items():
        wide = [values(rank, form.given + 30, "float32", card) for rank in range(ranks.size)]
        kept = [there(x) for x in wide]
        inside, plain = [x[7 : form.given + 7] for x in wide], [x[7 : form.given + 7] for x in kept]
        wanted = [form.wanted(plain, rank) for rank in range(ranks.size)]
        around = room(ranks, [x.size + 30 for x in wanted], "float32")
        targets = [x[11 : w.size + 11] for x, w in zip(around, wanted, strict=True)]
        options: Any = {"count": form.asked, "peer": root, "reduction": REDUCTIONS["sum"]}
        if not ranks.takes(kind, "float32") or not ranks.all(kind, inside, targets, **options):
            continue
        for rank in range(ranks.size) if form.everywhere else (root,):
            beside = np.concatenate([np.ones(11), wanted[rank], np.ones(19)]).astype(np.float32)
            agree(around[rank], beside, f"{kind} between offsets on {card.name}", rank)
        if kind == "all_reduce" and ranks.all(kind, inside, inside, **options):
            for rank in range(ranks.size):
                replaced = np.concatenate([kept[rank][:7], wanted[rank], kept[rank][form.given + 7 :]])
                agree(wide[rank], replaced, f"all_reduce in place on {card.name}", rank)


def test_messages(ranks: Ranks, card: Card) -> None:
    """From each rank to the next."""
    if ranks.size < 2:
        pytest.skip("has one device")
    skip_unless(ranks, "send", "int32")
    skip_unless(ranks, "recv", "int32")
    sent, got = values(0, COUNT, "int32", card), room(ranks, COUNT, "int32")
    ranks.sequence += 1
    pair: dict[int, Callable[[], int]] = {
        0: lambda: ranks.call(0, "send", sent, None, count=COUNT, peer=1),
        1: lambda: ranks.call(1, "recv", None, got[1], count=COUNT, peer=0),
    }
    statuses = ranks.each(lambda rank: pair[rank]() if rank in pair else None)
    if statuses[:2] != [0, 0]:
        pytest.skip("declines it")
    agree(got[1], there(sent), f"a message from rank 0 to 1 on {card.name}", 1)


def test_barriers(ranks: Ranks, card: Card) -> None:
    """A barrier that nobody leaves before all came."""
    if ranks.size < 2:
        pytest.skip("has one device")
    skip_unless(ranks, "barrier", "int32")
    came: list[float] = [0.0] * ranks.size
    left: list[float] = [0.0] * ranks.size
    ranks.sequence += 1

    def meet(rank: int) -> None:
        time.sleep(_LATE if rank == ranks.size - 1 else 0)
        came[rank] = time.monotonic()
        ranks.call(rank, "barrier", None, None)
        left[rank] = time.monotonic()

    ranks.each(meet)
    early = [rank for rank in range(ranks.size) if left[rank] < max(came)]
    assert not early, f"barrier on {card.name}: rank {early[0]} left {max(came) - left[early[0]]:.3f} s before all came"
