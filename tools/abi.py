"""Bring what follows from a changed ``abi.h`` up to it.

``python tools/abi.py release``, after the header was edited, keeps the header of the last commit in
``tests/abi/headers``, raises ``TS_ABI_MINOR`` once, dates what is new, and writes the checksums, the lines of
``tests/native/abi_offsets.cpp`` and the rows and versions of ``docs/authoring/abi.md``. It changes nothing where the
header declares what it did, and may be run again while the header is still being edited.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "abi"))

import abi_headers as headers  # noqa: E402

HEADER = "core/include/tesserack/abi.h"
KEPT, OFFSETS, PAGE = "tests/abi/headers", "tests/native/abi_offsets.cpp", "docs/authoring/abi.md"


def release(root: Path = ROOT) -> list[str]:
    """What was written, a line each."""
    old, new = last_header(root), (root / HEADER).read_text()
    if headers.code(old) == headers.code(new):
        return []
    check_appended(old, new)
    number = text_of(headers.version(old))
    new = raised(old, new)
    new = dated(old, new, text_of(headers.version(new)))
    (root / HEADER).write_text(new)
    keep(root, number, old, new)
    write(root / OFFSETS, with_offsets((root / OFFSETS).read_text(), new))
    write(root / PAGE, with_rows((root / PAGE).read_text(), old, new))
    return [f"{HEADER}: {number} became {text_of(headers.version(new))}", KEPT, OFFSETS, PAGE]


def write(path: Path, text: str) -> None:
    """Only where it differs, so that nothing is compiled for nothing."""
    if path.read_text() != text:
        path.write_text(text)


def text_of(version: headers.Version) -> str:
    """``(2, 10)`` as it is written."""
    return f"{version[0]}.{version[1]}"


def last_header(root: Path) -> str:
    """The header of the last commit."""
    asked = subprocess.run(["git", "show", f"HEAD:{HEADER}"], cwd=root, capture_output=True, text=True, check=True)
    return asked.stdout


def check_appended(old: str, new: str) -> None:
    """A minor version only appends; what a new major takes is written by hand."""
    later, values = headers.structs(new), headers.constants(new)
    moved = [name for name, fields in headers.structs(old).items() if later.get(name, [])[: len(fields)] != fields]
    moved += [n for n, v in headers.constants(old).items() if not headers.counts(n) and values.get(n) != v]
    if moved:
        raise SystemExit(f"abi.py: not only appended, which takes a major version: {', '.join(moved)}")


def raised(old: str, new: str) -> str:
    """The header with a minor version of its own."""
    (major, minor), told = headers.version(old), headers.version(new)
    if told not in ((major, minor), (major, minor + 1)):
        raise SystemExit(f"abi.py: {text_of(told)} does not follow {text_of((major, minor))}")
    return re.sub(r"(#define TS_ABI_MINOR) \d+", rf"\1 {minor + 1}", new, count=1)


# --- dates ------------------------------------------------------------------------------------------------------------


def added(old: str, new: str) -> list[str]:
    """Structs, and fields and values that came to structs and enums that there were, counts apart."""
    before = headers.contents(old)
    enums = [re.findall(r"(TS_\w+) =", values) for values in re.findall(r"enum \{(.*?)\}", headers.code(new))]
    grown = {name for names in enums if before.intersection(names) for name in names if not headers.counts(name)}
    names = headers.contents(new) - before
    return sorted(
        n for n in names if n in grown or n.partition(".")[0] in (before if "." in n else headers.structs(new))
    )


def dated(old: str, new: str, version: str) -> str:
    """The header with ``since`` beside what is new and does not say it."""
    for name in added(old, new):
        if headers.marked(new).get(name) != version:
            new = with_date(new, name, version)
    return new


def with_date(header: str, name: str, version: str) -> str:
    struct, _, field = name.rpartition(".")
    if struct:
        start = header.index(f"struct {struct} {{")
        found = re.compile(rf"\(\*{field}\)[^;]*;|\b{field}\b[^;()]*;").search(header, start)
    elif name.startswith("ts_"):
        found = re.search(rf"struct {name} \{{", header)
    else:
        found = re.search(rf"\b{name} = [^,\n]*,?", header)
    assert found, name
    end = header.index("\n", found.end())
    line = header[found.end() : end]
    if "/*" in line and f"since {version}" not in line:
        line = line.replace("/* ", f"/* since {version}: ", 1)
    elif "/*" not in line:
        line = f"{line} /* since {version} */"
    return header[: found.end()] + line + header[end:]


# --- what is written down of it ---------------------------------------------------------------------------------------


def keep(root: Path, number: str, old: str, new: str) -> None:
    """The last header beside those before it, and the checksums of both."""
    folder = root / KEPT
    (folder / f"{number}.h").write_text(old)
    lines = (folder / "checksums.txt").read_text().splitlines()
    lines = [line for line in lines if not line.startswith(("current ", f"{number}.h "))]
    lines.append(f"{number}.h {number} {hashlib.sha256(old.encode()).hexdigest()}")
    lines.append(f"current {text_of(headers.version(new))} {headers.checksum_of_code(new)}")
    write(folder / "checksums.txt", "\n".join(lines) + "\n")


def with_offsets(text: str, header: str) -> str:
    """The file of offsets with the lines that it lacks, and sizes as they have grown."""
    for line in layout(header):
        kind, struct = re.match(r"(\w+)\((\w+)", line).groups()  # type: ignore[union-attr]
        if line in text:
            continue
        if kind == "SIZE" and f"SIZE({struct}, " in text:
            text = re.sub(rf"SIZE\({struct}, \d+\);", line, text)
            continue
        same = [*re.finditer(rf"^(?:AT|SIZE)\({struct}, .*\n", text, re.MULTILINE)] if kind == "AT" else []
        place = same[-1].end() if same else len(text)
        text = f"{text[:place]}{line}\n{text[place:]}"
    return text


def layout(header: str) -> list[str]:
    """Lines for all of a header, as a compiler lays it out."""
    fields = {s: [n for f in declared for n in headers.names(f)] for s, declared in headers.structs(header).items()}
    values = [name for name in headers.constants(header) if not headers.counts(name)]
    prints = []
    for struct, names in fields.items():
        prints.append(f'printf("SIZE({struct}, %zu);\\n", sizeof({struct}));')
        prints += [f'printf("AT({struct}, {n}, %zu);\\n", offsetof({struct}, {n}));' for n in names]
    prints += [f'printf("VALUE({name}, %lld);\\n", (long long){name});' for name in values]
    program = '#include "abi.h"\n#include <cstddef>\n#include <cstdio>\nint main() {\n' + "\n".join(prints) + "\n}\n"
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "abi.h").write_text(header)
        (Path(folder) / "layout.cpp").write_text(program)
        command = [os.environ.get("CXX", "g++"), "-std=c++20", "-o", "layout", "layout.cpp"]
        subprocess.run(command, cwd=folder, check=True)
        return subprocess.run([f"{folder}/layout"], capture_output=True, text=True, check=True).stdout.splitlines()


def with_rows(page: str, old: str, new: str) -> str:
    """The page with today's version, and a row for each thing that it does not date yet."""
    (major, before), version = headers.version(old), text_of(headers.version(new))
    page = page.replace(f"TS_ABI_MINOR {before}'", f"TS_ABI_MINOR {before + 1}'")
    page = page.replace(f"speaks {major}.{before};", f"speaks {version};")
    table = page.index("| Table | Given by | Since |")
    end = page.index("\n\n", table) + 1
    rows = ""
    for name in added(old, new):
        struct, _, field = name.rpartition(".")
        shown = f"`{struct}`: `{field}`" if struct else f"`{name}`"
        if not re.search(rf"^\| .*`{field or name}`.* \| {re.escape(version)} \|", page[table:end], re.MULTILINE):
            rows += f"| {shown} | {giver(page[table:end], struct or name)} | {version} | [native](native.md) |\n"
    return page[:end] + rows + page[end:]


def giver(table: str, name: str) -> str:
    """Who gives a table, as its row says; of a value that is no instruction both sides."""
    row = re.search(rf"^\| (?:.*[,;] )?`{name}`[^:]*?\| (.*?) \|", table, re.MULTILINE)
    if row:
        return row[1]
    return "the core" if name.startswith("TS_I_") else "both" if name.startswith("TS_") else "the device"


def main() -> None:
    parser = argparse.ArgumentParser(description="Bring what follows from a changed abi.h up to it.")
    parser.add_argument("command", choices=["release"])
    parser.parse_args()
    print("\n".join(release()) or "abi.h declares what it did")


if __name__ == "__main__":
    main()
