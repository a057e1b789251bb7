"""Public modules that lie in a folder of their kind, and names of earlier versions, are answered by the one module."""

from __future__ import annotations

import importlib
import pickle
import subprocess
import sys

import pytest
import tesserack as ts
from tesserack.utils import homes


@pytest.mark.parametrize("name", sorted(homes.HOMES))
def test_both_names_are_one_module(name):
    assert importlib.import_module(name) is importlib.import_module(homes.HOMES[name])


@pytest.mark.parametrize("name", sorted(homes.PUBLIC))
def test_public_modules_are_attributes(name):
    assert getattr(ts, name) is importlib.import_module(f"tesserack.{name}")
    assert homes.public_name(f"tesserack.{homes.PUBLIC[name]}") == f"tesserack.{name}"


def test_modules_below_are_one_too():
    import tesserack.special._elementary

    assert tesserack.special._elementary is importlib.import_module("tesserack.ops.special._elementary")


def test_a_module_keeps_its_own_spec():
    module = importlib.import_module("tesserack.hub")
    assert module.__name__ == module.__spec__.name == "tesserack.utils.hub"
    assert importlib.reload(module) is module


@pytest.mark.parametrize("name", ["tesserack.special.nosuch", "tesserack._torch_pickle.nosuch", "tesserack.nosuch"])
def test_what_is_not_there_is_not_found(name):
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module(name)


def test_every_lazy_name_is_there():
    missing = [name for name in homes.NAMES if getattr(ts, name, None) is None]
    assert missing == []


def test_pickles_of_earlier_versions_load():
    """As versions before wrote them: by the names that modules had."""
    x = ts.arange(3.0)
    rebuild, parts = x.__reduce_ex__(2)[:2]
    text = pickle.dumps((rebuild, parts), protocol=2).replace(b"tesserack._tensor.pickling", b"tesserack._pickling")
    assert b"tesserack._pickling" in text
    function, arguments = pickle.loads(text)
    assert function(*arguments).tolist() == [0.0, 1.0, 2.0]
    assert pickle.loads(b"ctesserack._variadic\neinsum\n.") is ts.einsum


@pytest.mark.parametrize(
    ("module", "name", "today"),
    [
        ("compat.shims._archives", "PyTorchFileReader", "serialization._archives"),
        ("compat.shims._quantized", "QuantizedTensor", "nn.quantized.tensor"),
        ("compat.shims.ao.nn.quantized.dynamic.modules.linear", "LinearPackedParams", "nn.quantized.dynamic"),
        ("compat.shims.ao.quantization.observer", "_With", "nn.quantized.observer"),
        ("compat.shims.ao.quantization.qconfig", "QConfig", "nn.quantized.qconfig"),
    ],
)
def test_pickles_name_what_was_in_compat(module, name, today):
    found = pickle.loads(f"ctesserack.{module}\n{name}\n.".encode())
    assert found is getattr(importlib.import_module(f"tesserack.{today}"), name)
    assert found.__module__ == f"tesserack.{today}"


def test_python_runs_a_module_by_either_name(tmp_path):
    command = [sys.executable, "-m", "tesserack._tools.stubs", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0 and "--check" in done.stdout


def test_no_family_hides_an_operator():
    """``tesserack.ops`` shows operators and namespaces of custom ones, not the modules in its folder."""
    assert type(ts.ops.einsum).__name__ == "Operator"
    importlib.import_module("tesserack.ops.linalg")
    assert "linalg" not in vars(ts.ops)
