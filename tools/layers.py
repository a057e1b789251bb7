"""Check that no layer includes or imports one above it, and that backends see only the core's public headers.

``python tools/layers.py`` prints one line per violation and fails if there is any. The layers are those of
``docs/architecture.md``.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NATIVE = ROOT / "core" / "native"
PACKAGE = ROOT / "core" / "tesserack"
PUBLIC = ROOT / "core" / "include"

# Lowest first. runtime stands beside dispatch: it runs backends, and knows operators only as kernels to launch.
NATIVE_LEVELS = {"tensor": 0, "runtime": 1, "comm": 1, "dispatch": 1, "autograd": 2, "extend": 3, "ops": 4, "python": 5}
# Modules and folders of the package, a dotted name for what lies deeper; every other module is level 0. The package's
# own __init__ gathers all and is free.
PACKAGE_LEVELS = {
    **dict.fromkeys(("nn", "optim", "utils", "amp", "distributed"), 1),
    **dict.fromkeys(("utils.deterministic", "utils.settings", "aten", "compat.shims", "distributions"), 2),
    **dict.fromkeys(("func", "fx", "jit", "testing"), 2),
    "serialization._objects": 1,
    **dict.fromkeys(("aten.missing", "utils.homes", "utils.importing", "utils.profiler", "utils.warnings"), 0),
    "cli": 3,
    "__main__": 4,
}

INCLUDE = re.compile(r'^\s*#\s*include\s*["<]([^">]+)[">]', re.MULTILINE)
SOURCES = {".h", ".hpp", ".c", ".cpp", ".inc"}


def sources(folder: Path) -> Iterator[Path]:
    """Every C++ file under a folder."""
    return (path for path in sorted(folder.rglob("*")) if path.suffix in SOURCES)


def native_violations() -> Iterator[str]:
    """Includes from a layer of core/native to one above it."""
    for path in sources(NATIVE):
        layer = path.relative_to(NATIVE).parts[0]
        for include in INCLUDE.findall(path.read_text()):
            other = include.split("/")[0]
            if NATIVE_LEVELS.get(other, -1) > NATIVE_LEVELS[layer]:
                yield f"{path.relative_to(ROOT)}: {layer} includes {include}"
            if layer != "python" and (include == "Python.h" or other == "pybind11"):
                yield f"{path.relative_to(ROOT)}: {include} outside native/python"


def backend_violations() -> Iterator[str]:
    """Includes from a native backend to a header of the core that is not public."""
    for path in sources(ROOT / "backends"):
        for include in INCLUDE.findall(path.read_text()):
            private = (NATIVE / include).exists() and not (path.parent / include).exists()
            escaping = (path.parent / include).resolve().is_relative_to(ROOT / "core")
            missing = include.startswith("tesserack/") and not (PUBLIC / include).exists()
            if private or escaping or missing:
                yield f"{path.relative_to(ROOT)}: {include} is no public header of the core"


def imported(tree: ast.Module, package: str) -> Iterator[str]:
    """Absolute names of what a module imports when it is loaded; imports within functions are deferred and free."""
    for node in tree.body:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package.rsplit(".", node.level - 1)[0] if node.level else ""
            module = ".".join(filter(None, (base, node.module)))
            yield from (f"{module}.{alias.name}" for alias in node.names)


def package_level(words: Sequence[str]) -> int:
    """The level of a module, given by its name's words below the package."""
    names = (".".join(words[:count]) for count in range(len(words), 0, -1))
    return next((PACKAGE_LEVELS[name] for name in names if name in PACKAGE_LEVELS), 0)


def package_violations() -> Iterator[str]:
    """Imports from a layer of the Python package to one above it."""
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        if parts == ("__init__",):
            continue
        level = package_level(parts)
        package = ".".join(("tesserack", *parts[:-1]))
        for name in imported(ast.parse(path.read_text()), package):
            words = name.split(".")
            if words[0] == "tesserack" and len(words) > 1 and package_level(words[1:]) > level:
                yield f"{path.relative_to(ROOT)}: imports {name}, a layer above it"


def violations() -> list[str]:
    """Every violation, one line each."""
    return [*native_violations(), *backend_violations(), *package_violations()]


if __name__ == "__main__":
    found = violations()
    print("\n".join(found) or "layers: in order")
    sys.exit(bool(found))
