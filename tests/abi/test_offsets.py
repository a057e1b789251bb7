"""Where each field lies, and what each value is: written down once, in ``tests/native/abi_offsets.cpp``, for all
headers of today's major version."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import abi_headers as headers
import pytest
import tesserack as ts

OFFSETS = (Path(__file__).resolve().parents[1] / "native" / "abi_offsets.cpp").read_text()
TODAY = (Path(ts.get_include()) / "tesserack" / "abi.h").read_text()
SAME = [name for name, text in headers.kept().items() if headers.version(text)[0] == headers.version(TODAY)[0]]
PLACES = {f"{struct}.{field}": line for line, struct, field in re.findall(r"^(AT\((\w+), (\w+), .*)$", OFFSETS, re.M)}
VALUES = {name: line for line, name in re.findall(r"^(VALUE\((\w+), .*)$", OFFSETS, re.M)}


def declared(header: str) -> tuple[set[str], set[str]]:
    """Fields, reserved ones too, and values that are not counts."""
    fields = {
        f"{s}.{n}" for s, all_of_it in headers.structs(header).items() for f in all_of_it for n in headers.names(f)
    }
    return fields, {name for name in headers.constants(header) if not headers.counts(name)}


def test_each_is_written_down() -> None:
    fields, values = declared(TODAY)
    assert len(fields) > 250 and fields - PLACES.keys() == set() and PLACES.keys() - fields == set()
    assert len(values) > 160 and values - VALUES.keys() == set() and VALUES.keys() - values == set()
    assert set(re.findall(r"^SIZE\((\w+), ", OFFSETS, re.M)) == headers.structs(TODAY).keys()


@pytest.mark.parametrize("name", SAME)
def test_kept_headers_lay_them_out_the_same(name: str, compiler: str, tmp_path: Path) -> None:
    """What a compiler makes of each: libraries of all of them are called by today's core."""
    header = headers.kept()[name]
    fields, values = declared(header)
    lines = [line for line in OFFSETS.splitlines() if line.startswith("#define ")]
    lines += [PLACES[field] for field in sorted(fields)] + [VALUES[value] for value in sorted(values)]
    (tmp_path / "abi.h").write_text(header)
    source = tmp_path / "offsets.cpp"
    source.write_text("\n".join(('#include "abi.h"', "#include <cstddef>", *lines)) + "\n")
    command = [compiler, "-std=c++20", "-fsyntax-only", str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
