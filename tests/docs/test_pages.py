"""The pages for authors and users say what works: commands and examples run in order and print what they say."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import tesserack as ts

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES, GUIDE = DOCS / "authoring", DOCS / "guide"
WRITTEN = [*PAGES.glob("*.md"), *GUIDE.glob("*.md")]
COMMANDS = {"tesserack": "tesserack", "pytest": "pytest", "pip": "pip"}
FENCE = re.compile(r"(?:<!-- file: (?P<file>\S+) -->\n)?```(?P<language>\w+)\n(?P<text>.*?)```\n", re.DOTALL)


@dataclass
class Step:
    """A fenced block: what to run or to write, and what it is to print."""

    language: str
    text: str
    file: str | None
    printed: str | None = None


def steps(page: Path) -> list[Step]:
    """The blocks of a page; one of text belongs to the block before."""
    found: list[Step] = []
    for match in FENCE.finditer(page.read_text()):
        if match["language"] == "text":
            found[-1].printed = match["text"]
        else:
            found.append(Step(match["language"], match["text"], match["file"]))
    return found


BUILD_TOOLS = ("setuptools>=77", "scikit-build-core>=0.11", "cmake>=3.20", "ninja>=1.5")


@pytest.fixture(scope="session")
def wheelhouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What pip finds for isolated builds without a network: the tools that new packages are built with, as wheels."""
    folder = tmp_path_factory.mktemp("wheelhouse")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--dest", str(folder), *BUILD_TOOLS]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no build tools to be had: {done.stderr.strip()[-300:]}")
    return folder


@pytest.fixture
def environment(tmp_path: Path, wheelhouse: Path) -> dict[str, str]:
    """A virtual environment that sees the tested Tesserack and the packages here, and installs as a user's pip does,
    in isolated builds, but without a network."""
    folder = tmp_path / "venv"
    venv.create(folder, symlinks=True)
    packages = sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)})
    installed = Path(sysconfig.get_path("purelib"))
    # What an editable install leaves for the start of the interpreter; without one, the package's own folder.
    hooks = [line for file in sorted(installed.glob("_editable_*.pth")) for line in file.read_text().splitlines()]
    found = [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]
    here = [installed, sysconfig.get_path("platlib"), *found, *(hooks or [Path(ts.__file__).parent.parent])]
    Path(packages, "here.pth").write_text("\n".join(map(str, dict.fromkeys(here))) + "\n")
    for command, module in COMMANDS.items():
        script = folder / "bin" / command
        script.write_text(f'#!/bin/sh\nexec "{folder}/bin/python" -m {module} "$@"\n')
        script.chmod(0o755)
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("TESSERACK_", "PIP_", "PYTHON"))}
    if shutil.which("ccache"):
        kept["CMAKE_CXX_COMPILER_LAUNCHER"] = "ccache"
    path = os.pathsep.join((str(folder / "bin"), str(Path(sys.executable).parent), kept["PATH"]))
    options = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheelhouse), "PIP_CONFIG_FILE": os.devnull}
    quiet = {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_ROOT_USER_ACTION": "ignore", "COLUMNS": "200"}
    return {**kept, **options, **quiet, "PATH": path, "VIRTUAL_ENV": str(folder)}


def run(step: Step, folder: Path, environment: dict[str, str]) -> tuple[str, Path]:
    """What a step prints, and the folder it leaves the shell in."""
    if step.file:
        target = folder / step.file
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(step.text)
        return "", folder
    where = Path(environment["VIRTUAL_ENV"]) / "where"
    command = ["bash", "-euo", "pipefail", "-c", f"{step.text}\npwd > {where}"]
    if step.language == "python":
        command = ["python", "-c", step.text]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{step.text}\nexit status {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout, Path(where.read_text().strip()) if step.language == "sh" else folder


def pages() -> list[Any]:
    """Every page; those that compile the native package several times only where asked for."""
    slow = pytest.mark.skipif("RUN_SLOW_PAGES" not in os.environ, reason="compiles for minutes: RUN_SLOW_PAGES=1")
    marks = {"native": (slow,), "publishing": (slow,)}
    return [pytest.param(p, id=p.stem, marks=marks.get(p.stem, ())) for p in sorted(PAGES.glob("*.md"))]


@pytest.mark.parametrize("page", pages())
def test_page(page: Path, tmp_path: Path, environment: dict[str, str]) -> None:
    found = steps(page)
    assert found, "a page without anything to run"
    unknown = {s.language for s in found if s.language not in ("sh", "python") and not s.file}
    assert not unknown, f"blocks that nothing runs: {unknown}"
    folder = tmp_path / "scratch"
    folder.mkdir()
    for step in found:
        printed, folder = run(step, folder, environment)
        if step.printed is not None:
            assert printed.rstrip() == step.printed.rstrip(), step.text


# Runs the blocks of a page one after another in one interpreter, and prints what each printed as a line of JSON.
RUNNER = """
import contextlib, io, json, sys
space = {"__name__": "__main__"}
for block in json.load(sys.stdin):
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(block, "<page>", "exec"), space)
    print(json.dumps(printed.getvalue()))
"""


# Of pages about what the tests of the core do without.
NEEDED = {"serving": ("tesserack_serving", "litserve")}


@pytest.mark.parametrize("page", sorted(GUIDE.glob("*.md")), ids=lambda page: page.stem)
def test_guide(page: Path, tmp_path: Path) -> None:
    """Examples of the guide go on from each other, as a reader would type them."""
    for package in NEEDED.get(page.stem, ()):
        pytest.importorskip(package, reason=f"the page is about it: {page.name}")
    found = [step for step in steps(page) if step.language == "python"]
    blocks = json.dumps([step.text for step in found])
    command = [sys.executable, "-W", "ignore", "-c", RUNNER]
    done = subprocess.run(command, cwd=tmp_path, input=blocks, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    for step, printed in zip(found, map(json.loads, done.stdout.splitlines()), strict=True):
        if step.printed is not None:
            assert printed.rstrip() == step.printed.rstrip(), step.text


def test_every_fence_is_seen() -> None:
    for page in WRITTEN:
        assert page.read_text().count("```") == 2 * len(FENCE.findall(page.read_text())), page.name


def test_links_lead_somewhere() -> None:
    for page in WRITTEN:
        for target in re.findall(r"\]\(([^)#]+)\)", FENCE.sub("", page.read_text())):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
