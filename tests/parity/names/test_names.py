"""The public names of torch's tensor API are there, with torch's arguments, or listed with a reason in names.txt."""

from __future__ import annotations

import functools
import importlib
import inspect
import re
import types
from pathlib import Path
from typing import Any

import pytest
import tesserack as ts
import torch

importlib.import_module("torch.masked")

AREAS = [
    *("torch", "Tensor", "nn.functional", "linalg", "fft", "special", "sparse", "masked", "signal.windows", "func"),
    *("distributions", "autograd", "autograd.forward_ad", "autograd.functional", "autograd.graph"),
]
# "area.name: why"; an area may be a pattern. "()" after the name: only the arguments differ.
REASONS = [
    (re.compile(pattern), why)
    for pattern, _, why in (
        line.partition(": ")
        for line in Path(__file__).with_name("names.txt").read_text().splitlines()
        if line and not line.startswith("#")
    )
]


def resolve(root: Any, area: str) -> Any:
    for part in area.split(".") if area != "torch" else ():
        root = getattr(root, part, None)
    return root


def names_of(area: str) -> list[str]:
    """Public names: what the module lists, else what it has, and every builtin function of it."""
    module = resolve(torch, area)
    listed = set(dir(module)) if area in ("torch", "Tensor") else set(getattr(module, "__all__", dir(module)))
    if area not in ("torch", "Tensor") and not area.startswith("autograd"):
        listed |= {n for n in dir(module) if inspect.isbuiltin(getattr(module, n, None))}
    listed.discard("__slotnames__")  # which copying leaves on a class
    found = [n for n in listed if not n.startswith("_") or (area == "Tensor" and n.startswith("__"))]
    return sorted(n for n in found if not isinstance(getattr(module, n, None), types.ModuleType))


def reason(name: str) -> str | None:
    return next((why for pattern, why in REASONS if pattern.fullmatch(name)), None)


EVERY = [(area, name) for area in AREAS for name in names_of(area)]


def is_dense(area: str, name: str) -> bool:
    return not (reason(f"{area}.{name}") or "").startswith("not dense")


@pytest.mark.parametrize("area", AREAS)
def test_names(area: str) -> None:
    ours = resolve(ts, area)
    missing = [f"{area}.{n}" for n in names_of(area) if not hasattr(ours, n)]
    unexplained = [name for name in missing if reason(name) is None]
    assert not unexplained, "missing and not in names.txt"


def test_reasons_are_needed() -> None:
    """Every line of names.txt stands for a name that is missing, or whose arguments differ."""
    missing = [f"{area}.{n}" for area, n in EVERY if not hasattr(resolve(ts, area), n)]
    missing += [f"{area}.{n}()" for area, n in EVERY if differs(area, n)]
    idle = [pattern.pattern for pattern, _ in REASONS if not any(pattern.fullmatch(name) for name in missing)]
    assert not idle


def test_nearly_everything_is_there() -> None:
    dense = [(area, name) for area, name in EVERY if is_dense(area, name)]
    there = [(area, name) for area, name in dense if hasattr(resolve(ts, area), name)]
    assert len(there) >= 0.97 * len(dense), f"{len(there)} of {len(dense)}"


# --- arguments -----------------------------------------------------------------------------------------------------


def schema_arguments(schema: str) -> list[str]:
    """Names of the arguments of a schema, ``out`` among them where it has outputs."""
    inside = schema[schema.index("(") + 1 : schema.rindex(" -> ") - 1]
    inside = re.sub(r"\*, .*Tensor\(\w!\).*", "", inside)  # what the results are written to
    inside = re.sub(r"\([a-z! >|*-]*\)|\[[^\]]*\]", "", inside)
    parts = [p.split("=")[0].strip() for p in inside.split(",") if p.strip() not in ("", "*")]
    return [p.split()[-1] for p in parts]


@functools.cache
def theirs(area: str, name: str) -> set[str] | None:
    value = getattr(resolve(torch, area), name)
    kind = {"Tensor": "", "torch": "", "nn.functional": "", "signal.windows": None}.get(area, f"{area}_")
    try:
        return set(inspect.signature(value).parameters) - {"args", "kwargs"}
    except (TypeError, ValueError):
        if kind is None:
            return None
    schemas = torch._C._jit_get_schemas_for_operator(f"aten::{kind}{name}")
    # The overloads that name dimensions are of named tensors, and those that autograd alone uses begin with "_".
    schemas = [str(s) for s in schemas if "Dimname" not in str(s) and f"{name}._" not in str(s)]
    schemas = [s for s in schemas if "Tensor" in s or "Device" in s]  # the others are of TorchScript's numbers
    return {a for s in schemas for a in schema_arguments(s)} or None


@functools.cache
def records_of() -> dict[str, list[str]]:
    """The schemas of every operator, by its name in Python."""
    found: dict[str, list[str]] = {}
    for record in ts._native._operators():
        found.setdefault(record["python_name"], []).append(record["schema"])
    return found


@functools.cache
def ours(area: str, name: str) -> set[str] | None:
    value = getattr(resolve(ts, area), name)
    schemas = records_of().get(getattr(value, "__name__", name))
    if isinstance(value, (types.FunctionType, type)) or not schemas:
        try:
            found = inspect.signature(value).parameters.values()
        except (TypeError, ValueError):
            return None
        if any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in found):
            return None
        return {p.name for p in found}
    return {a for schema in schemas for a in schema_arguments(schema)}


# Words for what is fixed here: a tensor's place in a call ("self" and "input" are the same argument), and factories'.
IGNORED = {
    "args",
    "kwargs",
    "a",
    "b",
    "t",
    "reverse",
    "self",
    "input",
    "layout",
    "pin_memory",
    "memory_format",
    "non_blocking",
    "generator",
    "cls",
    "out",
    "names",
}

# Methods of Python's protocols, whose arguments have no names.
SLOTS = (
    {n for n in dir(int) if n.startswith("__")} | {f"__i{n[2:]}" for n in dir(int)} | {"__contains__", "__rmatmul__"}
)


def differs(area: str, name: str) -> bool:
    if name in SLOTS or not hasattr(resolve(ts, area), name) or not callable(getattr(resolve(torch, area), name)):
        return False
    expected, got = theirs(area, name), ours(area, name)
    return expected is not None and got is not None and bool(expected - got - IGNORED)


@pytest.mark.parametrize("area", AREAS)
def test_arguments(area: str) -> None:
    """Every argument of torch's has its name here; ours may take more."""
    found = {n: sorted((theirs(area, n) or set()) - (ours(area, n) or set()) - IGNORED)
             for n in names_of(area) if differs(area, n)}  # fmt: skip
    unexplained = {n: a for n, a in found.items() if reason(f"{area}.{n}()") is None}
    assert not unexplained, "\n".join(f"{n}: {a}" for n, a in unexplained.items())
