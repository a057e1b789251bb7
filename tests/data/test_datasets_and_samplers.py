"""Datasets, splitting, samplers."""

import collections
import io
import itertools
import pickle

import numpy as np
import pytest
import tesserack as ts
from tesserack.utils import data
from tesserack.utils.data import BatchSampler, RandomSampler, Subset, TensorDataset, WeightedRandomSampler, random_split


def generator(seed=0):
    g = ts.Generator()
    g.manual_seed(seed)
    return g


def test_tensor_dataset(device):
    rows = TensorDataset(ts.arange(6, device=device).reshape(3, 2), ts.arange(3, device=device))
    assert len(rows) == 3 and [part.tolist() for part in rows[-1]] == [[4, 5], 2]
    assert [part.tolist() for part in rows[1:]] == [[[2, 3], [4, 5]], [1, 2]]
    with pytest.raises(AssertionError, match="Size mismatch"):
        TensorDataset(ts.zeros(2), ts.zeros(3))
    with pytest.raises(AssertionError, match="Size mismatch"):
        TensorDataset(ts.zeros(()))
    with pytest.raises(ValueError, match="at least one"):
        TensorDataset()


def test_subset_of_a_subset():
    part = Subset(Subset(list("abcdef"), [5, 3, 1]), [2, 0])
    assert list(part) == ["b", "f"] and len(part) == 2 and part.__getitems__([1, 0]) == ["f", "b"]


def test_concat():
    joined = data.ConcatDataset([list("ab"), [], list("c")])
    assert [joined[i] for i in range(-3, 3)] == list("abcabc") and len(joined) == 3
    assert len(TensorDataset(ts.zeros(2)) + TensorDataset(ts.zeros(3))) == 5
    with pytest.raises(IndexError, match="out of range"):
        joined[3]
    with pytest.raises(ValueError, match="should not exceed 3 samples, got -4"):
        joined[-4]
    with pytest.raises(AssertionError, match="empty"):
        data.ConcatDataset([])


def test_streams_chain():
    class Stream(data.IterableDataset):
        def __init__(self, values):
            self.values = values

        def __iter__(self):
            return iter(self.values)

        def __len__(self):
            return len(self.values)

    chained = Stream([1, 2]) + Stream([3])
    assert list(chained) == [1, 2, 3] and len(chained) == 3
    with pytest.raises(AssertionError, match="ChainDataset"):
        data.ConcatDataset([Stream([1])])


def test_stack():
    assert data.StackDataset([1, 2], [3, 4])[1] == (2, 4)
    assert data.StackDataset(a=[1, 2], b=[3, 4])[0] == {"a": 1, "b": 3}
    with pytest.raises(ValueError, match="Size mismatch"):
        data.StackDataset([1], [1, 2])


def test_undefined_methods_say_so():
    with pytest.raises(NotImplementedError, match="__getitem__"):
        data.Dataset()[0]
    with pytest.raises(NotImplementedError, match="__iter__"):
        iter(data.IterableDataset())


@pytest.mark.parametrize(
    ("lengths", "expected"),
    [
        ([3, 7], [3, 7]),
        ([0.3, 0.7], [3, 7]),
        ([0.5, 0.25, 0.25], [6, 2, 2]),
        ([1.0], [10]),
        ([10], [10]),
        ([0, 10], [0, 10]),
    ],
)
@pytest.mark.filterwarnings("ignore:Length of split:UserWarning")
def test_random_split(lengths, expected):
    parts = random_split(range(10), lengths, generator())
    assert [len(part) for part in parts] == expected
    assert sorted(itertools.chain(*parts)) == list(range(10))
    again = random_split(range(10), lengths, generator())
    assert [part.indices for part in parts] == [part.indices for part in again]


def test_random_split_of_one_sample():
    assert [len(part) for part in random_split("x", [1])] == [1]
    for bad in ([3, 3], [0.5, 0.2]):
        with pytest.raises(ValueError, match="does not equal the length of the input dataset"):
            random_split(range(10), bad)
    with pytest.raises(ValueError, match="between 0 and 1"):
        random_split(range(10), [-0.5, 1.5])


def test_random_sampler():
    order = list(RandomSampler(range(20), generator=generator()))
    assert sorted(order) == list(range(20)) != order
    assert order == list(RandomSampler(range(20), generator=generator()))
    sampler = RandomSampler(range(20), generator=generator())
    assert list(sampler) != list(sampler)  # a new order every pass
    assert len(list(RandomSampler(range(3), num_samples=8))) == 8
    assert collections.Counter(RandomSampler(range(3), num_samples=9)) == {0: 3, 1: 3, 2: 3}
    drawn = list(RandomSampler(range(5), replacement=True, num_samples=3000))
    assert len(drawn) == 3000 and set(drawn) == set(range(5))
    with pytest.raises(ValueError, match="num_samples"):
        RandomSampler([])
    with pytest.raises(ValueError, match="num_samples"):
        RandomSampler(range(3), num_samples=0)
    with pytest.raises(TypeError, match="replacement"):
        RandomSampler(range(3), replacement=1)


def test_the_default_seed_fixes_the_order():
    ts.manual_seed(3)
    first = list(RandomSampler(range(20)))
    ts.manual_seed(3)
    assert list(RandomSampler(range(20))) == first
    assert list(RandomSampler(range(20))) != first


