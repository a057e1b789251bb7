"""Several Python threads at once."""

from __future__ import annotations

import threading

import pytest
import tesserack as ts


def run_together(work: object, count: int = 8) -> None:
    errors: list[BaseException] = []
    start = threading.Barrier(count)

    def body(number: int) -> None:
        try:
            start.wait()
            work(number)  # type: ignore[operator]
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=body, args=(n,)) for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def test_forward_and_backward() -> None:
    w = ts.rand(32, 32)
    expected = None

    def work(number: int) -> None:
        nonlocal expected
        mine = w.clone().requires_grad_()
        for _ in range(30):
            mine.grad = None
            (mine @ mine).relu().sum().backward()
        expected = expected or mine.grad.tolist()
        assert mine.grad.tolist() == expected

    run_together(work)


def test_large_kernels_let_others_run() -> None:
    x = ts.ones(300_000, requires_grad=True)

    def work(number: int) -> None:
        for _ in range(10):
            y = (x.detach() * number).sum()
            assert y.item() == 300_000 * number

    run_together(work)


def test_backward_through_one_graph() -> None:
    x = ts.ones(8, requires_grad=True)
    y = (x * 2).exp().sum()
    lock = threading.Lock()
    results = []

    def work(number: int) -> None:
        (g,) = ts.autograd.grad(y, x, retain_graph=True)
        with lock:
            results.append(g.tolist())

    run_together(work)
    assert all(result == results[0] for result in results)


def test_modes_belong_to_threads() -> None:
    def work(number: int) -> None:
        for _ in range(50):
            with ts.no_grad() if number % 2 else ts.enable_grad():
                assert ts.is_grad_enabled() == (number % 2 == 0)

    run_together(work)


def test_objects_handed_around() -> None:
    shared = [ts.zeros(4) for _ in range(16)]
    for x in shared:
        x.note = []

    def work(number: int) -> None:
        for step in range(400):
            x = shared[(number * 7 + step) % 16]
            shared[(number + step) % 16] = x.view(2, 2).view(4)
            x[number % 4]
            repr(x)

    run_together(work)


def test_hooks_from_many_threads() -> None:
    def work(number: int) -> None:
        x = ts.ones(3, requires_grad=True)
        seen = []
        handle = x.register_hook(lambda g: seen.append(number))
        for _ in range(20):
            (x * number).sum().backward()
        handle.remove()
        assert seen == [number] * 20

    run_together(work)


def test_errors_stay_in_their_thread() -> None:
    def work(number: int) -> None:
        for _ in range(100):
            if number % 2:
                with pytest.raises(RuntimeError):
                    ts.ones(2).view(3)
            else:
                assert ts.ones(2).view(2, 1).shape == (2, 1)

    run_together(work)
