"""Functions and classes that share their name with a module stay what they are when that module is imported."""

from __future__ import annotations

import subprocess
import sys

import pytest

WALK = """
import importlib, pkgutil, types
import tesserack
names = [m.name for m in pkgutil.walk_packages(tesserack.__path__, "tesserack.", onerror=lambda name: None)]
names = [name for name in names if "._" not in name and ".cli" not in name]
root = {root!r}
if root == "torch":
    import tesserack.compat
    tesserack.compat.enable()
    names = sorted({{root + name.removeprefix("tesserack.compat.shims").removeprefix("tesserack") for name in names}})
else:
    names = [name for name in names if ".shims" not in name]
seen = 0
for name in names:
    parent, _, child = name.rpartition(".")
    try:
        module = importlib.import_module(parent) if parent else None
        before = getattr(module, child)
        if isinstance(before, types.ModuleType) or not isinstance(before, (type, types.FunctionType)):
            continue
        importlib.import_module(name)
    except (ImportError, AttributeError):
        continue
    assert getattr(module, child) is before, name
    seen += 1
assert seen >= 5, seen
from {root}.autograd.gradcheck import GradcheckError
import {root}
assert callable({root}.autograd.gradcheck)
"""


@pytest.mark.parametrize("root", ["tesserack", "torch"])
def test_names_of_functions_and_modules(root: str) -> None:
    done = subprocess.run([sys.executable, "-c", WALK.format(root=root)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
