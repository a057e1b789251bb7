"""Dictionaries that forget tensors, and which modules are running."""

from __future__ import annotations

import copy
import gc

import pytest
import tesserack as ts
from tesserack import nn
from tesserack.utils.module_tracker import ModuleTracker
from tesserack.utils.weak import TensorWeakRef, WeakIdKeyDictionary, WeakIdRef, WeakTensorKeyDictionary


def test_entries_go_with_their_keys():
    names = WeakTensorKeyDictionary()
    a, b = ts.ones(2), ts.ones(2)
    names[a], names[b] = "a", "b"
    assert names[a] == "a" and names[b] == "b" and len(names) == 2
    assert all(key is kept for key, kept in zip(names, (a, b), strict=True))
    assert {id(key) for key in names} == {id(a), id(b)} and b in names and 3 not in names
    assert names.get(ts.ones(2)) is None and (names | {}).copy()[b] == "b" and copy.deepcopy(names)[a] == "a"
    del a
    gc.collect()
    assert len(names) == 1 and names.pop(b) == "b" and not names
    with pytest.raises(KeyError):
        names[b]


def test_references_go_by_identity():
    a = ts.ones(2)
    assert WeakIdRef(a) == WeakIdRef(a) != WeakIdRef(ts.ones(2)) and hash(WeakIdRef(a)) == hash(WeakIdRef(a))
    ref = TensorWeakRef(a)
    assert ref() is a
    del a
    gc.collect()
    assert ref() is None
    names = WeakIdKeyDictionary({ts.ones(1): 1})
    gc.collect()
    assert not names
    with pytest.raises(TypeError, match="Tensor"):
        TensorWeakRef(3)


def test_modules_that_run_forward_and_backward():
    class Square(ts.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            seen.append((tracker.is_bw, *sorted(tracker.parents)))
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            seen.append((tracker.is_bw, *sorted(tracker.parents)))
            return grad * 2

    class Inner(nn.Module):
        def forward(self, x):
            return Square.apply(x)

    seen: list = []
    net = nn.Sequential(nn.Linear(2, 2), nn.Sequential(Inner()))
    with ModuleTracker() as tracker:
        net(ts.ones(1, 2)).sum().backward()
        assert tracker.parents == {"Global"} | ({"Sequential", "Sequential.0"} & tracker.parents)
    inside = ("Global", "Sequential", "Sequential.1", "Sequential.1.0")
    assert seen == [(False, *inside), (True, *inside)]
    with tracker, pytest.raises(RuntimeError):
        net(ts.ones(1, 3))
    assert "Sequential.0" not in tracker.parents or tracker.is_bw
