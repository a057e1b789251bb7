"""Launch plans: kernels in Python that compile once, and launches that enter no Python."""

from __future__ import annotations

import functools
import itertools
import threading
from collections.abc import Callable
from typing import Any

import pytest
import tesserack as ts
from plan_backend import Planned, driver, entry
from tesserack import _native
from tesserack.backends import Backend, Block, Buffer, Launch, LaunchPlan, Operand, Patch

native: Any = _native
pytestmark = pytest.mark.usefixtures("no_fallback")
names = (f"planned{k}" for k in itertools.count())


@pytest.fixture(scope="module")
def backend() -> Planned:
    made = Planned(next(names))
    native._register_python_backend(made, __file__)
    return made


@pytest.fixture
def device(backend: Planned) -> ts.device:
    return ts.device(backend.name)


def counters(backend: Backend) -> dict[str, int]:
    return native._launch_counters(backend.name)


@functools.cache
def other() -> Planned:
    """One more backend, since a process has room for few, whose kernels the tests exchange."""
    made = Planned(next(names))
    native._register_python_backend(made, __file__)
    return made


def one_kernel(op: str, function: Callable[..., Any], **options: Any) -> tuple[Planned, ts.device]:
    """A backend with another kernel for one operator."""
    other().kernel(op, **options)(function)
    return other(), ts.device(other().name)


def plan(launcher: str, *arguments: Any, kernel: int = 0) -> LaunchPlan:
    return LaunchPlan([Launch(entry(launcher), kernel, (1, 1, 1), (1, 1, 1), arguments)])


# --- running ----------------------------------------------------------------------------------------------------------


def test_results_are_the_cpu_backends(device: ts.device) -> None:
    ts.manual_seed(0)
    x, y = ts.randn(5, 7), ts.randn(7)
    a, b = x.to(device), y.to(device)
    assert ts.equal((a * 2 + b.exp()).cpu(), x * 2 + y.exp())
    assert ts.equal((a @ b).cpu(), x @ y)
    assert ts.equal(a.t().cumsum(0).cpu(), x.t().cumsum(0))
    assert ts.equal(a.sort(1, descending=True)[1].cpu(), x.sort(1, descending=True)[1])
    assert ts.equal(a[:, ts.tensor([1, 1, 3]).to(device)].cpu(), x[:, ts.tensor([1, 1, 3])])
    assert ts.equal((a > 0).sum().cpu(), (x > 0).sum())


def test_training_enters_python_for_first_compilations_only(backend: Planned, device: ts.device) -> None:
    ts.manual_seed(0)
    F = ts.nn.functional
    model = ts.nn.Sequential(
        *(ts.nn.Conv2d(1, 4, 3), ts.nn.BatchNorm2d(4), ts.nn.ReLU(), ts.nn.MaxPool2d(2), ts.nn.Flatten()),
        *(ts.nn.Dropout(0.1), ts.nn.Linear(36, 2)),
    ).to(device)
    x = ts.randn(32, 1, 8, 8, device=device)
    y = (x.sum((1, 2, 3)) > 0).long()
    optimizer = ts.optim.Adam(model.parameters(), lr=0.02)
    losses = []
    known = {}
    for step in range(30):
        if step == 2:
            known = counters(backend)
            compiled = backend.compilations
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    assert losses[-1].item() < 0.3 * losses[0].item()
    now = counters(backend)
    assert now["plans"] == known["plans"] and backend.compilations == compiled
    assert now["kernels_in_python"] == known["kernels_in_python"]
    assert now["by_plan"] > known["by_plan"] + 28 * 50
    assert ts.backends.fallbacks() == {}


def test_changing_parameters_are_patched(backend: Planned, device: ts.device) -> None:
    x = ts.empty(100, device=device)
    x.fill_(1.5)
    before = counters(backend)["plans"]
    for value in (2.5, -3.0, 1e30):
        assert (x.fill_(value).cpu() == value).all()
    ts.manual_seed(5)
    drawn = [ts.rand(40, device=device).cpu() for _ in range(3)]
    ts.manual_seed(5)
    assert all(ts.equal(a, ts.rand(40)) for a in drawn)
    assert not ts.equal(drawn[0], drawn[1])
    assert ts.equal(ts.arange(3, 8, device=device).cpu(), ts.arange(3, 8))
    seen = counters(backend)["plans"]
    assert ts.equal(ts.arange(-9, -4, device=device).cpu(), ts.arange(-9, -4))
    assert counters(backend)["plans"] == seen > before


