"""The package as type checkers see it: a typed program runs, and star imports hide no layer from mypy."""

from __future__ import annotations

import importlib.util
from pathlib import Path

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
