"""DataLoader: batches, order, collation, streams, worker threads."""

import collections
import gc
import threading
import time

import numpy as np
import pytest
import tesserack as ts
from tesserack.utils.data import (
    DataLoader,
    Dataset,
    IterableDataset,
    Subset,
    TensorDataset,
    default_collate,
    default_convert,
    get_worker_info,
)


class Squares(Dataset):
    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return {"i": i, "square": ts.tensor(float(i * i))}


class Stream(IterableDataset):
    def __init__(self, n):
        self.n = n

    def __iter__(self):
        info = get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        return iter(range(first, self.n, step))


def generator(seed=0):
    g = ts.Generator()
    g.manual_seed(seed)
    return g


def seen(loader):
    return [batch.tolist() for batch in loader]


WORKERS = pytest.mark.parametrize("workers", [0, 1, 3])


@WORKERS
def test_batches_in_order(workers):
    loader = DataLoader(range(7), 3, num_workers=workers)
    assert len(loader) == 3
    for _ in range(2):
        assert seen(loader) == [[0, 1, 2], [3, 4, 5], [6]]
    assert seen(DataLoader(range(7), 3, drop_last=True, num_workers=workers)) == [[0, 1, 2], [3, 4, 5]]
    assert seen(DataLoader([], 3, num_workers=workers)) == []


@WORKERS
def test_shuffled_epochs_differ_and_repeat_with_the_seed(workers):
    def epochs():
        ts.manual_seed(1)
        loader = DataLoader(range(30), 7, shuffle=True, num_workers=workers)
        return [seen(loader), seen(loader)]

    first, second = epochs()
    assert first != second and sorted(i for batch in first for i in batch) == list(range(30))
    assert epochs() == [first, second]


def test_generator_and_sampler_set_the_order():
    assert seen(DataLoader(range(9), 4, shuffle=True, generator=generator())) == seen(
        DataLoader(range(9), 4, shuffle=True, generator=generator())
    )
    assert seen(DataLoader(range(9), 2, sampler=[3, 1, 2])) == [[3, 1], [2]]
    loader = DataLoader(range(9), batch_sampler=[[8], [0, 1]])
    assert seen(loader) == [[8], [0, 1]] and len(loader) == 2 and loader.batch_size is None


def test_nobody_asks_for_a_length_before_it_is_known():
    class Endless:
        def __getitem__(self, i):
            return i

    class Late(list):
        def __iter__(self):
            self[:] = [4, 2, 0]
            return super().__iter__()

    assert seen(DataLoader(Endless(), 2, sampler=[3, 1, 2])) == [[3, 1], [2]]
    assert seen(DataLoader(range(9), 2, sampler=Late())) == [[4, 2], [0]]
    with pytest.raises(TypeError, match=r"has no len\(\)"):
        len(DataLoader(Endless(), 2))


@WORKERS
def test_tensor_datasets_give_the_same_as_collated_samples(workers, device):
    tensors = ts.arange(20.0, device=device).reshape(10, 2), ts.arange(10, device=device)
    for rows in (TensorDataset(*tensors), Subset(Subset(TensorDataset(*tensors), [9, 3, 4, 5]), [1, 2, 0])):
        fast = list(DataLoader(rows, 2, num_workers=workers))
        slow = list(DataLoader(rows, 2, collate_fn=lambda batch: default_collate(batch)))
        assert [[t.tolist() for t in batch] for batch in fast] == [[t.tolist() for t in batch] for batch in slow]
        assert type(fast[0]) is type(slow[0]) is list and fast[0][0].device == tensors[0].device
    assert seen_rows(DataLoader(TensorDataset(*tensors), 2, sampler=[-1, 0])) == [[[9, 0]]]
    with pytest.raises(IndexError):
        list(DataLoader(TensorDataset(*tensors), 2, sampler=[10]))


def seen_rows(loader):
    return [[batch[1].tolist()] for batch in loader]


def test_single_samples_without_batches():
    loader = DataLoader(Squares(3), batch_size=None)
    assert [sample["i"] for sample in loader] == [0, 1, 2] and len(loader) == 3
    assert list(DataLoader(Stream(3), batch_size=None)) == [0, 1, 2]
    assert isinstance(next(iter(DataLoader([np.ones(2)], batch_size=None))), ts.Tensor)


@WORKERS
def test_dicts_and_collate_fn(workers):
    (batch,) = DataLoader(Squares(3), 5, num_workers=workers)
    assert batch["i"].tolist() == [0, 1, 2] and batch["square"].tolist() == [0.0, 1.0, 4.0]
    assert list(DataLoader(Squares(3), 2, collate_fn=len, num_workers=workers)) == [2, 1]


