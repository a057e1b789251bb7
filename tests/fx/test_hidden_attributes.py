"""Whatever tells two tensors apart that have the same signature, a graph of one is not run for the other.

Each attribute of ``Tensor`` is read, and called, of pairs of such tensors, which differ in one thing each, in both
orders.
"""

from __future__ import annotations

import copy

import pytest
import tesserack as ts
from tesserack.jit._compile.compiled import config


def ones():
    return ts.ones(2, 2)


def leaf():
    return ones().requires_grad_()


def done(tensor, act):
    act(tensor)
    return tensor


PAIRS = {
    "fresh": lambda: (ones(), ones()),
    "leaf": lambda: (leaf(), leaf() * 1),
    "gradient": lambda: (leaf(), done(leaf(), lambda t: setattr(t, "grad", ones()))),
    "history": lambda: (leaf() * 1, leaf() + 0),
    "retains": lambda: (leaf() * 1, done(leaf() * 1, lambda t: t.retain_grad())),
    "hook": lambda: (leaf(), done(leaf(), lambda t: t.register_hook(lambda g: g))),
    "version": lambda: (ones(), ones().add_(0)),
    "view": lambda: (ones(), ts.ones(8)[:4].view(2, 2)),
    "offset": lambda: (ts.ones(8)[:4].view(2, 2), ts.ones(8)[4:].view(2, 2)),
    "storage": lambda: (ts.ones(4).view(2, 2), ts.ones(8)[:4].view(2, 2)),
    "shared": lambda: (ones(), ones().share_memory_()),
    "attribute": lambda: (ones(), done(ones(), lambda t: setattr(t, "note", 3))),
    "output": lambda: leaf().view(1, 2, 2).expand(2, 2, 2).unbind(0),
    "parameter": lambda: (leaf(), ts.nn.Parameter(ones())),
    "buffer": lambda: (ones(), ts.nn.Buffer(ones())),
}
FORMS = {
    "read": "v = x.{name}",
    "called": "v = x.{name}()",
    "called with another": "v = x.{name}(held)",
    "of another": "v = held.{name}(x)",
    "as a function": "v = ts.{name}(x)",
    "kept unbound": "v = kept(x)",
    "as text": "v = f'{{x}}'",
    "hashed": "v = hash(x)",
    "hashed within": "v = hash((1, x))",
}
BY_NAME = ("read", "called", "called with another", "of another", "as a function", "kept unbound")
# They change what they are called on, or end what is drawn, so that no second call tells the same.
_CHANGING = ("__i", "_swap", "set_", "_set", "share_memory_", "backward", "__del__", "__init__", "__reduce")
NAMES = sorted(
    name
    for name in dir(ts.Tensor)
    if not name.startswith(_CHANGING) and (name.endswith("__") or not name.endswith("_"))
)  # fmt: skip
SOURCE = """
def f(x):
    y = x
    for _ in range(6):
        y = (y * 0.9 + 0.1).tanh()
    {statement}
    return y * (2 if v is None else 3), v if isinstance(v, (bool, int, str)) else type(v).__name__
"""


def made(form, name):
    space = {"ts": ts, "held": ones(), "kept": getattr(ts.Tensor, name, None)}
    exec(SOURCE.format(statement=FORMS[form].format(name=name)), space)
    return space["f"]


def told(f, x):
    """What a call gives, as values; by which error it fails."""
    try:
        y, v = f(x)
    except Exception as error:
        return type(error).__name__
    return y.tolist(), copy.copy(v)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("pair", PAIRS)
def test_each_tensor_has_its_own_answers(pair, form, monkeypatch):
    monkeypatch.setitem(config, "smallest", 0)
    wrong = []
    for name in NAMES if form in BY_NAME else [""]:
        f, tensors = made(form, name), PAIRS[pair]()
        expected = [told(f, x) for x in tensors]
        if expected[0] == expected[1] or any(isinstance(each, str) for each in expected):
            continue
        if [told(f, x) for x in tensors] != expected:  # it changes what it tells
            continue
        for turn in (1, -1):
            f, order = made(form, name), PAIRS[pair]()[::turn]
            expected = [told(f, x) for x in order]
            compiled = ts.compile(f)
            if [[told(compiled, x) for _ in range(14)] for x in order] != [[each] * 14 for each in expected]:
                wrong.append((name, turn))
    assert not wrong


HELD = {
    "is_set_to": lambda a, b: a.is_set_to(b),
    "is_set_to of a part": lambda a, b: a[:].is_set_to(b),
    "_is_view": lambda a, b: a._is_view(),
    "storage_offset": lambda a, b: a.storage_offset() == 0,
    "_storage_nbytes": lambda a, b: a._storage_nbytes() == 16,
    "is_set_to, kept": lambda a, b, kept=ts.Tensor.is_set_to: kept(a, b),
    "_is_view, kept": lambda a, b, kept=ts.Tensor._is_view: kept(a),
    "is_shared, kept": lambda a, b, kept=ts.Tensor.is_shared: kept(a),
}
OTHERS = {
    "the same memory": lambda a, b: b,
    "a part": lambda a, b: ts.zeros(8)[4:],
    "shared": lambda a, b: ts.zeros(4).share_memory_(),
}


@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("how", HELD)
def test_a_held_tensor_has_the_answers_of_now(how, other, monkeypatch):
    monkeypatch.setitem(config, "smallest", 0)
    a, b = ts.zeros(4), ts.zeros(4)

    def f(x):
        return (x * 0.9).tanh() * (2 if HELD[how](a, b) else 5)

    compiled, x = ts.compile(f), ts.ones(3)
    for _ in range(2):
        for _ in range(14):
            assert ts.equal(compiled(x), f(x))
        a.data = OTHERS[other](a, b)
