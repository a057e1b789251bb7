"""Types by sizes, some of them unknown: checked, refined and related as PyTorch does it."""

from __future__ import annotations

import importlib

import pytest
from both_libraries import both


def tools(lib):
    name = f"{lib.__name__}.fx."
    types = importlib.import_module(f"{name}tensor_type")
    checker = importlib.import_module(f"{name}experimental.graph_gradual_typechecker")
    return types.TensorType, types.Dyn, checker


def shown(kind):
    """A type as nested tuples of texts."""
    if hasattr(kind, "__args__") and not isinstance(kind, type):
        return tuple(shown(size) for size in kind.__args__)
    if isinstance(kind, (list, tuple)):
        return [shown(item) for item in kind]
    return "Dyn" if "Dyn" in type(kind).__name__ else getattr(kind, "__name__", str(kind))


def types_of(traced):
    return [(node.name, shown(node.type)) for node in traced.graph.nodes]


def typed(lib, fx, program, *kinds, steps=()):
    """A traced program whose placeholders, and steps by name, have types."""
    traced = fx.symbolic_trace(program)
    placeholders = [node for node in traced.graph.nodes if node.op == "placeholder"]
    for node, kind in zip(placeholders, kinds, strict=True):
        node.type = kind
    for node in traced.graph.nodes:
        node.type = dict(steps).get(node.name, node.type)
    return traced