def test_numbers_are_patched_and_kinds_are_not_mixed(backend: Planned, device: ts.device) -> None:
    x = ts.arange(6.0).to(device)
    _ = x * 2.0, x + 1.0
    before = counters(backend)["plans"]
    for value in (0.5, 3.0, -7.25):
        assert ts.equal((x * value).cpu(), ts.arange(6.0) * value)
    assert counters(backend)["plans"] == before
    whole = ts.arange(6).to(device)
    assert ts.equal((whole * 3).cpu(), ts.arange(6) * 3)
    assert ts.equal((whole * (2**53 + 1)).cpu(), ts.arange(6) * (2**53 + 1))


def test_offsets_are_patched(backend: Planned, device: ts.device) -> None:
    x = ts.arange(64.0)
    there = x.to(device)
    _ = there[4:8] + there[8:12]
    before = counters(backend)["plans"]
    for k in range(0, 48, 4):  # 16 bytes apart: of one alignment
        assert ts.equal((there[k : k + 4] + there[k + 8 : k + 12]).cpu(), x[k : k + 4] + x[k + 8 : k + 12])
    assert counters(backend)["plans"] == before
    assert ts.equal((there[1:5] + there[8:12]).cpu(), x[1:5] + x[8:12])
    assert counters(backend)["plans"] == before + 1


def test_scratch_memory_comes_from_the_cores_pool(backend: Planned, device: ts.device) -> None:
    a = ts.randn(9, 9, device=device)
    expected = a.cpu() @ a.cpu()
    out = a @ a
    out = a @ a
    before = counters(backend)["slots_in_python"]
    for _ in range(20):
        out = a @ a
    assert counters(backend)["slots_in_python"] == before  # nothing was allocated
    assert ts.equal(out.cpu(), expected)


def test_counters_are_among_the_capabilities(backend: Planned) -> None:
    assert ts.backends.capabilities(backend.name)["launches"].keys() == counters(backend).keys()
    assert ts.backends.capabilities("cpu")["launches"] is None


def test_launchers_see_the_grid(device: ts.device) -> None:
    ts.zeros(1000, device=device).neg_()
    assert driver().driver_last_grid() == 1024


