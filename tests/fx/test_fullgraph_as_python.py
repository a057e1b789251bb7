"""What PyTorch's graphs take and these do not runs as plain Python where a function has to be one graph."""

from __future__ import annotations

import collections
import re
import weakref

import numpy as np
import pytest
import tesserack as ts
from tesserack.jit._compile.compiled import config
from tesserack.nn.attention import SDPBackend, sdpa_kernel
from tesserack.ops import torch_random


def long(x):
    for _ in range(6):
        x = (x * 0.9 + 0.1).tanh()
    return x


class Output(collections.OrderedDict):
    """As transformers have: items that are attributes, too."""

    def __init__(self, **items):
        super().__init__(**items)
        for name, item in items.items():
            setattr(self, name, item)


LAYER = ts.nn.Linear(3, 3)
REFERENCE = weakref.ref(LAYER)


def einsum_in_region(x):
    with ts.autocast("cpu", dtype=ts.bfloat16):
        return long(ts.einsum("ij,jk->ik", x, x))


def own_ordered_dict(x):
    return Output(y=long(x)).y


def hook_on_what_is_computed(x):
    y = x * 2
    y.register_hook(lambda g: g * 2)
    return long(y)


def numpy_array(x):
    return long(x) * ts.tensor(np.arange(3))


def regular_expression(x):
    return long(x) * len(re.findall("a", "aba"))


def weak_reference(x):
    return REFERENCE()(long(x))


def attention_of_a_kind(x):
    with sdpa_kernel(SDPBackend.MATH):
        return long(ts.nn.functional.scaled_dot_product_attention(x[None], x[None], x[None]))


def attention_imported_inside(x):
    from tesserack.nn.attention import SDPBackend, sdpa_kernel

    with sdpa_kernel(SDPBackend.MATH):
        return long(ts.nn.functional.scaled_dot_product_attention(x[None], x[None], x[None]))


FUNCTIONS = (
    einsum_in_region, own_ordered_dict, hook_on_what_is_computed, numpy_array, regular_expression, weak_reference,
    attention_of_a_kind, attention_imported_inside,
)  # fmt: skip


@pytest.mark.parametrize("function", FUNCTIONS)
def test_gives_what_plain_python_gives(function, monkeypatch):
    monkeypatch.setitem(config, "smallest", 0)
    compiled, x = ts.compile(function, fullgraph=True), ts.rand(3, 3, requires_grad=True)
    for _ in range(5):
        found = []
        for each in (function, compiled):
            x.grad = None
            y = each(x)
            y.sum().backward()
            found.append((y, x.grad))
        assert all(ts.equal(a, b) for a, b in zip(*found, strict=True))


def test_gives_an_object_that_is_made():
    compiled = ts.compile(lambda x: Output(y=long(x)), fullgraph=True)
    for _ in range(5):
        made = compiled(ts.ones(3))
        assert type(made) is Output and made.y is made["y"] and ts.equal(made.y, long(ts.ones(3)))


DRAWN = {
    "rand": lambda x: long(x) * ts.rand(3, 3),
    "dropout": lambda x: ts.nn.functional.dropout(long(x)),
    "randn_like": lambda x: long(x) + ts.randn_like(x),
}


@pytest.mark.parametrize("name", DRAWN)
def test_draws_as_pytorch_does(name):
    compiled, x, found = ts.compile(DRAWN[name], fullgraph=True), ts.ones(3, 3), []
    torch_random.switch(True)
    try:
        for each in (DRAWN[name], compiled):
            ts.manual_seed(0)
            found.append([each(x) for _ in range(5)])
    finally:
        torch_random.switch(False)
    assert all(ts.equal(a, b) for a, b in zip(*found, strict=True))
    assert not ts.equal(found[1][0], found[1][1])
