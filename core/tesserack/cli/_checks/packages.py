"""Are the installed packages whole, and do they fit together?"""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from urllib.parse import unquote, urlparse

import tesserack
from tesserack.backends._integrity import difference
from tesserack.plugins import Finding
from tesserack.utils.environment import related_distributions

__all__ = ["check"]

_LARGEST = 1 << 30  # bytes of a library that are worth reading to see whether it is whole


def check() -> Iterator[Finding]:
    """All checks of packages."""
    yield from _duplicates()
    yield from _imported_elsewhere()
    yield from _broken_path_files()
    for distribution in related_distributions():
        try:
            distribution.entry_points  # noqa: B018
        except Exception as error:
            message = f"its entry points cannot be read: {type(error).__name__}: {error}"
            yield Finding("error", distribution.name, message, f"reinstall {distribution.name}")
            continue
        yield from _editable_leftovers(distribution)
        yield from _missing_modules(distribution)
        yield from _unmet_requirements(distribution)
        yield from _damaged_libraries(distribution)


def _duplicates() -> Iterator[Finding]:
    ours = {str(d.name).lower() for d in related_distributions()}
    copies: dict[str, dict[str, str]] = {}
    for distribution in metadata.distributions():
        name = str(distribution.metadata["Name"] or "").lower()
        if name in ours:
            copies.setdefault(name, {})[str(distribution.locate_file(""))] = distribution.version
    for name, found in copies.items():
        if len({*found.values()}) > 1:
            where = ", ".join(f"{version} in {folder}" for folder, version in found.items())
            cure = f"pip uninstall {name}, repeatedly, then install it once"
            yield Finding("warning", name, f"several versions are on the path: {where}; the first counts", cure)


def _imported_elsewhere() -> Iterator[Finding]:
    """A source tree in the working folder may hide the installed package."""
    imported = Path(tesserack.__file__).parent.resolve()
    try:
        distribution = metadata.distribution("tesserack")
    except metadata.PackageNotFoundError:
        return
    installed = Path(str(distribution.locate_file("tesserack"))).resolve()
    if installed != imported and not _editable_folder(distribution) and (installed / "__init__.py").exists():
        cure = "leave that folder, or take it off PYTHONPATH"
        yield Finding("warning", "tesserack", f"imported from {imported}, though installed in {installed}", cure)


def _broken_path_files() -> Iterator[Finding]:
    """``.pth`` files of ours whose folders are gone."""
    for folder in map(Path, sys.path):
        for file in folder.glob("*tesserack*.pth") if folder.is_dir() else ():
            for line in file.read_text(errors="replace").splitlines():
                if line.strip() and not line.startswith(("import ", "#")) and not (folder / line.strip()).exists():
                    yield Finding(
                        "warning", "packages", f"{file} names {line.strip()}, which is gone", f"delete {file}"
                    )


def _editable_folder(distribution: metadata.Distribution) -> str:
    """The source folder of an editable install, or nothing."""
    text = distribution.read_text("direct_url.json")
    record = json.loads(text) if text else {}
    if not record.get("dir_info", {}).get("editable"):
        return ""
    return unquote(urlparse(record.get("url", "")).path)


def _editable_leftovers(distribution: metadata.Distribution) -> Iterator[Finding]:
    folder = _editable_folder(distribution)
    if folder and not Path(folder).is_dir():
        message = f"installed in editable mode from {folder}, which is gone"
        yield Finding("error", distribution.name, message, f"pip uninstall {distribution.name}")


def _missing_modules(distribution: metadata.Distribution) -> Iterator[Finding]:
    for point in distribution.entry_points:
        top = point.value.partition(":")[0].partition(".")[0].strip()
        if not point.group.startswith("tesserack.") or top in sys.modules:
            continue
        if point.group == "tesserack.expected_devices":  # of packages that others may bring
            continue
        try:
            found = importlib.util.find_spec(top) is not None
        except (ImportError, ValueError):
            found = False
        if not found:
            message = f"announces {point.name!r}, but its module {top!r} is not there"
            yield Finding("error", distribution.name, message, f"reinstall or uninstall {distribution.name}")


def _unmet_requirements(distribution: metadata.Distribution) -> Iterator[Finding]:
    """Requirements on packages of ours; needs ``packaging``, which nearly every environment has."""
    try:
        from packaging.requirements import InvalidRequirement, Requirement
    except ImportError:
        return
    for text in distribution.requires or []:
        try:
            need = Requirement(text)
        except InvalidRequirement:
            continue
        if not need.name.startswith("tesserack") or (need.marker and not need.marker.evaluate({"extra": ""})):
            continue
        have = tesserack.__version__ if need.name == "tesserack" else _version(need.name)
        if have is None or not need.specifier.contains(have, prereleases=True):
            message = f"needs {need}, but {'it is not installed' if have is None else f'{have} is installed'}"
            yield Finding("error", distribution.name, message, f"pip install '{need}'")


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _damaged_libraries(distribution: metadata.Distribution) -> Iterator[Finding]:
    """Native libraries whose bytes differ from what the installer wrote down."""
    for file in distribution.files or []:
        if file.suffix not in (".so", ".dylib", ".pyd", ".dll") or file.hash is None:
            continue
        path, cure = str(file.locate()), f"reinstall {distribution.name}"
        if not Path(path).exists():
            yield Finding("error", distribution.name, f"{path} is missing", cure)
        elif how := difference(path, f"{file.hash.mode}={file.hash.value}", str(file.size or ""), _LARGEST):
            yield Finding("error", distribution.name, f"{path}: {how}", cure)