def test_many_at_once():
    class Rows(Squares):
        def __getitems__(self, indices):
            return [10 * i for i in indices]

    assert seen(DataLoader(Rows(3), 2)) == [[0, 10], [20]]


def test_streams():
    assert seen(DataLoader(Stream(5), 2)) == [[0, 1], [2, 3], [4]]
    assert seen(DataLoader(Stream(5), 2, drop_last=True)) == [[0, 1], [2, 3]]
    assert seen(DataLoader(Stream(7), 2, num_workers=2)) == [[0, 2], [1, 3], [4, 6], [5]]
    loader = DataLoader(Stream(3), 2)
    assert seen(loader) == seen(loader)
    with pytest.raises(TypeError, match="len"):
        len(loader)


def test_workers_know_who_they_are():
    class Info(Squares):
        def __getitem__(self, i):
            info = get_worker_info()
            return (info.id, info.num_workers, info.seed, threading.get_ident())

    started = []
    loader = DataLoader(
        Info(8), 1, num_workers=2, collate_fn=lambda b: b[0], worker_init_fn=started.append, worker_type="thread"
    )
    rows = list(loader)
    assert [row[0] for row in rows] == [0, 1] * 4 and {row[1] for row in rows} == {2}
    assert rows[1][2] == rows[0][2] + 1 and len({row[3] for row in rows}) == 2
    assert sorted(started) == [0, 1] and get_worker_info() is None


@WORKERS
def test_errors_of_the_dataset_arrive(workers):
    class Bad(Squares):
        def __getitem__(self, i):
            if i == 2:
                raise KeyError("sample two")
            return i

    batches = iter(DataLoader(Bad(4), 1, num_workers=workers))
    assert next(batches).tolist() == [0] and next(batches).tolist() == [1]
    with pytest.raises(KeyError, match="sample two"):
        next(batches)


KINDS = pytest.mark.parametrize("kind", ["thread", "process"])


@KINDS
def test_errors_of_worker_init_arrive(kind):
    def fail(worker):
        raise ValueError("no worker today")

    with pytest.raises(ValueError, match="no worker today"):
        list(DataLoader(range(3), num_workers=2, worker_init_fn=fail, worker_type=kind))


@KINDS
@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
def test_a_worker_that_ends_while_starting_does_not_hang(kind, error):
    def leave(worker):
        raise error

    with pytest.raises((RuntimeError, error)):
        next(iter(DataLoader(range(3), num_workers=1, worker_init_fn=leave, worker_type=kind, timeout=60)))


@pytest.mark.parametrize("workers", [{}, *({"num_workers": 1, "worker_type": kind} for kind in ("thread", "process"))])
def test_stop_iteration_of_a_dataset_is_an_error(workers):
    class Tired(Squares):
        def __getitem__(self, i):
            if i == 1:
                next(iter(()))
            return i

    batches = iter(DataLoader(Tired(4), 1, **workers))
    assert next(batches).tolist() == [0]
    with pytest.raises(RuntimeError, match=r"Tired.*StopIteration"):
        next(batches)


def test_the_order_of_a_seed_does_not_depend_on_the_workers():
    orders = []
    for options in ({}, {"num_workers": 1}, {"num_workers": 3, "worker_type": "thread"}):
        for source in ({}, {"generator": generator(5)}):
            ts.manual_seed(3)
            loader = DataLoader(range(40), 7, shuffle=True, **source, **options)
            orders.append((bool(source), seen(loader), seen(loader), ts.rand(1).item()))
    assert orders[0] == orders[2] == orders[4] and orders[1] == orders[3] == orders[5]
    assert orders[0][1:3] != orders[1][1:3]


def test_whatever_comes_first_comes_first():
    gate = threading.Event()

    class Uneven(Squares):
        def __getitem__(self, i):
            if i == 0:
                gate.wait(60)
            return i

    batches = iter(DataLoader(Uneven(4), 1, num_workers=2, in_order=False, worker_type="thread"))
    assert next(batches).item() == 1
    gate.set()
    assert sorted(b.item() for b in batches) == [0, 2, 3]


def test_a_hanging_worker_times_out():
    release = threading.Event()

    class Slow(Squares):
        def __getitem__(self, i):
            release.wait(60)
            return i

    try:
        with pytest.raises(RuntimeError, match=r"worker 0 gave no batch within 0.2 seconds"):
            list(DataLoader(Slow(2), num_workers=1, timeout=0.2, worker_type="thread"))
    finally:
        release.set()


