"""Functions in other processes, references, gradients through calls."""

import json
import pickle
import threading
import time
from datetime import timedelta
from typing import Any

import pytest
import tesserack as ts
from tesserack.distributed import autograd, rpc
from tesserack.distributed._stores import HashStore
from tesserack.distributed.rpc._agent import Agent
from tesserack.distributed.rpc._begin import alone
from tesserack.distributed.rpc._meeting import Meeting


def test_three_workers(launch: Any) -> None:
    done = launch("rpc_calls.py", 3)
    assert done.returncode == 0, done.stderr[-3000:]
    for part in ("calls", "failing", "references", "gradients", "deep", "training"):
        assert done.stdout.count(f"{part} done") == (6 if part in ("calls", "training") else 3), done.stdout


def test_wrapped_modules_average_gradients_of_contexts(launch: Any) -> None:
    done = launch("rpc_averages.py", 2)
    assert done.returncode == 0 and done.stdout.count("is done") == 2, done.stderr[-3000:]


def test_who_waits_for_a_worker_that_died_is_told(launch: Any) -> None:
    done = launch("rpc_lost.py", 2, "dies")
    assert "told: rpc: WorkerInfo(id=1, name=worker1) ended, or left, before it answered" in done.stdout, done


def test_an_end_that_others_do_not_come_to(launch: Any) -> None:
    done = launch("rpc_lost.py", 2, "late")
    assert "told: rpc.shutdown: worker 1 of 2 did not come to it within 1 s" in done.stdout, done


def test_names_and_arguments_are_checked() -> None:
    for name in ("a b", "", "ü", "x" * 129):
        with pytest.raises(RuntimeError, match="orker name"):
            Meeting(HashStore(), name, 0, 1, rpc._begin.JOIN)  # type: ignore[attr-defined]
    with pytest.raises(RuntimeError, match="has not been initialized"):
        rpc.rpc_sync("worker", max)
    with pytest.raises(TypeError, match="BackendType"):
        rpc.init_rpc("worker", backend="tcp")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="one device of 'b' for each of ours"):
        rpc.TensorPipeRpcBackendOptions(device_maps={"b": {"cpu": "cpu", "meta": "cpu"}})
    with alone() as name:
        with pytest.raises(TypeError, match="expected a function"):
            rpc.rpc_sync(name, 3)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="expected a function"):
            rpc.remote(name, 3)
        with pytest.raises(ValueError, match="a timeout of 0"):
            rpc.rpc_sync(name, max, args=(1, 2), timeout=-3)


def test_mapped_devices(device: ts.device) -> None:
    with alone() as name:
        rpc.api.current().options.set_device_map(name, {device: device})
        x = ts.ones(3, device=device)
        found = rpc.rpc_sync(name, ts.add, args=(x, 1))
        assert found.device == device and found.tolist() == [2.0] * 3


def test_gradients_of_parts_that_want_none() -> None:
    with alone() as name, autograd.context() as number:
        x, y = ts.ones(2, requires_grad=True), ts.ones(2)
        autograd.backward(number, [rpc.rpc_sync(name, ts.mul, args=(x, y)).sum()])
        assert [*autograd.get_gradients(number)] == [x]


def test_waiting_for_all_ends_at_the_first_error() -> None:
    never: ts.futures.Future[int] = ts.futures.Future()
    with alone() as name, pytest.raises(ZeroDivisionError):
        ts.futures.wait_all([never, rpc.rpc_async(name, divmod, args=(1, 0))])
    assert ts.futures.wait_all([]) == []


def test_a_name_that_is_taken_leaves_nothing_open() -> None:
    before = threading.active_count()
    store = HashStore()
    meeting = Meeting(store, "b", 0, 2, timedelta(seconds=60))
    meeting._store.set("worker1", json.dumps(["b", ["127.0.0.1"], 1]))
    with pytest.raises(RuntimeError, match="b is not unique"):
        Agent(meeting, rpc.TensorPipeRpcBackendOptions(), rpc.RRef)
    end = time.monotonic() + 300
    while threading.active_count() > before and time.monotonic() < end:
        time.sleep(0.01)
    assert threading.active_count() <= before  # a thread of a test before this one may have ended meanwhile


def test_parameters_stay_parameters() -> None:
    with alone() as name:
        layer = ts.nn.Linear(2, 3)
        copy = rpc.rpc_sync(name, _itself, args=(layer,))
        assert isinstance(copy.weight, ts.nn.Parameter) and ts.equal(copy.weight, layer.weight)
        assert pickle.loads(pickle.dumps(rpc.get_worker_info())) == rpc.get_worker_info()


def _itself(value: Any) -> Any:
    return value
