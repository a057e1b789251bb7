"""Headers keep their versions' word: what a version declares never changes. Offsets: test_offsets.py."""

from __future__ import annotations

import hashlib
import re
import subprocess
from itertools import pairwise
from pathlib import Path

import abi_headers as headers
import pytest
import tesserack as ts
from abi_headers import constants, counts, structs

HERE = Path(__file__).resolve().parent
TODAY = (Path(ts.get_include()) / "tesserack" / "abi.h").read_text()
#: Every header in the order in which they landed.
ALL = {**headers.kept(), "current": TODAY}


def check_compatible(old: str, new: str) -> None:
    """Every struct, field and value of the old header is in the new one, in its place."""
    for name, fields in structs(old).items():
        assert structs(new).get(name, [])[: len(fields)] == fields, f"{name} no longer begins as it was released"
    changed = {n: v for n, v in constants(old).items() if not counts(n) and constants(new).get(n) != v}
    assert not changed, f"values were reinterpreted or dropped: {changed}"
    for name in filter(counts, constants(old)):
        assert int(constants(new)[name]) >= int(constants(old)[name])


def test_kept_headers_are_what_they_were() -> None:
    """A kept header is a fact: it is never edited, whatever today's needs."""
    kept = headers.listed()[:-1]
    assert sorted(one.name for one in kept) == sorted(path.name for path in headers.FOLDER.glob("*.h"))
    for one in kept:
        data = (headers.FOLDER / one.name).read_bytes()
        assert hashlib.sha256(data).hexdigest() == one.checksum, f"{one.name} was edited; restore it from history"
        assert headers.version(data.decode()) == one.told


def test_the_header_changes_with_its_version() -> None:
    current = headers.listed()[-1]
    told, checksum = headers.version(TODAY), headers.checksum_of_code(TODAY)
    assert current.name == "current" and (told, checksum) == (current.told, current.checksum), (
        "abi.h declares something else than it did: python tools/abi.py release, if all was appended; else raise "
        "TS_ABI_MAJOR (until 0.1.0 only), keep the header as it was (git show HEAD:core/include/tesserack/abi.h > "
        "tests/abi/headers/MAJOR.MINOR.h, its line with sha256sum in checksums.txt), mark what is new with 'since', "
        f"say so in docs/authoring/abi.md, and let the last line be: current {told[0]}.{told[1]} {checksum}"
    )


def test_no_version_is_left_out() -> None:
    """From 2.0 on there is one header for each version; before, several told the same."""
    versions = [one.told for one in headers.listed()]
    assert versions == sorted(versions)
    numbered = [told for told in versions if told >= (2, 0)]
    assert numbered[0] == (2, 0) and len(set(numbered)) == len(numbered)
    for (major, minor), later in pairwise(numbered):
        assert later in ((major, minor + 1), (major + 1, 0))


def test_only_appended() -> None:
    assert len(structs(TODAY)) >= 22 and len(structs(TODAY)["ts_backend"]) > 30
    assert len(structs(TODAY)["ts_tensor"]) == 11 and len(constants(TODAY)) > 120
    for old, (later, new) in zip(ALL.values(), [*ALL.items()][1:], strict=False):
        if later == "1.1-c.h":  # what 2.0 makes up for
            with pytest.raises(AssertionError, match="ts_backend no longer begins"):
                check_compatible(old, new)
        elif headers.version(old)[0] == headers.version(new)[0]:
            check_compatible(old, new)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("  int64_t numel;\n", ""),
        ("  int64_t byte_offset;\n  int64_t numel;\n", "  int64_t numel;\n  int64_t byte_offset;\n"),
        ("  int32_t ndim;\n", "  int64_t ndim;\n"),
        ("    double f;  /* floating dtypes */\n", "    float f;  /* floating dtypes */\n"),
        ("TS_I_ADD = 38, TS_I_SUB = 39", "TS_I_ADD = 39, TS_I_SUB = 38"),
        ("TS_I_ADD = 38, ", ""),
        ("#define TS_ABI_MAJOR 2", "#define TS_ABI_MAJOR 3"),
    ],
)
def test_other_changes_are_noticed(old: str, new: str) -> None:
    assert old in TODAY
    with pytest.raises(AssertionError):
        check_compatible(TODAY, TODAY.replace(old, new))


