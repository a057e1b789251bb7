"""Contents of containers."""

from __future__ import annotations

import collections
import os
import types
from collections.abc import Callable

import numpy as np
import tesserack as ts
import tesserack.nn.functional as F

from tests.fx.stale.cases import CASES, Case, attribute_of, case, item_of

CONTAINERS: dict[str, Callable[[], Case]] = {
    "list": lambda: item_of(h := [2.0], 0, 7.0, lambda x: x * h[0]),
    "list in a list": lambda: item_of((h := [[2.0]])[0], 0, 7.0, lambda x: x * h[0][0]),
    "length of a list": lambda: Case(lambda x: x * len(h), (h := [1]).clear),
    "sign of a zero": lambda: item_of(h := [0.0], 0, -0.0, lambda x: x * h[0]),
    "number to truth": lambda: item_of(h := [1], 0, True, lambda x: x * (2 if h[0] is True else 5)),
    "number to float": lambda: item_of(h := [1], 0, 1.0, lambda x: x.int() * h[0]),
    "text": lambda: item_of(h := ["ab"], 0, "abc", lambda x: x * len(h[0])),
    "dtype": lambda: item_of(h := [ts.float32], 0, ts.float64, lambda x: x.to(h[0])),
    "function": lambda: item_of(h := {"act": F.relu}, "act", F.sigmoid, lambda x: h["act"](x)),
    "dict": lambda: item_of(h := {"n": 2.0}, "n", 7.0, lambda x: x * h["n"]),
    "another key": lambda: item_of(h := {"n": 2.0}, "m", 7.0, lambda x: x * sum(h.values())),
    "set": lambda: Case(lambda x: x * sum(h), lambda: h.add(7), captured=True) if (h := {2}) else None,
    "Counter": lambda: item_of(h := collections.Counter(a=2), "a", 7, lambda x: x * h["a"]),
    "OrderedDict": lambda: item_of(h := collections.OrderedDict(a=2), "a", 7, lambda x: x * h["a"]),
    "defaultdict": lambda: item_of(h := collections.defaultdict(float, a=2), "a", 7, lambda x: x * h["a"]),
    "deque": lambda: (
        Case(lambda x: x * h[0], lambda: h.appendleft(7), captured=False) if (h := collections.deque([2])) else None
    ),
    "bytearray": lambda: item_of(h := bytearray(b"\2"), 0, 7, lambda x: x * h[0], captured=False),
    "array": lambda: item_of(h := np.array([2.0]), 0, 7.0, lambda x: x * float(h[0]), captured=False),
    "UserDict": lambda: item_of(h := collections.UserDict(n=2.0), "n", 7.0, lambda x: x * h["n"]),
    "ChainMap": lambda: item_of(h := collections.ChainMap({"n": 2.0}), "n", 7.0, lambda x: x * h["n"]),
    "os.environ": lambda: item_of(os.environ, "TS_STALE", "7", lambda x: x * int(os.environ.get("TS_STALE", "2"))),
    "tensors of a list": lambda: item_of(h := [ts.ones(2)], 0, ts.full((2,), 7.0), lambda x: x * h[0]),
}
for _name, _make in CONTAINERS.items():
    CASES[f"items of {_name}"] = _make


@case
def order_of_keys():
    held = {"a": 2.0, "b": 3.0}
    return Case(lambda x: x * next(iter(held.values())), lambda: held.update(a=held.pop("a")), captured=True)


@case
def a_view_of_a_dict():
    held = {"n": 2.0}
    values = held.values()
    return Case(lambda x: x * sum(values), lambda: held.update(n=7.0), captured=False)


@case
def a_proxy_of_a_dict():
    held = {"n": 2.0}
    proxy = types.MappingProxyType(held)
    return Case(lambda x: x * proxy["n"], lambda: held.update(n=7.0))


def of_subclass(base, items, key):
    class Own(base):
        pass

    held = Own(items)
    held.n = 2.0
    return held, Own


@case
def an_attribute_of_a_list_of_a_class():
    held, _ = of_subclass(list, [2.0], 0)
    return attribute_of(held, "n", 7.0, lambda x: x * held.n)


@case
def an_attribute_of_a_tuple_of_a_class():
    held, _ = of_subclass(tuple, [2.0], 0)
    return attribute_of(held, "n", 7.0, lambda x: x * held.n)


@case
def items_of_a_dict_of_a_class():
    held, _ = of_subclass(dict, {"n": 2.0}, "n")
    return item_of(held, "n", 7.0, lambda x: x * held["n"])


@case
def how_a_list_of_a_class_is_read():
    class Own(list):
        def __getitem__(self, k):
            return 2.0

    held = Own([1.0])
    return attribute_of(Own, "__getitem__", lambda self, k: 7.0, lambda x: x * held[0])
