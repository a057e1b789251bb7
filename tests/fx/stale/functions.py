"""Functions: what they read, and what a program puts in their place."""

from __future__ import annotations

import builtins
import functools
import math
import types

import tesserack as ts
import tesserack.nn.functional as F
from tesserack import nn

from tests.fx.stale.cases import CASES, Case, attribute_of, case

SEVEN = {
    "F.relu": (F, "relu", lambda x, inplace=False: x * 7, lambda: lambda x: F.relu(x)),
    "F.relu below a layer": (F, "relu", lambda x, inplace=False: x * 7, nn.ReLU),
    "Linear.forward": (nn.Linear, "forward", lambda self, x: x * 7, lambda: nn.Sequential(nn.Linear(2, 2))),
    "Linear.forward of a global": (nn.Linear, "forward", lambda self, x: x * 7, lambda: nn.Linear(2, 2).__call__),
    "Module.__call__": (nn.Module, "__call__", lambda self, x: x * 7, lambda: calls(nn.Linear(2, 2))),
    "Sequential.__iter__": (nn.Sequential, "__iter__", lambda self: iter([]), lambda: walks(nn.Sequential(nn.ReLU()))),
    "Tensor.__add__": (ts.Tensor, "__add__", lambda self, other: self * 7, lambda: lambda x: x + 1),
    "Tensor.relu": (ts.Tensor, "relu", lambda self: self * 7, lambda: lambda x: x.relu()),
    "ts.relu": (ts, "relu", lambda x: x * 7, lambda: lambda x: ts.relu(x)),
    "math.sqrt": (math, "sqrt", lambda x: 7.0, lambda: lambda x: x * math.sqrt(4)),
    "F.softmax below a layer": (F, "softmax", lambda *a, **k: a[0] * 7, lambda: nn.Softmax(-1)),
    "len": (
        builtins,
        "len",
        lambda x, old=len: 7 if isinstance(x, ts.Tensor) else old(x),
        lambda: lambda x: x * len(x),
    ),
}


def calls(module):
    return lambda x: module(x)


def walks(modules):
    return lambda x: [module(x) for module in modules]


for _name, (_owner, _attribute, _value, _make) in SEVEN.items():
    CASES[_name] = functools.partial(
        lambda owner, attribute, value, make: attribute_of(owner, attribute, value, make()),
        _owner, _attribute, _value, _make,
    )  # fmt: skip


def of_globals(source, **values):
    """A function made of source whose globals are these."""
    space = {"ts": ts, **values}
    exec(source, space)
    return space["f"], space


@case
def a_global():
    f, space = of_globals("def f(x): return x * scale", scale=2.0)
    return Case(f, lambda: space.update(scale=7.0))


@case
def a_global_that_is_deleted():
    f, space = of_globals("def f(x): return x * scale", scale=2.0)
    return Case(f, lambda: space.pop("scale"))


@case
def a_global_that_hides_a_builtin():
    f, space = of_globals("def f(x): return x * len(x)")
    return Case(f, lambda: space.update(len=lambda x: 7))


@case
def a_function_in_a_global():
    f, space = of_globals("def f(x): return g(x)", g=lambda x: x + 1)
    return Case(f, lambda: space.update(g=lambda x: x - 1))


@case
def an_attribute_of_a_python_module():
    made = types.ModuleType("made_here")
    made.factor = 2.0
    f, _ = of_globals("def f(x): return x * made.factor", made=made)
    return Case(f, lambda: setattr(made, "factor", 7.0))


@case
def globals_as_a_dict():
    f, space = of_globals("def f(x): return x * globals()['scale']", scale=2.0)
    return Case(f, lambda: space.update(scale=7.0), captured=False)


def closed_over(name):
    """Names at a module that a function and one made in it close over; that of a library is known by its name."""
    made, inner = types.ModuleType(name), types.ModuleType("made_inside")
    made.factor, made.function, made.inner, inner.factor = 2.0, lambda x: x + 1, inner, 3.0

    def function(x):
        def within(x):
            return made.function(x) * made.inner.factor

        return within(x) * made.factor

    return function, made


@case
def a_value_of_a_module_that_is_closed_over():
    function, made = closed_over("made_here")
    return attribute_of(made, "factor", 7.0, function)


@case
def a_function_of_a_module_that_is_closed_over():
    function, made = closed_over("made_here")
    return attribute_of(made, "function", lambda x: x - 1, function)


