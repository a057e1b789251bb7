"""Copies of views under their PyTorch names, and numbers taken apart, beside PyTorch's."""

import math

import numpy as np
import pytest
import tesserack as ts
import torch

GRID = np.arange(24.0).reshape(2, 3, 4)


def on(m, array, dtype="float64"):
    return m.tensor(np.asarray(array).tolist(), dtype=getattr(m, dtype))


COPIES = {
    "alias_copy": (),
    "as_strided_copy": ((2, 2), (1, 2), 3),
    "detach_copy": (),
    "diagonal_copy": (0, 1, 2),
    "expand_copy": ((5, 2, 3, 4),),
    "narrow_copy": (2, 1, 2),
    "permute_copy": ((2, 0, 1),),
    "select_copy": (1, 2),
    "slice_copy": (2, 1, None, 2),
    "split_copy": (2, 2),
    "split_with_sizes_copy": ([1, 3], 2),
    "squeeze_copy": (),
    "transpose_copy": (0, 2),
    "unbind_copy": (1,),
    "unfold_copy": (2, 2, 1),
    "unsafe_chunk": (2, 2),
    "unsafe_split": (2, 2),
    "unsafe_split_with_sizes": ([1, 3], 2),
    "unsqueeze_copy": (1,),
    "view_copy": ((6, 4),),
}


@pytest.mark.parametrize("name", COPIES)
def test_copies(name):
    x = on(ts, GRID).requires_grad_()
    mine, theirs = getattr(ts, name)(x, *COPIES[name]), getattr(torch, name)(on(torch, GRID), *COPIES[name])
    many = isinstance(theirs, (tuple, list))
    for a, b in zip(mine if many else [mine], theirs if many else [theirs], strict=True):
        assert tuple(a.shape) == tuple(b.shape) and a.tolist() == b.tolist()
        if name.endswith("_copy"):
            assert a.is_contiguous() and a.data_ptr() != x.data_ptr()
        assert a.requires_grad == (name != "detach_copy")


def test_copies_of_complex_views():
    z = on(ts, GRID[0, :, :2])
    assert ts.view_as_real_copy(ts.view_as_complex_copy(z)).tolist() == z.tolist()
    made = ts.as_strided_scatter(on(ts, GRID[0]), ts.zeros(2, 2, dtype=ts.float64), (2, 2), (1, 2), 1)
    theirs = torch.as_strided_scatter(on(torch, GRID[0]), torch.zeros(2, 2, dtype=torch.float64), (2, 2), (1, 2), 1)
    assert made.tolist() == theirs.tolist()
    out = ts.empty(0, dtype=ts.float64)
    assert ts.permute_copy(on(ts, GRID), (2, 0, 1), out=out) is out and out.shape == (4, 2, 3)


EDGES = [0.0, -0.0, 1.0, -1.0, 0.5, 6.0, -1e-30, 3e38, math.inf, -math.inf, math.nan, 1e-44, 1.1754944e-38]


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_neighbours(dtype):
    for toward in (math.inf, -math.inf, 0.0, 1.0, math.nan):
        got = ts.nextafter(on(ts, EDGES, dtype), on(ts, toward, dtype))
        want = torch.nextafter(on(torch, EDGES, dtype), on(torch, toward, dtype))
        np.testing.assert_array_equal(got.double().tolist(), want.double().tolist())
    x = on(ts, EDGES, dtype)
    assert x.nextafter_(ts.ones_like(x)) is x


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_parts_of_numbers(dtype):
    mantissa, exponent = found = ts.frexp(on(ts, EDGES, dtype))
    assert found.mantissa is mantissa and found.exponent is exponent
    theirs = torch.frexp(on(torch, EDGES, dtype))
    np.testing.assert_array_equal(mantissa.double().tolist(), theirs[0].double().tolist())
    finite = np.isfinite(theirs[0].double().numpy())
    np.testing.assert_array_equal(np.array(exponent.tolist())[finite], theirs[1].numpy()[finite])
    assert exponent.dtype == ts.int32


@pytest.mark.parametrize("edge_order", [1, 2])
@pytest.mark.parametrize("spacing", [None, 0.5, 0.5 - 2j, "number", "steps", "complex steps", "positions"])
def test_slopes(edge_order, spacing):
    field = np.sin(GRID) * GRID
    results = []
    for m in (ts, torch):
        step = {
            "number": on(m, 0.5),
            "steps": [0.5, 2.0],
            "complex steps": [0.5, 1 + 1j],
            "positions": (on(m, [0.0, 1.0, 3.0]), on(m, [0.0, 0.5, 2.0, 2.5])),
        }.get(spacing, spacing)
        options = {} if step is None else {"spacing": step}
        results.append(m.gradient(on(m, field), dim=(1, 2), edge_order=edge_order, **options))
    for a, b in zip(*results, strict=True):
        np.testing.assert_allclose(np.array(a.tolist()), b.numpy(), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    "call",
    [
        lambda m: m.nextafter(m.ones(2, dtype=m.int64), m.ones(2, dtype=m.int64)),
        lambda m: m.frexp(m.ones(2, dtype=m.int64)),
        lambda m: m.gradient(m.ones(1)),
        lambda m: m.gradient(m.ones(3), dim=5),
        lambda m: m.gradient(m.ones(4), edge_order=3),
        lambda m: m.as_strided_scatter(m.ones(4), m.ones(3), (2,), (1,)),
    ],
)
def test_errors(call):
    with pytest.raises(Exception):  # noqa: B017
        call(torch)
    with pytest.raises(
        (RuntimeError, IndexError, NotImplementedError), match=r"nextafter|frexp|gradient|as_strided_scatter"
    ):
        call(ts)
