"""Functions at the top level and methods of Tensor that compose others, beside PyTorch's."""

from __future__ import annotations

import numpy as np
import pytest
import tesserack as ts
import torch

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # PyTorch's own, of older names
RNG = np.random.default_rng(0)
A = RNG.standard_normal((4, 3))
B = RNG.standard_normal((2, 6, 5))
IMAGE = RNG.standard_normal((2, 3, 5, 4))


def idx(m, values):
    return m.tensor(values, dtype=m.int64)


DIFFERENTIABLE = {
    "segment sum": lambda m, x: m.segment_reduce(x, "sum", lengths=idx(m, [1, 0, 3])),
    "segment mean": lambda m, x: m.segment_reduce(x, "mean", lengths=idx(m, [1, 3])),
    "segment max": lambda m, x: m.segment_reduce(x, "max", lengths=idx(m, [3, 1])),
    "segment min from": lambda m, x: m.segment_reduce(x, "min", offsets=idx(m, [0, 2, 4])),
    "segment initial": lambda m, x: m.segment_reduce(x, "prod", lengths=idx(m, [2, 2]), initial=2.0),
    "frobenius": lambda m, x: m.frobenius_norm(x, (0, 1)),
    "frobenius kept": lambda m, x: m.frobenius_norm(x, (1,), True),
    "norm except": lambda m, x: m.norm_except_dim(x, 2, 1),
    "layer norm": lambda m, x: m.native_layer_norm(x, [3], None, None, 1e-5)[0],
    "batch norm": lambda m, x: m.native_batch_norm(x, None, None, None, None, True, 0.1, 1e-5)[0],
    "fill": lambda m, x: m.fill(x, 3.0) + x,
    "unsafe": lambda m, x: x.unsafe_split(2)[0] * x.unsafe_chunk(2)[1],
}


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_matrices(name, compare):
    compare(DIFFERENTIABLE[name], A, order=1)


LAYERS = {
    "convolution": lambda m, x, w: m.convolution(x, w, None, [1, 2], [1, 0], [1, 1], False, [0, 0], 1),
    "transposed": lambda m, x, w: m.convolution(x, w.transpose(0, 1), None, [2, 2], [1, 0], [1, 1], True, [1, 0], 1),
    "sampled": lambda m, x, w: m.grid_sampler(x, w[:2, :, :, :2].tanh(), 0, 2, True),
    "sampled 2d": lambda m, x, w: m.grid_sampler_2d(x, w[:2, :, :, :2].tanh(), 2, 0, False),
    "group norm": lambda m, x, w: m.native_group_norm(x, None, None, 2, 3, 20, 3, 1e-5)[0],
}


@pytest.mark.parametrize("name", LAYERS)
def test_layers(name, compare):
    compare(LAYERS[name], IMAGE, RNG.standard_normal((4, 3, 2, 2)), order=1)


