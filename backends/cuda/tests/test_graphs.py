"""Captured graphs, on a driver that ends a capture for what CUDA forbids meanwhile."""

from __future__ import annotations

import threading
import warnings
from pathlib import Path
from typing import Any

import pytest
import tesserack as ts
from simulated import NAME, Simulated

pytestmark = pytest.mark.usefixtures("no_fallback")


@pytest.fixture
def cuda(driver: Simulated) -> Any:
    return getattr(ts, NAME)


def test_a_replay_computes_from_what_the_inputs_hold_then(cuda: Any, driver: Simulated) -> None:
    x = ts.ones(5, device=NAME)
    graph = cuda.CUDAGraph()
    with cuda.graph(graph):
        y = x * 2 + 1
    launched = driver.launched
    for value in (3.0, 4.0):
        x.fill_(value)
        graph.replay()
        assert y.cpu().tolist() == [2 * value + 1] * 5
    assert driver.launched == launched + 2, "the fills alone"


def test_the_capture_itself_does_nothing(cuda: Any) -> None:
    x = ts.ones(3, device=NAME)
    graph = cuda.CUDAGraph()
    with cuda.graph(graph):
        x.add_(1)
    assert x.cpu().tolist() == [1, 1, 1]
    graph.replay()
    graph.replay()
    assert x.cpu().tolist() == [3, 3, 3]


def test_addresses_stay_until_reset(cuda: Any) -> None:
    x = ts.ones(1 << 16, device=NAME)
    graph = cuda.CUDAGraph()
    with cuda.graph(graph):
        between = x * 3
        address = between.data_ptr()
        y = between + 1
        del between
    others = [ts.zeros(1 << 16, device=NAME) for _ in range(8)]
    assert address not in [other.data_ptr() for other in others]
    graph.replay()
    assert float(y.sum()) == 4 << 16 and not any(float(other.sum()) for other in others)
    held = cuda.memory_allocated()
    graph.reset()
    del y
    assert cuda.memory_allocated() <= held - (2 << 18)


BLOCK = 4 << 16


def chain(x: Any, steps: int) -> Any:
    """Work whose temporaries are let go one after another, each of them a block."""
    for k in range(steps):
        x = x * 2 + k
    return x


def test_a_capture_uses_again_what_it_lets_go(cuda: Any) -> None:
    x = ts.ones(1 << 16, device=NAME)
    expected = chain(x.cpu(), 6)
    before = cuda.memory_allocated()
    graph = cuda.CUDAGraph()
    with cuda.graph(graph):
        y = chain(x, 6)
    assert cuda.memory_allocated() - before <= 3 * BLOCK
    graph.replay()
    ts.testing.assert_close(y.cpu(), expected)
    graph.reset()
    del y
    assert cuda.memory_allocated() == before


@pytest.mark.parametrize("how", ["handle", "graph", "apart"])
def test_graphs_of_one_pool_share_memory(cuda: Any, how: str) -> None:
    x = ts.ones(1 << 16, device=NAME)
    before = cuda.memory_allocated()
    first, second = cuda.CUDAGraph(), cuda.CUDAGraph()
    pool = cuda.graph_pool_handle() if how == "handle" else None
    with cuda.graph(first, pool=pool):
        y = chain(x, 3)
    held = cuda.memory_allocated()
    if how == "graph":
        pool = first.pool()
    assert pool is None or first.pool() == pool
    with cuda.graph(second, pool=pool):
        z = chain(y, 3)
    more = cuda.memory_allocated() - held
    assert more == held - before == 3 * BLOCK if how == "apart" else more <= BLOCK
    x.fill_(2)
    for _ in range(2):
        first.replay()
        second.replay()
    expected = chain(ts.full((1 << 16,), 2.0), 3)
    ts.testing.assert_close(y.cpu(), expected)  # which is held, and so nobody else's
    ts.testing.assert_close(z.cpu(), chain(expected, 3))
    first.reset()
    second.replay()
    ts.testing.assert_close(z.cpu(), chain(expected, 3))
    second.reset()
    assert cuda.memory_allocated() > before
    del y, z
    assert cuda.memory_allocated() == before


