"""What is known by names that are computed, imported in a run, or made in it: such runs are looked at step by step."""

from __future__ import annotations

import contextvars
import dataclasses
import sys
import types

import tesserack as ts

from tests.fx.stale.cases import Case, attribute_of, case, item_of, put


class Holder:
    n = 2.0

    def __init__(self, **given):
        self.__dict__.update(given)


NAMES = ["n", "m", "absent"]


def total(holder, x):
    for name in NAMES:
        x = x * (getattr(holder, name, None) or 3.0)
    return x


@case
def an_attribute_by_a_computed_name():
    holder = Holder(n=2.0, m=5.0)
    return attribute_of(holder, "m", 7.0, lambda x: total(holder, x))


@case
def an_attribute_that_was_absent():
    holder = Holder(n=2.0, m=5.0)
    return Case(lambda x: total(holder, x), lambda: setattr(holder, "absent", 7.0))


@case
def an_attribute_of_the_class_by_a_computed_name():
    own = type("Own", (Holder,), {"m": 5.0})
    holder = own()
    return Case(lambda x: total(holder, x), lambda: setattr(own, "m", 7.0))


@case
def a_property_by_a_computed_name():
    own = type("Own", (Holder,), {"m": property(lambda self: 5.0)})
    holder = own()
    return Case(lambda x: total(holder, x), lambda: setattr(own, "m", property(lambda self: 7.0)))


@case
def the_name_that_is_computed():
    holder, held = Holder(n=2.0, m=5.0), {"name": "n"}
    return item_of(held, "name", "m", lambda x: x * getattr(holder, held["name"]))


@case
def whether_there_is_a_computed_name():
    holder, name = Holder(), "some" + "thing"
    return Case(lambda x: x * (2 if hasattr(holder, name) else 5), lambda: setattr(holder, name, 1))


@case
def a_hidden_attribute_by_a_computed_name():
    weight, name = ts.nn.Parameter(ts.ones(2)), "gr" + "ad"
    change = lambda: setattr(weight, "grad", ts.ones(2))  # noqa: E731
    return Case(lambda x: x * (2 if getattr(weight, name) is None else 5), change, captured=False)


def module_of(name, **held):
    made = types.ModuleType(name)
    made.__dict__.update(held)
    sys.modules[name] = made
    return made


@case
def a_module_imported_in_a_run():
    module = module_of("ts_stale_a", n=2.0)

    def function(x):
        import ts_stale_a

        return x * ts_stale_a.n

    return attribute_of(module, "n", 7.0, function)


@case
def a_name_imported_in_a_run():
    module = module_of("ts_stale_b", n=2.0)

    def function(x):
        from ts_stale_b import n

        return x * n

    return attribute_of(module, "n", 7.0, function)


@case
def a_module_that_becomes_another():
    module_of("ts_stale_c", n=2.0)

    def function(x):
        import ts_stale_c as named

        return x * named.n

    return Case(function, lambda: module_of("ts_stale_c", n=7.0))


@case
def an_attribute_of_a_module_by_a_computed_name():
    module, names = module_of("ts_stale_d", n=2.0), ["n"]

    def function(x):
        import ts_stale_d

        for name in names:
            x = x * getattr(ts_stale_d, name)
        return x

    return attribute_of(module, "n", 7.0, function, captured=False)  # the module itself is handed on


class Made:
    factor = 2.0

    def __init__(self, x):
        self.x = x
        self.parts = [x + 1, {"y": x * self.factor}]

    def value(self):
        return self.x * self.parts[1]["y"]

    def __eq__(self, other):
        return type(self) is type(other) and all(map(ts.equal, self.all(), other.all()))

    __hash__ = None

    def all(self):
        return [self.x, self.parts[0], self.parts[1]["y"]]


@case
def an_object_made_in_a_run():
    change, undo = put(Made, "factor", 7.0)
    return Case(lambda x: Made(x).value(), change, undo)


@case
def how_an_object_is_made():
    def other(self, x):
        self.x, self.parts = x, [x, {"y": x * 7}]

    change, undo = put(Made, "__init__", other)
    return Case(lambda x: Made(x).value(), change, undo)


@case
def an_object_that_is_returned():
    change, undo = put(Made, "factor", 7.0)
    return Case(lambda x: [Made(x * 2), x], change, undo)


@case
def what_an_object_is_set_by_name():
    names = {"first": "a"}

    def function(x):
        made = Holder()
        setattr(made, names["first"], x * 2)
        return getattr(made, "a", x) + 1

    return item_of(names, "first", "b", function)


@case
def an_attribute_that_is_set_for_a_run():
    holder = Holder(n=2.0, m=5.0)

    def function(x):
        before, holder.n = holder.n, 3.0
        try:
            return total(holder, x)
        finally:
            holder.n = before

    return attribute_of(holder, "m", 7.0, function)


@case
def an_attribute_that_counts():
    holder = Holder(n=2.0)

    def function(x):
        holder.n = holder.n + 1
        return x * holder.n

    return attribute_of(holder, "n", 7.0, function, captured=False)


@case
def an_attribute_that_is_set_anew():
    holder = Holder(n=2.0, m=5.0)

    def function(x):
        holder.n = holder.m
        return x * holder.n

    return attribute_of(holder, "m", 7.0, function)


@case
def a_context_variable_that_is_set_for_a_run():
    held, factor = contextvars.ContextVar("held", default=2.0), [5.0]

    def inner(x):
        return x * held.get()

    def function(x):
        token = held.set(held.get() * factor[0])
        try:
            return inner(x)
        finally:
            held.reset(token)

    return Case(function, lambda: held.set(7.0))


@dataclasses.dataclass
class Record:
    a: ts.Tensor
    b: float = 2.0


@case
def fields_of_a_record():
    def function(x):
        record = Record(x)
        for field in dataclasses.fields(record):
            x = x + getattr(record, field.name)
        return x

    return Case(function, *put(Record.__dataclass_fields__["b"], "name", "a"))


@case
def a_way_that_was_not_taken():
    held = {"set": False}

    def function(x):
        global SOMETHING
        if held["set"]:
            SOMETHING = 1
            return x * 7
        return x * 2

    return item_of(held, "set", True, function)
