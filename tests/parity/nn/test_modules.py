"""Modules as programs use them: containers, state, hooks, lazy layers, members that are computed.

Each is one program for both libraries.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest
from outcomes import builtin_error_of, error_of, warned


def containers(m: Any) -> Any:
    nn = m.nn
    lists, named = nn.ParameterList([m.ones(2)]), nn.ParameterDict({"a": m.ones(2)})
    errors = [
        lambda: nn.Sequential() + nn.ReLU(),
        lambda: nn.Sequential().insert(0, 3),
        lambda: nn.ModuleDict().update([1]),
    ]
    errors += [lambda: lists(1), lambda: named[1], lambda: nn.Sequential().set_submodule("5", nn.ReLU(), strict=True)]
    both = named | nn.ParameterDict({"z": m.ones(1)})
    named |= nn.ParameterDict({"c": m.ones(3)})
    shown = [repr(x).replace("tesserack", "torch") for x in (lists, named)]
    keys = [list(both.keys()), list(named.keys()), list(named.fromkeys(["x", "y"]).keys())]
    return [*(builtin_error_of(e) for e in errors), shown, keys, list(nn.Linear(1, 1).state_dict({}, "p."))]


def state_dicts(m: Any) -> Any:
    nn, seen = m.nn, []
    layer = nn.BatchNorm1d(2)
    layer.register_load_state_dict_pre_hook(lambda module, state, prefix, meta, *rest: seen.append(dict(meta)))
    state = layer.state_dict()
    state["num_batches_tracked"] = m.tensor([7])
    layer.load_state_dict(state)
    given = nn.Parameter(m.ones(2), requires_grad=False)
    layer.load_state_dict({**layer.state_dict(), "weight": given}, assign=True)
    layer.register_load_state_dict_post_hook(lambda module, keys: 1)
    failed = error_of(lambda: layer.load_state_dict(layer.state_dict()))
    kept = [layer.num_batches_tracked, layer.weight is given, given.requires_grad]
    return [
        seen,
        failed,
        *kept,
        error_of(lambda: nn.ParameterDict()(1)),
        layer.type("torch.DoubleTensor").weight.dtype.itemsize,
    ]


def lazy_layers_travel(m: Any) -> Any:
    layer = m.nn.LazyLinear(3)
    again = pickle.loads(pickle.dumps(layer))
    return [
        tuple(again(m.ones(1, 2)).shape),
        type(again).__name__,
        type(layer).__name__,
        builtin_error_of(layer.share_memory),
    ]


def hooks_warn(m: Any) -> Any:
    layer = m.nn.Linear(2, 2)
    layer.register_full_backward_hook(lambda *given: None)
    seen = warned(lambda: layer(m.ones(1, 2)).sum().backward())
    return [seen, warned(lambda: layer(m.ones(1, 2, requires_grad=True)).sum().backward())]


def members_that_getattr_answers(m: Any) -> Any:
    class Halves(m.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = m.nn.Parameter(m.ones(3))
            self.register_buffer("seen", m.full((2,), 4.0))
            self.inner = m.nn.Identity()
            self.plain = 5

        def __getattr__(self, name: str) -> Any:
            value = super().__getattr__(name)
            return value / 2 if m.is_tensor(value) else value

    net = Halves()
    net.seen = m.full((2,), 8.0)
    net.plain = 6
    before = [net.weight, net.seen, net.plain, sorted(net.state_dict()), net.state_dict()["seen"]]
    net.weight = None
    try:
        net.inner = 3
    except TypeError:
        before.append("refused")
    del net.inner
    return [*before, net.weight is None, hasattr(net, "inner"), [k for k, _ in net.named_parameters()]]


def dropout_of_few_dims(m: Any) -> Any:
    functional = m.nn.functional
    rows = functional.dropout2d(m.ones(40, 50, 3), 0.5)
    whole = [bool((rows == rows[..., :1]).all()), bool((rows.amax((1, 2)) == rows.amin((1, 2))).all())]
    kept = [functional.dropout2d(m.ones(2, 3), 0.0), functional.dropout3d(m.ones(2, 3), 0.0)]
    seen = [
        warned(lambda shape=shape: functional.dropout2d(m.ones(*shape))) for shape in ((2, 3), (2, 3, 4), (1, 2, 3, 4))
    ]
    return [whole, kept, seen, builtin_error_of(lambda: functional.dropout1d(m.ones(3)))]


def bags_of_given_embeddings(m: Any) -> Any:
    table = m.arange(12.0).reshape(6, 2)
    bags = m.nn.EmbeddingBag.from_pretrained(table, mode="sum", padding_idx=1)
    free = m.nn.EmbeddingBag.from_pretrained(table, freeze=False, max_norm=2.0)
    parts = [bags.weight.requires_grad, free.weight.requires_grad, bags.padding_idx, free.mode, free.max_norm]
    return [bags(m.tensor([[0, 1], [2, 5]])), *parts, free.weight.shape]


PROGRAMS = [
    containers,
    state_dicts,
    lazy_layers_travel,
    hooks_warn,
    members_that_getattr_answers,
    dropout_of_few_dims,
    bags_of_given_embeddings,
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_program(compare_program: Callable[..., None], program: Callable[[Any], Any]) -> None:
    compare_program(program)
