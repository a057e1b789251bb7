"""tesserack.multiprocessing: shared memory, queues, spawn."""

import gc
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
import time

import pytest
import tesserack as ts
import tesserack.multiprocessing as mp
from tesserack import nn
from tesserack.multiprocessing import _on_device

METHODS = ["fork", "spawn", "forkserver"]


@pytest.fixture(params=["file_descriptor", "file_system"])
def strategy(request):
    before = mp.get_sharing_strategy()
    mp.set_sharing_strategy(request.param)
    yield request.param
    mp.set_sharing_strategy(before)
    gc.collect()
    assert not [name for name in os.listdir("/dev/shm") if name.startswith(f"tesserack-{os.getpid()}-")]


def test_sharing_moves_every_view(strategy):
    whole = ts.arange(12.0).reshape(3, 4)
    view, detached = whole[1:], whole.detach()
    array = whole.numpy()
    address = whole.data_ptr()
    assert not whole.is_shared() and whole[2].share_memory_().is_shared()
    assert whole.is_shared() and view.is_shared() and detached.is_shared() and whole.data_ptr() != address
    whole.add_(1)
    assert view.tolist() == [[5, 6, 7, 8], [9, 10, 11, 12]] and detached[0, 0].item() == 1
    assert array[0, 0] == 0  # what looked at the old memory still may
    assert whole.share_memory_() is whole
    del whole, view, detached
    gc.collect()
    assert array.sum() == 66


def test_odd_sizes_and_what_cannot_be_shared():
    bits = ts.arange(7, dtype=ts.uint8)[:6]
    assert bits.share_memory_().tolist() == [0, 1, 2, 3, 4, 5]
    assert ts.zeros(0).share_memory_().shape == (0,)
    with pytest.raises(RuntimeError, match="cpu"):
        ts.empty(3, device="meta").share_memory_()
    with pytest.raises(ValueError, match="one of"):
        mp.set_sharing_strategy("carrier_pigeon")
    assert mp.get_all_sharing_strategies() == {"file_descriptor", "file_system"}


def test_modules_share_their_tensors():
    net = nn.BatchNorm1d(3)
    weight = net.weight
    assert net.share_memory() is net and net.weight is weight
    assert all(t.is_shared() for t in (*net.parameters(), net.running_mean)) and not ts.zeros(1).is_shared()


def add_one(queue, done, tensors):
    for tensor in tensors:
        with ts.no_grad():
            tensor.add_(1)
    queue.put(("sum", ts.stack([t.detach().sum() for t in tensors])))
    queue.put(nn.Parameter(ts.ones(2, 3).t().contiguous().t()))
    done.wait(60)


@pytest.mark.parametrize("method", METHODS)
def test_processes_see_the_same_memory(method, strategy):
    context = mp.get_context(method)
    queue, done = context.Queue(), context.Event()
    x = ts.zeros(4)
    shared = [x, x[2:], nn.Parameter(ts.zeros(2))]
    for tensor in shared:
        tensor.share_memory_()
    process = context.Process(target=add_one, args=(queue, done, shared))
    process.start()
    name, sums = queue.get(timeout=60)
    parameter = queue.get(timeout=60)
    done.set()
    process.join(60)
    assert process.exitcode == 0
    assert x.tolist() == [1, 1, 2, 2] and shared[2].tolist() == [1, 1]
    # By fork the two are views of one storage; by pickle too.
    assert name == "sum" and sums.tolist() == [6, 4, 2]
    assert type(parameter) is nn.Parameter and parameter.requires_grad and parameter.stride() == (1, 2)
    assert parameter.is_shared() and parameter.tolist() == [[1, 1, 1], [1, 1, 1]]


def test_results_of_recorded_operations_are_refused():
    with pytest.raises(RuntimeError, match="leaf"):
        multiprocessing.reduction.ForkingPickler.dumps(ts.ones(2, requires_grad=True) * 2)


def write_to(queue, done):
    storage, piece, tensor = queue.get()
    storage[0], piece[0], tensor[3] = 5.0, 6, 7.0
    done.set()


@pytest.mark.parametrize("method", METHODS)
def test_storages_are_sent_with_their_memory(method, strategy):
    context = mp.get_context(method)
    queue, done = context.Queue(), context.Event()
    x = ts.zeros(4)
    process = context.Process(target=write_to, args=(queue, done))
    process.start()
    queue.put([x.storage(), x.untyped_storage()[4:8], x])
    process.join(60)
    assert process.exitcode == 0 and done.is_set() and x.is_shared()
    assert x[0].item() == 5 and x[3].item() == 7 and x.view(ts.uint8)[4].item() == 6


def test_what_is_sent_together_stays_one_memory():
    x = ts.arange(4.0)
    sent = pickle.loads(multiprocessing.reduction.ForkingPickler.dumps([x.storage(), x, x[1:]]))
    assert {each._cdata for each in (sent[0], *(t.storage() for t in sent[1:]))} == {x.storage()._cdata}
    assert sent[0].tolist() == [0, 1, 2, 3] and sent[2].tolist() == [1, 2, 3]
    other = ts.zeros(4).share_memory_()
    assert other.storage()._cdata != x.storage()._cdata
    empty = multiprocessing.reduction.ForkingPickler.dumps(ts.zeros(0).untyped_storage())
    assert len(pickle.loads(empty)) == 0


