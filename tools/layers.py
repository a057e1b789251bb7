"""Check that no layer includes or imports one above it, that nothing goes in circles, neither in native code nor in
the package nor in a card, that backends see only the core's public headers, that no operator asks for a mode, and that
no folder holds more files than one finds one's way in.

``python tools/layers.py`` prints one line per violation and fails if there is any. The layers are those of
``docs/architecture.md``.
"""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from imports import Import, circles, computed_imports, find_modules, imports_of

ROOT = Path(__file__).resolve().parent.parent
NATIVE = ROOT / "core" / "native"
PACKAGE = ROOT / "core" / "tesserack"
PUBLIC = ROOT / "core" / "include"

# Lowest first. runtime stands beside dispatch: it runs backends, and knows operators only as kernels to launch.
NATIVE_LEVELS = {
    "tensor": 0,
    "runtime": 1,
    "comm": 1,
    "dispatch": 1,
    "autograd": 2,
    "extend": 3,
    "ops": 4,
    "graph": 5,
    "python": 6,
}
# The package's modules and folders, lowest first; the longest name that a module begins with counts, and
# ``ops.__init__`` is the module alone, without what lies in its folder. The package's own __init__ gathers all and is
# free. A module that none of the names covers is refused.
PACKAGE_LAYERS = {
    # What is asked before there are tensors: names, warnings, the registry, devices.
    "ground": "aten.missing backends ops.numpy_names ops.registry ops.results ops.signatures utils.__init__ "
    "utils._compiler utils._ranges utils.cache utils.futures utils.headers utils.homes utils.importing utils.warnings",
    # Tensors as Python sees them, and what `import tesserack` needs of operators.
    "tensors": "_tensor ops.nonzero_unique ops.products ops.random "
    "utils._pytree utils._pytree_kinds utils._pytree_registry",
    "autograd": "autograd func._batched func._draws func._gradients func._vmap library.dispatch plugins utils.hooks "
    "utils.profiler utils.weak",
    "operators": "autograd.__init__ autograd.gradcheck autograd._gradcheck_forward autograd._gradcheck_values "
    "_tensor.copying _tensor.pickling _tensor.printing amp ops "
    "sparse storage utils.deterministic utils.settings",
    # Layers, and what is written with their functions or lets others write such.
    "layers": "aten distributed func library nested nn ops.__init__ ops.control_flow ops.higher_order ops.layers "
    "ops.array_api ops.fft ops.histograms ops.normalization ops.signal ops.sizes ops.special ops.spectral",
    "tools": "distributed._composable distributed.algorithms._checkpoint distributed.checkpoint distributed.optim "
    "distributed.pipelining distributed.simulation distributions fx jit multiprocessing optim serialization utils",
    # Methods of tensors, which are functions of all of the above.
    "methods": "_tensor.aliases _tensor.methods",
    "compat": "cli._checks compat testing",
    "cli": "cli",
    "program": "__main__",
}
# Modules that import what they compute the name of, and so may import any: by name or folder, with the reason.
COMPUTED = {
    "_tensor.aliases": "methods by a table: of the layer of methods, which is above every module that the table names",
    "autograd.__init__": "modules of its own folder that few programs need",
    "cli": "a module that the user names, and the table of commands",
    "compat": "above all; modules by PyTorch's names for them",
    "jit._archive": "modules that a saved program names",
    "library.__init__": "a module that the caller names",
    "ops.__init__": "modules of its own folder that few programs need",
    "plugins._loading": "modules of the package that a plugin asks to be given when it is loaded",
    "serialization._objects": "modules that a file names",
    "serialization.package": "modules that a package or its writer names",
    "utils.__init__": "modules of its own folder that few programs need",
    "utils.homes": "a module under another name, for a program that asks by it",
    "utils.tracking": "modules of its own folder, by the name of a tracker",
}
# Packages of cards and plugins, whose modules may import each other in any order, but not in circles.
CARDS = ("backends/*/tesserack_*", "plugins/*/tesserack_*")

