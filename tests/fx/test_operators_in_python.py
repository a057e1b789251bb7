"""Operators whose loops end when values have settled are one step of every graph, right for other values too."""

from __future__ import annotations

import subprocess
import sys

import pytest
import tesserack as ts
from tesserack.aten.fake import FakeTensorMode
from tesserack.fx.experimental.proxy_tensor import make_fx

pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.trace. is deprecated")

POSITIVE, OTHERS = ts.tensor([0.2, 1.5, 3.0]), ts.tensor([4.0, 0.1, 25.0])
DEGREES, HIGHER = ts.tensor([1.0, 0.0, 2.0]), ts.tensor([5.0, 7.0, 3.0])

CASES = {
    "chebyshev_polynomial_t": (ts.special.chebyshev_polynomial_t, (POSITIVE, DEGREES), (OTHERS, HIGHER)),
    "shifted_chebyshev_polynomial_w": (ts.special.shifted_chebyshev_polynomial_w, (POSITIVE, DEGREES),
                                       (OTHERS, HIGHER)),
    "hermite_polynomial_he": (ts.special.hermite_polynomial_he, (POSITIVE, DEGREES), (OTHERS, HIGHER)),
    "laguerre_polynomial_l": (ts.special.laguerre_polynomial_l, (POSITIVE, DEGREES), (OTHERS, HIGHER)),
    "legendre_polynomial_p": (ts.special.legendre_polynomial_p, (POSITIVE, DEGREES), (OTHERS, HIGHER)),
    "gammainc": (ts.special.gammainc, (POSITIVE, POSITIVE + 1), (OTHERS, HIGHER)),
    "gammaincc": (ts.special.gammaincc, (POSITIVE, POSITIVE + 1), (OTHERS, HIGHER)),
    "poisson": (ts.poisson, (POSITIVE,), (OTHERS,)),
    "binomial": (ts.binomial, (HIGHER, ts.tensor([0.5, 0.5, 0.5])), (HIGHER * 30, ts.tensor([0.2, 0.5, 0.9]))),
    "_standard_gamma": (ts._standard_gamma, (POSITIVE,), (OTHERS,)),
    "_sample_dirichlet": (ts._sample_dirichlet, (POSITIVE,), (OTHERS,)),
    "histogram": (lambda x: ts.histogram(x, 4), (POSITIVE,), (OTHERS,)),
    "histogram of one value": (lambda x: ts.histogram(x, 4), (ts.ones(3),), (OTHERS,)),
    "histogramdd": (lambda x: ts.histogramdd(x.reshape(-1, 1).expand(-1, 2), [2, 3]).hist, (POSITIVE,), (OTHERS,)),
    "kaiser_window": (lambda x: ts.kaiser_window(7) * x[0], (POSITIVE,), (OTHERS,)),
    "matrix_rank": (
        lambda x, tol: ts.linalg.matrix_rank(x.diag(), tol=tol), (POSITIVE, ts.tensor(1.0)), (OTHERS, ts.tensor(5.0)),
    ),
    "pinv": (
        lambda x, tol: ts.linalg.pinv(x.diag(), atol=tol, rtol=tol),
        (POSITIVE, ts.tensor(0.1)), (OTHERS, ts.tensor(0.5)),
    ),
    "quantile": (lambda x: ts.quantile(x, 0.3), (POSITIVE,), (OTHERS,)),
    "quantile of a tensor": (lambda x, q: ts.nanquantile(x, q), (POSITIVE, ts.tensor([0.1, 0.9])),
                             (OTHERS, ts.tensor([0.5, 0.6]))),
}  # fmt: skip


def leaves(found):
    return [found] if isinstance(found, ts.Tensor) else list(found)


def drawn(function, args):
    ts.manual_seed(3)
    return leaves(function(*args))


class Program(ts.nn.Module):
    def __init__(self, function) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("way", ["real", "fake", "trace", "export"])
def test_graphs_are_right_for_other_values(name, way) -> None:
    function, args, others = CASES[name]
    if way == "trace":
        graph = ts.jit.trace(lambda *a: tuple(leaves(function(*a))), args, check_trace=False)
    elif way == "export":
        graph = ts.export.export(Program(function), args).module()
    else:
        graph = make_fx(function, tracing_mode=way)(*args)
    for given in (args, others):
        for found, expected in zip(drawn(graph, given), drawn(function, given), strict=True):
            assert found.dtype is expected.dtype
            assert ts.equal(found, expected), (found, expected)


@pytest.mark.parametrize("name", CASES)
def test_results_of_fake_tensors_have_their_shapes(name) -> None:
    function, args, _ = CASES[name]
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        found = leaves(function(*[mode.from_tensor(x) for x in args]))
    for outline, expected in zip(found, drawn(function, args), strict=True):
        assert (outline.shape, outline.dtype) == (expected.shape, expected.dtype)


def test_two_draws_stay_two() -> None:
    def twice(rate):
        return ts.poisson(rate) - ts.poisson(rate)

    rates = ts.full((64,), 50.0)
    for graph in (
        make_fx(twice)(rates),
        ts.jit.trace(twice, rates, check_trace=False),
        ts.export.export(Program(twice), (rates,)).module(),
        ts.compile(twice),
    ):
        for _ in range(3):
            assert graph(rates).abs().sum() > 0


@pytest.mark.parametrize(
    ("function", "args"),
    [(ts._standard_gamma, (POSITIVE,)), (lambda x: ts.special.gammainc(POSITIVE, x), (OTHERS,)),
     (lambda x: ts.special.hermite_polynomial_h(x, 3), (POSITIVE,))],
)  # fmt: skip
def test_gradients_of_loaded_programs(function, args, tmp_path) -> None:
    ts.export.save(ts.export.export(Program(function), args), tmp_path / "program.pt2")
    loaded = ts.export.load(tmp_path / "program.pt2").module()

    def gradient(f):
        x = args[0].clone().requires_grad_()
        ts.manual_seed(1)
        f(x).sum().backward()
        return x.grad

    ts.testing.assert_close(gradient(loaded), gradient(function))


@pytest.mark.parametrize("way", ["export", "jit"])
def test_a_fresh_process_finds_the_operators(way, tmp_path) -> None:
    def run(x, n):
        spectrum = ts.fft.fft(x).real * 0
        return ts.special.legendre_polynomial_p(x, n) + ts.special.gammainc(x, x + 0) + ts.poisson(x * 0) + spectrum

    file = str(tmp_path / "program")
    if way == "export":
        ts.export.save(ts.export.export(Program(run), (POSITIVE, DEGREES)), file)
    else:
        ts.jit.save(ts.jit.trace(run, (POSITIVE, DEGREES), check_trace=False), file)
    program = f"""
import tesserack as ts
graph = ts.export.load({file!r}).module() if {way!r} == "export" else ts.jit.load({file!r})
print(graph(ts.tensor([0.5]).expand(3), ts.tensor([2.0, 2.0, 2.0])).tolist())
"""
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert eval(out) == pytest.approx(run(ts.tensor([0.5] * 3), ts.tensor([2.0] * 3)).tolist())


def test_results_on_meta() -> None:
    for draw in (ts.poisson, ts._standard_gamma):
        found = draw(ts.empty(2, 3, device="meta"))
        assert (tuple(found.shape), found.device.type) == ((2, 3), "meta")
