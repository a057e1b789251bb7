"""Sparse tensors in traced programs: as arguments and results, in modules, with gradients."""

import io

import pytest
import tesserack as ts
from sparse_tensors import dense, sparse

LAYOUTS = ["sparse_coo", "sparse_csr", "sparse_csc"]
SQUARE = (6, 6)
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def _same(a, b):
    a, b = (t.to_dense() if t.layout is not ts.strided else t for t in (a, b))
    assert ts.equal(a, b)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_other_patterns_than_the_traced_one_count(layout, device):
    def program(s, d):
        return s @ d, ts.sparse.mm(s, d).relu(), d @ s, s.to_dense().sum()

    d = dense(device, seed=3, shape=SQUARE)
    traced = ts.jit.trace(program, (sparse(device, layout, shape=SQUARE), d))
    for seed in (1, 2):
        other = sparse(device, layout, seed=seed, shape=SQUARE)
        for got, wanted in zip(traced(other, d), program(other, d), strict=True):
            _same(got, wanted)


def test_results_are_sparse_again_also_after_loading(device):
    traced = ts.jit.trace(lambda s: {"twice": (s + s).coalesce()}, (sparse(device),), strict=False)
    file = io.BytesIO()
    ts.jit.save(traced, file)
    file.seek(0)
    other = sparse(device, seed=5)
    for program in (traced, ts.jit.load(file)):
        got = program(other)["twice"]
        assert got.layout is ts.sparse_coo and got.is_coalesced()
        _same(got, other * 2)


def test_elements_that_share_a_place_are_added(device):
    traced = ts.jit.trace(lambda s: s.to_dense(), (sparse(device, shape=(2, 3)),))
    doubled = ts.sparse_coo_tensor([[0, 0], [1, 1]], [1.0, 2.0], (2, 3), dtype=ts.float64, device=device)
    assert traced(doubled).tolist() == [[0, 3, 0], [0, 0, 0]]


def test_other_sizes_and_layouts_are_told(device):
    traced = ts.jit.trace(lambda s: s.to_dense(), (sparse(device),))
    for other in (sparse(device, shape=(5, 6)), sparse(device, "sparse_csr"), dense(device)):
        with pytest.raises(RuntimeError, match="laid out as when it was traced"):
            traced(other)


@pytest.mark.parametrize("recorded", [False, True])
def test_gradients_reach_sparse_and_dense_factors(recorded, device):
    def program(s, d):
        return (ts.sparse.mm(s, d) ** 2).sum()

    def gradients(function, seed):
        s, d = sparse(device, seed=seed).requires_grad_(), dense(device, seed=7, shape=(6, 3)).requires_grad_()
        function(s, d).backward()
        return s.grad, d.grad

    example = [sparse(device), dense(device, seed=7, shape=(6, 3))]
    traced = ts.jit.trace(program, tuple(t.requires_grad_(recorded) for t in example))
    for seed in (0, 4):
        for got, wanted in zip(gradients(traced, seed), gradients(program, seed), strict=True):
            assert got.layout is wanted.layout
            _same(got, wanted)


class Neighbours(ts.nn.Module):
    """A layer over a graph, whose adjacency matrix is a buffer."""

    def __init__(self, matrix):
        super().__init__()
        self.register_buffer("matrix", matrix)
        self.linear = ts.nn.Linear(3, 2, dtype=matrix.dtype, device=matrix.device)

    def forward(self, x):
        return ts.sparse.mm(self.matrix, self.linear(x))


def test_a_module_that_holds_a_sparse_buffer(device):
    module, x = Neighbours(sparse(device)), dense(device, shape=(6, 3))
    traced = ts.jit.trace(module, (x,))
    _same(traced(x + 1), module(x + 1))
    traced(x).sum().backward()
    got, module.linear.weight.grad = module.linear.weight.grad, None
    module(x).sum().backward()
    _same(got, module.linear.weight.grad)


def test_the_products_operator_has_the_gradients_of_its_factors(device):
    product = ts._native._operator_function("_csr_mm")
    for dtype in (ts.float64, ts.complex128):
        s = sparse("cpu", "sparse_csr").to(device)
        values = s.values().to(dtype).requires_grad_()
        factor = dense(device, shape=(6, 3)).to(dtype).requires_grad_()
        assert ts.autograd.gradcheck(
            lambda v, d, s=s: product(s.crow_indices(), s.col_indices(), v, d), (values, factor)
        )
