"""The package as type checkers see it: a typed program runs, and star imports hide no layer from it."""

from __future__ import annotations

import importlib.util
import os
import rlcompleter
import subprocess
import sys
from pathlib import Path

import pytest
import tesserack
from tesserack import nn


def test_the_typed_program_runs() -> None:
    path = Path(__file__).with_name("typed_program.py")
    spec = importlib.util.spec_from_file_location("typed_program", path)
    assert spec is not None and spec.loader is not None
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    program.main()


def test_nn_passes_every_family_on() -> None:
    """nn names the families one by one, as nn.modules does."""
    source = Path(str(nn.__file__)).read_text()
    families = [line for line in Path(str(nn.modules.__file__)).read_text().splitlines() if "import *" in line]
    assert len(families) > 10
    assert [line for line in families if line not in source] == []


def test_completion_finds_functions_of_nn() -> None:
    """As in an editor: by prefix, among the names a module lists."""
    completer = rlcompleter.Completer({"F": nn.functional})
    assert any(completer.attr_matches("F.interpol")) and "interpolate" in nn.functional.__all__
    listed = [name for name in nn.functional.__all__ if not hasattr(nn.functional, name)]
    assert listed == []


def test_mypy_refuses_a_function_that_does_not_exist(tmp_path: Path) -> None:
    """What is misspelt is found before the program runs, and what is spelt right passes."""
    pytest.importorskip("mypy", reason="comes with the packages of `make lint`")
    program = tmp_path / "program.py"
    lines = [
        "from tesserack import Tensor",
        "from tesserack.nn import functional as F",
        "",
        "def f(x: Tensor) -> None:",
    ]
    calls = ["    F.relu(x)", "    F.interpolate(x, scale_factor=2)", "    F.reluu(x)"]
    program.write_text("\n".join([*lines, *calls, ""]))
    command = [sys.executable, "-m", "mypy", "--strict", f"--cache-dir={tmp_path / 'cache'}", str(program)]
    environment = dict(os.environ, MYPYPATH=str(Path(tesserack.__file__).parents[1]))
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    errors = [line for line in done.stdout.splitlines() if ": error:" in line]
    assert done.returncode == 1, done.stdout + done.stderr
    assert len(errors) == 1 and '"reluu"' in errors[0] and f":{len(lines) + len(calls)}:" in errors[0], done.stdout
