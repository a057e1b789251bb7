"""What ``FILE:NAME`` or ``MODULE:NAME`` on a command line names."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from tesserack import compat
from tesserack.cli import CommandError

__all__ = ["TorchPrograms", "find_target", "kind_of"]


class TorchPrograms:
    """``import torch`` means Tesserack from here on, as under ``tesserack run``, until :meth:`end`.

    A file that is looked for by :func:`find_target` may have been written for PyTorch, and import it only when what it
    defines is called.

    Args:
        torch: False leaves ``import torch`` as it is, for files that mean PyTorch.
    """

    def __init__(self, torch: bool = True) -> None:
        self._begun = torch and not compat.is_enabled()
        if self._begun:
            compat.enable(report=True)

    def settle(self) -> None:
        """End it, unless something has asked for torch by now."""
        if self._begun and not compat.report().touched:
            self.end()

    def end(self) -> None:
        """``import torch`` means what it meant before."""
        if self._begun and compat.is_enabled():
            compat.disable()
        self._begun = False

    def __enter__(self) -> TorchPrograms:
        return self

    def __exit__(self, *exc: object) -> None:
        self.end()


def find_target(text: str, command: str, module_name: str | None = None) -> Any:
    """The value that a text such as ``model.py:build`` names.

    Args:
        text: a file ending in ``.py`` or a module, a colon, and a name in it; dots lead further.
        command: who asks, for messages.
        module_name: what a file's module is called; its stem by default.

    Raises:
        CommandError: there is no such file, module or name, or the file fails when it is imported.

    >>> find_target("math:pi", "serve")
    3.141592653589793
    """
    place, _, name = text.rpartition(":")
    if not place or not name:
        raise CommandError(f"{command}: expected FILE:NAME such as model.py:build, got {text!r}")
    module = _module(place, command, module_name)
    value: Any = module
    for part in name.split("."):
        try:
            value = getattr(value, part)
        except AttributeError:
            known = ", ".join(sorted(n for n, v in vars(module).items() if callable(v) and not n.startswith("_")))
            raise CommandError(f"{command}: {place} has no {name!r}; it has {known or 'nothing to call'}") from None
    return value


def kind_of(value: Any) -> str:
    """The class of what is no module of ours, for messages; one of PyTorch's is told as such.

    >>> kind_of(3)
    'int'
    """
    kind = type(value)
    if any(f"{c.__module__}.{c.__name__}" == "torch.nn.modules.module.Module" for c in kind.__mro__):
        return f"{kind.__name__}, a module of PyTorch's; leave out --no-torch"
    return kind.__name__


def _module(place: str, command: str, module_name: str | None) -> ModuleType:
    path = Path(place)
    sys.path.insert(0, str(path.resolve().parent) if place.endswith(".py") else "")
    if not place.endswith(".py"):
        try:
            return importlib.import_module(place)
        except ModuleNotFoundError as error:
            if error.name is None or not place.startswith(error.name):
                raise
            raise CommandError(f"{command}: there is no module {place!r}; for a file write its name with .py") from None
    if not path.is_file():
        raise CommandError(f"{command}: there is no file {place!r}")
    name = module_name or path.stem
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(name, module)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise CommandError(f"{command}: {place} fails when imported: {type(error).__name__}: {error}") from error
    return module
