"""Attributes that something in C asks for, so that no instruction of the program names them."""

from __future__ import annotations

import builtins
import functools
import inspect
import operator

import tesserack as ts

from tests.fx.stale.cases import CASES, Case

PARTS = {
    "builtins": builtins, "functools": functools, "inspect": inspect, "operator": operator, "T": ts.Tensor,
    "kept": getattr, "listed": [getattr], "asker": object.__getattribute__, "fill": "{0.grad}".format,
    "view": ts.Tensor.grad, "getter": type(ts.Tensor.grad).__get__, "own": ts.Tensor._grad, "of": operator.attrgetter,
    "took": ts.Tensor._grad.fget,
}  # fmt: skip
# Of a parameter `w`: what has no gradient at first, and has one later.
GRADIENT = {
    "its own __getattribute__": "w.__getattribute__('grad')",
    "object.__getattribute__": "object.__getattribute__(w, 'grad')",
    "object.__getattribute__, kept": "asker(w, 'grad')",
    "a descriptor of its class": "type(w).grad.__get__(w)",
    "a descriptor": "T.grad.__get__(w)",
    "a kept descriptor": "view.__get__(w)",
    "what gets of descriptors": "getter(view, w)",
    "a property": "own.fget(w)",
    "the function of a property": "took(w)",
    "attrgetter": "operator.attrgetter('grad')(w)",
    "attrgetter, kept": "of('grad')(w)",
    "getattr_static": "inspect.getattr_static(w, 'grad').__get__(w)",
    "vars": "vars(T)['grad'].__get__(w)",
    "all names of its class": "T.__dict__['grad'].__get__(w)",
    "a partial getattr": "functools.partial(getattr, w)('grad')",
    "getattr, kept": "kept(w, 'grad')",
    "getattr beside a kept one": "kept(w, getattr(w, 'nothing', 'grad'))",
    "getattr of builtins": "builtins.getattr(w, 'grad')",
    "getattr of a list": "listed[0](w, 'grad')",
    "getattr in map": "next(map(getattr, [w], ['grad']))",
    "a kept getattr in reduce": "functools.reduce(kept, ['grad'], w)",
    "super": "super(type(w), w).grad",
    "a text to fill": "None if 'None' in '{0.grad}'.format(w) else 1",
    "a text to fill, kept": "None if 'None' in fill(w) else 1",
}
# Of an object `o` of a class `C` that has a list `n`: what is in the list.
LIST = {
    "its own __getattribute__": "o.__getattribute__('n')",
    "object.__getattribute__, kept": "asker(o, 'n')",
    "type.__getattribute__": "type.__getattribute__(C, 'n')",
    "getattr, kept": "kept(o, 'n')",
    "vars": "vars(C)['n']",
    "all names of a class": "C.__dict__['n']",
}
FOUND = {
    "a partial getattr": "functools.partial(getattr, o)('n')",
    "a text to fill": "['{0.n[0]}'.format(o)]",
    "a text to fill, by its class": "[str.format('{0.n[0]}', o)]",
    "a text within one to fill": "['{0:{1.n[0]}}'.format(2.0, o)]",
}


def made(source, **space):
    space = {**PARTS, **space}
    exec(source, space)
    return space["f"]


def asks_for_gradient(expression):
    w = ts.nn.Parameter(ts.ones(2))
    f = made(f"def f(x): return x * (2 if ({expression}) is None else 5)", w=w)
    return Case(f, lambda: setattr(w, "grad", ts.ones(2)), captured=False)


def asks_for_list(source, captured):
    held = [2.0]
    cls = type("C", (), {"n": held, "__match_args__": ("n",)})
    return Case(made(source, o=cls(), C=cls), lambda: held.__setitem__(0, 7.0), captured=captured)


for _name, _expression in GRADIENT.items():
    CASES[f"a gradient by {_name}"] = functools.partial(asks_for_gradient, _expression)
for _names, _captured in ((LIST, False), (FOUND, True)):
    for _name, _expression in _names.items():
        _source = f"def f(x): return x * float(({_expression})[0])"
        CASES[f"a list by {_name}"] = functools.partial(asks_for_list, _source, _captured)


def by_its_own(ask):
    class Own:
        n = [2.0]

        def __getattribute__(self, name):
            return ask(Own, self, name)

    own = Own()
    return Case(lambda x: x * own.m[0], lambda: Own.n.__setitem__(0, 7.0))


def __getattribute__(own, self, name):
    return super(own, self).__getattribute__("n" if name == "m" else name)


def of_object(own, self, name):
    return object.__getattribute__(self, "n" if name == "m" else name)


of_object.__code__ = of_object.__code__.replace(co_name="__getattribute__")
for _ask in (__getattribute__, of_object):
    CASES[f"a list by what a class asks by {_ask.__name__}"] = functools.partial(by_its_own, _ask)
PATTERNS = {"name": "C(n=q)", "place": "C(q)"}
for _name, _pattern in PATTERNS.items():
    _source = f"def f(x):\n match o:\n  case {_pattern}: return x * q[0]"
    CASES[f"a list by a pattern's {_name}"] = functools.partial(asks_for_list, _source, True)


def gradient_by_pattern():
    w = ts.nn.Parameter(ts.ones(2))
    f = made("def f(x):\n match w:\n  case T(grad=None): return x * 2\n  case _: return x * 5", w=w)
    return Case(f, lambda: setattr(w, "grad", ts.ones(2)), captured=False)


CASES["a gradient by a pattern"] = gradient_by_pattern