def test_threads_share_plans(device: ts.device) -> None:
    shapes = [(k % 37 + 1, k % 11 + 1) for k in range(200)]
    failures: list[str] = []

    def work(seed: int) -> None:
        generator = ts.Generator().manual_seed(seed)
        for shape in shapes:
            x = ts.randn(shape, generator=generator)
            scale = float(seed + shape[0])
            if not ts.equal((x.to(device) * scale + x.to(device).t().contiguous().t()).cpu(), x * scale + x):
                failures.append(f"{seed}: {shape}")

    threads = [threading.Thread(target=work, args=(k,)) for k in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_more_signatures_than_the_cache_holds(backend: Planned, device: ts.device) -> None:
    x = ts.arange(6000.0)
    there = x.to(device)
    for n in range(1, 5000):
        result = there[:n] + 1.0
    assert ts.equal(result.cpu(), x[:4999] + 1.0)
    before = counters(backend)["plans"]
    assert ts.equal((there[:4999] + 1.0).cpu(), x[:4999] + 1.0)  # of late: still there
    assert counters(backend)["plans"] == before


# --- declining and failing --------------------------------------------------------------------------------------------


def test_a_plan_may_decline_all_calls_of_its_kind() -> None:
    asked = []

    def never(out: Operand, x: Operand, *rest: Any) -> LaunchPlan:
        asked.append(x.shape)
        return LaunchPlan(None)

    _, device = one_kernel("sigmoid", never)
    for _ in range(3):
        assert ts.equal(ts.zeros(3, device=device).sigmoid().cpu(), ts.full((3,), 0.5))
    assert asked == [(3,)]


@pytest.mark.parametrize(
    ("launcher", "message"),
    [
        ("driver_fail", "the driver is out of resources"),
        ("driver_silent_failure", "failed with status"),
        ("driver_decline", "the launcher declined"),
    ],
)
def test_errors_of_a_launcher_are_raised(launcher: str, message: str) -> None:
    backend, device = one_kernel("iota", lambda out, *params: plan(launcher, Buffer(0)))
    before = counters(backend)["kernels_in_python"]
    for _ in range(2):  # the second by plan
        with pytest.raises(RuntimeError, match=f"iota.*{message}"):
            ts.arange(5, device=device)
    assert counters(backend)["kernels_in_python"] == before + 1


def test_statuses_of_a_launcher_are_kept(device: ts.device) -> None:
    x = ts.arange(5.0).to(device)
    index = ts.tensor([0, 9]).to(device)
    for _ in range(2):
        with pytest.raises(IndexError):
            x.gather(0, index)


@pytest.mark.parametrize(
    ("made", "error", "message"),
    [
        (lambda: LaunchPlan([1]), TypeError, r"launches\[0\]: expected a Launch, got int"),  # type: ignore[list-item]
        (lambda: plan("driver_run", Buffer(3)), ValueError, r"arguments\[0\]: the call has 1 operands, got 3"),
        (lambda: plan("driver_run", Buffer(-1)), ValueError, "a plan without workspace"),
        (lambda: plan("driver_run", Block(b"1234", [Patch(0, "offset", 0, "q")])), ValueError, "ends at byte 8"),
        (lambda: plan("driver_run", Block(bytes(8), [Patch(0, "offset", 0, "d")])), ValueError, "is an integer"),
        (lambda: plan("driver_run", Block(bytes(8), [Patch(0, "param", 0, "q")])), ValueError, "as changing"),
        (lambda: plan("driver_run", Block(bytes(8), [Patch(0, "scalar", 0, "q")])), ValueError, "not a number"),
        (lambda: plan("driver_run", Block(bytes(8), [Patch(0, "shape", 0, "q")])), ValueError, "got 'shape'"),
        (lambda: plan("driver_run", Block(bytes(8), [Patch(0, "offset", 0, "x")])), ValueError, "got 'x'"),
        (lambda: LaunchPlan([Launch(0, 0, (1, 1, 1), (1, 1, 1), [])]), ValueError, "entry"),
        (lambda: LaunchPlan([Launch(1, 0, (0, 1, 1), (1, 1, 1), [])]), ValueError, "groups: expected positive"),
        (lambda: LaunchPlan([], -1), ValueError, "workspace"),
    ],
)
def test_a_wrong_plan_says_where(made: Callable[[], LaunchPlan], error: type[Exception], message: str) -> None:
    _, device = one_kernel("iota", lambda out, *params: made())
    # Only some kinds of errors cross the table of a backend; the text is kept.
    with pytest.raises(ValueError if error is ValueError else RuntimeError, match=message):
        ts.arange(5, device=device)


def test_an_offset_that_does_not_fit_is_an_error() -> None:
    def narrow(out: Operand, value: float) -> LaunchPlan:
        return plan("driver_copy", Buffer(0), Buffer(0), Block(bytes(16), [Patch(0, "offset", 0, "b")]))

    _, device = one_kernel("fill", narrow)
    x = ts.empty(1000, device=device)
    x[:4].fill_(0)
    with pytest.raises(RuntimeError, match="offset of 1600 bytes does not fit the 'b'"):
        x[400:404].fill_(0)


def test_plans_need_raw_handles() -> None:
    made = Planned(next(names))
    made.raw_handles = False
    made.kernel("iota")(lambda out, *params: LaunchPlan([]))
    native._register_python_backend(made, __file__)
    with pytest.raises(RuntimeError, match="raw_handles = True"):
        ts.arange(5, device=made.name)


def test_raw_handles_are_numbers() -> None:
    made = Planned(next(names))
    made.alloc = lambda device, nbytes, stream: "memory"  # type: ignore[method-assign,assignment,return-value]
    native._register_python_backend(made, __file__)
    with pytest.raises(RuntimeError, match="expected an int, since the backend sets raw_handles, got str"):
        ts.empty(5, device=made.name)


def test_changing_parameters_are_checked() -> None:
    with pytest.raises(ValueError, match="changing parameters among 0 to 63"):
        Planned(next(names)).kernel("fill", changing=[64])


def test_plans_of_before_a_recovery_serve_no_call_after_it() -> None:
    """Their kernels were lost with the device."""

    class Recovering(Planned):
        def recover(self, device: int) -> None:
            self.recovered = True

    made = Recovering(next(names))
    native._register_python_backend(made, __file__)
    one = ts.ones(3, device=made.name)
    assert (one + one).tolist() == [2.0] * 3
    known = counters(made)["plans"]
    ts.ones(3, device=made.name).add(1)
    compiled_once = made.compilations
    ts.ones(3, device=made.name).add(1)
    assert made.compilations == compiled_once and counters(made)["plans"] >= known
    ts.backends.recover(f"{made.name}:0")
    assert made.recovered
    assert ts.ones(3, device=made.name).add(1).tolist() == [2.0] * 3
    assert made.compilations > compiled_once
