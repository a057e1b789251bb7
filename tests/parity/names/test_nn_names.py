"""Every public name of the training library is there, with torch's arguments, or listed with a reason."""

from __future__ import annotations

import importlib
import inspect
import types
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

MODULES = [
    "nn",
    "nn.functional",
    "nn.init",
    "nn.parameter",
    "nn.utils",
    "nn.utils.rnn",
    "nn.utils.parametrize",
    "nn.utils.parametrizations",
    "nn.utils.prune",
    "nn.utils.fusion",
    "nn.utils.stateless",
    "nn.attention",
    "nn.attention.bias",
    "nn.grad",
    "nn.modules.module",
    "nn.parallel",
    "optim",
    "optim.lr_scheduler",
    "optim.optimizer",
    "optim.swa_utils",
    "utils.data",
    "utils.data.datapipes.iter",
    "utils.data.datapipes.map",
    "utils.data.graph",
    "utils.data.graph_settings",
    "utils.data.distributed",
    "utils.data.sampler",
    "utils.checkpoint",
    "utils.hooks",
    "amp",
    "amp.autocast_mode",
    "amp.grad_scaler",
    "autograd",
    "autograd.anomaly_mode",
    "autograd.forward_ad",
    "autograd.function",
    "autograd.functional",
    "autograd.gradcheck",
    "autograd.grad_mode",
    "autograd.graph",
    "autograd.profiler",
    "multiprocessing",
    "multiprocessing.spawn",
]
REASONS = dict(
    line.split(": ", 1)
    for line in Path(__file__).with_name("nn_names.txt").read_text().splitlines()
    if line and not line.startswith("#")
)


def defined_here(module: Any, name: str) -> bool:
    """Whether a name belongs to the module, and is not something it imports for its own use."""
    value = getattr(module, name)
    if isinstance(value, types.ModuleType):
        return value.__name__.startswith(module.__name__ + ".")
    home = getattr(value, "__module__", None) or ""
    top = module.__name__.split(".")[:2]  # torch.nn of torch.nn.functional
    if top == ["torch", "nn"]:
        return home.startswith(("torch.nn", "torch._C._nn", "torch._VF")) or inspect.isbuiltin(value)
    return home.startswith(".".join(top)) or inspect.isbuiltin(value)


def names_of(path: str) -> list[str]:
    module = importlib.import_module(f"torch.{path}")
    if path == "nn.functional":
        listed: Any = [n for n in vars(module) if not n.startswith("_") and callable(getattr(module, n))]
        listed = [n for n in listed if "boolean_dispatch" in str(getattr(module, n)) or defined_here(module, n)]
    else:
        listed = getattr(module, "__all__", None) or [n for n in vars(module) if not n.startswith("_")]
    declared = hasattr(module, "__all__") and not path.startswith(("nn", "optim"))
    return sorted(n for n in listed if hasattr(module, n) and (declared or defined_here(module, n)))


@pytest.mark.parametrize("path", MODULES)
def test_names(path: str) -> None:
    ours = importlib.import_module(f"tesserack.{path}")
    missing = {name for name in names_of(path) if not hasattr(ours, name)}
    if hasattr(ours, "__path__"):  # modules that nobody has imported yet
        missing = {name for name in missing if not find_spec(f"tesserack.{path}.{name}")}
    assert missing == {name.removeprefix(path + ".") for name in REASONS if name.rpartition(".")[0] == path} & set(
        names_of(path)
    )


def test_nearly_everything_is_there() -> None:
    every = [f"{path}.{name}" for path in MODULES for name in names_of(path)]
    every = [name for name in every if not REASONS.get(name, "").startswith("not dense")]
    assert len([name for name in every if name not in REASONS]) >= 0.97 * len(every)


def parameters(function: Any) -> list[str] | None:
    """Argument names; None where Python cannot tell or anything goes."""
    try:
        found = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    if any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in found):
        return None
    return [p.name for p in found]


@pytest.mark.parametrize("path", MODULES)
def test_arguments(path: str) -> None:
    """Names and order of the arguments that torch's have; ours may take more."""
    theirs, ours = importlib.import_module(f"torch.{path}"), importlib.import_module(f"tesserack.{path}")
    different = []
    for name in names_of(path):
        a, b = getattr(theirs, name), getattr(ours, name, None)
        if b is None or isinstance(a, types.ModuleType) or f"{path}.{name}()" in REASONS:
            continue
        expected, got = parameters(a), parameters(b)
        if expected is not None and got is not None and not is_within(expected, got):
            different.append((name, expected, got))
    assert not different


def is_within(expected: list[str], got: list[str]) -> bool:
    return expected == [name for name in got if name in expected]


@pytest.mark.parametrize(
    "path", ["nn", "optim", "optim.lr_scheduler", "optim.swa_utils", "utils.data", "distributions"]
)
def test_arguments_of_methods(path: str) -> None:
    """The public methods of torch's classes are there, and take what torch's take, by the same names."""
    theirs, ours = importlib.import_module(f"torch.{path}"), importlib.import_module(f"tesserack.{path}")
    different = []
    for name in vars(theirs):
        a, b = getattr(theirs, name), getattr(ours, name, None)
        if name.startswith("_") or not inspect.isclass(a) or not inspect.isclass(b) or issubclass(a, torch.Tensor):
            continue
        for method, function in inspect.getmembers(a, inspect.isfunction):
            home = next(base for base in a.__mro__ if method in vars(base)).__name__
            if method.startswith("_") or {f"{path}.{n}.{method}()" for n in (name, home)} & set(REASONS):
                continue
            expected, got = parameters(function), parameters(getattr(b, method, None))
            if expected is not None and (not hasattr(b, method) or (got is not None and not is_covered(expected, got))):
                different.append((f"{path}.{name}.{method}", expected, got))
    assert not different


def is_covered(expected: list[str], got: list[str]) -> bool:
    """Whether torch's public names are all there, in their order."""
    names = [name for name in expected if not name.startswith("_") and name not in ("self", "cls")]
    return names == [name for name in got if name in names]
