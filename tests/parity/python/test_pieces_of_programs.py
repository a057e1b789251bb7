"""What PyTorch's own suites ask of layouts, warnings, containers and loaders, as one program for both."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable
from typing import Any

import pytest


def _error(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except Exception as error:
        return next(k.__name__ for k in type(error).__mro__ if k.__module__ == "builtins")


def _warned(call: Callable[[], Any]) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    return sorted({w.category.__name__ for w in caught})


def layouts_of_what_has_gaps(m: Any) -> Any:
    x = m.arange(80.0).reshape(10, 8).t()[::2, ::2]
    wide = m.arange(192.0).reshape(4, 6, 8).permute(2, 0, 1)[::2]
    made = [x.clone(), x.double(), m.zeros_like(x), m.rand_like(x), x.sort(0).values, wide.clone(), m.empty_like(wide)]
    made += [m.empty_like(m.ones(3).expand(2, 3)), m.empty_like(m.ones(4, 1)[::2].expand(2, 3)), x.to(m.int32)]
    return [(tuple(t.shape), tuple(t.stride())) for t in made] + [x.clone(), wide.clone()]


def errors_of_indices(m: Any) -> Any:
    x, two = m.zeros(3, 4), m.tensor([0, 1])
    calls = [
        lambda: x.index_copy(1, two, m.ones(3, 3)),
        lambda: x.index_add(1, two, m.ones(3, 3)),
        lambda: x.put(two, m.ones(1)),
        lambda: m.nn.functional.one_hot(two, 0),
        lambda: m.nn.functional.embedding(two, x, padding_idx=7),
        lambda: m.nn.Embedding(3, 2, padding_idx=5),
        lambda: m.nn.Embedding.from_pretrained(m.ones(3)),
        lambda: m.stft(m.ones(20), 8, hop_length=0, window=m.ones(8), return_complex=True),
    ]
    pooled, at = m.nn.functional.max_pool2d(m.ones(1, 1, 4, 4), 2, return_indices=True)
    return [_error(c) for c in calls] + [
        _error(lambda: m.nn.functional.max_unpool2d(pooled, at, 2, output_size=(4,) * 3))
    ]


def too_few_numbers(m: Any) -> Any:
    one, two = m.ones(1), m.ones(2, 3)
    calls = [one.var, one.std, lambda: two.var(0, correction=2), lambda: m.var_mean(one), lambda: two.std(1)]
    return [
        _warned(call) for call in (*calls, lambda: m.cov(m.ones(2, 1)), lambda: m.cov(two), lambda: m.corrcoef(one))
    ]


def unset_memory_when_runs_are_to_agree(m: Any) -> Any:
    dtypes = (m.float32, m.float16, m.complex64, m.int32, m.int64, m.int8, m.uint8, m.bool)
    m.use_deterministic_algorithms(True)
    try:
        made = [m.empty(3, dtype=d) for d in dtypes] + [m.empty_strided((2, 2), (1, 2)), m.empty_like(m.ones(2))]
        return [*made, m.ones(1).new_empty(2), m.empty_permuted((2, 3), (1, 0))]
    finally:
        m.use_deterministic_algorithms(False)


def complex_lines(m: Any) -> Any:
    made = [
        m.linspace(0, 1j, 3),
        m.linspace(1 - 1j, 2 + 3j, 5, dtype=m.complex128),
        m.view_as_real(m.logspace(0, 1j, 3)).mul(1e3).round(),
    ]
    return [*made, _error(lambda: m.linspace(0, 1j, 3, dtype=m.float32))]


def dropout_of_few_dims(m: Any) -> Any:
    functional = m.nn.functional
    rows = functional.dropout2d(m.ones(40, 50, 3), 0.5)
    whole = [bool((rows == rows[..., :1]).all()), bool((rows.amax((1, 2)) == rows.amin((1, 2))).all())]
    kept = [functional.dropout2d(m.ones(2, 3), 0.0), functional.dropout3d(m.ones(2, 3), 0.0)]
    warned = [
        _warned(lambda shape=shape: functional.dropout2d(m.ones(*shape))) for shape in ((2, 3), (2, 3, 4), (1, 2, 3, 4))
    ]
    return [whole, kept, warned, _error(lambda: functional.dropout1d(m.ones(3)))]


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
    return [*(_error(e) for e in errors), shown, keys, list(nn.Linear(1, 1).state_dict({}, "p."))]


def lazy_layers_travel(m: Any) -> Any:
    layer = m.nn.LazyLinear(3)
    again = pickle.loads(pickle.dumps(layer))
    return [tuple(again(m.ones(1, 2)).shape), type(again).__name__, type(layer).__name__, _error(layer.share_memory)]


def hooks_warn(m: Any) -> Any:
    layer = m.nn.Linear(2, 2)
    layer.register_full_backward_hook(lambda *given: None)
    seen = _warned(lambda: layer(m.ones(1, 2)).sum().backward())
    return [seen, _warned(lambda: layer(m.ones(1, 2, requires_grad=True)).sum().backward())]


def loaders_are_settled(m: Any) -> Any:
    data = m.utils.data
    loader = data.DataLoader([1, 2], batch_size=2)
    names = ("batch_size", "sampler", "batch_sampler", "drop_last", "dataset", "multiprocessing_context")
    errors = [_error(lambda name=name: setattr(loader, name, "spawn")) for name in names]
    errors += [_error(lambda: data.ConcatDataset([])), _error(lambda: data.ConcatDataset([[1], [2]])[-5])]
    return [*errors, list(loader), _warned(lambda: data.random_split(range(1), [0.5, 0.5]))]


def schedules(m: Any) -> Any:
    optimizer = m.optim.SGD([m.ones(1, requires_grad=True)], lr=1.0)
    kinds = m.optim.lr_scheduler
    chained = _error(lambda: kinds.ChainedScheduler([kinds.ReduceLROnPlateau(optimizer)]))
    step = kinds.StepLR(optimizer, 1)
    optimizer.step()
    within = kinds.CosineAnnealingWarmRestarts(m.optim.SGD([m.ones(1, requires_grad=True)], lr=1.0), 3)
    return [chained, _warned(lambda: step.step(3)), _warned(lambda: within.step(1.5)), within.get_last_lr()]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "program",
    [
        layouts_of_what_has_gaps,
        errors_of_indices,
        too_few_numbers,
        unset_memory_when_runs_are_to_agree,
        complex_lines,
        dropout_of_few_dims,
        containers,
        lazy_layers_travel,
        hooks_warn,
        loaders_are_settled,
        schedules,
    ],
)
def test_pieces(compare_program: Callable[..., None], program: Callable[[Any], Any]) -> None:
    compare_program(program)
