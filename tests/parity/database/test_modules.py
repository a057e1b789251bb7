"""Every module of torch's own database of samples, beside torch's: text, state, outputs, gradients of the first and
second order, training and evaluation, contiguous and strided inputs, copies and pickles, and the errors it lists.

A part of the modules is run, another one with every seed; FULL=1 runs all. ``modules_differences.txt`` lists what
differs, with a reason.
"""

from __future__ import annotations

import copy
import pickle
import warnings
from typing import Any

import numpy as np
import pytest
import tesserack as ts
from op_samples import DTYPES, Unsupported, differences, flat, judge, mapped, numpy_of, torch, weighed
from tesserack.testing.seeds import turn

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torch.testing._internal.common_modules import ModuleErrorEnum, module_db

SHARE = 3  # one module in three a run
KNOWN = differences("modules_differences.txt")


def class_of(info: Any) -> Any:
    return getattr(ts.nn, info.module_cls.__name__)


class Inputs:
    """Arguments for torch and for us, with the tensors of which gradients are asked."""

    def __init__(self, given: Any, strided: bool) -> None:
        self.theirs_leaves: list[Any] = []
        self.ours_leaves: list[Any] = []
        pairs: dict[int, Any] = {}

        def beside(value: Any) -> Any:
            if not isinstance(value, torch.Tensor):
                return value
            wide = value.detach().clone()
            if strided and value.ndim:
                wide = wide.repeat_interleave(2, -1)[..., ::2]
            wide = wide.requires_grad_(value.requires_grad)
            ours = ts.tensor(numpy_of(value.detach()), dtype=DTYPES[value.dtype])
            if strided and value.ndim:
                ours = ours.repeat_interleave(2, -1)[..., ::2]
            ours = ours.requires_grad_(value.requires_grad)
            if value.requires_grad:
                self.theirs_leaves.append(wide)
                self.ours_leaves.append(ours)
            pairs[id(wide)] = ours
            return wide

        self.theirs = mapped((given.args, given.kwargs), beside)
        self.ours = mapped(self.theirs, lambda value: pairs.get(id(value), converted(value)))


def converted(value: Any) -> Any:
    """An argument of torch's as one of ours."""
    if isinstance(value, torch.nn.utils.rnn.PackedSequence):
        raise Unsupported("packed")
    if isinstance(value, torch.Tensor):
        return ts.tensor(numpy_of(value), dtype=DTYPES[value.dtype]).requires_grad_(value.requires_grad)
    if isinstance(value, torch.dtype):
        return DTYPES[value]
    if isinstance(value, torch.nn.Module):
        return rebuilt(value)
    if isinstance(value, torch.nn.LinearCrossEntropyOptions):
        return ts.nn.LinearCrossEntropyOptions(value.allow_retain_graph, value.batch_chunk_size, value.chunking_method)
    if callable(value):
        name = getattr(value, "__name__", "")
        return getattr(ts.nn.functional, name, None) or getattr(ts, name, None) or value
    return value


def rebuilt(module: Any) -> Any:
    """A module of ours made as torch's was, with its weights."""
    if isinstance(module, torch.nn.TransformerEncoderLayer):
        attention, drop = module.self_attn, module.dropout.p
        sizes = attention.embed_dim, attention.num_heads, module.linear1.out_features, drop
        activation = "gelu" if module.activation_relu_or_gelu == 2 else "relu"
        bias = attention.in_proj_bias is not None
        options = {"batch_first": attention.batch_first, "norm_first": module.norm_first, "bias": bias}
        made = ts.nn.TransformerEncoderLayer(*sizes, activation, **options).double()
        carry_state(made, module.double())
        return made
    return getattr(ts.nn, type(module).__name__)()


def same(ours: Any, theirs: Any, what: str) -> None:
    mine, expected = flat(ours), flat(theirs)
    assert len(mine) == len(expected), f"{what}: {len(mine)} tensors, torch has {len(expected)}"
    for got, wanted in zip(mine, expected, strict=True):
        if wanted is None or not isinstance(wanted, torch.Tensor):
            assert got == wanted, what
            continue
        assert got.dtype is DTYPES[wanted.dtype], f"{what}: {got.dtype}, torch has {wanted.dtype}"
        assert tuple(got.shape) == tuple(wanted.shape), what
        np.testing.assert_allclose(numpy_of(got), numpy_of(wanted), 1e-6, 1e-7, err_msg=what)


