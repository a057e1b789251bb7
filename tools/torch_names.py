"""Writes core/tesserack/compat/torch_names.txt: which modules the installed torch has, and the names in public ones.

By it a program under ``tesserack.compat`` is told "PyTorch has this, Tesserack does not" from "there is no such name".
Beside it torch_imports.txt: what modules import from elsewhere, which editors like to import from there again. Run it
with a torch of the version named in core/tesserack/compat/_version.py.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import os
import sys
import warnings
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[1]
COMPAT = ROOT / "core" / "tesserack" / "compat"
TARGET, IMPORTS = COMPAT / "torch_names.txt", COMPAT / "torch_imports.txt"
# Parts of PyTorch whose imports nobody takes from them.
INNER = ("torch.ao", "torch.compiler", "torch.cpu", "torch.distributed", "torch.export", "torch.fx.", "torch.mtia",
         "torch.nested.", "torch.onnx", "torch.package", "torch.quantization", "torch.utils.benchmark.",
         "torch.utils.data.datapipes", "torch.utils.hipify", "torch.xpu")  # fmt: skip
# Folders whose modules nobody imports by name from outside.
LEFT_OUT = ("_vendor", "_native", "kernel", "codegen", "fx_passes")


def modules(root: Path) -> list[str]:
    """Dotted names of all modules below a package's folder, whether or not they can be imported."""
    found = ["torch"]
    for folder, folders, files in os.walk(root):
        parts = Path(folder).relative_to(root).parts
        folders[:] = sorted(f for f in folders if (Path(folder) / f / "__init__.py").exists() and f not in LEFT_OUT)
        prefix = ".".join(("torch", *parts))
        found += [f"{prefix}.{f}" for f in folders]
        found += [f"{prefix}.{f[:-3]}" for f in sorted(files) if f.endswith(".py") and not f.startswith("__init__")]
    return sorted({name for name in found if not name.endswith("__main__")})


def is_public(name: str) -> bool:
    """Whether the names in a module are listed."""
    return not any(part.startswith("_") for part in name.split("."))


def names_in(module: ModuleType) -> list[str]:
    """What a module shows: of a package everything public, of a leaf what it defines itself."""
    package = hasattr(module, "__path__")
    listed = {*getattr(module, "__all__", ())}
    found = []
    for name, value in vars(module).items():
        if name.startswith("_") or not name.isidentifier():
            continue
        home = getattr(value, "__module__", None)
        foreign = isinstance(home, str) and home.split(".")[0] not in ("torch", "builtins")
        if inspect.ismodule(value) or (foreign and name not in listed):
            continue
        own = home == module.__name__ or not isinstance(home, str)
        if package or own or name in listed:
            found.append(name)
    return sorted(found)


def home_of(name: str, value: object) -> str:
    """Where an imported value comes from, as ``module`` or ``module:attribute``; empty for what no module names."""
    if inspect.ismodule(value):
        return value.__name__
    home, own = getattr(value, "__module__", None), getattr(value, "__name__", name)
    if not isinstance(home, str) or not isinstance(own, str) or not own.isidentifier():
        return ""
    home = {"typing_extensions": "typing", "_warnings": "warnings"}.get(home, home)
    found = getattr(importlib.import_module(home), own, None) if home in sys.modules else None
    return f"{home}:{own}" if found is value else ""


def imports_in(module: ModuleType) -> list[str]:
    """``name=origin`` of what a module imports from elsewhere."""
    found = []
    for name, value in vars(module).items():
        if name.startswith("_") or not name.isidentifier():
            continue
        origin = home_of(name, value)
        module_name, _, attribute = origin.partition(":")
        below = module_name == f"{module.__name__}.{name}"
        known = module_name.split(".")[0] in (*sys.stdlib_module_names, "torch", "numpy")
        private = any(part.startswith("_") for part in origin.replace(":", ".").split("."))
        if origin and known and not private and not below and (module_name, attribute) != (module.__name__, name):
            found.append(f"{name}={origin}")
    return sorted(found)


def redirected(found: list[str]) -> list[str]:
    """Names without a file that a package puts into ``sys.modules``, once all packages of ``found`` are imported."""
    for name in found:
        if not is_public(name) and any(other.startswith(name + ".") for other in found):
            with contextlib.suppress(BaseException):
                importlib.import_module(name)
    left_out = tuple(f".{part}." for part in LEFT_OUT)
    loaded = [name for name in [*sys.modules] if name.startswith("torch.")]
    names = {name for name in loaded if not any(part in name + "." for part in left_out)}
    known = names.union(found)  # parts of extension modules, too, whose own parents have no files
    return sorted(name for name in names.difference(found) if name.rpartition(".")[0] in known)


def main() -> None:
    """Write the files."""
    import torch

    warnings.simplefilter("ignore")
    head = f"# torch {torch.__version__.partition('+')[0]}: written by tools/torch_names.py"
    imports = [head]
    listed: dict[str, list[str]] = {}
    found = modules(Path(torch.__file__).parent)
    for name in found:
        listed[name] = []
        if is_public(name):
            try:
                module = importlib.import_module(name)
                listed[name] = names_in(module)
                if not name.startswith(INNER):
                    imports.append(" ".join((name, *imports_in(module))))
            except BaseException as error:
                print(f"{name}: {type(error).__name__}: {error}", file=sys.stderr)
    listed.update((name, []) for name in redirected(found))
    lines = [head]
    lines += [" ".join((name, *names)) for name, names in sorted(listed.items())]
    lines.append(" ".join(("torch.Tensor", *(n for n in dir(torch.Tensor) if not n.startswith("_")))))
    TARGET.write_text("\n".join(lines) + "\n", "utf-8")
    IMPORTS.write_text("\n".join(line for line in imports if " " in line) + "\n", "utf-8")


if __name__ == "__main__":
    main()