def test_what_a_side_stream_lets_go_is_its_own(cuda: Any) -> None:
    """The order of a stream keeps uses of a block apart, and no order is known between two."""
    x, side, graph = ts.ones(1 << 16, device=NAME), cuda.Stream(), cuda.CUDAGraph()
    with cuda.graph(graph):
        side.wait_stream(cuda.current_stream())
        with cuda.stream(side):
            y = x * 5
            address = y.data_ptr()
            total = y.sum()
            y.record_stream(cuda.current_stream())
            del y
        others = [x + k for k in range(3)]
        cuda.current_stream().wait_stream(side)
    assert address not in [other.data_ptr() for other in others]
    graph.replay()
    assert float(total) == 5 << 16 and [float(other[0]) for other in others] == [1, 2, 3]


def test_memory_is_found_while_a_capture_is_under_way(cuda: Any) -> None:
    """cudaMalloc ends a capture in the mode "global", unless the thread is relaxed meanwhile."""
    cuda.empty_cache()
    graph = cuda.CUDAGraph()
    x = ts.ones(300_000, device=NAME)
    with cuda.graph(graph, capture_error_mode="global"):
        y = ts.cat([x, x, x]) + 1
    graph.replay()
    assert float(y.sum()) == 1_800_000


def test_kernels_are_compiled_while_a_capture_is_under_way(cuda: Any) -> None:
    x = ts.arange(12, device=NAME).float()
    graph = cuda.CUDAGraph()
    with cuda.graph(graph):
        y = (x.sinh() * 3.25 - x.cosh()).reshape(3, 4).logsumexp(0)
    graph.replay()
    z = ts.arange(12).float()
    ts.testing.assert_close(y.cpu(), (z.sinh() * 3.25 - z.cosh()).reshape(3, 4).logsumexp(0))


def test_products_are_captured(cuda: Any) -> None:
    a, b = ts.randn(4, 6).to(NAME), ts.randn(6, 5).to(NAME)
    graph = cuda.CUDAGraph()
    with cuda.graph(graph):
        y = (a @ b).relu()
    a.copy_(ts.randn(4, 6))
    graph.replay()
    ts.testing.assert_close(y.cpu(), (a.cpu() @ b.cpu()).relu(), rtol=1e-5, atol=1e-5)


def test_random_numbers_are_new_in_every_replay(cuda: Any) -> None:
    ts.manual_seed(11)
    expected = [ts.rand(50, device=NAME).cpu() for _ in range(4)]
    ts.manual_seed(11)
    graph = cuda.CUDAGraph()
    with cuda.graph(graph):
        x = ts.rand(50, device=NAME)
    got = []
    for _ in range(3):
        graph.replay()
        got.append(x.cpu())
    # As in eager mode, numbers that the capture itself drew aside.
    assert all(ts.equal(a, b) for a, b in zip(got, expected[1:], strict=True))
    assert ts.nn.functional.dropout(ts.ones(10, device=NAME)).cpu().count_nonzero() <= 10


def test_dropout_differs_between_replays(cuda: Any) -> None:
    ts.manual_seed(3)
    x = ts.ones(1000, device=NAME)
    graph = cuda.CUDAGraph()
    with cuda.graph(graph):
        y = ts.nn.functional.dropout(x, 0.5)
    masks = []
    for _ in range(2):
        graph.replay()
        masks.append(y.cpu() != 0)
    assert not ts.equal(*masks) and all(400 < int(mask.sum()) < 600 for mask in masks)


