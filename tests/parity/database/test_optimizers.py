"""Every optimizer of torch's own database of options: ten steps, the state and its file beside torch's, and the options
that it lists as wrong."""

from __future__ import annotations

import copy
import io
import warnings
from typing import Any

import numpy as np
import pytest
import tesserack as ts
from op_samples import DTYPES, mapped, numpy_of, torch

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torch.testing._internal.common_optimizers import OptimizerErrorEnum, optim_db

NAMES = [pytest.param(info, id=info.optim_cls.__name__) for info in optim_db]
DENSE = [param for param in NAMES if not param.values[0].only_supports_sparse_grads]


class Converted:
    """Arguments of torch's as ours; what is one tensor there is one here."""

    def __init__(self) -> None:
        self.made: dict[int, Any] = {}

    def __call__(self, value: Any) -> Any:
        return self.made.setdefault(id(value), converted(value)) if isinstance(value, torch.Tensor) else value


def converted(value: Any) -> Any:
    if isinstance(value, torch.nn.Parameter):
        return ts.nn.Parameter(ts.tensor(numpy_of(value), dtype=DTYPES[value.dtype]), value.requires_grad)
    if isinstance(value, torch.Tensor):
        made = ts.tensor(numpy_of(value.to_dense()), dtype=DTYPES[value.dtype]).requires_grad_(value.requires_grad)
        if value.is_leaf and value.grad is not None:
            made.grad = converted(value.grad)
        return made.to_sparse() if value.layout == torch.sparse_coo else made
    return value


def parameters(lib: Any, matrices: bool, dtype: str) -> list[Any]:
    values = [np.sin(np.arange(12.0)).reshape(3, 4), np.cos(np.arange(10.0)).reshape(5, 2)]
    values += [] if matrices else [np.linspace(-1, 1, 5), np.array(0.5)]
    return [lib.nn.Parameter(lib.tensor(v, dtype=getattr(lib, dtype))) for v in values]


def steps(lib: Any, optimizer: Any, params: list[Any], count: int) -> None:
    def closure() -> Any:
        optimizer.zero_grad()
        loss = sum(((p - 0.3 * k) ** 2).sum() + (p**4).sum() * 0.1 for k, p in enumerate(params))
        loss.backward()
        return loss

    for _ in range(count):
        optimizer.step(closure)


def flat_state(optimizer: Any) -> dict[str, Any]:
    """The numbers of a state by path."""
    found: dict[str, Any] = {}

    def walk(path: str, value: Any) -> None:
        if isinstance(value, dict):
            for key, item in value.items():
                walk(f"{path}.{key}", item)
        elif isinstance(value, (list, tuple)):
            for k, item in enumerate(value):
                walk(f"{path}[{k}]", item)
        elif isinstance(value, (torch.Tensor, ts.Tensor)):
            found[path] = numpy_of(value)
        elif not callable(value):
            found[path] = value

    walk("", optimizer.state_dict())
    return found


def same_state(ours: Any, theirs: Any) -> None:
    mine = flat_state(ours)
    expected = flat_state(theirs)
    assert sorted(mine) == sorted(expected)
    for key, value in expected.items():
        if isinstance(value, (np.ndarray, float)) and not isinstance(value, bool):
            np.testing.assert_allclose(mine[key], value, 1e-6, 1e-9, err_msg=key)
        else:
            assert mine[key] == value, key


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("info", DENSE)
def test_options(info: Any) -> None:
    name = info.optim_cls.__name__
    for given in info.optim_inputs_func(device="cpu"):
        for flags in ({}, *({flag: True} for flag in info.supported_impls if flag in ("foreach", "differentiable"))):
            if "differentiable" in flags and (name == "LBFGS" or isinstance(given.kwargs.get("lr"), torch.Tensor)):
                continue
            theirs_of, ours_of = (parameters(lib, name == "Muon", "float64") for lib in (torch, ts))
            kwargs = {**given.kwargs, **flags}
            if "differentiable" in flags:
                theirs_of, ours_of = ([p.clone() for p in found] for found in (theirs_of, ours_of))
                for p in [*theirs_of, *ours_of]:
                    p.retain_grad()
            theirs = info.optim_cls(theirs_of, **kwargs)
            ours = getattr(ts.optim, name)(ours_of, **mapped(kwargs, converted))
            if "differentiable" in flags:
                for lib, optimizer, found in ((torch, theirs, theirs_of), (ts, ours, ours_of)):
                    for p in found:
                        p.grad = lib.ones_like(p) * 0.1
                    optimizer.step()
            else:
                steps(torch, theirs, theirs_of, 10)
                steps(ts, ours, ours_of, 10)
            for got, wanted in zip(ours_of, theirs_of, strict=True):
                close = 1e-2 if name == "Muon" else 1e-6  # whose directions are rounded to bfloat16
                np.testing.assert_allclose(
                    numpy_of(got), numpy_of(wanted), close, close / 10, err_msg=f"{given.desc} {flags}"
                )
            if "differentiable" not in flags:
                if name != "Muon":
                    same_state(ours, theirs)
                    take_over(name, theirs, theirs_of, given)
                resume(name, ours, ours_of, given)


def take_over(name: str, theirs: Any, theirs_of: list[Any], given: Any) -> None:
    """From torch's state, ours goes on as torch does."""
    params = [converted(p) for p in theirs_of]
    ours = getattr(ts.optim, name)(params, **mapped(given.kwargs, converted))
    ours.load_state_dict(mapped(copy.deepcopy(theirs.state_dict()), converted))
    steps(ts, ours, params, 2)
    steps(torch, theirs, theirs_of, 2)
    for got, wanted in zip(params, theirs_of, strict=True):
        np.testing.assert_allclose(numpy_of(got), numpy_of(wanted), 1e-6, 1e-8, err_msg=given.desc)


def resume(name: str, ours: Any, params: list[Any], given: Any) -> None:
    """From a file of its state, a new optimizer goes on as the old one."""
    file = io.BytesIO()
    ts.save(ours.state_dict(), file)
    file.seek(0)
    again_of = [p.detach().clone().requires_grad_() for p in params]
    again = getattr(ts.optim, name)(again_of, **mapped(given.kwargs, converted))
    again.load_state_dict(ts.load(file))
    copied_of = [p.detach().clone().requires_grad_() for p in params]
    copied = getattr(ts.optim, name)(copied_of, **mapped(given.kwargs, converted))
    copied.load_state_dict(copy.deepcopy(ours.state_dict()))
    for optimizer, found in ((ours, params), (again, again_of), (copied, copied_of)):
        steps(ts, optimizer, found, 2)
    for a, b, c in zip(params, again_of, copied_of, strict=True):
        np.testing.assert_array_equal(numpy_of(a), numpy_of(b))
        np.testing.assert_array_equal(numpy_of(a), numpy_of(c))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("info", NAMES)
def test_wrong_options(info: Any) -> None:
    """Refused by the class of error that torch raises."""
    for case in info.optim_error_inputs_func(device="cpu", dtype=torch.float32):
        given = case.optimizer_error_input
        ours = mapped((given.params, given.kwargs), Converted())
        if given.params is None:
            ours = parameters(ts, True, "float32"), ours[1]
        made: Any = getattr(ts.optim, info.optim_cls.__name__)
        if case.error_on == OptimizerErrorEnum.CONSTRUCTION_ERROR:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                with pytest.raises(case.error_type):
                    made(ours[0], **ours[1])
            continue
        optimizer = made(ours[0], **ours[1])
        with pytest.raises(case.error_type):
            optimizer.step()
