"""What is left after Ctrl-C, and what threads see of each other's modes."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import tesserack as ts
from tesserack import nn
from tesserack._tensor.overrides import TorchFunctionMode, function_modes
from tesserack.aten.modes import TorchDispatchMode, entered, stack
from tesserack.func import functional_call
from tesserack.nn.modules._registry import Registry


class Seen(TorchFunctionMode):
    def __init__(self) -> None:
        self.threads: set[int] = set()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.threads.add(threading.get_ident())
        return func(*args, **(kwargs or {}))


class Passed(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def test_a_thread_has_its_own_function_modes() -> None:
    found: list[Any] = []
    together = threading.Barrier(3)

    def work() -> None:
        with Seen() as mode:
            together.wait()
            for _ in range(200):
                ts.ones(2).add(1)
            together.wait()
        found.append((mode.threads, threading.get_ident(), function_modes()))

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [(threads, left) for threads, _, left in found] == [({own}, []) for _, own, _ in found]
    assert len(found) == 3


@pytest.mark.parametrize("kind", [Seen, Passed])
def test_the_end_of_a_mode_ends_those_within(kind: type) -> None:
    """As where the end of one of them was interrupted before it began."""
    outer = kind()
    with outer:
        kind().__enter__()
        ts.ones(2).add(1)
        with outer:  # itself once more
            kind().__enter__()
        assert len((function_modes if kind is Seen else stack)()) == 2
    assert not function_modes() and not stack() and not entered()
    assert ts.ones(2).add(1).tolist() == [2, 2]


def test_functional_call_gives_everything_back_where_it_is_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    net = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 2))
    own, put = dict(net.named_parameters()), Registry.__setitem__
    done: list[str] = []

    def interrupted(self: Registry, name: str, value: Any) -> None:
        done.append(name)
        if len(done) in (6, 8):  # of four: the second and the third that are given back
            raise KeyboardInterrupt
        put(self, name, value)

    monkeypatch.setattr(Registry, "__setitem__", interrupted)
    with pytest.raises(KeyboardInterrupt):
        functional_call(net, {name: p.detach() * 2 for name, p in own.items()}, (ts.ones(1, 2),))
    assert all(now is own[name] for name, now in net.named_parameters())
    assert all(getattr(layer, name) is layer._parameters[name] for layer in net for name in ("weight", "bias"))


def test_a_step_sets_no_mode_that_an_interruption_would_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    """``set_grad_enabled`` takes effect when it is made, before it is a context."""
    layer = nn.Linear(2, 2)
    layer(ts.ones(1, 2)).sum().backward()
    optimizer = ts.optim.SGD(layer.parameters(), lr=0.5)

    def refused(mode: bool) -> Any:
        raise AssertionError(mode)

    monkeypatch.setattr(ts, "set_grad_enabled", refused)
    before = layer.bias.detach().clone()
    optimizer.step()
    assert layer.bias.tolist() == (before - 0.5).tolist() and ts.is_grad_enabled()
