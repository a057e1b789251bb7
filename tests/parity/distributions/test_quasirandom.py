"""Points of Sobol sequences are PyTorch's, bit by bit, where they are not scrambled."""

from __future__ import annotations

import numpy as np
import pytest
import tesserack as ts
import torch


@pytest.mark.parametrize("dimension", [1, 2, 7, 300, 21201])
def test_points_are_those_of_pytorch(dimension):
    theirs, ours = torch.quasirandom.SobolEngine(dimension), ts.quasirandom.SobolEngine(dimension)
    assert repr(ours) == repr(theirs)
    for n in (1, 5, 3):
        np.testing.assert_array_equal(ours.draw(n).numpy(), theirs.draw(n).numpy())
    ours.fast_forward(10), theirs.fast_forward(10)
    wide = ours.draw(2, dtype=ts.float64)
    np.testing.assert_array_equal(wide.numpy(), theirs.draw(2, dtype=torch.float64).numpy())
    assert ours.num_generated == theirs.num_generated == 21
    for engine in (ours, theirs):
        with pytest.raises(ValueError, match="power of 2"):
            engine.draw_base2(2)
    np.testing.assert_array_equal(ours.reset().draw_base2(3).numpy(), theirs.reset().draw_base2(3).numpy())
    out = ts.empty(0)
    assert ours.draw(2, out=out) is out and tuple(out.shape) == (2, dimension)


def test_scrambled_points_repeat_by_seed_and_fill_the_cube_evenly():
    def engine(seed):
        return ts.quasirandom.SobolEngine(3, scramble=True, seed=seed)

    points = engine(7).draw(256)
    assert ts.equal(points, engine(7).draw(256)) and not ts.equal(points, engine(8).draw(256))
    assert ((points * 256).long().sort(0)[0] == ts.arange(256)[:, None]).all()  # one in each slice of each dim
    ts.manual_seed(3)
    first = ts.quasirandom.SobolEngine(2, scramble=True).draw(4)
    ts.manual_seed(3)
    assert ts.equal(first, ts.quasirandom.SobolEngine(2, scramble=True).draw(4))


@pytest.mark.parametrize("dimension", [0, 21202])
def test_dimensions_without_direction_numbers_are_refused(dimension):
    for module in (ts, torch):
        with pytest.raises(ValueError, match=r"\[1, 21201\]"):
            module.quasirandom.SobolEngine(dimension)