FUNCTIONS = {
    "broadcast": (lambda lib: lambda x, y: lib.add(x, y), ((1, 2, 3, None), (2, 3, 4))),
    "refused sizes": (lambda lib: lambda x, y: lib.add(x, y), ((1, 2, 3, None), (1, 2, 3))),
    "unknown size": (lambda lib: lambda x, y: x + y, ((1, 2, None), (1, 2, 3))),
    "number": (lambda lib: lambda x, y: lib.add(x, y), (int, (2, 3, 4))),
    "reshape": (lambda lib: lambda x: lib.reshape(x, [1, 2, 3]), ((1, 6),)),
    "reshape refused": (lambda lib: lambda x: lib.reshape(x, [1, 2, -1]), ((1, 5),)),
    "reshape, one size left": (lambda lib: lambda x: lib.reshape(x, [1, 5, -1]), ((1, 15),)),
    "transpose": (lambda lib: lambda x: lib.transpose(x, 0, 1), ((1, 2, 3, 5),)),
    "transpose refused": (lambda lib: lambda x: lib.transpose(x, 0, 10), ((1, 2, 3, 5),)),
    "flatten": (lambda lib: lambda x: lib.flatten(x, 1, 2), ((1, 2, 3, 5, None),)),
    "flatten unknown": (lambda lib: lambda x: lib.flatten(x, 1, 2), ((1, None, 3, 5, None),)),
    "flatten nothing known": (lambda lib: lambda x: lib.flatten(x, 1), (None,)),
    "no rule": (lambda lib: lambda x: lib.sin(x), ((1,),)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name):
    make, given = FUNCTIONS[name]

    def body(lib, fx):
        TensorType, Dyn, checker = tools(lib)
        kinds = [Dyn if k is None else k if isinstance(k, type) else
                 TensorType(tuple(Dyn if size is None else size for size in k)) for k in given]  # fmt: skip
        traced = typed(lib, fx, make(lib), *kinds)
        try:
            checker.GraphTypeChecker({}, traced).type_check()
        except (TypeError, RuntimeError) as error:
            return type(error).__name__
        return types_of(traced), [node.meta.get("broadcast") for node in traced.graph.nodes]

    both(body)()


def layers(lib, *made):
    return lib.nn.Sequential(*made)


@both
def test_layers(lib, fx):
    TensorType, Dyn, checker = tools(lib)
    nn = lib.nn
    image = layers(lib, nn.Conv2d(3, 6, 5), nn.MaxPool2d(2, 2), nn.Conv2d(6, 16, 5), nn.MaxPool2d(2, 2), nn.ReLU(),
                   nn.Linear(5, 120), nn.BatchNorm2d(16), nn.AdaptiveAvgPool2d((6, 7)))  # fmt: skip
    found = []
    for kind in (
        TensorType((4, 3, 32, 32)),
        TensorType((4, 3, Dyn, 32)),
        Dyn,
        TensorType((4, 2, 32, 32)),
        TensorType((1,)),
    ):
        traced = typed(lib, fx, image, kind)
        try:
            checker.GraphTypeChecker({}, traced).type_check()
        except TypeError:
            found.append("refused")
        else:
            found.append(types_of(traced))
    return found


@both
def test_types_between(lib, fx):
    TensorType, Dyn, checker = tools(lib)
    conv = layers(lib, lib.nn.Conv2d(2, 2, 1, padding=1, bias=False))
    pool = layers(lib, lib.nn.MaxPool2d(3, stride=1, padding=1, dilation=2))
    found = []
    for module, kind, inner in (
        (conv, Dyn, (1, Dyn, Dyn, 7)),
        (pool, TensorType((Dyn, Dyn, Dyn, 10)), (2, Dyn, Dyn, Dyn)),
        (pool, TensorType((64, 8, 8)), (64, Dyn, Dyn)),
    ):
        traced = typed(lib, fx, module, kind, steps={"_0": TensorType(inner)})
        checker.GraphTypeChecker({}, traced).type_check()
        found.append(types_of(traced))
    return found


@both
def test_broadcast_types_and_consistency(lib, fx):
    TensorType, Dyn, checker = tools(lib)
    pairs = [
        ((1, 2, 3, 4), (1, 2, 1, 4)),
        ((), (4, 1)),
        ((4, 4, 4), (1,)),
        ((2, 3, 4), (1, 2, 1, 4)),
        ((1, 3, Dyn), (3, 4)),
    ]
    return [shown(checker.broadcast_types(TensorType(a), TensorType(b))) for a, b in pairs]


@both
def test_sizes_become_symbols(lib, fx):
    pytest.importorskip("sympy")
    TensorType, Dyn, checker = tools(lib)
    infer = importlib.import_module(f"{lib.__name__}.fx.experimental.unify_refinements").infer_symbolic_types
    nn = lib.nn
    found = []
    image = layers(lib, nn.Conv2d(3, 6, 5), nn.MaxPool2d(2, 2), nn.Conv2d(6, 16, 5), nn.BatchNorm2d(16), nn.ReLU())
    for program, kinds in (
        (lambda x, y: lib.add(x, y), [TensorType((1, 2, 3, Dyn)), TensorType((2, 3, 4))]),
        (lambda x, y: lib.add(x, y), [TensorType((1, 2)), TensorType((Dyn, 2))]),
        (lambda x: lib.flatten(x, 1), [TensorType((Dyn, 3, 4))]),
        (image, [TensorType((4, 3, Dyn, Dyn))]),
        (image, [Dyn]),
    ):
        traced = typed(lib, fx, program, *kinds)
        checker.GraphTypeChecker({}, traced).type_check()
        infer(traced)
        refined = checker.Refine(traced)
        refined.refine()
        found.append((types_of(traced), [str(c) for c in refined.constraints]))
    return found


def test_unification():
    from tesserack.fx.experimental.refinement_types import Equality
    from tesserack.fx.experimental.unification import Var, reify, unify, var
    from tesserack.fx.experimental.unify_refinements import unify_eq

    x, y = var("x"), var("y")
    known = unify({"a": (x, 2), "b": [y]}, {"a": (y, 2), "b": [5]})
    assert reify([x, y, {"z": x}], known) == [5, 5, {"z": 5}] and Var("x") is x
    assert unify((1, x), (2, 3)) is False and unify(x, x) == {}
    with pytest.raises(TypeError):
        unify_eq([Equality(x, 1), Equality(x, 2)])
