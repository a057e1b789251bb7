"""Orthogonal parametrizations beside torch's: starting values, matrices, gradients, states and refusals."""

from __future__ import annotations

from typing import Any

import pytest
import tesserack as ts
import torch
from tesserack import nn

tnn = torch.nn

MAPS = ["matrix_exp", "cayley", "householder", None]


def made(lib: Any, layer: Any, which: str | None, trivialization: bool) -> Any:
    return lib.utils.parametrizations.orthogonal(layer, "weight", which, use_trivialization=trivialization)


@pytest.mark.parametrize("trivialization", [True, False])
@pytest.mark.parametrize("which", MAPS)
@pytest.mark.parametrize("shape", [(4, 4), (5, 3), (3, 5)])
def test_orthogonal(shape: tuple[int, int], which: str | None, trivialization: bool, beside: Any) -> None:
    torch.manual_seed(3)
    ours, theirs = beside.pair(nn.Linear(*shape).double(), tnn.Linear(*shape).double())
    made(nn, ours, which, trivialization), made(tnn, theirs, which, trivialization)
    rows, columns = ours.weight.shape
    q = ours.weight if rows >= columns else ours.weight.mT
    ts.testing.assert_close(q.mT @ q, ts.eye(q.shape[1], dtype=q.dtype, device=q.device))
    if trivialization:
        assert tuple(ours.parametrizations.weight[0].base.shape) == tuple(theirs.parametrizations.weight[0].base.shape)
    else:
        beside.close(ours.weight, theirs.weight)
    free = torch.randn(rows, columns, dtype=torch.double)
    if theirs.parametrizations.weight[0].orthogonal_map == torch.nn.utils.parametrizations._OrthMaps.householder:
        free.diagonal().fill_(-1)
    theirs.parametrizations.weight.original.data.copy_(free)
    ours.load_state_dict({name: beside.ours(value) for name, value in theirs.state_dict().items()})
    beside.close(ours.weight, theirs.weight)
    x = torch.randn(2, columns, dtype=torch.double)
    ours(beside.ours(x)).square().sum().backward(), theirs(x).square().sum().backward()
    beside.gradients(ours, theirs)


def test_batches_and_complex_matrices(beside: Any) -> None:
    torch.manual_seed(4)
    for dtype in (torch.complex128, torch.double):
        values = torch.randn(2, 4, 3, dtype=dtype)
        for which in ("matrix_exp", "cayley"):
            modules = []
            for lib, value in ((nn, beside.ours(values)), (tnn, values.clone())):
                module = lib.Module()
                module.weight = lib.Parameter(value)
                modules.append(made(lib, module, which, False))
            beside.close(modules[0].weight, modules[1].weight)


def test_training_keeps_it_orthogonal(device: Any) -> None:
    layer = nn.utils.parametrizations.orthogonal(nn.Linear(6, 6, device=device))
    optimizer = ts.optim.SGD(layer.parameters(), lr=0.5)
    x, y = ts.randn(16, 6, device=device), ts.randn(16, 6, device=device)
    before = layer.weight.clone()
    for _ in range(5):
        optimizer.zero_grad()
        nn.functional.mse_loss(layer(x), y).backward()
        optimizer.step()
    assert not ts.allclose(before, layer.weight)
    eye = ts.eye(6, device=device)
    ts.testing.assert_close(layer.weight @ layer.weight.mT, eye, atol=1e-5, rtol=1e-5)


REFUSALS = [
    lambda lib, tensor: lib.utils.parametrizations.orthogonal(lib.Linear(2, 2), "nothing"),
    lambda lib, tensor: lib.utils.parametrizations.orthogonal(lib.Linear(2, 2), "bias"),
    lambda lib, tensor: lib.utils.parametrizations.orthogonal(lib.Linear(2, 2), orthogonal_map="qr"),
    lambda lib, tensor: lib.utils.parametrizations.orthogonal(
        lib.Linear(2, 2, dtype=tensor.complex64), orthogonal_map="householder"
    ),
    lambda lib, tensor: setattr(lib.utils.parametrizations.orthogonal(lib.Linear(3, 2)), "weight", tensor.zeros(4, 4)),
    lambda lib, tensor: setattr(made(lib, lib.Linear(3, 3), "cayley", False), "weight", tensor.zeros(3, 3)),
]


@pytest.mark.parametrize("case", range(len(REFUSALS)))
def test_refusals(case: int) -> None:
    with pytest.raises((ValueError, NotImplementedError)) as theirs:
        REFUSALS[case](tnn, torch)
    with pytest.raises(theirs.type):
        REFUSALS[case](nn, ts)