def test_an_abandoned_iterator_ends_its_threads():
    def loaders():
        return [t for t in threading.enumerate() if t.name.startswith("loader-")]

    gc.collect()  # what errors of other tests still hold
    batches = iter(DataLoader(range(1000), num_workers=3, worker_type="thread"))
    next(batches)
    assert len(loaders()) == 3
    del batches
    gc.collect()
    deadline = time.monotonic() + 30
    while loaders() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert loaders() == []


def test_prefetching_is_bounded():
    asked = []

    class Counting(Squares):
        def __getitem__(self, i):
            asked.append(i)
            return i

    batches = iter(DataLoader(Counting(100), 1, num_workers=2, prefetch_factor=3, worker_type="thread"))
    next(batches)
    time.sleep(0.1)
    assert len(asked) <= 7


Point = collections.namedtuple("Point", "x y")


def test_collate():
    assert default_collate([1, 2]).dtype == ts.int64
    assert default_collate([1.0, 2.0]).dtype == ts.float64
    assert default_collate([True, False]).dtype == ts.bool
    assert default_collate(["a", "b"]) == ["a", "b"] and default_collate([b"a"]) == [b"a"]
    assert default_collate([ts.zeros(2), ts.ones(2)]).tolist() == [[0.0, 0.0], [1.0, 1.0]]
    point = default_collate([Point(1, 2.0), Point(3, 4.0)])
    assert type(point) is Point and point.x.tolist() == [1, 3]
    pairs = default_collate([(1, "a"), (2, "b")])
    assert (pairs[0].tolist() == [1, 2] and pairs[1] == ("a", "b")) or pairs[1] == ["a", "b"]
    ordered = default_collate([collections.OrderedDict(a=1), collections.OrderedDict(a=2)])
    assert type(ordered) is collections.OrderedDict and ordered["a"].tolist() == [1, 2]
    arrays = default_collate([np.ones(2, np.float32), np.zeros(2, np.float32)])
    assert arrays.dtype == ts.float32 and tuple(arrays.shape) == (2, 2)
    assert default_collate([np.float64(1.5), np.float64(2)]).tolist() == [1.5, 2.0]
    assert default_collate([np.int32(1), np.int32(2)]).dtype == ts.int32
    with pytest.raises(RuntimeError, match="equal size"):
        default_collate([(1,), (1, 2)])
    with pytest.raises(TypeError, match="collate_fn"):
        default_collate([object()])
    with pytest.raises(TypeError, match="numeric"):
        default_collate([np.array("a")])


def test_convert():
    converted = default_convert({"a": [np.ones(2), "x"], "b": Point(np.float32(1), None)})
    assert isinstance(converted["a"][0], ts.Tensor) and converted["a"][1] == "x"
    assert type(converted["b"]) is Point and isinstance(converted["b"].x, ts.Tensor)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"batch_size": 0}, "batch_size"),
        ({"num_workers": -1}, "num_workers"),
        ({"shuffle": True, "sampler": [1]}, "shuffle"),
        ({"batch_sampler": [[1]], "shuffle": True}, "exclusive"),
        ({"batch_sampler": [[1]], "batch_size": 2}, "exclusive"),
        ({"batch_size": None, "drop_last": True}, "drop_last"),
        ({"prefetch_factor": 2}, "prefetch_factor"),
        ({"persistent_workers": True}, "persistent_workers"),
        ({"timeout": -1}, "timeout"),
        ({"multiprocessing_context": "fork"}, "num_workers > 0"),
        ({"multiprocessing_context": "fork", "num_workers": 1, "worker_type": "thread"}, "processes"),
        ({"multiprocessing_context": "spoon", "num_workers": 1}, "spoon"),
        ({"worker_type": "green"}, "worker_type"),
    ],
)
def test_contradictions_are_refused(options, match):
    with pytest.raises(ValueError, match=match):
        DataLoader(range(3), **options)


def test_streams_refuse_an_order():
    with pytest.raises(ValueError, match="own order"):
        DataLoader(Stream(3), shuffle=True)


def test_more_workers_than_processors_are_told_whatever_their_kind():
    rows = TensorDataset(ts.arange(4))  # which threads load
    with pytest.warns(UserWarning, match="worker threads in total"):
        DataLoader(rows, num_workers=1000)
    with pytest.warns(UserWarning, match="worker processes in total"):
        DataLoader(rows, num_workers=1000, worker_init_fn=print)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"batch_size": "a"}, ValueError),
        ({"batch_size": [2]}, ValueError),
        ({"num_workers": 1, "multiprocessing_context": object()}, TypeError),
        ({"num_workers": 1, "multiprocessing_context": "unheard of"}, ValueError),
    ],
)
def test_options_of_another_kind_are_refused_as_pytorch_does(options, error):
    with pytest.raises(error):
        DataLoader([1, 2], **options)
