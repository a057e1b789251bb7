"""DataLoader with worker processes: what crosses, what goes wrong, and that nothing stays behind."""

import collections
import gc
import os
import random
import resource
import signal
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest
import tesserack as ts
from tesserack.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset, get_worker_info
from tesserack.utils.data.processes import reap

METHODS = ["fork", "spawn", "forkserver"]


class Rows(Dataset):
    """At module level, so that every start method can send it."""

    def __init__(self, n, width=1):
        self.n, self.width = n, width

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return {"x": ts.full((self.width,), float(i)), "name": f"row {i}", "array": np.full(2, i)}


class Parts(IterableDataset):
    def __iter__(self):
        info = get_worker_info()
        return iter(range(info.id, 7, info.num_workers))


Named = collections.namedtuple("Named", "a b")


def give_named(rows):
    return Named(ts.stack([row["x"] for row in rows]).t(), [None, 3, rows[0]["name"]])


class Faulty(Rows):
    def __init__(self, n, fault):
        super().__init__(n)
        self.fault = fault

    def __getitem__(self, i):
        if i == 2:
            self.fault()
        return i


def processes(options):
    return DataLoader(num_workers=2, worker_type="process", **options)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("width", [3, 60_000])
def test_batches_cross(method, width):
    loader = DataLoader(Rows(5, width), 2, num_workers=2, multiprocessing_context=method)
    batches = list(loader)
    assert [b["x"][:, -1].tolist() for b in batches] == [[0, 1], [2, 3], [4]]
    assert batches[1]["name"] == ["row 2", "row 3"] and batches[1]["array"].dtype == ts.int64
    for b in batches:
        b["x"].add_(1)  # theirs no more
        assert b["x"].shape[1] == width and b["x"].data_ptr() % 16 == 0
    assert [b["x"][0, 0].item() for b in batches] == [1, 3, 5]


@pytest.mark.parametrize("method", METHODS)
def test_streams_and_collate_functions(method):
    loader = DataLoader(Parts(), 2, num_workers=2, multiprocessing_context=method)
    assert [b.tolist() for b in loader] == [[0, 2], [1, 3], [4, 6], [5]]
    (batch,) = DataLoader(Rows(3), 3, num_workers=1, multiprocessing_context=method, collate_fn=give_named)
    assert type(batch) is Named and batch.a.shape == (1, 3) and batch.a.stride() == (1, 1)
    assert batch.b == [None, 3, "row 0"]


def test_every_dtype_and_layout_crosses():
    samples = [
        *(ts.ones(2, 3).to(getattr(ts, name)) for name in ("bool", "uint8", "bfloat16", "float64", "complex64")),
        ts.arange(6).reshape(2, 3).t(),
        ts.arange(100_000.0).reshape(100, 1000).t(),
        ts.arange(10)[::2],
        ts.zeros(0, 3),
        ts.tensor(5),
        ts.ones(3, requires_grad=True),
        ts.nn.Parameter(ts.ones(2)),
    ]
    arrived = list(DataLoader(samples, batch_size=None, num_workers=1))
    for sent, got in zip(samples, arrived, strict=True):
        assert type(got) is type(sent) and got.dtype == sent.dtype and got.requires_grad == sent.requires_grad
        assert got.tolist() == sent.tolist()
    assert arrived[5].stride() == (1, 3)


def test_workers_have_seeds_and_copies_of_their_own():
    class Numbers(Rows):
        touched = False

        def __getitem__(self, i):
            self.touched = True
            info = get_worker_info()
            return info.id, info.seed, os.getpid(), random.random(), ts.rand(1).item(), np.random.rand()

    def rows(seed):
        ts.manual_seed(seed)
        data = Numbers(6)
        got = list(DataLoader(data, batch_size=None, num_workers=2))
        assert not data.touched and get_worker_info() is None
        return got

    first, again, other = rows(1), rows(1), rows(2)
    numbers = [[row[:2] + row[3:] for row in run] for run in (first, again, other)]
    assert numbers[0] == numbers[1] != numbers[2]
    assert [row[0] for row in first] == [0, 1] * 3 and len({row[2] for row in first} | {os.getpid()}) == 3
    assert all(len({row[k] for row in first}) == 6 for k in (3, 4, 5))


