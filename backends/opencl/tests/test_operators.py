"""Operators on OpenCL against float64 on the cpu, gradients too, and how many kernels each launches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tesserack as ts
from tesserack.nn import functional as F


def launches() -> int:
    from tesserack_opencl import card

    return card.statistics.launches


def tensors(*shapes: tuple[int, ...], seed: int = 0) -> list[ts.Tensor]:
    """Normal numbers that all devices draw alike."""
    ts.manual_seed(seed)
    return [ts.randn(*shape) for shape in shapes]


def on(device: str, dtype: Any, x: ts.Tensor) -> ts.Tensor:
    moved = x.to(device)
    return moved.to(dtype).requires_grad_() if x.is_floating_point() else moved


def compare(function: Callable[..., Any], *inputs: ts.Tensor, tolerance: float = 2e-5, gradients: bool = True) -> None:
    """Values and gradients on OpenCL in float32 beside those of the cpu in float64."""
    ours, exact = ([on(d, t, x) for x in inputs] for d, t in (("opencl", ts.float32), ("cpu", ts.float64)))
    found, expected = function(*ours), function(*exact)
    assert found.device.type == "opencl"
    assert ts.allclose(found.cpu().double(), expected.double(), rtol=tolerance, atol=tolerance)
    if not gradients:
        return
    weights = ts.linspace(0.5, 1.5, max(expected.numel(), 1), dtype=ts.float64).reshape(expected.shape)
    (found * weights.float().to("opencl")).sum().backward()
    (expected * weights).sum().backward()
    for mine, theirs in zip(ours, exact, strict=True):
        if theirs.grad is not None:
            assert ts.allclose(mine.grad.cpu().double(), theirs.grad, rtol=10 * tolerance, atol=10 * tolerance)


CASES: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "softmax of rows": (lambda x: x.softmax(-1), ((33, 70),)),
    "softmax of columns": (lambda x: x.softmax(1), ((3, 70, 5),)),
    "softmax of columns side by side": (lambda x: x.softmax(1), ((3, 600, 37),)),
    "log_softmax of columns side by side": (lambda x: x.log_softmax(0), ((70, 33),)),
    "layer_norm of many columns": (lambda x, w, b: F.layer_norm(x, (3, 21), w, b), ((300, 3, 21), (3, 21), (3, 21))),
    "log_softmax": (lambda x: x.log_softmax(1), ((33, 70),)),
    "layer_norm": (lambda x, w, b: F.layer_norm(x, (40,), w, b), ((6, 7, 40), (40,), (40,))),
    "layer_norm without weight": (lambda x: F.layer_norm(x, (5, 8)), ((6, 5, 8),)),
    "batch_norm": (lambda x, w, b: F.batch_norm(x, None, None, w, b, True), ((6, 5, 4, 3), (5,), (5,))),
    "batch_norm channels last": (
        lambda x, w, b: F.batch_norm(x.contiguous(memory_format=ts.channels_last), None, None, w, b, True),
        ((6, 5, 4, 3), (5,), (5,)),
    ),
    "matmul": (lambda x, y: x @ y, ((33, 17), (17, 45))),
    "matmul of transposed batches": (lambda x, y: x @ y.transpose(1, 2), ((3, 33, 17), (3, 45, 17))),
    "max_pool2d": (lambda x: F.max_pool2d(x, 2), ((2, 3, 8, 10),)),
    "sum of rows": (lambda x: x.sum(1), ((60, 1000),)),
    "sum of columns": (lambda x: x.sum(0), ((3000, 20),)),
    "sum of outer and inner dims": (lambda x: x.sum((0, 2, 3)), ((5, 7, 9, 33),)),
    "max of outer and inner dims": (lambda x: x.amax((0, 2)), ((5, 7, 33),)),
    "rows by index": (lambda x: x[ts.tensor([3, -1, 0, 3], device=x.device)], ((9, 2100),)),
    "columns by index": (lambda x: x.index_select(1, ts.tensor([3, 1, 0], device=x.device)), ((9, 21),)),
    "sum of all": (lambda x: x.sum(), ((70000,),)),
    "softmax of seven columns": (lambda x: x.softmax(1), ((5, 40, 7),)),
    "log_softmax of thirty columns": (lambda x: x.log_softmax(1), ((5, 40, 30),)),
    "max": (lambda x: x.amax(1), ((40, 333),)),
    "cumsum": (lambda x: x.cumsum(0), ((70, 33),)),
    "sort": (lambda x: x.sort(1)[0], ((5, 77),)),
    "var of rows": (lambda x: x.var(1), ((70, 333),)),
    "var of columns": (lambda x: x.var(0, correction=0), ((70, 33),)),
    "std of outer and inner dims": (lambda x: x.std((0, 2)), ((5, 7, 33),)),
    "var of few long rows": (lambda x: x.var(1), ((1, 70_000),)),
}


@pytest.mark.parametrize("case", CASES)
def test_values_and_gradients(case: str) -> None:
    function, shapes = CASES[case]
    compare(function, *tensors(*shapes))


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("weighted", [False, True])
def test_cross_entropy(reduction: str, weighted: bool) -> None:
    target = ts.tensor([1, 0, 4, 2, -100, 3, 3])
    weight = [ts.tensor([0.5, 1.0, 2.0, 0.25, 1.5])] * weighted
    compare(
        lambda x, t, *w: F.cross_entropy(x, t, *(v.detach() for v in w), reduction=reduction),
        *tensors((7, 5)), target, *weight,
    )  # fmt: skip


@pytest.mark.parametrize("zero_infinity", [False, True])
def test_ctc_loss_is_one_launch_each_way(zero_infinity: bool) -> None:
    """Labels that repeat, targets of any length, none at all, and one too long for its steps."""
    log_probs = tensors((20, 5, 9))[0].log_softmax(2)
    targets = ts.tensor([[1, 1, 2, 8], [3, 0, 0, 0], [4, 5, 4, 5], [7, 7, 7, 7], [0, 0, 0, 0]])
    lengths, sizes = ts.tensor([20, 1, 17, 4, 3]), ts.tensor([4, 1, 4, 4, 0])

    def loss(x: ts.Tensor) -> Any:
        return F.ctc_loss(x, targets, lengths, sizes, reduction="none", zero_infinity=zero_infinity)

    found = []
    for device, dtype in (("opencl", ts.float32), ("cpu", ts.float64)):
        x = log_probs.to(dtype).to(device).requires_grad_()
        result = loss(x)
        found.append((result.detach().cpu().double(), ts.autograd.grad(result.sum(), x)[0].cpu().double()))
    for mine, theirs in zip(*found, strict=True):
        assert ts.allclose(mine, theirs, rtol=1e-4, atol=1e-4, equal_nan=True)
    x = log_probs.to("opencl").requires_grad_()
    before = launches()
    ts.autograd.grad(loss(x).sum(), x)
    assert launches() - before < 30


def test_an_index_out_of_range_is_told_by_the_operator() -> None:
    table = ts.ones(5, 40, device="opencl")
    for read in (lambda i: F.embedding(i, table), lambda i: table.index_select(0, i), lambda i: table.gather(0, i)):
        index = ts.tensor([1, 5, 0], device="opencl")
        with pytest.raises(IndexError, match=r"(embedding|index_select|gather).*5"):
            read(index[:, None].expand(3, 40) if "gather" in str(read.__code__.co_names) else index).cpu()


def test_embedding_adds_up_repeated_rows_but_not_the_padding_row() -> None:
    index = ts.tensor([[1, 3, 1], [0, 2, 1]])
    compare(lambda i, w: F.embedding(i, w, padding_idx=2), index, *tensors((5, 6)))


def test_batch_norm_updates_running_statistics_and_uses_them() -> None:
    results = []
    for device in ("cpu", "opencl"):
        ts.manual_seed(1)
        layer = ts.nn.BatchNorm2d(5).to(device)
        x = tensors((6, 5, 4, 3))[0].to(device)
        layer(x)
        layer.eval()
        results.append([layer.running_mean.cpu(), layer.running_var.cpu(), layer(x).detach().cpu()])
    for mine, theirs in zip(*results, strict=True):
        assert ts.allclose(mine, theirs, atol=1e-5)


@pytest.mark.parametrize("dtype", [ts.float64, ts.float16, ts.int64, ts.int8, ts.uint8, ts.bool], ids=str)
@pytest.mark.parametrize("descending", [False, True])
def test_long_sorts_of_every_kind_of_number(dtype: ts.dtype, descending: bool) -> None:
    x = (tensors((2, 20001))[0] * 3e9).to(ts.int64)
    x = (x % 2**40 * (1 - x % 2 * 2)).to(dtype) if dtype != ts.bool else x % 2 == 0
    for y in (x, x[:, ::3], x[:, :600].t()):
        found = y.to("opencl").sort(-1 if y.shape[-1] > 2 else 0, descending=descending, stable=True)
        expected = y.sort(-1 if y.shape[-1] > 2 else 0, descending=descending, stable=True)
        assert ts.equal(found[0].cpu(), expected[0])
        assert ts.equal(found[1].cpu(), expected[1])


@pytest.mark.parametrize("shape", [(1,), (17,), (4097,), (20000,), (3, 9001), (40, 64), (7, 0)])
@pytest.mark.parametrize("descending", [False, True])
def test_sorts_are_stable(shape: tuple[int, ...], descending: bool) -> None:
    x = (tensors(shape)[0] * 5).round()
    if x.numel() > 20:
        x.view(-1)[:6] = ts.tensor([float("nan"), float("inf"), -0.0, 0.0, float("-inf"), float("nan")])
    found = x.to("opencl").sort(-1, descending=descending, stable=True)
    expected = x.sort(-1, descending=descending, stable=True)
    assert ts.equal(found[1].cpu(), expected[1])
    assert ts.equal(found[0].cpu().nan_to_num(7), expected[0].nan_to_num(7))


def steps(make: Callable[..., Any], device: str) -> list[ts.Tensor]:
    """Parameters after three steps on a quadratic with known numbers."""
    params = [x.to(device).requires_grad_() for x in tensors((3, 5), (7,), (130,), (2, 2))]
    optimizer = make(params)
    for k in range(3):
        optimizer.zero_grad()
        sum(((p - k) ** 2).sum() for p in params).backward()
        optimizer.step()
    return [p.detach().cpu() for p in params]


OPTIMIZERS: dict[str, Callable[..., Any]] = {
    "SGD": lambda p: ts.optim.SGD(p, 0.1),
    "SGD momentum": lambda p: ts.optim.SGD(p, 0.1, momentum=0.9, nesterov=True, weight_decay=0.1),
    "Adam": lambda p: ts.optim.Adam(p, 0.1, amsgrad=True, weight_decay=0.1),
    "AdamW": lambda p: ts.optim.AdamW(p, 0.1),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizer_steps(name: str) -> None:
    for mine, theirs in zip(steps(OPTIMIZERS[name], "opencl"), steps(OPTIMIZERS[name], "cpu"), strict=True):
        assert ts.allclose(mine, theirs, rtol=1e-5, atol=1e-6)


def test_an_optimizer_step_is_one_launch() -> None:
    params = [x.to("opencl").requires_grad_() for x in tensors((3, 5), (7,), (130,), (2, 2))]
    optimizer = ts.optim.AdamW(params, 0.1)
    for k in range(3):
        for p in params:
            p.grad = p.detach() + k
        before = launches()
        optimizer.step()
        if k:  # the first step makes the state
            assert launches() - before == 1


@pytest.mark.parametrize("name, expected", [("softmax", 1), ("layer_norm", 1), ("a + b * c", 1), ("rand", 1)])
def test_launches_of_fused_operators(name: str, expected: int) -> None:
    x = ts.ones(40, 30, device="opencl")
    functions: dict[str, Callable[[], Any]] = {
        "softmax": lambda: x.softmax(1),
        "layer_norm": lambda: F.layer_norm(x, (30,)),
        "a + b * c": lambda: ts.addcmul(x, x, x),
        "rand": lambda: ts.rand(100, device="opencl"),
    }
    before = launches()
    functions[name]()
    assert launches() - before == expected


@pytest.mark.parametrize("dtype", [ts.float32, ts.float64, ts.float16, ts.bfloat16])
def test_random_numbers_are_those_of_the_cpu(dtype: Any) -> None:
    drawn = []
    for device in ("cpu", "opencl"):
        ts.manual_seed(5)
        drawn.append([ts.rand(n, dtype=dtype, device=device).cpu() for n in (1, 7, 1000)])
    for mine, theirs in zip(*drawn, strict=True):
        assert mine.tolist() == theirs.tolist()


@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
def test_large_angles_leave_small_ones_alone(name: str) -> None:
    """Drivers reduce the angles of a vector together."""
    x = ts.tensor(
        [1e-30, 3e37, -1e-8, 1e6, float("inf"), 0.5, float("nan"), -40000.0, 0.25, 1e-3, 2.0], dtype=ts.float32
    )
    found, expected = getattr(x.to("opencl"), name)(), getattr(x.double(), name)()
    assert ts.allclose(found.cpu().double(), expected, rtol=1e-5, atol=1e-38, equal_nan=True)


def test_batch_norm_far_from_zero() -> None:
    """Data around 1e4 with spread 1: nothing of the spread is lost with the mean's rounding; infinities stay."""
    (x,) = tensors((4096, 4))
    for far in (x + 1e4, (x + 1e4).reshape(64, 64, 4).transpose(1, 2), x * 1e-3 - 300):
        want = F.batch_norm(far.double(), None, None, training=True)
        got = F.batch_norm(far.to("opencl"), None, None, training=True).cpu().double()
        assert (got - want).abs().max().item() < 1e-4
    for value, mean in ((float("inf"), float("inf")), (3e38, 3e38 / 64 + 9.0)):
        x = ts.full((64, 2), 9.0)
        x[3, 0] = value
        means, spreads = ts.zeros(2, device="opencl"), ts.ones(2, device="opencl")
        F.batch_norm(x.to("opencl"), means, spreads, training=True, momentum=1.0)
        assert means.tolist() == pytest.approx([mean, 9.0]) and spreads[1].item() == 0
        assert not spreads[0].isfinite()


def test_norms_of_complex_numbers_whose_square_overflows() -> None:
    for scale in (1e30, 1e-30):
        x = ts.tensor([[3j, -4.0], [3 + 4j, 12j]], dtype=ts.complex64) * scale
        assert (ts.linalg.vector_norm(x.to("opencl"), dim=1) / scale).tolist() == pytest.approx([5, 13], rel=1e-5)
