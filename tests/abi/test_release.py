"""``tools/abi.py release`` does what else a changed header takes, in a copy of what it writes."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import abi_headers as headers
import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "docs"))

from test_additions import additions, change  # noqa: E402

HEADER = "core/include/tesserack/abi.h"


@pytest.fixture
def abi(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    if not (ROOT / "tools" / "abi.py").exists():
        pytest.skip("needs a checkout")
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import abi

    return abi


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A repository whose last commit has today's header."""
    for name in (HEADER, "tests/native/abi_offsets.cpp", "docs/authoring/abi.md", "tests/abi/headers/checksums.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text((ROOT / name).read_text())
    for command in (["init", "-q"], ["add", "."], ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "x"]):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    return tmp_path


def read(tree: Path) -> dict[str, str]:
    return {str(path): path.read_text() for path in tree.rglob("*.*") if path.is_file() and ".git" not in path.parts}


def test_nothing_follows_from_a_comment(abi: ModuleType, tree: Path) -> None:
    header = tree / HEADER
    header.write_text(header.read_text() + "/* no more */\n")
    before = read(tree)
    assert abi.release(tree) == [] and read(tree) == before


@pytest.mark.parametrize("name", ["a slot", "an instruction", "a dtype"])
def test_additions_are_released(abi: ModuleType, tree: Path, compiler: str, name: str) -> None:
    """Those of docs/additions.md, whose blocks leave this to the tool."""
    old = (tree / HEADER).read_text()
    (block,) = [text for path, text in additions()[name].edits if path == HEADER]
    change(tree / HEADER, block)
    assert len(abi.release(tree)) == 4
    new = (tree / HEADER).read_text()
    (major, minor), told = headers.version(old), headers.version(new)
    assert told == (major, minor + 1)
    kept = (tree / f"tests/abi/headers/{major}.{minor}.h").read_bytes()
    *_, last, current = (tree / "tests/abi/headers/checksums.txt").read_text().splitlines()
    assert kept == old.encode() and last == f"{major}.{minor}.h {major}.{minor} {hashlib.sha256(kept).hexdigest()}"
    assert current == f"current {told[0]}.{told[1]} {headers.checksum_of_code(new)}"
    (appeared,) = {n for n in headers.contents(new) - headers.contents(old) if not headers.counts(n)}
    since = f"{told[0]}.{told[1]}"
    assert headers.marked(new)[appeared] == since
    page = (tree / "docs" / "authoring" / "abi.md").read_text()
    assert f"TS_ABI_MINOR {told[1]}'" in page and f"speaks {since};" in page
    assert re.search(rf"^\| .*`{appeared.rpartition('.')[2]}` \| [\w ]+ \| {re.escape(since)} \|", page, re.MULTILINE)
    offsets = (tree / "tests" / "native" / "abi_offsets.cpp").read_text()
    assert re.search(rf"^(AT|VALUE)\({appeared.replace('.', ', ')}, \d+\);$", offsets, re.MULTILINE)
    command = [compiler, "-std=c++20", "-fsyntax-only", f"-I{tree / 'core/include'}", "tests/native/abi_offsets.cpp"]
    subprocess.run(command, cwd=tree, check=True)
    once = read(tree)
    abi.release(tree)
    assert read(tree) == once


def test_a_struct_is_dated_once(abi: ModuleType, tree: Path) -> None:
    header = tree / HEADER
    struct = "typedef struct ts_new {\n  size_t struct_size;\n  int32_t count;\n} ts_new;\nenum { TS_NEW_A = 1 };\n"
    header.write_text(header.read_text().replace("typedef struct ts_link {", struct + "typedef struct ts_link {"))
    abi.release(tree)
    new = header.read_text()
    since = "{}.{}".format(*headers.version(new))
    assert headers.marked(new)["ts_new"] == since and "ts_new.count" not in headers.marked(new)
    offsets = (tree / "tests" / "native" / "abi_offsets.cpp").read_text()
    lines = ["SIZE(ts_new, 16);", "AT(ts_new, struct_size, 0);", "AT(ts_new, count, 8);", "VALUE(TS_NEW_A, 1);"]
    assert [line for line in lines if line in offsets] == lines


def test_what_is_not_appended_takes_a_major_version(abi: ModuleType, tree: Path) -> None:
    header = tree / HEADER
    header.write_text(header.read_text().replace("  int32_t ndim;\n", "  int64_t ndim;\n"))
    with pytest.raises(SystemExit, match="takes a major version: ts_tensor"):
        abi.release(tree)