def test_persistent_workers_stay():
    class Pids(Rows):
        def __getitem__(self, i):
            return os.getpid()

    def pids(loader):
        return {batch.item() for batch in loader}

    stay = processes({"dataset": Pids(6), "persistent_workers": True})
    assert pids(stay) == pids(stay) and len(pids(stay)) == 2
    batches = iter(stay)
    next(batches)
    assert len(pids(stay)) == 2  # an epoch that was left early leaves nothing behind
    assert iter(stay) is batches and len([*batches]) == len(stay)  # which it begins again
    first, _ = stay._get_iterator(), stay._get_iterator()
    with pytest.raises(RuntimeError, match="one iteration at a time"):
        next(first)
    go = processes({"dataset": Pids(6)})
    assert not pids(go) & pids(go)


class Seeds:
    """The seed of the worker that is asked."""

    def __len__(self):
        return 2

    def __getitem__(self, index):
        return ts.utils.data.get_worker_info().seed


def test_persistent_threads_have_new_seeds_in_every_epoch():
    loader = ts.utils.data.DataLoader(
        Seeds(), batch_size=None, num_workers=2, persistent_workers=True, worker_type="thread"
    )
    seeds = [int(seed) for _ in range(3) for seed in loader]
    assert sorted(seed - min(seeds) for seed in seeds) == list(range(6))


def test_persistent_streams_start_again():
    loader = processes({"dataset": Parts(), "batch_size": 2, "persistent_workers": True})
    assert [b.tolist() for b in loader] == [b.tolist() for b in loader] == [[0, 2], [1, 3], [4, 6], [5]]


class Unfortunate(Exception):
    def __init__(self, code, why):
        super().__init__(code, why)
        self.code = code


def raise_unfortunate():
    raise Unfortunate(7, "bad luck")


def raise_unpicklable():
    error = ValueError("cannot travel")
    error.handle = threading.Lock()
    raise error


@pytest.mark.parametrize("method", METHODS)
def test_errors_arrive_with_their_traceback(method):
    loader = DataLoader(Faulty(4, raise_unfortunate), num_workers=2, multiprocessing_context=method)
    with pytest.raises(Unfortunate, match="bad luck") as caught:
        list(loader)
    assert caught.value.code == 7
    assert "worker 0 (pid" in str(caught.value.__cause__) and "in raise_unfortunate" in str(caught.value.__cause__)


def test_errors_that_cannot_be_sent_are_told():
    with pytest.raises(RuntimeError, match=r"worker 0 \(pid \d+\) raised ValueError: cannot travel"):
        list(processes({"dataset": Faulty(4, raise_unpicklable)}))
    with pytest.raises(Exception, match="pickle"):
        list(DataLoader([lambda: 0], batch_size=None, num_workers=1))
    with pytest.raises(RuntimeError, match="leaf"):
        list(DataLoader([ts.ones(1, requires_grad=True) * 2], batch_size=None, num_workers=1))


def kill_itself():
    os.kill(os.getpid(), signal.SIGKILL)


def leave():
    os._exit(3)


def leave_a_child_behind():
    if os.fork() == 0:
        time.sleep(20)
        os._exit(0)
    os._exit(3)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("fault", "how"),
    [
        (kill_itself, "was killed by SIGKILL"),
        (leave, "ended with status 3"),
        (sys.exit, "SystemExit"),
        (leave_a_child_behind, "ended with status 3"),
    ],
)
def test_a_worker_that_ends_is_named(method, fault, how):
    loader = DataLoader(Faulty(4, fault), num_workers=2, multiprocessing_context=method, timeout=60)
    with pytest.raises(RuntimeError, match=rf"worker 0 \(pid \d+\) exited unexpectedly: .*{how}"):
        list(loader)
    assert left_behind() == []


def sleep_for_ever():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        time.sleep(1000)


@pytest.mark.parametrize(("method", "timeout"), [("fork", 0.5), ("spawn", 8), ("forkserver", 8)])
@pytest.mark.parametrize("persistent", [False, True])
def test_a_worker_that_sleeps_for_ever_is_named_and_ended(persistent, method, timeout):
    options = {"timeout": timeout, "persistent_workers": persistent, "multiprocessing_context": method}
    batches = iter(processes({"dataset": Faulty(4, sleep_for_ever), **options}))
    assert [next(batches).item(), next(batches).item()] == [0, 1]  # once all are there
    began = time.monotonic()
    with pytest.raises(RuntimeError, match=rf"worker 0 \(pid \d+\) gave no batch within {timeout} seconds"):
        next(batches)
    assert time.monotonic() - began < timeout + 30
    del batches
    assert left_behind() == []


