"""Attributes of objects and classes."""

from __future__ import annotations

import abc
import dataclasses
import enum
import functools
import threading
import types

from tests.fx.stale.cases import CASES, Case, case, item_of


def classes():
    """By name: a class, of whose object the program reads ``q``, which is 2, and a change."""

    class Plain:
        q = 2.0

    yield "class attribute", Plain(), lambda: setattr(Plain, "q", 7.0)

    class Base:
        q = 2.0

    class Derived(Base):
        pass

    yield "attribute of a base", Derived(), lambda: setattr(Base, "q", 7.0)

    class Other:
        q = 7.0

    class Third(Base):
        pass

    yield "bases", Third(), lambda: setattr(Third, "__bases__", (Other,))
    changed = Plain()
    yield "class", changed, lambda: setattr(changed, "__class__", Other)

    class WithProperty:
        q = property(lambda self: 2.0)

    yield "property", WithProperty(), lambda: setattr(WithProperty, "q", property(lambda self: 7.0))
    store = {"q": 2.0}

    class WithGetattr:
        def __getattr__(self, name):
            if name in store:
                return store[name]
            raise AttributeError(name)

    hidden = WithGetattr()
    yield "what __getattr__ finds", hidden, lambda: store.update(q=7.0)
    shadowed = WithGetattr()
    yield "what hides __getattr__", shadowed, lambda: setattr(shadowed, "q", 9.0)

    class Descriptor:
        def __init__(self):
            self.value = 2.0

        def __get__(self, owner, kind=None):
            return self.value

    descriptor = Descriptor()

    class WithDescriptor:
        q = descriptor

    yield "descriptor", WithDescriptor(), lambda: setattr(descriptor, "value", 7.0)
    replaced = Plain()
    yield "all attributes", replaced, lambda: setattr(replaced, "__dict__", {"q": 7.0})

    @dataclasses.dataclass
    class Data:
        q: float = 2.0

    data = Data()
    yield "field", data, lambda: setattr(data, "q", 7.0)

    class Slotted:
        __slots__ = ("q",)

    slotted = Slotted()
    slotted.q = 2.0
    yield "slot", slotted, lambda: setattr(slotted, "q", 7.0)
    space = types.SimpleNamespace(q=2.0)
    yield "namespace", space, lambda: setattr(space, "q", 7.0)
    local = threading.local()
    local.q = 2.0
    yield "of a thread", local, lambda: setattr(local, "q", 7.0)

    class Meta(type):
        q = 2.0

    class OfMeta(metaclass=Meta):
        pass

    yield "attribute of a metaclass", OfMeta, lambda: setattr(Meta, "q", 7.0)

    class Members(enum.Enum):
        A = 2.0

    yield "value of a member", _Valued(Members.A), lambda: setattr(Members.A, "_value_", 7.0)

    class Cached:
        k = [2.0]

        @functools.cached_property
        def q(self):
            return self.k[0]

    cached = Cached()
    yield "cached property", cached, lambda: (Cached.k.__setitem__(0, 7.0), cached.__dict__.pop("q", None))


class _Valued:
    def __init__(self, member):
        self.member = member

    @property
    def q(self):
        return self.member.value


NOT_CAPTURED = {"namespace", "of a thread", "cached property"}


def of_object(name):
    held, change = next((held, change) for found, held, change in classes() if found == name)
    return Case(lambda x: x * held.q, change, captured=name not in NOT_CAPTURED)


for _name, _, _ in classes():
    CASES[f"objects: {_name}"] = functools.partial(of_object, _name)

METHODS = {
    "__call__": (lambda self, x: x * 2, lambda self, x: x * 7, lambda n: lambda x: n(x)),
    "__mul__": (lambda self, x: x * 2, lambda self, x: x * 7, lambda n: lambda x: n * x),
    "__len__": (lambda self: 2, lambda self: 7, lambda n: lambda x: x * len(n)),
    "__bool__": (lambda self: True, lambda self: False, lambda n: lambda x: x * 2 if n else x),
    "__eq__": (lambda self, other: True, lambda self, other: False, lambda n: lambda x: x * 2 if n == 3 else x),
    "__contains__": (lambda self, k: True, lambda self, k: False, lambda n: lambda x: x * 2 if 3 in n else x),
    "__getitem__": (lambda self, k: 2.0, lambda self, k: 7.0, lambda n: lambda x: x * n[0]),
    "__iter__": (lambda self: iter([2.0]), lambda self: iter([7.0]), lambda n: lambda x: x * sum(n)),
    "step": (lambda self, x: x * 2, lambda self, x: x * 7, lambda n: lambda x: n.step(x)),
    "made": (classmethod(lambda cls: 2.0), classmethod(lambda cls: 7.0), lambda n: lambda x: x * n.made()),
    "still": (staticmethod(lambda: 2.0), staticmethod(lambda: 7.0), lambda n: lambda x: x * n.still()),
}


def of_method(name):
    first, second, make = METHODS[name]
    cls = type("Own", (), {name: first, "__module__": __name__})
    return Case(make(cls()), lambda: setattr(cls, name, second))


for _name in METHODS:
    CASES[f"method {_name}"] = functools.partial(of_method, _name)


@case
def a_method_reached_by_super():
    class Base:
        def step(self):
            return 2.0

    class Own(Base):
        def step(self):
            return super().step()

    own = Own()
    return Case(lambda x: x * own.step(), lambda: setattr(Base, "step", lambda self: 7.0))


@case
def a_check_of_a_metaclass():
    class Meta(type):
        def __instancecheck__(cls, value):
            return True

    class Own(metaclass=Meta):
        pass

    change = functools.partial(setattr, Meta, "__instancecheck__", lambda cls, value: False)
    return Case(lambda x: x * 2 if isinstance(x, Own) else x, change)


@case
def a_class_registered_with_an_abstract_one():
    class Abstract(abc.ABC):  # noqa: B024
        pass

    class Own:
        pass

    own = Own()
    return Case(lambda x: x * 2 if isinstance(own, Abstract) else x, lambda: Abstract.register(Own))


class Unit(float):
    def __repr__(self):
        return "unit"


class Phase(complex):
    __repr__ = Unit.__repr__


@case
def is_a_number_that_reads_like_another():
    held = {"q": Unit(2.0)}
    return item_of(held, "q", Unit(3.0), lambda x: x * held["q"])


@case
def is_a_complex_number_that_reads_like_another():
    held = {"q": Phase(2.0)}
    return item_of(held, "q", Phase(3.0), lambda x: x * held["q"])
