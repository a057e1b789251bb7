"""Kernels for the processor of the host: text that a C++ compiler makes a library of when it is first needed."""

from __future__ import annotations

import contextlib
import ctypes
import shutil
import subprocess
import tempfile
import weakref
from collections.abc import Sequence
from pathlib import Path

import tesserack

from tesserack_kernelgen.cache import DiskCache

__all__ = ["HostCompiler"]


class HostCompiler:
    """Functions by their text, from memory, from disk or from the compiler.

    Most of what a kernel costs to compile is what stands before all of them; that is compiled once in a process.

    Args:
        header: text that kernels begin with, as a rule ``dialect.text("", f64)`` of the device.
        flags: for the compiler, beside those for a library with the headers of Tesserack.
        compiler: the command.
        link: for the linker, after the kernel. ``("-nostdlib", "-lm")`` spares it the search of libraries that kernels
            without C++'s own library do not need.
    """

    def __init__(
        self,
        header: str,
        flags: Sequence[str] = ("-std=c++20", "-O1", "-w"),
        compiler: str = "g++",
        link: Sequence[str] = (),
    ):
        self.header, self.compiler, self.link = header, compiler, tuple(link)
        # What a kernel of one process wraps, another wraps too; overflow of integers is defined.
        self.flags = (*flags, "-fwrapv", "-fPIC", "-I", tesserack.get_include())
        self.cache = DiskCache()
        self._folder = Path(tempfile.mkdtemp(prefix="tesserack-host-"))
        weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        self._prepared = False

    def function(self, text: str, symbol: str) -> tuple[int, bool]:
        """The address of an ``extern "C"`` function of a text, and whether it had to be compiled. Not for several
        threads at once: :meth:`Card.compile` is called by one.
        """
        key = self.cache.key(text, self.compiler, *self.flags, *self.link)
        library = self._folder / f"{key}.so"
        binary = self.cache.get(key)
        if binary is None:
            self._compile(text, library)
            self.cache.put(key, library.read_bytes())
        else:
            library.write_bytes(binary)
        address = ctypes.cast(getattr(ctypes.CDLL(str(library)), symbol), ctypes.c_void_p).value or 0
        return address, binary is None

    def _compile(self, text: str, library: Path) -> None:
        source, first = library.with_suffix(".cpp"), []
        if text.startswith(self.header):
            text, first = text[len(self.header) :], ["-include", str(self._prepare())]
        source.write_text(text)
        self._run(*first, "-shared", str(source), "-o", str(library), *self.link)
        source.unlink()

    def _prepare(self) -> Path:
        """The header as a file, with what the compiler makes of it beside; compilers that cannot, read it again."""
        header = self._folder / "header.h"
        if not self._prepared:
            header.write_text(self.header)
            with contextlib.suppress(RuntimeError):
                self._run("-x", "c++-header", str(header), "-o", f"{header}.gch")
            self._prepared = True
        return header

    def _run(self, *arguments: str) -> None:
        done = subprocess.run([self.compiler, *self.flags, *arguments], capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"{self.compiler}: a kernel does not compile:\n{done.stderr[:4000]}")
