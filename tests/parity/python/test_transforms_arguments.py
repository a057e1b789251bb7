"""What transforms of functions take and refuse: the same in both libraries."""

from __future__ import annotations

import pytest
import tesserack
import torch

LIBS = [tesserack, torch]

pytestmark = pytest.mark.filterwarnings("ignore")  # of torch's own inner parts


def outcome(call):
    try:
        return call()
    except (RuntimeError, ValueError, TypeError) as error:
        return {kind.__name__ for kind in type(error).__mro__} & {"RuntimeError", "ValueError", "TypeError"}


def square(x):
    return (x**2).sum()


CASES = {
    "grad of no tensor": lambda lib, x: lib.func.grad(square)(3),
    "argnums text": lambda lib, x: lib.func.grad(square, argnums="a")(x),
    "argnums empty": lambda lib, x: lib.func.grad(square, argnums=())(x),
    "argnums twice": lambda lib, x: lib.func.grad(square, argnums=(0, 0))(x),
    "aux of no tensors": lambda lib, x: lib.func.grad(lambda y: (square(y), 3), has_aux=True)(x),
    "vjp of another structure": lambda lib, x: lib.func.vjp(lambda y: {"a": y}, x)[1]({"b": x}),
    "jvp of nothing": lambda lib, x: lib.func.jvp(lambda: x, (), ()),
    "jvp of another structure": lambda lib, x: lib.func.jvp(lib.sin, ((x,),), (x,)),
    "linearize, another dtype": lambda lib, x: lib.func.linearize(lib.sin, x)[1](x.double()),
    "linearize, another structure": lambda lib, x: lib.func.linearize(lib.sin, x)[1]((x,)),
    "in_dims of other keys": lambda lib, x: lib.vmap(lambda d: d["a"], in_dims=({"b": 0},))({"a": x}),
    "in_dims of a float": lambda lib, x: lib.vmap(lambda y: y, in_dims=0.5)(x),
    "in_dims in a list": lambda lib, x: lib.vmap(lambda y: y, in_dims=[0])(x),
    "in_dims of a tuple for a list": lambda lib, x: lib.vmap(lambda y: y[0], in_dims=((0,),))([x]),
    "out_dims of a tuple for a list": lambda lib, x: lib.vmap(lambda y: [y, y], out_dims=(0, 0))(x),
    "out_dims in a tuple for one": lambda lib, x: lib.vmap(lambda y: y.sin(), out_dims=(0,))(x).tolist(),
    "same draws, bernoulli": lambda lib, x: lib.vmap(lib.bernoulli, randomness="same")(x),
    "same draws, normal": lambda lib, x: lib.vmap(lambda y: lib.normal(y, 1.0), randomness="same")(x),
    "no entries": lambda lib, x: tuple(lib.vmap(lambda y: y * 2)(lib.ones(0, 3)).shape),
}


@pytest.mark.parametrize("name", CASES)
def test_arguments(name):
    ours, theirs = (outcome(lambda lib=lib: CASES[name](lib, lib.ones(3))) for lib in LIBS)
    assert ours == theirs or (isinstance(theirs, set) and isinstance(ours, set) and theirs <= ours)


def test_two_vmap_rules():
    def both(lib):
        class Own(lib.autograd.Function):
            generate_vmap_rule = True

            @staticmethod
            def forward(x):
                return x.sin()

            @staticmethod
            def setup_context(ctx, inputs, output):
                """Nothing is kept."""

            @staticmethod
            def vmap(info, in_dims, x):
                return x, 0

        return outcome(lambda: lib.vmap(Own.apply)(lib.ones(2)))

    assert both(torch) <= both(tesserack)


def test_graphs_of_nested_arguments():
    def both(lib):
        name = lib.__name__
        make_fx = __import__(f"{name}.fx.experimental.proxy_tensor", fromlist=["make_fx"]).make_fx
        x = lib.ones(2)
        graph = make_fx(lambda d, k: {"y": d["a"] + d["b"][0] * k})({"a": x * 2, "b": [x * 3]}, x * 4)
        starred = make_fx(lambda *given: given[0] + given[1])(x, x * 2)
        gradient = make_fx(lib.func.grad(lambda wide: wide.sin().sum()))(x)
        placeholders = [[n.target for n in g.graph.nodes if n.op == "placeholder"] for g in (graph, starred, gradient)]
        return graph({"a": x, "b": [x]}, x)["y"].tolist(), placeholders

    assert both(tesserack) == both(torch)