def square(x):
    return x * x


def test_pools():
    with mp.get_context("fork").Pool(2) as pool:
        assert [t.tolist() for t in pool.map(square, [ts.tensor([1.0, 2.0]), ts.tensor([3.0])])] == [[1, 4], [9]]


def test_the_standard_module_is_there():
    for name in multiprocessing.__all__:
        assert getattr(mp, name) is not None
    assert mp.Queue is not None and mp.cpu_count() >= 1 and mp.reduction is multiprocessing.reduction


# --- spawn -----------------------------------------------------------------------------------------------------------


def work(index, results, fault):
    results[index] = index + 1
    if index == 1:
        if fault == "raise":
            raise KeyError("bad index one")
        if fault == "exit":
            sys.exit(4)
        if fault == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        return
    if fault:
        time.sleep(100)


@pytest.mark.parametrize("method", METHODS)
def test_spawn(method):
    results = ts.zeros(3).share_memory_()
    assert mp.start_processes(work, (results, None), 3, start_method=method) is None
    assert results.tolist() == [1, 2, 3]


def test_spawn_without_waiting():
    results = ts.zeros(2).share_memory_()
    context = mp.spawn(work, (results, None), 2, join=False)
    assert len(context.pids()) == 2
    while not context.join(timeout=60):
        pass
    assert context.join() and results.tolist() == [1, 2]


@pytest.mark.parametrize(
    ("fault", "error", "match"),
    [
        ("raise", mp.ProcessRaisedException, r"process 1 ended with this error:[^$]*in work[^$]*bad index one"),
        ("exit", mp.ProcessExitedException, "process 1 ended with status 4"),
        ("kill", mp.ProcessExitedException, "process 1 was ended by the signal SIGKILL"),
    ],
)
def test_errors_of_spawn(fault, error, match):
    context = mp.start_processes(work, (ts.zeros(2).share_memory_(), fault), 2, join=False, start_method="fork")
    with pytest.raises(error, match=match) as caught:
        while not context.join():
            pass
    assert caught.value.error_index == 1 and caught.value.error_pid == context.pids()[1]
    assert not any(process.is_alive() for process in context.processes)


def test_memory_is_collected_while_another_thread_lends_some(monkeypatch):
    """Queues pickle in threads of their own."""
    looking, lent, ends = threading.Event(), threading.Event(), []

    class Watched(dict):
        def values(self):
            for value in super().values():
                if threading.current_thread() is threading.main_thread():
                    looking.set()
                    lent.wait(0.2)
                yield value

    def lend():
        looking.wait()
        ends.append(_on_device.reduce(ts.ones(3))[1][1][-1])
        lent.set()

    monkeypatch.setattr(_on_device, "_lent", Watched())
    monkeypatch.setattr(_on_device._native, "_export_memory", lambda tensor: b"a name")
    monkeypatch.setattr(_on_device.reduction, "DupFd", os.dup)
    ends.append(_on_device.reduce(ts.ones(2))[1][1][-1])
    other = threading.Thread(target=lend)
    other.start()
    assert _on_device.collect() == 1
    other.join()
    for left, end in zip((1, 0), ends, strict=True):
        os.close(end)
        assert _on_device.collect() == left


FEW = """
    import resource, tesserack as ts, tesserack.multiprocessing as mp
    def limit(count=60):
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, count))
"""
WANTING = {
    "shared tensors": """
    limit()
    kept = [ts.ones(3).share_memory_() for _ in range(200)]
    """,
    "receiver": """
    context = mp.get_context("fork")
    queue, tensors = context.Queue(), [ts.ones(30000) for _ in range(100)]
    for tensor in tensors:
        queue.put(tensor)
    ended = context.Event()
    def take():
        limit()
        try:
            kept = [queue.get() for _ in range(100)]
        except (OSError, RuntimeError) as error:
            print(type(error).__name__, error, flush=True)
    child = context.Process(target=take)
    child.start()
    child.join()
    import os; os._exit(0)
    """,
    "sender": """
    context = mp.get_context("fork")
    queue, ended = context.Queue(), context.Event()
    def send():
        limit()
        for _ in range(100):
            queue.put(ts.ones(30000))
        ended.wait(60)
    child = context.Process(target=send)
    child.start()
    try:
        kept = [queue.get() for _ in range(100)]
    finally:
        child.terminate()
    """,
}


@pytest.mark.parametrize("name", WANTING)
def test_want_of_descriptors_is_named(name):
    program = textwrap.dedent(FEW) + textwrap.dedent(WANTING[name])
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    told = [line for line in (done.stdout + done.stderr).splitlines() if "Error" in line and "ulimit -n" in line]
    assert told and "descriptors" in told[-1] and "shared tensor" in told[-1], done.stderr
