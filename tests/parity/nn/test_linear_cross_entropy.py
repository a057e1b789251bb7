"""linear_cross_entropy beside torch's, whole and by parts: values, gradients, options and refusals."""

from __future__ import annotations

import itertools
import warnings
from typing import Any

import pytest
import tesserack as ts
import torch
from tesserack import nn

if not hasattr(torch.nn.functional, "linear_cross_entropy"):
    pytest.skip("this torch has no linear_cross_entropy", allow_module_level=True)

PARTS = [
    None,
    {},
    {"batch_chunk_size": 3, "chunking_method": None},
    {"batch_chunk_size": 3},
    {"chunking_method": "aspect_ratio"},
    {"chunking_method": "aspect_ratio:4", "acc_policy": "accurate"},
]
KINDS = [(0.0, False, False, False), (0.1, True, True, False), (0.1, False, False, True), (0.0, True, True, True)]
ROWS, FEATURES, CLASSES = 7, 4, 9


def loss_of(lib: Any, tensors: dict[str, Any], **options: Any) -> Any:
    given = {name: value for name, value in tensors.items() if value is not None}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a reduction of "none" is computed whole
        return lib.nn.functional.linear_cross_entropy(
            given.pop("input"), given.pop("linear_weight"), given.pop("target"), **given, **options
        )


@pytest.mark.parametrize("parts", PARTS, ids=str)
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_values_and_gradients(reduction: str, parts: Any, beside: Any) -> None:
    torch.manual_seed(5)
    draw = lambda *shape: torch.randn(*shape, dtype=torch.double)  # noqa: E731
    for smoothing, weighed, biased, probable in KINDS:
        labels = torch.tensor([1, 2, -100, 3, 8, 0, -100])
        tensors = {
            "input": draw(ROWS, FEATURES).requires_grad_(),
            "linear_weight": draw(CLASSES, FEATURES).requires_grad_(),
            "linear_bias": draw(CLASSES).requires_grad_() if biased else None,
            "weight": draw(CLASSES).abs() if weighed else None,
            "target": draw(ROWS, CLASSES).softmax(1) if probable else labels,
        }
        mine = {name: None if value is None else beside.ours(value) for name, value in tensors.items()}
        rest = {"reduction": reduction, "label_smoothing": smoothing}
        both = []
        for lib, given in ((ts, mine), (torch, tensors)):
            options = None if parts is None else lib.nn.LinearCrossEntropyOptions(**parts)
            loss = loss_of(lib, given, options=options, **rest)
            leaves = [given[name] for name in ("input", "linear_weight", "linear_bias") if given[name] is not None]
            both.append([loss, *lib.autograd.grad((loss * loss).sum(), leaves)])
        for got, expected in zip(*both, strict=True):
            beside.close(got, expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_summed_in_float32(dtype: Any, beside: Any) -> None:
    torch.manual_seed(6)
    x, w = torch.randn(64, 8), torch.randn(32, 8)
    labels = torch.randint(0, 32, (64,))
    halves = [beside.ours(t.to(dtype)).requires_grad_() for t in (x, w)]
    options = nn.LinearCrossEntropyOptions(batch_chunk_size=4, chunking_method=None, acc_policy="accurate")
    loss = nn.functional.linear_cross_entropy(halves[0], halves[1], beside.ours(labels), options=options)
    loss.backward()
    exact = [t.to(dtype).double().requires_grad_() for t in (x, w)]
    expected = torch.nn.functional.cross_entropy(exact[0] @ exact[1].T, labels)
    expected.backward()
    assert abs(loss.item() - expected.item()) < 2e-2
    for mine, theirs in zip(halves, exact, strict=True):
        error = (torch.tensor(mine.grad.float().tolist()).double() - theirs.grad).abs().max() / theirs.grad.abs().max()
        assert error < 1e-2


def test_nothing_counts_and_parameters_that_are_fixed(device: Any) -> None:
    x = ts.ones(3, 2, device=device, requires_grad=True)
    w = ts.ones(4, 2, device=device)
    ignored = ts.full((3,), -100, device=device)
    options = nn.LinearCrossEntropyOptions(batch_chunk_size=2, chunking_method=None)
    loss = nn.functional.linear_cross_entropy(x, w, ignored, options=options)
    assert loss.isnan().item()
    loss = nn.functional.linear_cross_entropy(x, w, ignored, options=options, reduction="sum")
    loss.backward()
    assert loss.item() == 0 and not x.grad.any().item() and w.grad is None


def test_module(beside: Any) -> None:
    torch.manual_seed(7)
    for outputs, bias, options in itertools.product([(), (4, 3)], [False, True], [False, True]):
        made = []
        for lib in (nn, torch.nn):
            chosen = lib.LinearCrossEntropyOptions(batch_chunk_size=1) if options and not outputs else None
            layer = lib.LinearCrossEntropyLoss(5, 10, out_features=outputs, bias=bias, options=chosen)
            made.append(layer.double())
        ours, theirs = beside.pair(*made)
        x, target = torch.randn(2, 5, dtype=torch.double), torch.randint(0, 10, (2, *outputs))
        got, expected = ours(beside.ours(x), beside.ours(target)), theirs(x, target)
        beside.close(got, expected)
        got.backward(), expected.backward()
        beside.gradients(ours, theirs)


REFUSED = [
    {"batch_chunk_size": 0},
    {"batch_chunk_size": 2.5},
    {"chunking_method": "x"},
    {"chunking_method": "aspect_ratio:0"},
    {"acc_policy": "foo"},
]


@pytest.mark.parametrize("options", REFUSED, ids=str)
def test_refused_options(options: dict[str, Any]) -> None:
    for lib in (nn, torch.nn):
        with pytest.raises(ValueError, match=next(iter(options))):
            lib.LinearCrossEntropyOptions(**options)


def test_contradictory_rows() -> None:
    for lib in (ts, torch):
        options = lib.nn.LinearCrossEntropyOptions(batch_chunk_size=3, chunking_method="aspect_ratio")
        with pytest.raises(ValueError, match="batch_chunk_size"):
            lib.nn.functional.linear_cross_entropy(
                lib.zeros(8, 2), lib.zeros(32, 2), lib.zeros(8, dtype=lib.int64), options=options
            )


@pytest.mark.parametrize("targets", [[0, 1, 2], [0, 1, 2, 3, 4, 0], [[0], [1]]], ids=str)
def test_targets_that_do_not_match_the_rows(targets: Any, device: Any) -> None:
    """By parts a target too many would not be seen by any part."""
    x, w = ts.ones(4, 3, device=device), ts.ones(5, 3, device=device)
    options = nn.LinearCrossEntropyOptions(batch_chunk_size=2)
    for chosen in (None, options):
        with pytest.raises((ValueError, RuntimeError)):
            nn.functional.linear_cross_entropy(x, w, ts.tensor(targets, device=device), options=chosen)


def test_dtypes_are_not_mixed(device: Any) -> None:
    x, w = ts.ones(4, 3, device=device), ts.ones(5, 3, device=device)
    target = ts.zeros(4, dtype=ts.int64, device=device)
    options = nn.LinearCrossEntropyOptions(batch_chunk_size=2)
    with pytest.raises(RuntimeError, match="linear_weight of the input's dtype"):
        nn.functional.linear_cross_entropy(x.half(), w, target, options=options)
