"""Print what the project's parts require, one requirement a line, read from the pyproject.toml files.

``python tools/requirements.py build runtime test`` prints the build requirements, the run-time dependencies and the
extra ``test`` of the core and the cpu backend, fit for ``pip install -r``; not our own distributions, which are built
here. ``--project backends/opencl`` asks another one.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    from pip._vendor import tomli as tomllib

ROOT = Path(__file__).resolve().parent.parent
PROJECTS = [ROOT / "pyproject.toml", ROOT / "backends" / "cpu" / "pyproject.toml"]
# A build without isolation needs these installed too, unless the system has them.
BUILD_TOOLS = ["cmake>=3.20", "ninja>=1.10"]


def requirements(pyproject: dict[str, Any], part: str) -> list[str]:
    """The requirements of one part: ``build``, ``runtime`` or the name of an extra."""
    if part == "build":
        return list(pyproject["build-system"]["requires"])
    if part == "runtime":
        return list(pyproject["project"].get("dependencies", []))
    return list(pyproject["project"].get("optional-dependencies", {}).get(part, []))


def main() -> None:
    parts = sys.argv[1:]
    projects = PROJECTS
    if parts[:1] == ["--project"]:
        projects, parts = [ROOT / parts[1] / "pyproject.toml"], parts[2:]
    found = set(BUILD_TOOLS if "build" in parts else [])
    for project in projects:
        pyproject = tomllib.loads(project.read_text())
        for part in parts:
            found.update(requirements(pyproject, part))
    print("\n".join(sorted(line for line in found if not line.startswith("tesserack"))))


if __name__ == "__main__":
    main()
