"""Calls between three workers, references, and gradients through both; each rank runs all, and says what it did."""

import functools
import gc
import pickle
import threading
import time
import weakref
from typing import Any

import tesserack as ts
from tesserack import distributed as dist
from tesserack import nn
from tesserack.distributed import autograd, rpc
from tesserack.distributed.nn import RemoteModule
from tesserack.distributed.optim import DistributedOptimizer

SIZE = 3
LET_GO = threading.Event()


class NeedsTwo(Exception):
    def __init__(self, one: str, two: str) -> None:
        super().__init__(one, two)


class Kept:
    """What others refer to."""

    made: "list[weakref.ref[Kept]]" = []

    def __init__(self, value: float) -> None:
        self.value = value
        Kept.made.append(weakref.ref(self))

    def plus(self, other: float) -> float:
        return self.value + other

    @staticmethod
    @rpc.functions.async_execution
    def later(to: str, value: float) -> Any:
        return rpc.rpc_async(to, pow, args=(value, 2)).then(lambda done: done.wait() + 1)

    @rpc.functions.async_execution
    def mine_later(self, to: str) -> Any:
        return rpc.rpc_async(to, pow, args=(self.value, 2))


def raising(kind: type) -> None:
    raise kind("a reason") if kind is not NeedsTwo else NeedsTwo("one", "two")


def unpicklable() -> Any:
    return lambda: 1


def kept_alive() -> int:
    gc.collect()
    return sum(reference() is not None for reference in Kept.made)


def through(names: list[str], reference: Any) -> float:
    """Hand a reference on to the last of these, who reads it."""
    if names:
        return rpc.rpc_sync(names[0], through, args=(names[1:], reference))
    return reference.to_here().value + reference.rpc_sync().plus(1)


def back(names: list[str], depth: int) -> int:
    return depth if depth == 0 else 1 + rpc.rpc_sync(names[depth % SIZE], back, args=(names, depth - 1))


def scaled(x: ts.Tensor, factor: float) -> ts.Tensor:
    return x * factor


def held() -> None:
    """Answers nothing until :func:`let_go` has been called."""
    assert LET_GO.wait(600)
    LET_GO.clear()


def let_go() -> None:
    LET_GO.set()


def trains(reference: Any) -> bool:
    return reference.local_value().training


def changed(x: ts.Tensor) -> ts.Tensor:
    x += 1
    return x * x


def expect(error: type, text: str, call: Any) -> None:
    try:
        call()
    except error as found:
        assert text in str(found), (text, str(found))
        return
    raise AssertionError(f"expected {error.__name__}: {text}")


def calls(me: int, names: list[str]) -> None:
    following = names[(me + 1) % SIZE]
    x = ts.arange(6.0).reshape(2, 3).t()
    for to in (following, (me + 1) % SIZE, rpc.get_worker_info(following), names[me]):
        assert ts.equal(rpc.rpc_sync(to, ts.add, args=(x, 1)), x + 1)
    assert rpc.rpc_async(following, dict, kwargs={"a": [x, (x, None)]}).wait()["a"][1][1] is None
    large = ts.rand(3_000_000)
    assert ts.equal(rpc.rpc_sync(following, ts.neg, args=(large,)), -large)
    columns = ts.rand(5, 5)[:, 2:4]
    assert rpc.rpc_sync(following, ts.Tensor.is_contiguous, args=(columns,)) is False
    part = large[:10]  # of a large storage
    assert ts.equal(rpc.rpc_sync(following, ts.neg, args=(part,)), -part)
    assert rpc.rpc_sync(following, ts.ones, args=(2,), kwargs={"dtype": ts.bfloat16}).dtype is ts.bfloat16
    assert rpc.rpc_sync(following, back, args=(names, 7)) == 7
    assert rpc.rpc_sync(following, Kept.later, args=(names[me], 3)) == 10
    with rpc.api._wait_all():
        futures = [rpc.rpc_async(to, time.sleep, args=(0.05,)) for to in names for _ in range(5)]
    assert all(future.done() for future in futures)
    assert rpc.api._all_gather(me) == {name: k for k, name in enumerate(names)}


def failing(me: int, names: list[str]) -> None:
    following = names[(me + 1) % SIZE]
    for kind in (ValueError, KeyError, ZeroDivisionError):
        expect(kind, "a reason", lambda kind=kind: rpc.rpc_sync(following, raising, args=(kind,)))
    expect(RuntimeError, "one", lambda: rpc.rpc_sync(following, raising, args=(NeedsTwo,)))
    expect(Exception, "pickle", lambda: rpc.rpc_sync(following, unpicklable))
    expect(Exception, "pickle", lambda: rpc.rpc_sync(following, lambda: 1))
    expect(RuntimeError, "could not find destination", lambda: rpc.rpc_sync("nobody", max, args=(1, 2)))
    expect(RuntimeError, "set timeout (100 ms)", lambda: rpc.rpc_sync(following, held, timeout=0.1))
    rpc.rpc_sync(following, let_go)
    expect(
        RuntimeError, "only supports CPU tensors", lambda: rpc.rpc_sync(following, ts.neg, (ts.ones(1, device="meta"),))
    )
    expect(RuntimeError, "must return a torch.futures.Future", lambda: rpc.rpc_sync(following, wrong))
    expect(ValueError, "a reason", lambda: rpc.remote(following, raising, args=(ValueError,)).to_here())
    expect(RuntimeError, "already initialized", lambda: rpc.init_rpc("again"))
    assert rpc.rpc_sync(following, max, args=(1, 2)) == 2


wrong = rpc.functions.async_execution(lambda: 3)
wrong.__module__, wrong.__qualname__ = __name__, "wrong"