def test_appending_is_allowed() -> None:
    longer = TODAY.replace("\n} ts_backend;", "\n  void* later;\n} ts_backend;")
    check_compatible(TODAY, longer.replace("TS_NUM_INSTRUCTIONS = 66", "TS_I_NEW = 66, TS_NUM_INSTRUCTIONS = 67"))


def test_each_instruction_is_named_in_its_place() -> None:
    """Names and numbers of operands stand once, in the order of the codes, and the core has them from there."""
    rows = re.findall(r"X\((\w+), (\w+), ([123])\)", TODAY[TODAY.index("#define TS_EACH_INSTRUCTION") :])
    codes = {name: int(value) for name, value in constants(TODAY).items() if name.startswith("TS_I_")}
    assert [codes[f"TS_I_{code}"] for code, _, _ in rows] == list(range(int(constants(TODAY)["TS_NUM_INSTRUCTIONS"])))
    assert [name for _, name, _ in rows] == ts._native._instructions()


@pytest.mark.parametrize("language", ["c -std=c99", "c -std=c17", "c++ -std=c++11", "c++ -std=c++20"])
def test_plain_in_every_language(language: str, compiler: str, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_text("#include <tesserack/abi.h>\nint main(void) { return TS_OK; }\n")
    command = [compiler, "-x", *language.split(), "-Wall", "-Wextra", "-pedantic", "-Werror", "-fsyntax-only"]
    done = subprocess.run([*command, f"-I{ts.get_include()}", str(source)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_every_slot_for_operators_is_described() -> None:
    """The page of authors names each function of ts_dispatch, in the order of the table."""
    page = (HERE.parents[1] / "docs" / "authoring" / "operators.md").read_text()
    slots = re.findall(r"\(\*(\w+)\)", " ".join(structs(TODAY)["ts_dispatch"]))
    table = page[page.index("| Slot | Contract |") :]
    named = re.findall(r"`(\w+)`", " ".join(re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)))
    assert len(slots) == 18 and named == slots


# --- since when -------------------------------------------------------------------------------------------------------


def dated(name: str) -> str:
    """What the first header that has it tells of itself."""
    major, minor = next(headers.version(text) for text in ALL.values() if name in headers.contents(text))
    return f"{major}.{minor}"


def test_marks_in_the_header_are_true() -> None:
    marks = headers.marked(TODAY)
    assert {name: dated(name) for name in marks} == marks
    for name in headers.contents(TODAY):
        if "." in name:
            assert marks.get(name, marks[name.split(".")[0]]) == dated(name), f"{name} came later than its struct"
    # Values that were appended to the enums that there were from the start.
    first = constants(next(iter(ALL.values())))
    for values in re.findall(r"enum \{(.*?)\}", headers.code(TODAY)):
        names = re.findall(r"(TS_\w+) =", values)
        if any(name in first for name in names):
            assert all(name in marks for name in names if name not in first), names


def listed_on_the_page() -> list[tuple[str, str]]:
    """Rows of the page's table: "`ts_host`: `log`, `workspace`; `ts_call`: `core`", who gives it, the version."""
    page = (HERE.parents[1] / "docs" / "authoring" / "abi.md").read_text()
    table = page[page.index("| Table | Given by | Since |") :]
    found = []
    for cell, since in re.findall(r"^\| (`.*?) \| .*? \| (\d+\.\d+) \|", table, re.MULTILINE):
        for part in cell.split("; "):
            struct, fields, rest = part.partition(": ")
            prefix = f"{struct.strip('`')}." if fields else ""
            found += [(prefix + name, since) for name in re.findall(r"`(\w+)`", rest if fields else struct)]
    return [(name, since) for name, since in found if not name.startswith("ts_launch")]


def test_the_page_dates_everything_once_as_the_header_does() -> None:
    names = [name for name, _ in listed_on_the_page()]
    assert len(names) == len(set(names)), "dated twice"
    assert dict(listed_on_the_page()) == headers.marked(TODAY)