def test_weighted_sampler():
    drawn = np.bincount(list(WeightedRandomSampler([1, 0, 3], 4000, generator=generator())), minlength=3)
    assert drawn[1] == 0 and abs(drawn[2] / 4000 - 0.75) < 0.03
    firsts = [next(iter(WeightedRandomSampler([1.0, 3.0], 2, False, generator(i)))) for i in range(400)]
    assert abs(np.mean(firsts) - 0.75) < 0.07
    assert sorted(WeightedRandomSampler(ts.tensor([1.0, 2.0, 0.0]), 2, replacement=False)) == [0, 1]
    for weights, n, replace, match in (
        ([1.0], 0, True, "num_samples"),
        ([1.0, -1.0], 1, True, "weights"),
        ([0.0], 1, True, "weights"),
        ([float("nan")], 1, True, "weights"),
        ([1.0, 0.0], 2, False, "fewer"),
        ([1.0], 1, 1, "replacement"),
    ):
        with pytest.raises(ValueError, match=match):
            WeightedRandomSampler(weights, n, replace)


def test_subset_sampler():
    sampler = data.SubsetRandomSampler([5, 7, 9], generator())
    assert sorted(sampler) == [5, 7, 9] and len(sampler) == 3


def test_batch_sampler():
    assert (
        list(BatchSampler(range(5), 2, False)) == [[0, 1], [2, 3], [4]] and len(BatchSampler(range(5), 2, False)) == 3
    )
    assert list(BatchSampler(range(5), 2, True)) == [[0, 1], [2, 3]] and len(BatchSampler(range(5), 2, True)) == 2
    for size, drop in ((0, True), (2, 1), (True, True)):
        with pytest.raises(ValueError):
            BatchSampler(range(5), size, drop)


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("size", [1, 5, 6, 7])
def test_distributed_sampler(size, drop_last):
    parts = [data.DistributedSampler(range(size), 3, rank, seed=1, drop_last=drop_last) for rank in range(3)]
    seen = [list(part) for part in parts]
    assert {len(part) for part in seen} == {len(parts[0])}
    flat = list(itertools.chain(*seen))
    assert set(flat) == set(range(size)) if not drop_last else len(set(flat)) == len(flat)
    for part in parts:
        part.set_epoch(1)
    if size > 4:
        assert [list(part) for part in parts] != seen
    with pytest.raises(ValueError, match="rank"):
        data.DistributedSampler(range(3), 2, 2)
    with pytest.raises(ValueError, match="num_replicas"):
        data.DistributedSampler(range(3))


def test_tiny_weights_are_drawn_by_weight():
    """u ** (1 / weight) is 0 for all of them; their logarithms still differ."""
    ts.manual_seed(0)
    for scale in (1e-3, 1e-200, 1e-320):
        weights = [3 * scale] + [scale] * 9
        first = [next(iter(WeightedRandomSampler(weights, 5, replacement=False))) for _ in range(600)]
        assert 110 < first.count(0) < 190  # 3 in 12
        assert all(20 < first.count(i) < 90 for i in range(1, 10))
    drawn = list(WeightedRandomSampler([5e-324, 1e-323], 3000))
    assert 850 < drawn.count(0) < 1150
    assert len({*WeightedRandomSampler([1e308] * 8, 300)}) == 8


def test_stacked_datasets_give_several_at_once():
    class Many(list):
        def __getitems__(self, indices):
            return [-self[i] for i in indices]

    assert data.StackDataset([1, 2, 3], Many([4, 5, 6])).__getitems__([2, 0]) == [(3, -6), (1, -4)]
    assert data.StackDataset(a=[1, 2], b=Many([4, 5])).__getitems__([1]) == [{"a": 2, "b": -5}]
    Many.__getitems__ = lambda self, indices: []
    with pytest.raises(ValueError, match="asked for 1"):
        data.StackDataset(Many([1])).__getitems__([0])
    assert data.DataLoader[int] is not None


def test_datapipes_refuse_and_share_as_pytorchs_do():
    from tesserack.utils.data.datapipes.iter import IterableWrapper, Sampler
    from tesserack.utils.data.datapipes.utils.common import StreamWrapper

    source = IterableWrapper([1, 2])
    assert source.fork(num_instances=1) is source
    with pytest.raises(AssertionError, match="buffer_size"):
        source.shuffle(buffer_size=0)
    with pytest.raises(AssertionError, match="__len__"):
        Sampler(IterableWrapper(iter("ab")).filter(bool))
    stream = StreamWrapper(io.StringIO("text"))
    assert "getvalue" in dir(stream) and "autoclose" in dir(stream)
    assert pickle.loads(pickle.dumps(StreamWrapper(io.BytesIO(b"text")))).read() == b"text"


def test_samples_are_what_a_subclass_says() -> None:
    class Tenfold(data.Subset):
        def __getitem__(self, index: int) -> ts.Tensor:
            return super().__getitem__(index)[0] * 10

    class Both(Tenfold):
        def __getitems__(self, indices: list[int]) -> list[ts.Tensor]:
            return [sample[0] * 10 for sample in super().__getitems__(indices)]

    class Named(data.StackDataset):
        def __getitem__(self, index: int) -> tuple[int, ...]:
            return (*super().__getitem__(index), 7)

    rows = data.TensorDataset(ts.arange(4))
    for kind in (Tenfold, Both):
        assert [batch.tolist() for batch in data.DataLoader(kind(rows, [1, 2, 3]), 2)] == [[10, 20], [30]]
    assert [part.tolist() for part in next(iter(data.DataLoader(Named([1, 2], [3, 4]), 2)))] == [[1, 2], [3, 4], [7, 7]]
