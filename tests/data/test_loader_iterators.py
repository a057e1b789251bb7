"""What iterators of loaders tell, how they go on after errors, and what is said where workers cannot."""

from __future__ import annotations

import array
import collections
import resource
import subprocess
import sys
import textwrap
import warnings

import pytest
import tesserack as ts
from tesserack.utils.data import (
    BatchSampler,
    ChainDataset,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    default_collate,
    default_convert,
)
from tesserack.utils.data.iterators import pinned

WAYS = [{}, *({"num_workers": 1, "worker_type": kind} for kind in ("thread", "process"))]


class Numbers(Dataset):
    def __init__(self, size, wrong=()):
        self.size, self.wrong = size, wrong

    def __len__(self):
        return self.size

    def __getitem__(self, i):
        if i in self.wrong:
            raise KeyError(i)
        return i


class Stream(IterableDataset):
    def __init__(self, size, told):
        self.size, self.told = size, told

    def __iter__(self):
        return iter(range(self.size))

    def __len__(self):
        return self.told


@pytest.mark.parametrize("way", WAYS)
def test_iterators_have_lengths_and_go_on_after_errors(way):
    batches = iter(DataLoader(Numbers(5, wrong=(1, 2)), **way))
    assert len(batches) == 5
    found = []
    while True:
        try:
            found.append(next(batches).item())
        except KeyError as error:
            found.append(error.args)
        except StopIteration:
            break
    assert found == [0, (1,), (2,), 3, 4]
    assert list(batches) == []


@pytest.mark.parametrize("way", WAYS)
def test_streams_longer_than_they_say_warn(way):
    loader = DataLoader(Stream(3, 2), **way)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(list(DataLoader(Stream(3, 2), **way))) == 3  # nobody asked for the length
    assert len(loader) == 2
    with pytest.warns(UserWarning, match=r"reported to be 2.*3 samples have been fetched"):
        assert len(list(loader)) == 3


def test_streams_that_are_none_do_not_chain():
    with pytest.raises(AssertionError, match="only supports IterableDataset"):
        list(ChainDataset([Stream(1, 1), Numbers(2)]))
    with pytest.raises(AssertionError, match="only supports IterableDataset"):
        len(ChainDataset([Numbers(2)]))
    assert [*iter(ChainDataset(Stream(n, n) for n in (1, 2)))] == [0, 0, 1]


def test_members_that_programs_use():
    loader = DataLoader(Numbers(4), 2, num_workers=2, persistent_workers=True, worker_type="process")
    assert loader._iterator is None and loader._DataLoader__initialized
    batches = iter(loader)
    assert loader._iterator is batches
    processes = batches._workers
    assert [process.is_alive() for process in processes] == [True, True]
    assert len(list(batches)) == 2 and iter(loader) is batches and batches._workers == processes
    batches._shutdown_workers()
    for process in processes:
        process.join(30)
    assert [process.is_alive() for process in processes] == [False, False]
    assert [batch.tolist() for batch in loader] == [[0, 1], [2, 3]]  # by new ones


def test_orders_may_be_settled_again_while_it_is_made():
    class Twice(DataLoader):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            self._DataLoader__initialized = False
            self.batch_sampler = [*self.batch_sampler] * 2
            self._DataLoader__initialized = True

    loader = Twice(Numbers(2))
    assert [batch.item() for batch in loader] == [0, 1, 0, 1] and len(loader) == 4
    with pytest.raises(ValueError, match="after"):
        loader.batch_sampler = []
    with pytest.raises(NotImplementedError, match="pickled"):
        ts.utils.data.dataloader.DataLoader._get_iterator(loader).__getstate__()


class Words(list):
    pass


class Letters(collections.UserList):
    pass


def test_sequences_keep_their_class():
    for kind in (Words, Letters, collections.deque):
        joined = default_collate([kind([1, 2]), kind([3, 4])])
        assert type(joined) is kind and [t.tolist() for t in joined] == [[1, 3], [2, 4]]
        converted = default_convert(kind([ts.ones(1), "a"]))
        assert type(converted) is kind and converted[1] == "a"
        assert type(pinned(kind(["a"]))) is kind
    for data in (bytearray(b"ab"), array.array("i", [1, 2])):
        assert type(default_convert(data)) is type(data) and default_convert(data) == data
        assert [t.tolist() for t in default_collate([data, data])] == [[data[0]] * 2, [data[1]] * 2]
    assert default_convert((1, 2)) == [1, 2] and pinned((1, "a")) == (1, "a")
    named = collections.namedtuple("named", "a b")
    assert pinned(named(1, 2)) == named(1, 2)


