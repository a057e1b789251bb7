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


@pytest.mark.parametrize("create_graph", [False, True])
def test_backward_through_one_graph(create_graph: bool) -> None:
    """Kernels of this size let other threads into the nodes that they work for."""
    ts.manual_seed(0)
    x, w, b = ts.rand(160, 160).requires_grad_(), ts.rand(160, 160).requires_grad_(), ts.rand(160).requires_grad_()
    images = x.reshape(4, 4, 40, 40)
    y = ts.nn.functional.layer_norm(x @ w * 0.1 + b, (160,), b, b).tanh()
    y = ts.cat([y, ts.nn.functional.conv2d(images, w[:4, :36].reshape(4, 4, 3, 3), padding=1).reshape(160, 160)])
    y = y.softmax(1).index_select(0, ts.arange(0, 320, 2)) @ ts.addmm(b, x, w).relu()
    incoming = [ts.rand(160, 160) for _ in range(8)]
    expected = [ts.autograd.grad(y, (x, w, b), g, retain_graph=True, create_graph=create_graph) for g in incoming]

    def work(number: int) -> None:
        for _ in range(10):
            got = ts.autograd.grad(y, (x, w, b), incoming[number], retain_graph=True, create_graph=create_graph)
            assert all(ts.equal(a, e) for a, e in zip(got, expected[number], strict=True))

    run_together(work)


def test_gradients_of_all_threads_add_up() -> None:
    weight, other = ts.zeros(200, 200, requires_grad=True), ts.zeros(200, 200, requires_grad=True)

    def work(number: int) -> None:
        for _ in range(20):
            (weight * 2 + other).backward(ts.ones(200, 200))
            (weight * 3).backward(ts.ones(200, 200), inputs=[weight])

    run_together(work)
    assert weight.grad.unique().tolist() == [8 * 20 * 5.0]
    assert other.grad.unique().tolist() == [8 * 20.0]


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
