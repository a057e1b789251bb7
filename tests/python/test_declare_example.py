"""The worked example of docs/architecture.md: one declaration is all a pointwise operator needs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import tesserack

ROOT = Path(__file__).resolve().parents[2]

# Loaded before tesserack, as if its file stood in core/native/ops.
SCRIPT = """
import ctypes, inspect, sys
ctypes.CDLL(sys.argv[1], ctypes.RTLD_GLOBAL)
import numpy as np
import tesserack as ts
from tesserack.autograd import gradcheck, gradgradcheck

x = np.linspace(-3, 3, 12).reshape(3, 4)
expected = (x + np.sqrt(x * x + 4)) / 2
t = ts.tensor(x)
np.testing.assert_allclose(ts.squareplus(t).numpy(), expected)
np.testing.assert_allclose(t.squareplus(b=1).numpy(), (x + np.sqrt(x * x + 1)) / 2)
np.testing.assert_allclose(ts.squareplus(t.T).numpy(), expected.T)
assert ts.squareplus(ts.arange(3)).dtype == ts.float32
out = ts.empty(3, 4, dtype=ts.float64)
assert ts.squareplus(t, out=out) is out
np.testing.assert_allclose(out.numpy(), expected)
u = t.clone()
assert u.squareplus_() is u
np.testing.assert_allclose(u.numpy(), expected)
leaf = t.clone().requires_grad_()
assert gradcheck(ts.squareplus, (leaf,)) and gradgradcheck(ts.squareplus, (leaf,))
assert "Smooth ReLU" in ts.squareplus.__doc__
try:
    ts.squareplus("text")
except TypeError as error:
    assert "squareplus" in str(error)
else:
    raise AssertionError("a str was accepted")
print("ok")
"""


def example() -> str:
    text = (ROOT / "docs" / "architecture.md").read_text()
    found = re.search(r"<!-- example: pointwise-operator -->\n```cpp\n(.*?)```", text, re.S)
    assert found, "docs/architecture.md lost its worked example"
    return found.group(1)


def test_one_declaration_is_all_it_takes(tmp_path: Path) -> None:
    compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("c++")
    if compiler is None:
        pytest.skip("no C++ compiler")
    libraries = Path(tesserack._native.__file__).resolve().parent
    core = next(p for p in (libraries / "lib", libraries, *libraries.parents) if (p / "libtesserack.so").exists())
    source, library = tmp_path / "squareplus.cpp", tmp_path / "libsquareplus.so"
    source.write_text(example())
    include = [f"-I{ROOT / 'core' / folder}" for folder in ("native", "include")]
    link = [f"-L{core}", "-ltesserack", f"-Wl,-rpath,{core}"]
    subprocess.run(
        [compiler, "-std=c++20", "-shared", "-fPIC", *include, str(source), "-o", str(library), *link], check=True
    )
    run = subprocess.run([sys.executable, "-c", SCRIPT, str(library)], capture_output=True, text=True)
    assert run.stdout.strip() == "ok", run.stderr