# Files in one folder at most; public programs, one a file, are a list.
CROWD, LISTS = 40, ("tests/compat/programs",)

INCLUDE = re.compile(r'^\s*#\s*include\s*["<]([^">]+)[">]', re.MULTILINE)
# Whether gradients are recorded, or a card's work: chosen at the autograd key and by Launch, asked by no operator.
# A gradient asks its context, ``c.is_recorded()``, whether it is itself differentiated.
MODES = re.compile(
    r"\b(grad_enabled|set_grad_enabled|GradMode|RecordingState|kernel_watchers|thread_state)\b"
    r"|(?<!\bc\.)\bis_recorded(?=\()|(?:\.|->)(?:exclude|include)\b"
)
# Files of ops that ask nevertheless: what for, and why a recorder sees the same steps. Nothing else may be asked there.
ASKS = {
    "common/check.cpp": (
        "thread_state",
        "refuses to write inference tensors outside inference mode: an error, no step",
    ),
    "shape/view_inplace.cpp": ("thread_state", "the same refusal, for views in place"),
    "pointwise/run.cpp": ("thread_state", "leaves inference tensors to the general path, which refuses them"),
    "common/storage_dtypes.cpp": ("thread_state .exclude", "its own key, which stands above recording"),
    "common/pending_bits.cpp": (
        "is_recorded",
        "of its own key: values of a lazy conjugate are read by a recorded step",
    ),
    "common/variants.cpp": ("thread_state .include .exclude", "whether an in-place form is one call or shown as parts"),
    # To be mended: its results are the same, its steps are not.
    "nn/pool_layers.cpp": (
        "thread_state .include .exclude is_recorded",
        "max_pool1d without gradients keeps no places",
    ),
}
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
            if layer != "python" and (include == "Python.h" or other == "nanobind"):
                yield f"{path.relative_to(ROOT)}: {include} outside native/python"


def mode_violations(root: Path = ROOT) -> Iterator[str]:
    """Operators that ask for a mode of the thread, so that what runs would differ under a recorder."""
    folder = root / "core" / "native" / "ops"
    for path in sources(folder):
        allowed = ASKS.get(path.relative_to(folder).as_posix(), ("", ""))[0].split()
        for number, line in enumerate(path.read_text().splitlines(), 1):
            for found in MODES.finditer(line.partition("//")[0]):
                if found.group() not in allowed:
                    yield f"{path.relative_to(root)}:{number}: an operator asks for a mode, {found.group()}"


def backend_violations() -> Iterator[str]:
    """Includes from a native backend to a header of the core that is not public."""
    for path in sources(ROOT / "backends"):
        for include in INCLUDE.findall(path.read_text()):
            private = (NATIVE / include).exists() and not (path.parent / include).exists()
            escaping = (path.parent / include).resolve().is_relative_to(ROOT / "core")
            missing = include.startswith("tesserack/") and not (PUBLIC / include).exists()
            if private or escaping or missing:
                yield f"{path.relative_to(ROOT)}: {include} is no public header of the core"


def levels() -> dict[str, int]:
    """The level of each name of ``PACKAGE_LAYERS``."""
    return {name: level for level, names in enumerate(PACKAGE_LAYERS.values()) for name in names.split()}


def level_of(module: str, path: Path, known: Mapping[str, int]) -> int | None:
    """The level of a module of the package by its full name; None if no name covers it."""
    words = module.split(".")[1:]
    if path.name == "__init__.py" and ".".join((*words, "__init__")) in known:
        return known[".".join((*words, "__init__"))]
    names = (".".join(words[:count]) for count in range(len(words), 0, -1))
    return next((known[name] for name in names if name in known), None)


def homes_of(package: Path) -> dict[str, str]:
    """Where names of the package are taken from, by the tables of its ``utils/homes.py``."""
    tables = runpy.run_path(str(package / "utils" / "homes.py"))
    homes: dict[str, str] = tables["HOMES"]
    return homes | {f"tesserack.{name}": f"tesserack.{place}" for name, place in tables["NAMES"].items()}


