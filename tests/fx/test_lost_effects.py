"""What a compiled function does to what lives on is done by every call: by methods of C that are kept apart from what
they are bound to, too."""

from __future__ import annotations

import functools
import io
import types

import pytest
import tesserack as ts
from tesserack.jit._compile.compiled import config

CALLS = 14


def long(x):
    for _ in range(6):
        x = (x * 0.9 + 0.1).tanh()
    return x


class Holder:
    act = None


def in_global(act):
    space = {"act": act, "long": long}
    exec("def f(x):\n    act(x.shape[0])\n    return long(x)", space)
    return space["f"]


def in_closure(act):
    def f(x):
        act(x.shape[0])
        return long(x)

    return f


def in_default(act):
    def f(x, act=act):
        act(x.shape[0])
        return long(x)

    return f


def in_attribute(act):
    holder = Holder()
    holder.act = act

    def f(x):
        holder.act(x.shape[0])
        return long(x)

    return f


def in_class(act):
    own = type("Own", (Holder,), {"act": act})

    def f(x):
        own.act(x.shape[0])
        return long(x)

    return f


def in_dict(act):
    held = {"act": act}

    def f(x):
        held["act"](x.shape[0])
        return long(x)

    return f


def in_partial(act):
    bound = functools.partial(act, 1)

    def f(x):
        bound()
        return long(x)

    return f


def in_map(act):
    def f(x):
        list(map(act, x.shape))
        return long(x)

    return f


PLACES = (in_global, in_closure, in_default, in_attribute, in_class, in_dict, in_partial, in_map)


def of_list():
    held = []
    return held.append, held


def of_generator():
    held = []

    def keeps():
        while True:
            held.append((yield))

    generator = keeps()
    next(generator)
    return generator.send, held


def of_file():
    file = io.StringIO()
    return (lambda n, write=file.write: write(str(n))), file


def seen(held):
    return held.getvalue() if isinstance(held, io.StringIO) else len(held)


@pytest.mark.parametrize("fullgraph", [False, True])
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("effect", [of_list, of_generator, of_file])
def test_every_call_does_what_plain_python_does(effect, place, fullgraph, monkeypatch):
    monkeypatch.setitem(config, "smallest", 0)
    found = []
    for compiled in (False, True):
        act, held = effect()
        f = ts.compile(place(act), fullgraph=fullgraph) if compiled else place(act)
        for _ in range(CALLS):
            try:
                f(ts.ones(2, 3))
            except Exception as error:  # which is told, where it must be one graph
                assert compiled and fullgraph, error
                return
        found.append(seen(held))
    assert found[0] == found[1] > ("" if effect is of_file else 0)


@pytest.mark.parametrize("method", ["pop", "clear", "reverse", "sort"])
def test_methods_without_arguments_are_called_by_every_call(method):
    held, twin = ([*range(CALLS, 0, -1)] for _ in range(2))

    def with_method(act):
        return lambda x, act=act: (long(x), act())[0]

    plain, compiled = with_method(getattr(twin, method)), ts.compile(with_method(getattr(held, method)))
    for _ in range(CALLS):
        assert ts.equal(plain(ts.ones(2)), compiled(ts.ones(2)))
        assert held == twin


def of_class():
    class Own:
        log = []

    return Own, Own.log


def of_instance():
    cls, log = of_class()
    return cls(), log


def of_module():
    class Own(ts.nn.Module):
        log = []

    return Own(), Own.log


def of_base():
    cls, log = of_class()
    return type("Derived", (cls,), {})(), log


@pytest.mark.parametrize("fullgraph", [False, True])
@pytest.mark.parametrize("make", [of_class, of_instance, of_module, of_base])
def test_every_call_writes_to_what_a_class_holds(make, fullgraph, monkeypatch):
    monkeypatch.setitem(config, "smallest", 0)
    owner, log = make()

    def f(x):
        owner.log.append(x.shape[0])
        return long(x)

    compiled = ts.compile(f, fullgraph=fullgraph)
    for _ in range(CALLS):
        compiled(ts.ones(2, 3))
    assert log == [2] * CALLS