def test_a_whole_training_step(cuda: Any) -> None:
    losses = []
    for captured in (False, True):
        ts.manual_seed(2)
        model = ts.nn.Sequential(ts.nn.Linear(6, 8), ts.nn.Tanh(), ts.nn.Linear(8, 3)).to(NAME)
        optimizer = ts.optim.SGD(model.parameters(), lr=0.1)
        x, y = ts.randn(10, 6).to(NAME), ts.randint(0, 3, (10,)).to(NAME)

        def step(model: Any = model, optimizer: Any = optimizer, x: Any = x, y: Any = y) -> Any:
            optimizer.zero_grad(set_to_none=True)
            loss = ts.nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            return loss

        side = cuda.Stream()
        side.wait_stream(cuda.current_stream())
        with cuda.stream(side):
            first = [float(step()) for _ in range(2)]
        cuda.current_stream().wait_stream(side)
        if captured:
            graph = cuda.CUDAGraph()
            with cuda.graph(graph):
                loss = step()
            rest = []
            for _ in range(3):
                graph.replay()
                rest.append(float(loss))
        else:
            rest = [float(step()) for _ in range(3)]
        losses.append(first + rest)
    assert losses[0] == pytest.approx(losses[1], rel=1e-6) and losses[0][-1] < losses[0][0]


@pytest.mark.parametrize("what", ["item", "copy", "synchronize"])
def test_what_waits_cannot_be_captured(cuda: Any, what: str) -> None:
    x, graph = ts.ones(3, device=NAME), cuda.CUDAGraph()
    with pytest.raises(RuntimeError, match="record: expected work"), cuda.graph(graph):
        {"item": lambda: x[0].item(), "copy": lambda: x.copy_(ts.zeros(3)), "synchronize": cuda.synchronize}[what]()
    assert not cuda.is_current_stream_capturing()
    with pytest.raises(RuntimeError, match="without a preceding successful capture"):
        graph.replay()
    with cuda.graph(graph):  # it and the device go on
        y = x + 1
    graph.replay()
    assert y.cpu().tolist() == [2, 2, 2]


def test_another_threads_allocation_ends_a_global_capture(cuda: Any, driver: Simulated) -> None:
    errors: list[Any] = []

    def allocate() -> None:
        driver.setDevice(0)
        try:
            driver.malloc(10)
        except RuntimeError as error:
            errors.append(error)

    x = ts.ones(3, device=NAME)
    for mode, ends in (("thread_local", False), ("relaxed", False), ("global", True)):
        graph = cuda.CUDAGraph()

        def capture(graph: Any = graph, mode: str = mode) -> Any:
            with cuda.graph(graph, capture_error_mode=mode):
                y = x + 1
                thread = threading.Thread(target=allocate)
                thread.start()
                thread.join()
            return y

        if ends:
            with pytest.raises(Exception, match="invalid"):
                capture()
            assert len(errors) == 1
        else:
            result = capture()
            graph.replay()
            assert result.cpu().tolist() == [2, 2, 2]


def test_compiled_programs_are_graphs(cuda: Any, driver: Simulated, monkeypatch: pytest.MonkeyPatch) -> None:
    """Captured by themselves, in a mode that no other thread's calls end or fail for."""
    launched, launch, begun = [], driver.graphLaunch, driver.streamBeginCapture

    def count(graph: int, stream: int) -> None:
        launched.append(graph)
        launch(graph, stream)

    def allocate() -> None:
        driver.setDevice(0)
        driver.free(driver.malloc(10))

    def begin(stream: int, mode: int) -> None:
        begun(stream, mode)
        thread = threading.Thread(target=allocate)
        thread.start()
        thread.join()

    monkeypatch.setattr(driver, "graphLaunch", count)

    monkeypatch.setattr(driver, "streamBeginCapture", begin)

    def chain(x: ts.Tensor, w: ts.Tensor) -> ts.Tensor:
        for _ in range(4):
            x = (x @ w).cumsum(1).relu()
        return x

    x, w = ts.randn(4, 5, device=NAME), ts.randn(5, 5, device=NAME)
    with warnings.catch_warnings(), ts.no_grad():
        warnings.simplefilter("ignore")
        traced = ts.jit.trace(chain, (x, w), check_trace=False)
        for turn in range(16):
            x.copy_(ts.randn(4, 5))
            expected = chain(x, w)
            before = driver.launched
            result = traced(x, w)
            called = driver.launched - before
            assert result.cpu().tolist() == expected.cpu().tolist()
            if turn == 7:
                ts.empty_cache(NAME)
    assert called == 0 and 2 < len(set(launched)) < len(launched)


