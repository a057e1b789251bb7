"""The examples in docstrings of the package, and of installed packages of cards, run and print what they say."""

from __future__ import annotations

import doctest
import importlib
import importlib.util
import pkgutil
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import tesserack as ts

CARDS = ("tesserack_cpu", "tesserack_cuda", "tesserack_kernelgen", "tesserack_opencl", "tesserack_reference")
FOLDERS = {
    name: Path(spec.origin).parent
    for name in ("tesserack", *CARDS)
    if (spec := importlib.util.find_spec(name)) is not None and spec.origin is not None
}
# Modules that are programs, templates, or shims that stand for PyTorch's modules once `import torch` means Tesserack.
APART = ("tesserack.__main__", "tesserack.cli.templates", "tesserack.compat.shims", "tesserack.testing.pytest_plugin")

# Modules whose examples need a package that the tests do not install.
NEEDS = {"tesserack.utils.plots": "matplotlib"}


def module_names() -> list[str]:
    """Every module whose text has an example."""
    names = list(FOLDERS)
    for package, folder in FOLDERS.items():
        names += [m.name for m in pkgutil.walk_packages([str(folder)], f"{package}.", onerror=lambda _: None)]
    return [n for n in names if not n.startswith(APART) and ">>> " in text_of(n)]


def text_of(name: str) -> str:
    package, *rest = name.split(".")
    base = FOLDERS[package].joinpath(*rest)
    path = base / "__init__.py" if base.is_dir() else base.with_suffix(".py")
    return path.read_text() if path.exists() else ""


def examples_of(module: ModuleType) -> list[doctest.DocTest]:
    finder = doctest.DocTestFinder(exclude_empty=True, recurse=True)
    names: dict[str, Any] = dict(vars(module)) | {"__name__": "__main__"}
    return [test for test in finder.find(module, module.__name__, globs=names) if test.examples]


@pytest.mark.parametrize("name", module_names())
def test_module(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    if name in NEEDS:
        pytest.importorskip(NEEDS[name], reason=f"the examples of {name} draw with {NEEDS[name]}")
    module = importlib.import_module(name)
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE, verbose=False)
    report: list[str] = []
    state = ts.get_rng_state()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for test in examples_of(module):
            ts.manual_seed(0)
            runner.run(test, out=report.append, clear_globs=False)
    ts.set_rng_state(state)
    assert runner.tries, f"{name}: the text has an example and none was found"
    assert not runner.failures, "".join(report)


def test_operators() -> None:
    """The examples in the declarations of native operators."""
    parser, runner = doctest.DocTestParser(), doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    report: list[str] = []
    for record in ts._native._operators():
        names = {"tesserack": ts, "ts": ts, "torch": ts}
        test = parser.get_doctest(record["doc"], names, record["name"], None, 0)
        if test.examples:
            runner.run(test, out=report.append)
    assert not runner.failures, "".join(report)
