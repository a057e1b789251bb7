"""Methods of C that are kept apart from what they are bound to: what that holds counts as if it were read itself."""

from __future__ import annotations

import collections
import contextvars
import functools
from typing import Any, NamedTuple

import tesserack as ts

from tests.fx.stale.cases import CASES, Case, case


class Kept(NamedTuple):
    """Of an owner that ``make`` makes, a method, its arguments, how its answer becomes a factor, and a change."""

    make: Any
    method: str
    args: tuple[Any, ...]
    change: Any
    factor: Any = float


TABLE = {"k": 2.0}
OF_DICTS = {
    "get": ("k",),
    "__getitem__": ("k",),
}
ROWS: dict[str, Kept] = {
    f"{make.__name__}.{method}": Kept(
        lambda make=make: make(float, TABLE) if make is collections.defaultdict else make(TABLE),
        method,
        args,
        lambda d: d.update(k=7.0),
    )
    for make in (dict, collections.OrderedDict, collections.defaultdict)
    for method, args in OF_DICTS.items()
}
ROWS |= {
    "dict.copy": Kept(TABLE.copy, "copy", (), lambda d: d.update(k=7.0), lambda d: d["k"]),
    "dict.keys": Kept(TABLE.copy, "keys", (), lambda d: d.update(m=7.0), len),
    "dict.values": Kept(TABLE.copy, "values", (), lambda d: d.update(k=7.0), sum),
    "dict.items": Kept(TABLE.copy, "items", (), lambda d: d.update(k=7.0), lambda items: next(iter(items))[1]),
    "dict.__contains__": Kept(TABLE.copy, "__contains__", ("m",), lambda d: d.update(m=7.0)),
    "list.index": Kept(lambda: [1, 2], "index", (2,), lambda h: h.insert(0, 5)),
    "list.count": Kept(lambda: [1, 2], "count", (2,), lambda h: h.append(2)),
    "list.__getitem__": Kept(lambda: [1, 2], "__getitem__", (0,), lambda h: h.insert(0, 5)),
    "list.copy": Kept(lambda: [1, 2], "copy", (), lambda h: h.append(5), sum),
    "set.__contains__": Kept(lambda: {1}, "__contains__", (2,), lambda h: h.add(2)),
    "set.union": Kept(lambda: {1}, "union", ([9],), lambda h: h.add(2), len),
    "Tensor.size": Kept(lambda: ts.zeros(3), "size", (0,), lambda t: setattr(t, "data", ts.zeros(5))),
    "Tensor.dim": Kept(lambda: ts.zeros(3), "dim", (), lambda t: setattr(t, "data", ts.zeros(3, 1))),
    "Tensor.is_floating_point": Kept(
        lambda: ts.zeros(3), "is_floating_point", (), lambda t: setattr(t, "data", ts.zeros(3, dtype=ts.int64))
    ),
    "a function of a registry": Kept(
        lambda: {"k": ts.relu}, "get", ("k",), lambda d: d.update(k=ts.sigmoid), lambda f: f(ts.full((), -1.0))
    ),
}  # fmt: skip


def of_row(row):
    owner = row.make()
    method = getattr(owner, row.method)
    return Case(lambda x: x * row.factor(method(*row.args)), lambda: row.change(owner))


for _name, _row in ROWS.items():
    CASES[f"kept {_name}"] = functools.partial(of_row, _row)


class Layer(ts.nn.Module):
    def forward(self, x):
        return x * self.scale("k")


def in_attribute_of_a_module(get):
    layer = Layer()
    layer.scale = get
    return layer


def in_attribute_of_a_class(get):
    return type("Own", (Layer,), {"scale": get})()


def in_static_method(get):
    return type("Own", (Layer,), {"scale": staticmethod(get)})()


def in_property(get):
    return type("Own", (Layer,), {"scale": property(lambda self, get=get: get)})()


def in_list(get):
    held = [get]
    return lambda x: x * held[0]("k")


def in_default(get):
    return lambda x, scale=get: x * scale("k")


def in_global(get):
    space = {"scale": get}
    exec("def f(x): return x * scale('k')", space)
    return space["f"]


PLACES = (
    in_attribute_of_a_module, in_attribute_of_a_class, in_static_method, in_property, in_list, in_default, in_global,
)  # fmt: skip


def at(place):
    held = dict(TABLE)
    return Case(place(held.get), lambda: held.update(k=7.0))


for _place in PLACES:
    CASES[f"dict.get kept {_place.__name__}"] = functools.partial(at, _place)


@case
def a_kept_look_at_a_context_variable():
    variable = contextvars.ContextVar("variable", default=2.0)
    get = variable.get
    return Case(lambda x: x * get(), lambda: variable.set(7.0))


@case
def a_kept_look_at_parameters():
    layer = ts.nn.Linear(2, 2)
    get, weight = layer._parameters.get, ts.nn.Parameter(ts.ones(2, 2))
    return Case(lambda x: x @ get("weight"), lambda: layer._parameters.__setitem__("weight", weight))


@case
def what_makes_defaults():
    held = collections.defaultdict(lambda: 2.0)
    return Case(lambda x: x * held.default_factory(), lambda: setattr(held, "default_factory", lambda: 7.0))


# What the package keeps for itself under these names a program may keep, too.
NAMES = (
    "_tesserack_scripted", "_compiled_call_impl", "_graph", "_lineno_map", "_tracer_cls", "_tracer_extras", "_in_spec",
    "_out_spec", "_compiled", "_torchdynamo_orig_callable",
)  # fmt: skip


def plain_object():
    return type("Own", (), {})()


def layer():
    return type("Own", (ts.nn.Module,), {})()


def function():
    return lambda: None


def of_name(make, name):
    owner = make()
    setattr(owner, name, 2.0)
    return Case(lambda x: x * getattr(owner, name), lambda: setattr(owner, name, 7.0))


for _make in (plain_object, layer, function):
    for _name in NAMES:
        CASES[f"{_name} of {_make.__name__}"] = functools.partial(of_name, _make, _name)