def test_compiled_programs_keep_their_scratch_memory(cuda: Any, driver: Simulated) -> None:
    """Sums in parts, whose parts lie in the workspace: nobody else gets it while the graph is there."""

    def chain(x: ts.Tensor) -> ts.Tensor:
        for _ in range(3):
            x = (x + x.sum() * 1e-3).neg()
        return x

    x = ts.randn(4, 9000, device=NAME)
    with warnings.catch_warnings(), ts.no_grad():
        warnings.simplefilter("ignore")
        traced = ts.jit.trace(chain, (x,), check_trace=False)
        for _ in range(14):
            x.copy_(ts.randn(4, 9000))
            expected = chain(x).cpu()
            others = [ts.full((size,), 7.0, device=NAME) for size in (4, 16, 64, 256, 1024, 4096) for _ in range(3)]
            before = driver.launched
            assert traced(x).cpu().equal(expected)
            called = driver.launched - before
            assert all(set(other.cpu().tolist()) == {7} for other in others)
    assert called == 0
    held = cuda.memory_allocated()
    cuda.empty_cache()
    assert cuda.memory_allocated() < held


def test_streams_that_join_the_capture(cuda: Any) -> None:
    x, side, graph = ts.ones(4, device=NAME), cuda.Stream(), cuda.CUDAGraph()
    with cuda.graph(graph):
        side.wait_stream(cuda.current_stream())
        with cuda.stream(side):
            y = x * 5
        z = x + 1
        cuda.current_stream().wait_stream(side)
        w = y + z
    x.fill_(2)
    graph.replay()
    assert w.cpu().tolist() == [13] * 4


def test_a_stream_that_does_not_come_back(cuda: Any) -> None:
    x, side, graph = ts.ones(4, device=NAME), cuda.Stream(), cuda.CUDAGraph()
    with pytest.raises(Exception, match="not joined"), cuda.graph(graph):
        side.wait_stream(cuda.current_stream())
        with cuda.stream(side):
            y = x * 5
    del y


def test_a_graph_runs_in_the_order_of_the_current_stream(cuda: Any) -> None:
    x, graph = ts.zeros(4, device=NAME), cuda.CUDAGraph()
    with cuda.graph(graph):
        x.add_(1)
    side = cuda.Stream()
    side.wait_stream(cuda.current_stream())
    with cuda.stream(side):
        x.fill_(10)
        graph.replay()
        y = x * 2
    side.synchronize()
    assert y.cpu().tolist() == [22] * 4


def test_the_default_stream_cannot_be_captured(cuda: Any) -> None:
    with pytest.raises(RuntimeError, match="must be captured on a non-default stream"):
        cuda.CUDAGraph().capture_begin()
    assert not cuda.is_current_stream_capturing()


def test_misuse_is_told(cuda: Any) -> None:
    graph = cuda.CUDAGraph()
    with pytest.raises(RuntimeError, match="Unknown capture error mode"), cuda.graph(graph, capture_error_mode="no"):
        pass
    with pytest.raises(RuntimeError, match="capture_begin first"):
        graph.capture_end()
    with pytest.raises(TypeError, match="graph_pool_handle"), cuda.graph(graph, pool=3):
        pass
    x = ts.ones(3, device=NAME)
    with cuda.graph(graph, pool=cuda.graph_pool_handle()):
        assert cuda.is_current_stream_capturing()
        x + 1
    with pytest.raises(RuntimeError, match="already owns a captured graph"), cuda.graph(graph):
        pass
    with pytest.raises(RuntimeError, match="keep_graph"):
        graph.raw_cuda_graph()
    other = cuda.CUDAGraph()
    with pytest.raises(RuntimeError, match="recording"), cuda.graph(other):
        graph.replay()


