"""Every header that ever landed, in the order in which they did, and what stands in a header.

``headers/checksums.txt`` names them: the file, the version it tells, and its checksum. The last line is of today's
header, by what it declares: its comments may be mended.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).resolve().parent / "headers"
CHECKSUMS = FOLDER / "checksums.txt"
Version = tuple[int, int]


class Listed(NamedTuple):
    """One line of the list."""

    name: str
    told: Version
    checksum: str


def listed() -> list[Listed]:
    """The lines of the list."""
    lines = [line.split() for line in CHECKSUMS.read_text().splitlines() if line and not line.startswith("#")]
    return [Listed(name, number(told), checksum) for name, told, checksum in lines]


def number(text: str) -> Version:
    """``"1.10"`` as it is compared."""
    major, minor = text.split(".")
    return int(major), int(minor)


def version(header: str) -> Version:
    """What a header tells of itself."""
    major, minor = (re.search(rf"#define TS_ABI_{part} (\d+)", header) for part in ("MAJOR", "MINOR"))
    assert major and minor
    return int(major[1]), int(minor[1])


def kept() -> dict[str, str]:
    """The headers before today's, by the names of their files."""
    return {one.name: (FOLDER / one.name).read_text() for one in listed()[:-1]}


def _each_comment(header: str, put: str) -> str:
    """With ``put`` in place of each comment that dates something, ``{}`` being the version; the others are left out."""

    def stand_in(comment: re.Match[str]) -> str:
        dated = re.search(r"\bsince (\d+\.\d+)", comment[0], re.IGNORECASE)
        return put.format(dated[1]) if dated else " "

    return re.sub(r"/\*.*?\*/|//[^\n]*", stand_in, header, flags=re.DOTALL)


def code(header: str) -> str:
    """The header without comments, on one line per declaration."""
    return re.sub(r"\s+", " ", _each_comment(header, " "))


def checksum_of_code(header: str) -> str:
    """Changes with whatever a compiler sees."""
    return hashlib.sha256(code(header).encode()).hexdigest()


def _bodies(text: str) -> dict[str, list[str]]:
    found = re.finditer(r"struct (ts_\w+) \{((?:[^{}]|\{[^{}]*\})*)\}", text)
    # A union is one field: its semicolons stand in braces.
    return {m[1]: re.findall(r"(?:\{[^{}]*\}|[^;{}])+", m[2].strip() + " ") for m in found}


def structs(header: str) -> dict[str, list[str]]:
    """Fields of every struct, as declared."""
    return {name: [f.strip() for f in fields if f.strip()] for name, fields in _bodies(code(header)).items()}


def constants(header: str) -> dict[str, str]:
    """Every enumerator and every number that is defined."""
    text = code(header)
    found = dict(re.findall(r"(TS_\w+) = (-?\w+)", text))
    return {**found, **dict(re.findall(r"#define (TS_ABI_MAJOR) (\d+)", text))}


def counts(name: str) -> bool:
    """Counts grow as values are appended."""
    return name.startswith("TS_NUM_")


def names(field: str) -> list[str]:
    """Of what one declaration declares."""
    if pointer := re.search(r"\(\*(\w+)\)", field):
        return [pointer[1]]
    declared = re.sub(r"\{[^{}]*\}|\[\w+\]", " ", field)
    return [part.split()[-1].lstrip("*") for part in declared.split(",")]


def contents(header: str) -> set[str]:
    """Structs, ``struct.field``, constants, and the symbol that tells the version."""
    fields = {f"{s}.{n}" for s, declared in structs(header).items() for f in declared for n in names(f)}
    symbol = {"tesserack_abi"} if "tesserack_abi[2]" in code(header) else set()
    return {f for f in fields if not f.endswith(".reserved")} | set(structs(header)) | set(constants(header)) | symbol


def marked(header: str) -> dict[str, str]:
    """What the header's own comments date: a struct at its brace, a field or value behind it on its line."""
    text = _each_comment(header, "@{}@")
    dates = dict.fromkeys(structs(header), "1.0")
    for struct, fields in _bodies(re.sub(r"\s+", " ", text)).items():
        owners = [[struct]]
        for field in fields:
            if date := re.match(r"\s*@(.*?)@", field):
                dates.update((owner, date[1]) for owner in owners[-1])
            if declared := re.sub(r"@.*?@", " ", field).strip():
                owners.append([f"{struct}.{name}" for name in names(declared)])
    for line in text.splitlines():
        if date := re.search(r"@(.*?)@", line):
            dates.update((name, date[1]) for name in re.findall(r"\b(TS_\w+|tesserack_abi)(?:\[2\])? = ", line))
    return dates