def test_what_a_class_holds_and_nothing_writes_to_is_no_reason_against_a_graph():
    class Own(ts.nn.Module):
        sizes, cache = [2, 3], {}

        def forward(self, x):
            return long(x) * self.sizes[0] * (1 if self.cache else 2)

    compiled = ts.compile(Own())
    for _ in range(3):
        compiled(ts.ones(2, 3))
    assert len(compiled._compiled.places) == 1 and not compiled._compiled.plain


def told_by(log, base):
    """A class whose objects note every time that Python of theirs runs."""

    def noted(name):
        def method(self, *args):
            log.append(name)
            return getattr(base, name)(self, *args)

        return method

    names = ("__iter__", "__len__", "__getitem__", "items", "keys", "values", "__getattribute__")
    return type("Own", (base,), {"factor": 2.0, **{name: noted(name) for name in names if hasattr(base, name)}})


HELD = {"dict": (dict, {"a": 1}), "list": (list, [1]), "tuple": (tuple, [1]), "set": (set, [1]), "object": (object,)}


@pytest.mark.parametrize("way", ["held", "given", "returned"])
@pytest.mark.parametrize("kind", HELD)
def test_no_more_is_asked_of_an_object_than_plain_python_asks(kind, way, monkeypatch):
    monkeypatch.setitem(config, "smallest", 0)
    found = []
    for compiled in (False, True):
        log = []
        base, *of = HELD[kind]
        held = told_by(log, base)(*of)
        functions = {
            "held": lambda x, *_, held=held: long(x) * held.factor,
            "given": lambda x, given: long(x) * given.factor,
            "returned": lambda x, *_, held=held: (long(x), held),
        }
        f = ts.compile(functions[way]) if compiled else functions[way]
        log.clear()
        for _ in range(CALLS):
            f(ts.ones(2, 3), *([held] if way == "given" else []))
        found.append([*log])
    assert found[0] == found[1]


def test_what_an_object_says_to_be_is_not_asked(monkeypatch):
    monkeypatch.setitem(config, "smallest", 0)

    class Unbound:
        factor = 2.0

        @property
        def __class__(self):
            raise RuntimeError("bound to nothing")

    held = Unbound()
    f = ts.compile(lambda x: long(x) * held.factor)
    for Unbound.factor in range(CALLS):
        assert ts.equal(f(ts.ones(2)), long(ts.ones(2)) * Unbound.factor)


class Missing(types.ModuleType):
    """A module that is loaded when it is used, and cannot be."""

    def __getattr__(self, name):
        raise ImportError(name)


class MissingType(type):
    def __getattribute__(cls, name):
        if name.startswith("_"):
            return super().__getattribute__(name)
        raise ImportError(name)


missing, MissingLayer, flag = Missing("missing"), MissingType("MissingLayer", (), {}), False


def test_what_is_missing_is_missed_where_plain_python_comes_to_it(monkeypatch):
    monkeypatch.setitem(config, "smallest", 0)

    def f(x):
        if flag:
            return missing.act(x)
        return MissingLayer.apply(x) if x.ndim == 3 else long(x)

    compiled = ts.compile(f)
    for _ in range(2):
        for _ in range(CALLS):
            assert ts.equal(compiled(ts.ones(2)), long(ts.ones(2)))
        with pytest.raises(ImportError, match="apply"):
            compiled(ts.ones(1, 1, 1))
        with monkeypatch.context() as patch, pytest.raises(ImportError, match="act"):
            patch.setitem(globals(), "flag", True)
            compiled(ts.ones(2))


def test_a_module_tells_each_call_what_it_does_not_hold():
    module, log = types.ModuleType("late"), []
    module.__getattr__ = lambda name: log.append(name) or 2.0
    compiled = ts.compile(lambda x: long(x) * module.factor)
    for _ in range(CALLS):
        compiled(ts.ones(2))
    assert log == ["factor"] * CALLS
