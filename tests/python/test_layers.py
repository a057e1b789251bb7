"""What ``tools/layers.py`` refuses, planted in small trees; and how many entries the package has."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "core" / "tesserack"


@pytest.fixture
def layers(monkeypatch):
    if not (ROOT / "tools" / "layers.py").exists():
        pytest.skip("needs a checkout")
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import layers

    return layers


def package(folder: Path, **sources: str) -> Path:
    """A package of that name with these modules, the dots of their names doubled underscores."""
    root = folder / "tesserack"
    for name, text in sources.items():
        path = root / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (root / "utils").mkdir(parents=True, exist_ok=True)
    (root / "utils" / "homes.py").write_text(
        'HOMES = {"tesserack.hub": "tesserack.optim.hub"}\nNAMES = {"load": "jit"}\n'
    )
    return root


def found(layers, folder: Path, **sources: str) -> list[str]:
    return list(layers.package_violations(package(folder, **sources)))


def test_nothing_is_found_in_order(layers, tmp_path):
    assert (
        found(layers, tmp_path, optim__a="from tesserack import nn\nfrom tesserack.nn.b import x\n", nn__b="x = 1")
        == []
    )


def test_a_circle_is_found_if_only_functions_import(layers, tmp_path):
    lines = found(
        layers,
        tmp_path,
        optim__a="def f():\n    from tesserack.optim.b import g\n    return g\n",
        optim__b="from tesserack.optim import a\n",
    )
    assert lines == ["circle of imports: tesserack.optim.a, tesserack.optim.b"]


@pytest.mark.parametrize(
    "source",
    [
        "from tesserack.optim import adam\n",
        "def f():\n    from tesserack.optim.adam import Adam\n    return Adam\n",
        "async def f():\n    import tesserack.optim.adam\n",
        "import tesserack as ts\ndef f():\n    return ts.optim.adam.Adam\n",
        "def f():\n    from tesserack import hub\n    return hub\n",
        "import tesserack as ts\nf = lambda: ts.load\n",
        'import importlib\ndef f():\n    return importlib.import_module("tesserack.optim.adam").Adam\n',
        'from importlib import import_module as get\nf = lambda: get(name="tesserack.hub")\n',
        'import importlib as i\nf = lambda: i.import_module("..optim.adam", __package__)\n',
        'f = lambda: __import__("tesserack.optim.adam")\n',
    ],
)
def test_an_upward_import_is_found(layers, tmp_path, source):
    lines = found(layers, tmp_path, sparse__a=source, optim__adam="", optim__hub="", optim____init__="", jit="")
    assert len(lines) == 1 and "a layer above it" in lines[0] and lines[0].startswith("tesserack/sparse/a.py:")


@pytest.mark.parametrize("call", ["importlib.import_module(name)", 'importlib.import_module(f"tesserack.{name}")',
                                  "__import__(name)", "importlib.import_module(name=name)"])  # fmt: skip
def test_an_import_of_a_computed_name_is_found(layers, tmp_path, call):
    source = f"import importlib\ndef f(name):\n    return {call}\n"
    (line,) = found(layers, tmp_path, sparse__a=source, jit___archive=source)
    assert line.startswith("tesserack/sparse/a.py:3: imports a module by a computed name")


def test_what_may_compute_names_does(layers):
    """So that no module stays on the list for nothing."""
    modules = layers.find_modules(PACKAGE, "tesserack")
    computing = [(name, path) for name, path in modules.items() if layers.computed_imports(name, path)]
    unused = [entry for entry in layers.COMPUTED
              if not any(layers.level_of(name, path, {entry: 0}) is not None for name, path in computing)]  # fmt: skip
    assert unused == []


def test_imports_for_type_checkers_are_none(layers, tmp_path):
    source = "TYPE_CHECKING = False\nif TYPE_CHECKING:\n    from tesserack.optim import adam\n"
    assert found(layers, tmp_path, sparse__a=source, optim__adam="") == []


def test_a_module_without_a_level_is_found(layers, tmp_path):
    (line,) = found(layers, tmp_path, novelty="")
    assert line.startswith("tesserack.novelty: has no level")


def test_a_circle_in_a_card_is_found(layers, tmp_path):
    card = tmp_path / "backends" / "acme" / "tesserack_acme"
    card.mkdir(parents=True)
    (card / "a.py").write_text("from tesserack_acme import b\n")
    (card / "b.py").write_text("def f():\n    from tesserack_acme.a import g\n    return g\n")
    assert list(layers.card_violations(tmp_path)) == ["circle of imports: tesserack_acme.a, tesserack_acme.b"]


def test_a_circle_of_includes_is_found(layers, tmp_path):
    native = tmp_path / "core" / "native" / "ops"
    native.mkdir(parents=True)
    (native / "a.h").write_text('#include "ops/b.h"\n')
    (native / "b.h").write_text('#include "a.h"\n')
    assert list(layers.include_circles(tmp_path)) == ["circle of includes in core/native: ops/a.h, ops/b.h"]


@pytest.mark.parametrize(
    ("line", "mode"),
    [
        ("if (grad_enabled()) return;", "grad_enabled"),
        ("const ThreadState& tls = thread_state();", "thread_state"),
        ("if (is_recorded(self)) return;", "is_recorded"),
        ("KeySet keys = tls.include;", ".include"),
        ("KeySet keys = tls->keys & ~tls.exclude;", ".exclude"),
    ],
)
def test_an_operator_that_asks_for_a_mode_is_found(layers, tmp_path, line, mode):
    """But a gradient may ask its context, and files for what ASKS says of them alone."""
    ops = tmp_path / "core" / "native" / "ops"
    (ops / "common").mkdir(parents=True)
    (ops / "a.cpp").write_text(f'#include "a.h"\nif (c.is_recorded()) // thread_state\n{line}\n')
    (ops / "common" / "check.cpp").write_text("thread_state().inference\n")
    found = list(layers.mode_violations(tmp_path))
    assert found == [f"core/native/ops/a.cpp:3: an operator asks for a mode, {mode}"]


def test_what_asks_for_a_mode_asks_for_that(layers):
    """So that no exemption outlives its reason."""
    for name, (modes, _) in layers.ASKS.items():
        lines = (ROOT / "core" / "native" / "ops" / name).read_text().splitlines()
        asked = {found.group() for line in lines for found in layers.MODES.finditer(line.partition("//")[0])}
        assert asked == set(modes.split()), name


def test_the_tree_is_in_order(layers):
    assert layers.violations() == []


# --- rooms -----------------------------------------------------------------------------------------------------------


def tracked() -> list[str]:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("needs a checkout")
    return listed.stdout.splitlines()


def test_the_package_has_few_entries():
    """So that one finds one's way: a new module goes to the folder of its kind."""
    entries = {name.split("/")[2] for name in tracked() if name.startswith("core/tesserack/")}
    assert len(entries) <= 30, sorted(entries)


def test_a_crowded_folder_is_found(layers, tmp_path):
    """In a checkout; files that git ignores do not count."""
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    for number in range(layers.CROWD):
        (tmp_path / f"{number}.py").touch()
    (tmp_path / ".gitignore").write_text("*.pyc\n.gitignore\n")
    (tmp_path / "0.pyc").touch()
    assert list(layers.crowded_folders(tmp_path)) == []
    (tmp_path / "one_more.py").touch()
    (line,) = layers.crowded_folders(tmp_path)
    assert line.startswith(f".: {layers.CROWD + 1} files, more than {layers.CROWD}")