def references(me: int, names: list[str]) -> None:
    following, before = names[(me + 1) % SIZE], names[(me + 2) % SIZE]
    mine = rpc.remote(following, Kept, args=(float(me),))
    assert mine.owner_name() == following and not mine.is_owner() and "UserRRef" in repr(mine)
    assert mine.to_here().value == me and mine.rpc_sync().plus(2) == me + 2
    assert mine.rpc_async().mine_later(names[me]).wait() == me * me
    assert mine.remote().plus(5).to_here() == me + 5
    expect(RuntimeError, "call localValue() on user", mine.local_value)
    expect(RuntimeError, "Can not pickle rref", functools.partial(pickle.dumps, mine))
    assert through([before, following, names[me]], mine) == 2 * me + 1
    assert through([following], rpc.RRef(Kept(4.0))) == 9
    own = rpc.remote(names[me], Kept, args=(7.0,))
    assert own.is_owner() and own.local_value().plus(1) == 8.0
    dist.barrier()
    del mine, own
    end = time.monotonic() + 240
    while (left := rpc.rpc_sync(following, kept_alive)) and time.monotonic() < end:
        time.sleep(0.05)
    assert left == 0, left
    dist.barrier()


def gradients(me: int, names: list[str]) -> None:
    following, before = names[(me + 1) % SIZE], names[(me + 2) % SIZE]

    def loss(x: ts.Tensor, w: ts.Tensor, call: Any) -> ts.Tensor:
        y = call(following, scaled, x, 2.0)
        z = call(before, ts.mul, y, w) + call(following, ts.mul, y, y)  # y goes on by three ways
        unused = call(before, ts.exp, z)
        assert unused.requires_grad
        return (call(before, changed, z * w) * y).sum()

    ts.manual_seed(me)
    x, w = ts.rand(4, requires_grad=True), ts.rand(4, requires_grad=True)
    expected = ts.autograd.grad(loss(x, w, lambda _, f, *args: f(*args)), [x, w])
    for _ in range(2):
        with autograd.context() as number:
            root = loss(x, w, lambda to, f, *args: rpc.rpc_sync(to, f, args=args))
            autograd.backward(number, [root], retain_graph=True)
            found = autograd.get_gradients(number)
            assert ts.allclose(found[x], expected[0]) and ts.allclose(found[w], expected[1])
            autograd.backward(number, [root])
            assert ts.allclose(autograd.get_gradients(number)[x], 2 * expected[0])
            expect(RuntimeError, "second time", lambda: autograd.backward(number, [root]))  # noqa: B023
            expect(RuntimeError, "Already have", autograd.context().__enter__)
    assert x.grad is None
    expect(RuntimeError, "Could not find autograd context", lambda: autograd.get_gradients(number))
    with autograd.context() as number:
        expect(RuntimeError, "not a scalar", lambda: autograd.backward(number, [x * 1]))
        expect(RuntimeError, "requires_grad not set", lambda: autograd.backward(number, [ts.ones(1)]))
        expect(RuntimeError, "No tensors", lambda: autograd.backward(number, []))
    dist.barrier()


def deep(me: int, names: list[str]) -> None:
    """A long way to and fro, each step of which is read twice: no step is computed anew for each way to it."""
    x = ts.ones(2, requires_grad=True)
    with autograd.context() as number:
        y = x
        for k in range(12):
            y = rpc.rpc_sync(names[k % SIZE], ts.add, args=(y, y * 0.5))
        autograd.backward(number, [y.sum()])
        assert ts.allclose(autograd.get_gradients(number)[x], ts.full((2,), 1.5**12))
    dist.barrier()


def training(me: int, names: list[str]) -> None:
    """A layer elsewhere and one here follow one process."""
    ts.manual_seed(3)
    here = nn.Linear(3, 2)
    there = RemoteModule(f"{names[(me + 1) % SIZE]}/cpu", nn.Linear, args=(4, 3))
    copy = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2))
    copy[0].load_state_dict({
        name: parameter.to_here() for name, parameter in zip(("weight", "bias"), there.remote_parameters(), strict=True)
    })  # fmt: skip
    copy[2].load_state_dict(here.state_dict())
    parameters = [*there.remote_parameters(), *map(rpc.RRef, here.parameters())]
    optimizer = DistributedOptimizer(ts.optim.SGD, parameters, lr=0.1, momentum=0.9)
    single = ts.optim.SGD(copy.parameters(), lr=0.1, momentum=0.9)
    for _ in range(5):
        x, y = ts.rand(8, 4), ts.rand(8, 2)
        with autograd.context() as number:
            loss = (here(there(x).tanh()) - y).square().mean()
            autograd.backward(number, [loss])
            optimizer.step(number)
        single.zero_grad()
        reference = (copy(x) - y).square().mean()
        reference.backward()
        single.step()
        assert ts.allclose(loss, reference, atol=1e-6)
    expect(ValueError, "not supported for RemoteModule", there.state_dict)
    for turn, mode in ((there.eval, False), (there.train, True)):
        assert turn() is there and there.training is mode
        assert rpc.rpc_sync(there.on, trains, args=(there.get_module_rref(),)) is mode
    dist.barrier()


def main() -> None:
    dist.init_process_group()
    me = dist.get_rank()
    names = [f"worker{k}" for k in range(SIZE)]
    for turn in range(2):  # it can begin again
        rpc.init_rpc(names[me], rank=me, world_size=SIZE)
        for part in (calls, failing, references, gradients, deep, training)[:: 1 if turn == 0 else 5]:
            part(me, names)
            print(f"{part.__name__} done", flush=True)
        if me == 0:  # still under way when others end
            rpc.rpc_async(names[1], back, args=(names, 4))
        rpc.shutdown()
    expect(RuntimeError, "has not been initialized", lambda: rpc.rpc_sync(names[0], max, args=(1, 2)))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