@case
def a_function_of_a_library_that_is_closed_over():
    function, made = closed_over("tesserack.made_here")
    return attribute_of(made, "function", lambda x: x - 1, function)


@case
def a_value_of_a_module_within_one_that_is_closed_over():
    function, made = closed_over("made_here")
    return attribute_of(made.inner, "factor", 7.0, function)


def library():
    """A module that is one of a library's, by its name, with another within."""
    made, inner = types.ModuleType("tesserack.made_here"), types.ModuleType("tesserack.made_here.inner")
    made.function, made.inner, inner.factor = lambda x: x + 1, inner, 3.0
    return made


@case
def a_function_of_a_library_that_an_object_holds():
    made, holder = library(), type("Holder", (), {})()
    holder.module = made
    return attribute_of(made, "function", lambda x: x - 1, lambda x: holder.module.function(x) * 2)


@case
def a_function_of_a_library_in_a_list():
    made = library()
    held = [made]
    return attribute_of(made, "function", lambda x: x - 1, lambda x: held[0].function(x) * 2)


@case
def a_function_of_a_library_that_is_a_default():
    made = library()
    return attribute_of(made, "function", lambda x: x - 1, lambda x, m=made: m.function(x) * 2)


@case
def a_value_within_a_library_that_a_module_holds():
    made = library()

    class Layer(ts.nn.Module):
        def __init__(self):
            super().__init__()
            self.held = {"library": made}

        def forward(self, x):
            return x * self.held["library"].inner.factor

    return attribute_of(made.inner, "factor", 7.0, Layer())


@case
def a_module_closed_over_that_is_handed_on():
    made, hidden = types.ModuleType("made_here"), lambda module, x: x * vars(module)["factor"]
    made.factor = 2.0
    return attribute_of(made, "factor", 7.0, lambda x: hidden(made, x), captured=False)


@case
def a_closure():
    n = 2.0

    def change():
        nonlocal n
        n = 7.0

    return Case(lambda x: x * n, change)


@case
def a_closure_of_a_function_within():
    n = 2.0

    def outer():
        return lambda x: x * n

    def change():
        nonlocal n
        n = 7.0

    return Case(outer(), change)


@case
def what_a_wrapper_calls():
    def plain(x):
        return x * 2

    @functools.wraps(plain)
    def wrapper(x):
        return plain(x)

    def change():
        nonlocal plain
        plain = lambda x: x * 7  # noqa: E731

    return Case(lambda x: wrapper(x), change)


FUNCTIONS = {
    "code": lambda g: setattr(g, "__code__", (lambda x, n=2.0: x * 7).__code__),
    "defaults": lambda g: setattr(g, "__defaults__", (7.0,)),
    "keyword defaults": lambda g: setattr(g, "__kwdefaults__", {"m": 7.0}),
    "one keyword default": lambda g: g.__kwdefaults__.update(m=7.0),
}


def of_function(change):
    def g(x, n=2.0, *, m=1.0):
        return x * n * m

    return Case(lambda x: g(x), lambda: change(g))


for _name, _change in FUNCTIONS.items():
    CASES[f"a function's {_name}"] = functools.partial(of_function, _change)


@case
def a_list_that_is_a_default():
    def g(x, n=[2.0], *, m={"n": 2.0}):  # noqa: B006
        return x * n[0] * m["n"]

    return Case(lambda x: g(x), lambda: (g.__defaults__[0].append(1.0), g.__kwdefaults__["m"].update(n=7.0)))


@case
def an_attribute_of_a_function():
    def g(x):
        return x * g.n

    g.n = 2.0
    return Case(lambda x: g(x), lambda: setattr(g, "n", 7.0))


@case
def a_list_that_is_an_attribute_of_a_function():
    def g(x):
        return x

    g.n = [2.0]
    return Case(lambda x: x * g.n[0], lambda: g.n.__setitem__(0, 7.0))


@case
def arguments_of_a_partial_function():
    held = [2.0]
    g = functools.partial(lambda a, x: x * a[0], held)
    return Case(lambda x: g(x), lambda: held.__setitem__(0, 7.0))


@case
def keywords_of_a_partial_function():
    g = functools.partial(lambda x, n: x * n, n=2.0)
    return Case(lambda x: g(x), lambda: g.keywords.update(n=7.0))


@case
def what_a_cache_holds():
    held = [2.0]
    g = functools.lru_cache(lambda: held[0])
    return Case(lambda x: x * g(), lambda: (held.__setitem__(0, 7.0), g.cache_clear()), captured=False)
