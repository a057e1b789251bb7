"""Names of modules from packages: ``<torch_package_0>.model``, which no other module has."""

from __future__ import annotations

import itertools
import re

__all__ = ["PackageMangler", "demangle", "get_mangle_prefix", "is_mangled"]

_count = itertools.count()
_PREFIX = re.compile(r"<torch_package_\d+>")


class PackageMangler:
    """Gives the modules of one package their names."""

    def __init__(self) -> None:
        self._parent = f"<torch_package_{next(_count)}>"

    def mangle(self, name: str) -> str:
        """The name of a module of the package for all others."""
        if not name:
            raise AssertionError("mangle: expected the name of a module, got an empty one")
        return f"{self._parent}.{name}"

    def demangle(self, mangled: str) -> str:
        """The name within the package; those of other packages stay."""
        return mangled.removeprefix(f"{self._parent}.")

    def parent_name(self) -> str:
        """What the names begin with."""
        return self._parent


def is_mangled(name: str) -> bool:
    """Whether a module of this name is from a package."""
    return _PREFIX.match(name) is not None


def demangle(name: str) -> str:
    """The name within whatever package it is from."""
    return name.partition(".")[2] if is_mangled(name) else name


def get_mangle_prefix(name: str) -> str:
    """The part that says which package it is from; other names whole."""
    return name.partition(".")[0] if is_mangled(name) else name
