"""Today's abi.h is the first released one with things appended. Offsets are checked by tests/native/abi_offsets.cpp."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import tesserack as ts

HERE = Path(__file__).resolve().parent
RELEASED = (HERE / "abi_1_0.h").read_text()
TODAY = (Path(ts.get_include()) / "tesserack" / "abi.h").read_text()


def code(header: str) -> str:
    """The header without comments, on one line per declaration."""
    return re.sub(r"\s+", " ", re.sub(r"/\*.*?\*/|//[^\n]*", " ", header, flags=re.DOTALL))


def structs(header: str) -> dict[str, list[str]]:
    """Fields of every struct, as declared."""
    found = re.finditer(r"struct (ts_\w+) \{((?:[^{}]|\{[^{}]*\})*)\}", code(header))
    # A union is one field: its semicolons stand in braces.
    return {m[1]: re.findall(r"(?:\{[^{}]*\}|[^;{}])+", m[2].strip())[: m[2].count(";")] for m in found}


def constants(header: str) -> dict[str, str]:
    """Every enumerator and every number that is defined."""
    text = code(header)
    found = dict(re.findall(r"(TS_\w+) = (-?\w+)", text))
    return {**found, **dict(re.findall(r"#define (TS_ABI_MAJOR) (\d+)", text))}


def counts(name: str) -> bool:
    """Counts grow as values are appended."""
    return name.startswith("TS_NUM_")


def check_compatible(old: str, new: str) -> None:
    """Every struct, field and value of the old header is in the new one, in its place."""
    for name, fields in structs(old).items():
        assert structs(new).get(name, [])[: len(fields)] == fields, f"{name} no longer begins as it was released"
    changed = {n: v for n, v in constants(old).items() if not counts(n) and constants(new).get(n) != v}
    assert not changed, f"values were reinterpreted or dropped: {changed}"
    for name in filter(counts, constants(old)):
        assert int(constants(new)[name]) >= int(constants(old)[name])


def test_only_appended() -> None:
    assert len(structs(RELEASED)) == 9 and len(structs(RELEASED)["ts_backend"]) > 30
    assert len(structs(RELEASED)["ts_tensor"]) == 11 and len(constants(RELEASED)) > 120
    check_compatible(RELEASED, TODAY)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("  int64_t numel;\n", ""),
        ("  int64_t byte_offset;\n  int64_t numel;\n", "  int64_t numel;\n  int64_t byte_offset;\n"),
        ("  int32_t ndim;\n", "  int64_t ndim;\n"),
        ("    double f;  /* floating dtypes */\n", "    float f;  /* floating dtypes */\n"),
        ("TS_I_ADD = 38, TS_I_SUB = 39", "TS_I_ADD = 39, TS_I_SUB = 38"),
        ("TS_I_ADD = 38, ", ""),
        ("#define TS_ABI_MAJOR 1", "#define TS_ABI_MAJOR 2"),
    ],
)
def test_other_changes_are_noticed(old: str, new: str) -> None:
    assert old in RELEASED
    with pytest.raises(AssertionError):
        check_compatible(RELEASED, RELEASED.replace(old, new))


def test_appending_is_allowed() -> None:
    longer = RELEASED.replace("  void (*shutdown)(void* ctx);\n", "  void (*shutdown)(void* ctx);\n  void* later;\n")
    check_compatible(RELEASED, longer.replace("TS_NUM_INSTRUCTIONS = 64", "TS_I_NEW = 64, TS_NUM_INSTRUCTIONS = 65"))


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