PLAIN = {
    "scattered": lambda m, x: x.contiguous().as_strided_scatter(x[:2, :2] * 2, (2, 2), (3, 1), 1),
    "shuffle": lambda m, x: m.native_channel_shuffle(x.reshape(1, 6, 2), 3),
    "statistics": lambda m, x: [m.native_layer_norm(x, [3], None, None, 1e-5)[k] for k in (1, 2)],
    "running": lambda m, x: m.batch_norm_update_stats(x, m.zeros(3, dtype=x.dtype), m.ones(3, dtype=x.dtype), 0.1),
    "group statistics": lambda m, x: m.native_group_norm(x.reshape(2, 6), None, None, 2, 6, 1, 3, 1e-5)[1:],
    "nuclear": lambda m, x: m.nuclear_norm(x),
    "histogram": lambda m, x: tuple(m.histogram(x, 5)),
    "range": lambda m, x: tuple(m.histogram(x, 4, range=(-1.0, 1.0), density=True)),
    "edges": lambda m, x: tuple(m.histogram(x, m.tensor([-1.0, 0.0, 0.1, 2.0], dtype=x.dtype), weight=x.abs())),
    "histogramdd": lambda m, x: m.histogramdd(x, [2, 3, 2])[0],
    "histogramdd weighted": lambda m, x: m.histogramdd(x, 2, [-1.0, 1.0] * 3, x[:, 0].abs(), True)[0],
    "places": lambda m, x: m.nonzero_static((x > 0).long(), size=20, fill_value=7),
    "fewer places": lambda m, x: (x > 0).nonzero_static(size=2),
    "hash": lambda m, x: x.hash_tensor(1).view(m.int64),
    "hash kept": lambda m, x: m.hash_tensor(x.float(), (0, 1), keepdim=True).view(m.int64),
    "range of": lambda m, x: m.range(0.5, 4, 0.75, dtype=m.float64),
    "range down": lambda m, x: m.range(3, -1, -1, dtype=m.int32),
    "bags": lambda m, x: m.embedding_bag(x, idx(m, [0, 3, 1, 1]), idx(m, [0, 1, 1]), False, 2)[0],
    "bags padded": lambda m, x: m.embedding_bag(x, idx(m, [0, 3, 1]), idx(m, [0, 2]), False, 1, False, None, False, 3)[
        0
    ],
    "rows of maxima": lambda m, x: m.embedding_bag(x, idx(m, [0, 3, 1, 2]), idx(m, [0, 2]), False, 2)[3],
    "renorm": lambda m, x: m.embedding_renorm_(x.clone(), idx(m, [0, 2, 2]), 0.5, 2.0),
    "pooled": lambda m, x: m.adaptive_max_pool1d(x, 2),
    "slice inverse": lambda m, x: m.slice_inverse(x[1:3], x, 0, 1, 3),
    "power": lambda m, x: x.clone().float_power_(2),
    "polygamma": lambda m, x: (x.abs() + 1).polygamma_(1),
    "mvlgamma": lambda m, x: (x.abs() + 3).mvlgamma_(2),
    "igamma": lambda m, x: x.abs().igamma_(x.abs() + 1),
    "igammac": lambda m, x: x.abs().igammac_(x.abs() + 1),
    "map2": lambda m, x: x.clone().map2_(x, x * 2, lambda a, b, c: a + b * c),
    "rdiv": lambda m, x: x.__rdiv__(2) + x.__div__(4),
    "set": lambda m, x: m.empty(0, dtype=x.dtype).set_(x.untyped_storage(), 1, (2, 2), (3, 1)),
    "reset": lambda m, x: x.clone().set_(),
}


@pytest.mark.parametrize("name", PLAIN)
@pytest.mark.parametrize("layout", ["contiguous", "transposed"])
def test_values(name, layout):
    def made(m):
        if layout == "contiguous":
            return m.tensor(A.tolist(), dtype=m.float64)
        return m.tensor(A.T.copy().tolist(), dtype=m.float64).t()

    if layout == "transposed" and name in ("set", "map2"):
        pytest.skip("about contiguous memory")
    mine, theirs = PLAIN[name](ts, made(ts)), PLAIN[name](torch, made(torch))
    many = isinstance(theirs, (tuple, list))
    for a, b in zip(mine if many else [mine], theirs if many else [theirs], strict=True):
        assert tuple(a.shape) == tuple(b.shape)
        assert str(a.dtype).split(".")[1] == str(b.dtype).split(".")[1]
        np.testing.assert_allclose(np.array(a.tolist()), b.numpy(), rtol=1e-9, atol=1e-12)


REFUSED = {
    "no bins": lambda m, x: m.histogram(x, 0),
    "one edge": lambda m, x: m.histogram(x, m.ones(1, dtype=x.dtype)),
    "reversed": lambda m, x: m.histogram(x, 3, range=(2.0, 1.0)),
    "not finite": lambda m, x: m.histogram(x / 0, 3),
    "weight of another shape": lambda m, x: m.histogram(x, 3, weight=x[0]),
    "lines": lambda m, x: m.histogramdd(x[0], 2),
    "bins for each": lambda m, x: m.histogramdd(x, [2, 2]),
    "lengths": lambda m, x: m.segment_reduce(x, "sum", lengths=idx(m, [1, 1])),
    "no lengths": lambda m, x: m.segment_reduce(x, "sum"),
    "unknown reduction": lambda m, x: m.segment_reduce(x, "median", lengths=idx(m, [4])),
    "step": lambda m, x: m.range(1, 0),
    "no step": lambda m, x: m.range(1, 2, 0),
    "twice": lambda m, x: m.empty_permuted((2, 3), (0, 0)),
    "too few": lambda m, x: m.empty_permuted((2, 3), (0,)),
    "fill": lambda m, x: m.fill(x, x),
    "float power": lambda m, x: x.float().float_power_(2),
    "features": lambda m, x: m.feature_dropout(x[0], 0.5, True),
    "pred": lambda m, x: m.cond(x, lambda a: a, lambda a: a, (x,)),
    "integers": lambda m, x: x.long().polygamma_(1),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name, compare_errors):
    compare_errors(REFUSED[name], A)