def test_indices_beyond_31_bits():
    large = 2**40
    assert max(RandomSampler(range(large), replacement=True, num_samples=64)) > 2**31
    assert next(iter(SequentialSampler(range(large)))) == 0 and len(SequentialSampler(range(large))) == large
    assert sorted(SubsetRandomSampler([large, large + 1])) == [large, large + 1]
    assert list(BatchSampler([large], 1, False)) == [[large]]
    for way in WAYS:
        loader = DataLoader(range(large), batch_sampler=[[large - 1, 2**31]], **way)
        assert [batch.tolist() for batch in loader] == [[large - 1, 2**31]]


class Broken:
    """Cannot be made again in the process that asks for it."""

    def __init__(self, error):
        self.error = error

    def __setstate__(self, state):
        raise state["error"]


@pytest.mark.parametrize("error", [OSError("of mine"), EOFError("of mine"), IndexError("of mine")])
def test_errors_of_unpickling_are_told_as_they_are(error):
    class Batches(Numbers):
        def __getitem__(self, i):
            return Broken(error) if i == 0 else i

    batches = iter(DataLoader(Batches(2), None, num_workers=1, worker_type="process"))
    with pytest.raises(type(error), match="of mine"):
        next(batches)
    assert next(batches) == 1
    tasks = iter(DataLoader(Numbers(2), batch_sampler=[[Broken(error)], [1]], num_workers=1, worker_type="process"))
    with pytest.raises(type(error), match="of mine"):
        next(tasks)
    assert next(tasks).tolist() == [1]


def test_want_of_descriptors_is_named():
    program = """
        import resource, tesserack as ts
        from tesserack.utils.data import DataLoader, Dataset

        class Large(Dataset):
            def __len__(self):
                return 64
            def __getitem__(self, i):
                return ts.ones(1 << 15)

        loader = DataLoader(Large(), None, num_workers=1, worker_type="process")
        batches = iter(loader)
        kept = [next(batches)]
        resource.setrlimit(resource.RLIMIT_NOFILE, (24, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
        try:
            for batch in batches:
                kept.append(batch)
        except OSError as error:
            print(error)
    """
    if sys.version_info >= (3, 13):
        pytest.skip("kept batches hold no descriptors")
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=120)
    assert "ulimit -n" in done.stdout and "24" in done.stdout, done.stderr
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] != 24


WANTING = {
    "workers": (
        "DataLoader(Kept(), None, num_workers=30, worker_type='process')",
        "resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))",
        "the workers of a DataLoader: 30 are asked for",
    ),
    "in a worker": (
        "DataLoader(Kept(), None, num_workers=1, worker_type='process', worker_init_fn=limit)",
        "",
        "the dataset in the worker holds them open",
    ),
}


@pytest.mark.parametrize("name", WANTING)
def test_want_of_descriptors_names_what_holds_them(name):
    made, before, told = WANTING[name]
    program = f"""
        import os, resource, tesserack as ts
        from tesserack.utils.data import DataLoader, Dataset

        class Kept(Dataset):
            files, full = [], False
            def __len__(self):
                return 200
            def __getitem__(self, i):
                while i and not self.full:  # the first batch is sent
                    self.full = len(os.listdir("/proc/self/fd")) == 40  # with the one that lists them
                    self.files.append(os.open(os.devnull, os.O_RDONLY))
                return ts.ones(1 << 15)

        def limit(worker):
            resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))

        {before}
        try:
            for batch in {made}:
                pass
        except OSError as error:
            print(error)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=120)
    assert told in done.stdout and "ulimit -n, now 40" in done.stdout and "kept" not in done.stdout, done.stderr


def test_numpy_is_seeded_where_a_worker_imports_it_first():
    program = """
        import sys, tesserack as ts
        from tesserack.utils.data import DataLoader, Dataset

        class Draws(Dataset):
            def __len__(self):
                return 2
            def __getitem__(self, i):
                had = "numpy.random" in sys.modules
                import numpy
                return had, float(numpy.random.rand())

        for _ in range(2):
            ts.manual_seed(0)
            print([sample for sample in DataLoader(Draws(), None, num_workers=2, worker_type="process")])
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=120)
    first, second = map(eval, done.stdout.splitlines())
    assert [had for had, _ in first] == [False, False], done.stderr
    assert first == second and first[0] != first[1]


def test_a_program_that_stops_early_ends_with_large_indices_under_way():
    program = """
        import tesserack as ts
        from tesserack.utils.data import DataLoader, Dataset

        class Empty(Dataset):
            def __len__(self):
                return 1_000_000
            def __getitem__(self, i):
                return ts.empty(0)

        for batch in (batches := iter(DataLoader(Empty(), 40960, num_workers=1, worker_type="process"))):
            raise RuntimeError("of mine")
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 1 and "of mine" in done.stderr