def package_violations(package: Path = PACKAGE) -> Iterator[str]:
    """Modules without a level, imports from a layer to one above it, and circles; imports within functions count."""
    modules = find_modules(package, "tesserack")
    edges = edges_of(modules, homes_of(package))
    known = levels()
    for name, imports in edges.items():
        if name == "tesserack":
            continue
        level = level_of(name, modules[name], known)
        if level is None:
            yield f"{name}: has no level; name it, or the folder it is in, in PACKAGE_LAYERS of tools/layers.py"
            continue
        for found in imports:
            other = level_of(found.target, modules[found.target], known)
            if other is not None and other > level:
                where = modules[name].relative_to(package.parent)
                yield f"{where}:{found.line}: imports {found.target}, a layer above it"
    yield from computed_lines(modules, package)
    yield from circle_lines(edges, "tesserack")


def computed_lines(modules: Mapping[str, Path], package: Path) -> Iterator[str]:
    """Imports of computed names outside of ``COMPUTED``, where no layer would be seen."""
    allowed = dict.fromkeys(COMPUTED, 0)
    for name, path in modules.items():
        if name == "tesserack" or level_of(name, path, allowed) is not None:
            continue
        for line in computed_imports(name, path):
            where = path.relative_to(package.parent)
            yield f"{where}:{line}: imports a module by a computed name; write it out, or say why in COMPUTED"


def edges_of(modules: Mapping[str, Path], homes: Mapping[str, str]) -> dict[str, list[Import]]:
    """The imports of every module."""
    return {name: list(imports_of(name, path, modules, homes)) for name, path in modules.items()}


def circle_lines(edges: Mapping[str, list[Import]], gathers: str = "") -> Iterator[str]:
    """A line for each circle among modules; ``gathers`` is the module that is free to import all."""
    targets = {
        name: {found.target for found in imports} - {gathers} for name, imports in edges.items() if name != gathers
    }
    for group in circles(targets):
        yield f"circle of imports: {', '.join(group)}"


def card_violations(root: Path = ROOT) -> Iterator[str]:
    """Circles among the modules of a card or plugin."""
    for pattern in CARDS:
        for folder in sorted(root.glob(pattern)):
            if folder.is_dir():
                yield from circle_lines(edges_of(find_modules(folder, folder.name), {}))


def include_circles(root: Path = ROOT) -> Iterator[str]:
    """Circles of headers that include each other, in the core and in cards."""
    for folder in (root / "core" / "native", *sorted(root.glob("backends/*/native")), *root.glob("plugins/*/native")):
        files = {path.relative_to(folder).as_posix(): path for path in sources(folder)}
        edges = {}
        for name, path in files.items():
            beside = path.parent.relative_to(folder)
            includes = INCLUDE.findall(path.read_text())
            near = {os.path.normpath(beside / include) for include in includes}
            edges[name] = {found for found in (*includes, *near) if found in files and found != name}
        for group in circles(edges):
            yield f"circle of includes in {folder.relative_to(root)}: {', '.join(group)}"


def crowded_folders(root: Path = ROOT) -> Iterator[str]:
    """Folders of the checkout with more files than ``CROWD``; none outside of one."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False).stdout.splitlines()
    count = Counter(name.rpartition("/")[0] for name in listed if (root / name).is_file())
    for folder, files in sorted(count.items()):
        if files > CROWD and folder not in LISTS:
            yield f"{folder or '.'}: {files} files, more than {CROWD}; split them by subject"


def violations() -> list[str]:
    """Every violation, one line each."""
    return [
        *native_violations(),
        *mode_violations(),
        *backend_violations(),
        *package_violations(),
        *card_violations(),
        *include_circles(),
        *crowded_folders(),
    ]


if __name__ == "__main__":
    found = violations()
    print("\n".join(found) or "layers: in order")
    sys.exit(bool(found))
