"""A README of a folder lists what is in it: every entry is named, and what is named is there."""

from __future__ import annotations

import fnmatch
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# What every project has at the same place, and needs no word.
USUAL = {"README.md", "pyproject.toml", "CMakeLists.txt", "LICENSE", ".gitignore", "conftest.py"}
USUAL |= {"__init__.py", "__init__.pyi", "__main__.py", "py.typed"}
MOST_LINES = 15  # of the README of a folder at the top, lists that a tool writes apart
MOST_FILES = 40  # of a folder: more are put into folders by subject
CROWDS = {"tests/compat/programs"}  # a program each


def tracked() -> list[str]:
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True)
    return [line for line in listed.stdout.splitlines() if (ROOT / line).exists()] if listed.returncode == 0 else []


FILES = tracked()
# Written by a tool, or for somebody else's project.
READMES = [f for f in FILES if Path(f).name == "README.md" and f != "benchmarks/results/README.md"]
READMES = [f for f in READMES if "/templates/" not in f and f != "README.md"]


def words(text: str) -> set[str]:
    """What stands between backquotes, fenced blocks apart."""
    return set(re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL)))


def entries(folder: str) -> set[str]:
    """Files and folders directly in it."""
    return {f[len(folder) + 1 :].partition("/")[0] for f in FILES if f.startswith(folder + "/")} - USUAL


@pytest.mark.parametrize("readme", READMES)
def test_every_entry_is_listed(readme: str) -> None:
    """By its name, or by the pattern of several."""
    folder = str(Path(readme).parent)
    named = {word.rstrip("/").partition("/")[0] for word in words((ROOT / readme).read_text())}
    left_out = {entry for entry in entries(folder) if not any(fnmatch.fnmatch(entry, word) for word in named)}
    assert not left_out, f"{readme} does not name {sorted(left_out)}"


@pytest.mark.parametrize("readme", READMES)
def test_what_is_listed_is_there(readme: str) -> None:
    """In the folder, or anywhere in the project where a path says more."""
    folder = str(Path(readme).parent)
    kinds = re.compile(r"\w[\w.*-]*(/[\w.*-]+)*(/|\.(py|cpp|h|hpp|md|sh|txt|cmake|in|json))")
    for path in sorted(filter(kinds.fullmatch, words((ROOT / readme).read_text()))):
        end = path.rstrip("/") + "*"
        inside = [f for f in FILES if f.startswith(folder + "/") and fnmatch.fnmatch("/" + f, f"*/{end}")]
        assert inside or any(fnmatch.fnmatch("/" + f, f"*/{end}") for f in FILES), f"{readme} names {path}"


@pytest.mark.parametrize("readme", [f for f in READMES if f.count("/") == 1])
def test_it_is_short(readme: str) -> None:
    text = re.sub(r"<!-- slowest.*?<!-- end -->\n", "", (ROOT / readme).read_text(), flags=re.DOTALL)
    assert len(text.splitlines()) <= MOST_LINES


def test_every_folder_at_the_top_has_one() -> None:
    tops = {f.partition("/")[0] for f in FILES if "/" in f and not f.startswith(".")}
    assert {f"{top}/README.md" for top in tops} <= set(READMES)
    linked = set(re.findall(r"\]\((\w+)/README\.md\)", (ROOT / "README.md").read_text()))
    assert linked == tops


def test_no_folder_is_crowded() -> None:
    counts: dict[str, int] = {}
    for file in FILES:
        folder = str(Path(file).parent)
        counts[folder] = counts.get(folder, 0) + 1
    crowded = {folder for folder, count in counts.items() if count > MOST_FILES}
    assert crowded == CROWDS, "a folder has more files than its subject, or is no longer an exception"
