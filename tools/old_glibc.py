"""Linking against an old C library with the compiler that is there, so that wheels load on systems since 2018.

The packages of ziglang hold what every version of glibc exports; ``python tools/old_glibc.py FOLDER`` lays that of 2.28
into a folder as libraries without code, compiles ``old_glibc.cpp``, and prints the ``LDFLAGS`` that use both; for
another processor with its name and Debian's cross compiler: ``python tools/old_glibc.py FOLDER aarch64``.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
VERSION = "2.28"
# What -lNAME finds: the library as programs of that time name it.
LIBRARIES = {"m": "libm.so.6", "pthread": "libpthread.so.0", "dl": "libdl.so.2", "rt": "librt.so.1"}
# Calls that libraries bring along themselves, so that their addresses are theirs: atexit and the like.
OWN_CALLS = ("/usr/lib/{}-linux-gnu/libc_nonshared.a", "/usr/{}-linux-gnu/lib/libc_nonshared.a")


def flags(folder: Path, machine: str = platform.machine(), compiler: str | None = None) -> str:
    """Prepare the folder, unless it is, and return the flags."""
    folder = folder.resolve()
    # Named after its contents, so that what was linked with another is linked again.
    digest = hashlib.sha256((HERE / "old_glibc.cpp").read_bytes()).hexdigest()[:12]
    calls = folder / f"old_glibc-{digest}.o"
    if not calls.exists():
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / "libc.so.6").exists():
            _stubs(folder, machine)
        for name, library in LIBRARIES.items():
            (folder / f"lib{name}.so").write_text(f"INPUT ( {folder / library} )\n")
        needed = " ".join(str(folder / name) for name in ("libpthread.so.0", "libdl.so.2", "libld.so.2"))
        own_calls = next(path for name in OWN_CALLS if Path(path := name.format(machine)).exists())
        group = f"GROUP ( {folder / 'libc.so.6'} {own_calls} AS_NEEDED ( {needed} ) )\n"
        (folder / "libc.so").write_text(group)
        command = [
            compiler or os.environ.get("CXX", "g++"),
            "-O2",
            "-fPIC",
            "-std=c++20",
            "-c",
            str(HERE / "old_glibc.cpp"),
            "-o",
            str(calls),
        ]
        subprocess.run(command, check=True)
    # What the compiler's own libraries want of a newer one is there where they are.
    return f"-L{folder} {calls} -Wl,--allow-shlib-undefined"


def _stubs(folder: Path, machine: str) -> None:
    """What zig makes of its tables when it links for that version."""
    with tempfile.TemporaryDirectory() as scratch:
        source = Path(scratch) / "empty.c"
        source.write_text("int empty;\n")
        triple = f"{machine}-linux-gnu.{VERSION}"
        command = [sys.executable, "-m", "ziglang", "cc", "-target", triple, "-shared", str(source)]
        caches = dict.fromkeys(("ZIG_GLOBAL_CACHE_DIR", "ZIG_LOCAL_CACHE_DIR"), f"{scratch}/cache")
        subprocess.run([*command, "-o", f"{scratch}/empty.so", "-lm"], check=True, env={**os.environ, **caches})
        (found,) = (path.parent for path in Path(scratch).glob("cache/o/*/libc.so.6"))
        for library in found.glob("lib*.so.*"):
            shutil.copy(library, folder)


if __name__ == "__main__":
    machine = sys.argv[2] if len(sys.argv) > 2 else platform.machine()
    print(flags(Path(sys.argv[1]), machine, f"{machine}-linux-gnu-g++" if machine != platform.machine() else None))
