"""Small things that programs look at: the same in both libraries."""

from __future__ import annotations

import pytest
import tesserack
import torch

LIBS = (tesserack, torch)


@pytest.mark.parametrize("seed", [2**64, -(2**63) - 1])
def test_seeds_of_more_than_64_bits(seed):
    for lib in LIBS:
        with pytest.raises(ValueError, match=r"seed|Overflow|range"):
            lib.manual_seed(seed)


def test_seeds_of_64_bits():
    for lib in LIBS:
        assert lib.manual_seed(2**64 - 1).initial_seed() == lib.manual_seed(-1).initial_seed()


def test_what_lbfgs_keeps():
    found = []
    for lib in LIBS:
        weight = lib.nn.Parameter(lib.tensor([[1.0, 2.0], [3.0, 4.0]]))
        optimizer = lib.optim.LBFGS([weight], lr=0.1, max_iter=3)

        def loss(weight=weight, optimizer=optimizer):
            optimizer.zero_grad()
            value = (weight**2).sum()
            value.backward()
            return value

        for _ in range(3):
            optimizer.step(loss)
        found.append((sorted(optimizer.state[weight]), lib.nn.Module.dump_patches, weight.detach().tolist()))
    assert found[0][:2] == found[1][:2]
    assert found[0][2][0] == pytest.approx(found[1][2][0], rel=1e-5)


def test_the_hash_of_a_tensor_is_its_identity():
    for lib in LIBS:
        for x in (lib.ones(2), lib.nn.Parameter(lib.ones(1))):
            assert hash(x) == id(x)