def limit_files(worker):
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))


@pytest.mark.parametrize("method", METHODS)
def test_full_shared_memory_is_an_error(method):
    options = {"worker_init_fn": limit_files, "timeout": 60, "multiprocessing_context": method}
    loader = processes({"dataset": Rows(4, 1_000_000), **options})
    with pytest.raises(RuntimeError, match="no room in shared memory for a batch of 4000"):
        list(loader)


def test_large_tasks_and_large_batches_do_not_block_each_other():
    class Long(Rows):
        def __getitem__(self, i):
            return "x" * 2000

    order = [i % 5 for i in range(100_000)]
    loader = DataLoader(
        Long(5), batch_sampler=[order, order, order, order], num_workers=2, collate_fn="".join, timeout=60
    )
    assert [len(text) for text in loader] == [2000 * len(order)] * 4


def left_behind():
    """Children that still run, after those that are ending had time to."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        gc.collect()
        reap()
        found = [p for p in children() if not any(name in command(p) for name in ("resource_tracker", "forkserver"))]
        if not found:
            break
        time.sleep(0.02)
    return found


def children():
    with open(f"/proc/self/task/{os.getpid()}/children") as file:
        return [int(pid) for pid in file.read().split()]


def command(pid):
    try:
        with open(f"/proc/{pid}/cmdline") as file:
            return file.read()
    except OSError:
        return ""


def test_starting_and_stopping_leaks_nothing():
    def cycles(count):
        for k in range(count):
            rows = Rows(8, 40_000 if k % 2 else 1)
            batches = iter(DataLoader(rows, 2, num_workers=1 + (k % 10 == 0), worker_type="process"))
            for _ in range(k % 5):
                next(batches, None)
            del batches
        assert left_behind() == []
        return len(os.listdir("/proc/self/fd")), threading.active_count()

    before = cycles(5)
    assert cycles(200) == before
    assert not [name for name in os.listdir("/dev/shm") if name.startswith(f"tesserack-{os.getpid()}-")]


def test_workers_end_with_a_program_that_is_killed():
    program = """
        import os, signal, sys, tesserack as ts
        from tesserack.utils.data import DataLoader
        class Pids(list):
            def __getitem__(self, i):
                return os.getpid()
        batches = iter(DataLoader(Pids([0] * 50), num_workers=3, worker_type="process"))
        print(*{next(batches).item() for _ in range(6)}, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
        """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=120, check=False
    )
    pids = [int(pid) for pid in done.stdout.split()]
    assert len(pids) == 3, done.stderr
    deadline = time.monotonic() + 30
    while any(os.path.exists(f"/proc/{pid}") and running(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(running(pid) for pid in pids)


def running(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_what_comes_first_of_processes(tmp_path):
    class Uneven(Rows):
        def __getitem__(self, i):
            while i == 0 and not (tmp_path / "go").exists():
                time.sleep(0.01)
            return i

    batches = iter(DataLoader(Uneven(4), 1, num_workers=2, in_order=False, worker_type="process", timeout=60))
    assert next(batches).item() == 1
    (tmp_path / "go").touch()
    assert sorted(b.item() for b in batches) == [0, 2, 3]


def test_rows_of_tensors_take_threads_unless_told():
    data = TensorDataset(ts.arange(6))

    def kind(**options):
        return DataLoader(data, num_workers=1, **options)._kind()

    assert kind() == "thread" and kind(worker_type="process") == "process"
    assert kind(multiprocessing_context="fork") == "process" == kind(collate_fn=len) == kind(worker_init_fn=print)
    loader = DataLoader(data, 4, num_workers=2, worker_type="process")
    assert [[part.tolist() for part in batch] for batch in loader] == [[[0, 1, 2, 3]], [[4, 5]]]


class Pinned:
    def __init__(self, rows):
        self.pinned = False

    def pin_memory(self):
        self.pinned = True
        return self


def test_pin_memory_is_asked_of_what_has_it():
    for workers in (0, 1):
        assert list(DataLoader(range(4), 2, num_workers=workers, collate_fn=tuple, pin_memory=True)) == [(0, 1), (2, 3)]
        loader = DataLoader(range(4), 2, num_workers=workers, collate_fn=Pinned, pin_memory=True)
        assert [b.pinned for b in loader] == [True, True]