def test_layouts_and_questions():
    x = ts.empty(2, 3, 4)
    for order in ((2, 0, 1), (1, 2, 0), (0, 1, 2)):
        assert ts.empty_permuted((2, 3, 4), order).stride() == torch.empty_permuted((2, 3, 4), order).stride()
        assert x.permute(order).dim_order() == torch.empty(2, 3, 4).permute(order).dim_order()
    assert ts.is_signed(x) and not ts.is_signed(x.to(ts.uint8)) and ts.is_same_size(x, x) and not ts.is_distributed(x)
    assert ts.get_device(ts.empty(0, device="cpu")) == -1 and ts.is_storage(x.untyped_storage())
    assert ts.default_generator is ts.default_generator or ts.default_generator.initial_seed() is not None
    assert (ts.sym_max(1, 2.5), ts.sym_min(1, 2.0), ts.sym_sum([1, 2]), ts.sym_not(True)) == (2.5, 1.0, 3, False)
    with pytest.raises(RuntimeError):
        ts.empty(1, 3).dim_order(ambiguity_check=True)


def test_control_flow():
    x = ts.ones(2, requires_grad=True)
    ts.cond(x.sum() > 1, lambda a: (a * 3).sum(), lambda a: a.sum(), (x,)).backward()
    assert x.grad.tolist() == [3, 3]
    assert ts.while_loop(lambda n: n < 3, lambda n: (n + 1,), (ts.tensor(0),))[0].item() == 3
    with pytest.raises(RuntimeError, match="expected 1 values"):
        ts.while_loop(lambda n: n < 3, lambda n: (n + 1, n), (ts.tensor(0),))


def test_gradient_of_a_written_copy():
    x = ts.tensor(A.tolist(), dtype=ts.float64, requires_grad=True)
    assert ts.autograd.gradcheck(lambda x: x.as_strided_scatter(x[:2, :2] * 2, (2, 2), (3, 1), 1), (x,))


def test_files(tmp_path):
    path = tmp_path / "numbers"
    path.write_bytes(np.arange(4, dtype="float32").tobytes())
    x = ts.from_file(path, size=3)
    x += 1
    assert x.tolist() == [1, 2, 3] and ts.from_file(path, size=4).tolist() == [0, 1, 2, 3]
    shared = ts.from_file(path, True, 5, dtype=ts.float32)
    shared[4] = 9
    assert np.fromfile(path, dtype="float32").tolist() == [0, 1, 2, 3, 9]
    with pytest.raises(RuntimeError, match="expected 400 bytes"):
        ts.from_file(path, size=100)


def test_random_forms():
    x = ts.ones(50, 40)
    for name in ("alpha_dropout", "feature_alpha_dropout", "feature_dropout"):
        assert getattr(ts, name)(x, 0.5, False) is x
        y = x.clone()
        assert getattr(ts, f"{name}_")(y, 0.5, True) is y and len(set(y.reshape(-1).tolist())) == 2
    assert set(ts.feature_dropout(ts.ones(2, 8, 3), 0.5, True).sum(2).reshape(-1).tolist()) <= {0.0, 6.0}
    generator = ts.Generator(device="cpu").manual_seed(3)
    assert ts.rrelu(-x.cpu(), 0.1, 0.2, True, generator).amin() >= -0.2 - 1e-6


@pytest.mark.parametrize(
    "pattern,sizes",
    [("a b c -> c a b", {}), ("a (b s) c -> (a s) b c", {"s": 3}), ("... c -> c ...", {}), ("a ... -> a (...)", {}),
     ("a b c -> a 1 (b c)", {})],
)  # fmt: skip
def test_rearrange(pattern, sizes, compare):
    compare(lambda m, x: m.func.rearrange(x, pattern, **sizes), B, order=1)


def test_functional_call_takes_several_dicts():
    layer = ts.nn.Linear(1, 1)
    given = ({"weight": ts.ones(1, 1)}, {"bias": ts.ones(1)})
    assert ts.func.functional_call(layer, given, ts.ones(1)).item() == 2.0
    with pytest.raises(ValueError, match="multiple dictionaries"):
        ts.func.functional_call(layer, (given[0], given[0]), ts.ones(1))