def test_a_graph_that_is_kept(cuda: Any, driver: Simulated, tmp_path: Path) -> None:
    x, graph = ts.ones(3, device=NAME), cuda.CUDAGraph(keep_graph=True)
    with cuda.graph(graph):
        y = x + 1
    assert driver.graphs[graph.raw_cuda_graph()][0] == "graph"
    with pytest.raises(RuntimeError, match="instantiate"):
        graph.raw_cuda_graph_exec()
    graph.replay()
    assert y.cpu().tolist() == [2, 2, 2] and driver.graphs[graph.raw_cuda_graph_exec()][0] == "exec"
    graph.debug_dump(str(tmp_path / "graph.dot"))
    assert (tmp_path / "graph.dot").exists()
    raw = graph.raw_cuda_graph(), graph.raw_cuda_graph_exec()
    graph.reset()
    assert not {*raw} & {*driver.graphs}


def test_nothing_is_left_behind(cuda: Any, driver: Simulated) -> None:
    before = len(driver.graphs)
    x = ts.ones(3, device=NAME)
    for _ in range(3):
        graph = cuda.CUDAGraph()
        with cuda.graph(graph):
            x + 1
        graph.replay()
        cuda.synchronize()
        del graph
    assert len(driver.graphs) == before and not driver.captures


@pytest.mark.parametrize("kind", ["module", "function", "tuple"])
def test_graphed_callables(cuda: Any, kind: str) -> None:
    results = []
    for graphed in (False, True):
        ts.manual_seed(5)
        first, second = ts.nn.Linear(4, 6).to(NAME), ts.nn.Linear(6, 2).to(NAME)
        x = ts.randn(3, 4).to(NAME)
        if graphed and kind == "module":
            first = cuda.make_graphed_callables(first, (ts.randn(3, 4).to(NAME),))
        elif graphed and kind == "tuple":
            samples = (ts.randn(3, 4).to(NAME),), (ts.randn(3, 6).to(NAME).requires_grad_(),)
            first, second = cuda.make_graphed_callables((first, second), samples)
        squash: Any = ts.tanh
        if graphed and kind == "function":
            squash = cuda.make_graphed_callables(ts.tanh, (ts.randn(3, 6).to(NAME).requires_grad_(),))
        optimizer = ts.optim.SGD([*first.parameters(), *second.parameters()], lr=0.1)
        losses = []
        for _ in range(3):
            optimizer.zero_grad()
            loss = second(squash(first(x))).square().sum()
            loss.backward()
            optimizer.step()
            losses.append(float(loss))
        results.append(losses)
    assert results[0] == pytest.approx(results[1], rel=1e-5) and results[0][-1] < results[0][0]


def test_a_graphed_module_in_another_mode_runs_as_it_is(cuda: Any) -> None:
    layer = ts.nn.Dropout(0.5)
    graphed = cuda.make_graphed_callables(layer, (ts.ones(100, device=NAME),))
    assert graphed is layer
    x = ts.ones(100, device=NAME)
    assert 0 < int((layer(x).cpu() == 0).sum()) < 100
    layer.eval()
    assert float(layer(x).sum()) == 100


def test_what_graphed_callables_refuse(cuda: Any) -> None:
    layer = ts.nn.Linear(2, 2).to(NAME)
    with pytest.raises(AssertionError, match="only Tensors"):
        cuda.make_graphed_callables(lambda x, n: x * n, (ts.ones(2, device=NAME), 3))
    with cuda.amp.autocast(), pytest.raises(RuntimeError, match="cache_enabled=False"):
        cuda.make_graphed_callables(layer, (ts.ones(1, 2, device=NAME),))
    layer.register_forward_hook(lambda *_: None)
    with pytest.raises(AssertionError, match="hooks"):
        cuda.make_graphed_callables(layer, (ts.ones(1, 2, device=NAME),))
