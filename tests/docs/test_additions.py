"""docs/additions.md is done to a copy of the tree: additions take the files it says, and what should follow does."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import numpy
import pytest
from tesserack.testing import seeds

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "additions.md"
# Hand-edited files that an addition may take.
LIMITS = {
    "a layer": 2,
    "an optimizer": 1,
    "a pointwise operator": 1,
    "a primitive": 3,
    "an instruction": 3,
    "a slot": 3,
    "a dtype": 4,
}
BLOCK = re.compile(
    r"<!-- (?P<what>edit|new|uses|then): (?P<where>\S+) -->\n```(?P<language>\w+)\n(?P<text>.*?)```\n", re.S
)
SOURCES = ("core", "backends", "plugins", "tools", "cmake", "docs")
PYTHON_ONLY = ("a layer", "an optimizer")
needs_build = pytest.mark.skipif(not seeds.full(), reason="builds a copy of the tree: FULL=1")


@dataclass
class Addition:
    """A section of the page."""

    edits: list[tuple[str, str]] = field(default_factory=list)  # what is counted
    uses: list[tuple[str, str]] = field(default_factory=list)  # what shows it in use
    program: str = ""

    def files(self) -> set[str]:
        return {path for path, _ in self.edits}

    def apply(self, tree: Path) -> None:
        for path, text in (*self.edits, *self.uses):
            change(tree / path, text)


def additions() -> dict[str, Addition]:
    found: dict[str, Addition] = {}
    for part in PAGE.read_text().split("\n## ")[1:]:
        title = part.splitlines()[0].lower()
        name = next((n for n in LIMITS if title == n or title.startswith(f"{n} ")), title)
        addition = found.setdefault(name, Addition())
        for block in BLOCK.finditer(part):
            if block["what"] == "then":
                addition.program = block["text"]
            else:
                blocks = addition.uses if block["what"] == "uses" else addition.edits
                blocks.append((block["where"], block["text"]))
    return found


def change(file: Path, text: str) -> None:
    """Write a new file, or make the changes of a block with lines that begin with " ", "+" and "-"; "@@" parts them."""
    if not file.exists():
        file.write_text(text)
        return
    content = file.read_text()
    for hunk in re.split(r"^@@\n", text, flags=re.M):
        lines = hunk.splitlines()
        before = "".join(f"{line[1:]}\n" for line in lines if line[:1] in (" ", "-"))
        after = "".join(f"{line[1:]}\n" for line in lines if line[:1] in (" ", "+"))
        assert content.count(before) == 1, f"{file.name}: {content.count(before)} places for\n{before}"
        content = content.replace(before, after)
    file.write_text(content)


def copy_tree(to: Path) -> Path:
    """What git knows, or would, of the sources."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a checkout")
    for name in filter(None, listed.stdout.split("\0")):
        folder, slash, _ = name.partition("/")
        if (ROOT / name).is_file() and (not slash or folder in SOURCES):
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, to / name)
    return to


def built(tree: Path, *options: str) -> Path:
    """The Python of an environment that runs the copy."""
    command = [sys.executable, "tools/dev_build.py", "build/copy", *options]
    # Not optimised: what follows is looked at, and not how fast it is. A compiler cache knows other copies by this one.
    settings = {"CMAKE_BUILD_TYPE": "None", "CCACHE_BASEDIR": str(tree), "CCACHE_NOHASHDIR": "1"}
    done = subprocess.run(command, cwd=tree, env={**os.environ, **settings}, capture_output=True, text=True)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    return Path(done.stdout.splitlines()[-1])


def run(python: Path, tree: Path, *command: str) -> str:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    # The copy's package before any other that lies beside NumPy.
    folders = (tree / "build/copy/py", tree / "plugins/kernelgen", Path(numpy.__file__).parents[1])
    environment["PYTHONPATH"] = os.pathsep.join(map(str, folders))
    done = subprocess.run([python, *command], cwd=tree, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    return done.stdout


@pytest.mark.parametrize("name", LIMITS)
def test_an_addition_takes_no_more_files_than_it_may(name: str) -> None:
    addition = additions()[name]
    assert addition.program and 1 <= len(addition.files()) <= LIMITS[name], addition.files()
    row = re.search(rf"^\| \[{name}\]\(#[\w-]+\).* \| (\d) \|$", PAGE.read_text(), re.M)
    assert row and int(row[1]) == len(addition.files())


def test_every_block_fits_the_tree(tmp_path: Path) -> None:
    """Of all additions together, as they would be made one after the other."""
    tree = copy_tree(tmp_path)
    for addition in additions().values():
        addition.apply(tree)


@pytest.fixture(scope="module")
def python_tree(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A copy with what is added in Python, over the libraries that are installed."""
    tree = copy_tree(tmp_path_factory.mktemp("additions") / "tree")
    for name in PYTHON_ONLY:
        additions()[name].apply(tree)
    return built(tree, "--installed-core", "--installed-cpu"), tree


@pytest.mark.parametrize("name", PYTHON_ONLY)
def test_what_is_added_in_python_works(name: str, python_tree: tuple[Path, Path]) -> None:
    python, tree = python_tree
    run(python, tree, "-c", additions()[name].program)
    for file in additions()[name].files():
        module = file.removeprefix("core/").removesuffix(".py").replace("/", ".")
        check = f"import doctest, {module} as m; assert not doctest.testmod(m).failed"
        run(python, tree, "-c", check)


@pytest.fixture(scope="module")
def native_tree(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    tree = copy_tree(tmp_path_factory.mktemp("additions") / "native")
    for addition in additions().values():
        addition.apply(tree)
    return built(tree, "-j", "2"), tree


@needs_build
@pytest.mark.parametrize("name", [name for name in LIMITS if name not in PYTHON_ONLY])
def test_what_is_added_in_native_code_works(name: str, native_tree: tuple[Path, Path]) -> None:
    python, tree = native_tree
    run(python, tree, "-c", additions()[name].program)


@needs_build
def test_stubs_and_pages_follow(native_tree: tuple[Path, Path]) -> None:
    python, tree = native_tree
    run(python, tree, "-m", "tesserack.cli._stubs.stubs")
    run(python, tree, "tools/reference_pages.py")
    stubs = (tree / "core/tesserack/__init__.pyi").read_text()
    pages = "".join(page.read_text() for page in (tree / "docs" / "reference").glob("*.md"))
    for name in ("squareplus", "square_sums", "cube_root"):
        assert f"def {name}(" in stubs and name in pages
    assert "float8_e3m4fn" in stubs