def gradients(lib: Any, outputs: Any, leaves: list[Any], second: bool) -> list[Any]:
    """First gradients, then those of their squares' sum."""
    tracked = [out for out in flat(outputs) if isinstance(out, lib.Tensor) and out.requires_grad]
    if not tracked or not leaves:
        return []
    total = sum(weighed(out, lib) for out in tracked)
    first = lib.autograd.grad(total, leaves, allow_unused=True, create_graph=second)
    found = [lib.zeros_like(leaf) if g is None else g for g, leaf in zip(first, leaves, strict=True)]
    if second:
        squares = sum((g * g).sum() for g in found)
        again = lib.autograd.grad(squares, leaves, allow_unused=True) if squares.requires_grad else [None] * len(leaves)
        found += [lib.zeros_like(leaf) if g is None else g for g, leaf in zip(again, leaves, strict=True)]
    return [g.detach() for g in found]


def carry_state(ours: Any, theirs: Any) -> None:
    state = {key: ts.tensor(numpy_of(value), dtype=DTYPES[value.dtype]) for key, value in theirs.state_dict().items()}
    assert list(ours.state_dict()) == list(state)
    ours.load_state_dict(state)


def call(module: Any, arguments: Any, seed: Any) -> Any:
    seed.manual_seed(3)
    return module(*arguments[0], **arguments[1])


def compare(info: Any, given: Any, training: bool, strided: bool) -> None:
    args, kwargs = given.constructor_input.args, given.constructor_input.kwargs
    torch.manual_seed(1)
    theirs = info.module_cls(*args, **kwargs).double()
    ours = class_of(info)(*mapped(args, converted), **mapped(kwargs, converted)).double()
    first = Inputs(given.forward_input, strided)
    if info.is_lazy:
        theirs(*first.theirs[0], **first.theirs[1]), ours(*first.ours[0], **first.ours[1])
    assert repr(ours) == repr(theirs)
    carry_state(ours, theirs)
    theirs.train(training), ours.train(training)
    inputs = Inputs(given.forward_input, strided)
    expected = call(theirs, inputs.theirs, torch)
    got = call(ours, inputs.ours, ts)
    what = f"{args} {kwargs} {given.desc} training={training} strided={strided}"
    same(mapped(got, lambda x: x), mapped(expected, lambda x: x), what)
    leaves_of = [list(m.parameters()) for m in (ours, theirs)]
    second = info.supports_gradgrad
    try:
        wanted = gradients(torch, expected, inputs.theirs_leaves + leaves_of[1], second)
    except RuntimeError:
        return  # torch has none
    same(gradients(ts, got, inputs.ours_leaves + leaves_of[0], second), wanted, f"gradients: {what}")
    same(list(ours.state_dict().values()), list(theirs.state_dict().values()), f"state: {what}")
    ours.eval(), theirs.eval()
    settled = call(theirs, inputs.theirs, torch)
    for again in (copy.deepcopy(ours), pickle.loads(pickle.dumps(ours))):
        same(call(again, inputs.ours, ts), settled, f"copy: {what}")


def run(info: Any) -> None:
    modes = [True, False] if info.train_and_eval_differ else [True]
    compared = 0
    for training in modes:
        torch.manual_seed(0)
        for given in info.module_inputs_func(
            info, device="cpu", dtype=torch.float64, requires_grad=True, training=training
        ):
            for strided in (False, True):
                try:
                    compare(info, given, training, strided)
                except Unsupported:
                    continue
                compared += 1
    assert compared, "no sample was compared"


def run_errors(info: Any) -> None:
    """What torch refuses is refused, by the same class of error."""
    for case in info.module_error_inputs_func(
        info, device="cpu", dtype=torch.float64, requires_grad=False, training=False
    ):
        given = case.module_error_input
        args = mapped(given.constructor_input.args, converted)
        kwargs = mapped(given.constructor_input.kwargs, converted)
        if case.error_on == ModuleErrorEnum.CONSTRUCTION_ERROR:
            with pytest.raises(case.error_type):
                class_of(info)(*args, **kwargs)
            continue
        ours = class_of(info)(*args, **kwargs)
        inputs = Inputs(given.forward_input, strided=False)
        with pytest.raises(case.error_type):
            ours(*inputs.ours[0], **inputs.ours[1])


MODULES = [info for info in module_db if info.module_cls.__module__.startswith("torch.nn.")]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("info", [pytest.param(info, id=info.name) for info in turn(MODULES, SHARE)])
def test_module(info: Any) -> None:
    judge(KNOWN, info.name, info.name, lambda: run(info))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "info", [pytest.param(info, id=info.name) for info in MODULES if info.module_error_inputs_func is not None]
)
def test_errors(info: Any) -> None:
    judge(KNOWN, f"errors of {info.name}", "", lambda: run_errors(info))


def test_every_line_names_a_case() -> None:
    assert not KNOWN.keys() - {name for info in MODULES for name in (info.name, f"errors of {info.name}")}
