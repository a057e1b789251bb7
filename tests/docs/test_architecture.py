"""What docs/architecture.md names is there: files and folders by their paths, and names in the sources."""

from __future__ import annotations

import fnmatch
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TEXT = re.sub(r"```.*?```", "", (ROOT / "docs" / "architecture.md").read_text(), flags=re.DOTALL)
CODE = list(dict.fromkeys(re.findall(r"`([^`\n]+)`", TEXT)))
PATHS = [word for word in CODE if re.fullmatch(r"[\w.*/-]+(\.(cpp|h|hpp|py|pyi)|/[\w*]*)", word) and word != "/"]
NAME = re.compile(r"\.?[A-Za-z_]\w*(?:(?:::|\.)\w+)*(?:<\w+>)?(?:\(.*\))?")
NAMES = [word for word in CODE if word not in PATHS and NAME.fullmatch(word)]
# Invented for the page.
EXAMPLES = {"squareplus", "squareplus_", "acme", "graph", "x", "y", "a", "b"}


@pytest.fixture(scope="module")
def files() -> list[str]:
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a checkout")
    return listed.stdout.splitlines()


@pytest.fixture(scope="module")
def words(files: list[str]) -> set[str]:
    sources = [f for f in files if f.endswith((".cpp", ".h", ".hpp", ".py", ".pyi", ".sh")) and f[:5] != "tests"]
    return {word for f in sources for word in re.findall(r"\w+", (ROOT / f).read_text(errors="replace"))}


def test_the_page_was_read() -> None:
    assert {"ops/nn/softmax.cpp", "tensor/", "abi.h"} <= set(PATHS)
    assert {"run_primitive", "ts_host.workspace", "AccumulateGrad"} <= set(NAMES)


@pytest.mark.parametrize("path", PATHS)
def test_paths_exist(path: str, files: list[str]) -> None:
    end = "*/" + path.rstrip("/*")
    assert any(fnmatch.fnmatch("/" + f, end) or fnmatch.fnmatch("/" + f, end + "/*") for f in files), path


@pytest.mark.parametrize("name", NAMES)
def test_names_occur_in_the_sources(name: str, words: set[str]) -> None:
    parts = re.findall(r"\w+", re.sub(r"[(<].*", "", name))
    assert [part for part in parts if part not in words | EXAMPLES] == [], name
