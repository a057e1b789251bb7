"""C and C++ compiled while the program runs, against ``tesserack/abi.h``: a backend, or operators and dispatch keys.

>>> import tesserack as ts
>>> from tesserack.utils import cpp_extension
>>> cpp_extension.load_inline("demo", "int twice(int x) { return 2 * x; }", is_backend=False).name  # doctest: +SKIP
'libdemo.so'

Libraries are kept in a folder named by the hash of all that went into them, and compiled again only when that changes.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tesserack.utils.cache import user_cache
from tesserack.utils.headers import get_include

__all__ = ["CompileError", "cache_directory", "find_compiler", "load", "load_inline"]

#: What every library is compiled with. Integers wrap, as the contract says; what is not exported stays hidden.
CFLAGS = ("-std=c++20", "-O2", "-fPIC", "-fwrapv", "-Wall", "-fvisibility=hidden", "-fvisibility-inlines-hidden")
LDFLAGS = ("-shared", "-Wl,-z,defs") if sys.platform.startswith("linux") else ("-shared",)

#: Instead of the flags that are for C++ only.
C_FLAGS = ("-xc", "-std=c11")
KINDS = ("backend", "library", "plain")

_loaded: dict[str, Path] = {}
_lock = threading.Lock()


class CompileError(RuntimeError):
    """The compiler failed, or there is none. ``output`` is what it printed."""

    def __init__(self, message: str, output: str = "") -> None:
        super().__init__(message)
        self.output = output


def load(
    name: str,
    sources: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    extra_cflags: Sequence[str] = (),
    extra_ldflags: Sequence[str] = (),
    extra_include_paths: Sequence[str | os.PathLike[str]] = (),
    build_directory: str | os.PathLike[str] | None = None,
    verbose: bool = False,
    is_backend: bool = True,
    kind: str | None = None,
) -> Path:
    """Compile C and C++ sources into a shared library, and register it as the backend ``name``; returns its path.

    Args:
        name: the device's name, which the library must give itself; any identifier for what is no backend.
        sources: files, in C if their names end in ``.c``; headers beside them are found, and watched for changes.
        extra_cflags, extra_ldflags, extra_include_paths: added to what every library is compiled with.
        build_directory: where the library goes; by default a folder in :func:`cache_directory`.
        verbose: print the compiler's commands and output.
        is_backend: False for a library that is only compiled: ``kind="plain"``.
        kind: ``"backend"``; ``"library"`` of operators and dispatch keys, which is given to
            :func:`tesserack.dispatch.load_library`; or ``"plain"``, which is only compiled.

    Raises:
        CompileError: a ``RuntimeError`` with the compiler's output, or saying that there is no compiler.
        FileNotFoundError: for a source that does not exist.
        RuntimeError: if the library is no backend of that name, or the name is taken by other code.
        ValueError: for a name that is no identifier, a kind there is not, or no sources.
    """
    kind = kind or ("backend" if is_backend else "plain")
    if kind not in KINDS:
        raise ValueError(f"cpp_extension: expected a kind among {', '.join(KINDS)}, got {kind!r}")
    files = [Path(sources)] if isinstance(sources, (str, os.PathLike)) else [Path(source) for source in sources]
    _check(name, files)
    compiler = find_compiler()
    flags = [*CFLAGS, f"-I{get_include()}", *(f"-I{Path(path).resolve()}" for path in extra_include_paths)]
    recipe = Recipe(name, [f.resolve() for f in files], compiler, [*flags, *extra_cflags], [*LDFLAGS, *extra_ldflags])
    with _lock:
        library = recipe.library(Path(build_directory) if build_directory else cache_directory(), verbose)
        if kind == "backend":
            _register(name, library)
    if kind == "library":
        from tesserack.library import dispatch

        dispatch.load_library(library)
    return library


def load_inline(
    name: str,
    source: str | Sequence[str],
    extra_cflags: Sequence[str] = (),
    extra_ldflags: Sequence[str] = (),
    extra_include_paths: Sequence[str | os.PathLike[str]] = (),
    build_directory: str | os.PathLike[str] | None = None,
    verbose: bool = False,
    is_backend: bool = True,
    kind: str | None = None,
) -> Path:
    """Like :func:`load`, of C++ given as text, or several."""
    texts = [source] if isinstance(source, str) else [*source]
    _check(name, texts)
    digest = hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]
    folder = (Path(build_directory) if build_directory else cache_directory()) / f"{name}-source-{digest}"
    folder.mkdir(parents=True, exist_ok=True)
    files = [folder / f"{name}{index or ''}.cpp" for index in range(len(texts))]
    for file, text in zip(files, texts, strict=True):
        if not file.exists() or file.read_text("utf-8") != text:
            _replace(file, lambda temporary, text=text: temporary.write_text(text, "utf-8"))  # type: ignore[misc]
    return load(
        name, files, extra_cflags, extra_ldflags, extra_include_paths, build_directory, verbose, is_backend, kind
    )


def cache_directory() -> Path:
    """Where libraries are kept: ``TESSERACK_EXTENSIONS_DIR``, else ``tesserack/extensions`` in the user's cache."""
    chosen = os.environ.get("TESSERACK_EXTENSIONS_DIR")
    return Path(chosen) if chosen else user_cache("extensions")


def find_compiler() -> list[str]:
    """The words of the C++ compiler's command: the variable ``CXX``, else g++ or clang++ from the path.

    Raises:
        CompileError: if there is none.
    """
    chosen = shlex.split(os.environ.get("CXX", ""))
    candidates = [chosen] if chosen else [["g++"], ["clang++"], ["c++"]]
    for words in candidates:
        if shutil.which(words[0]):
            return words
    wanted = f"CXX={chosen[0]!r}, which is not there" if chosen else "g++, clang++ or c++ on the path"
    raise CompileError(f"cpp_extension: expected a C++ compiler: {wanted}; install g++ or set CXX")


# --- compiling -----------------------------------------------------------------------------------------------------


class Recipe:
    """All that a library is made of."""

    def __init__(self, name: str, sources: list[Path], compiler: list[str], cflags: list[str], ldflags: list[str]):
        self.name, self.sources, self.compiler = name, sources, compiler
        self.cflags, self.ldflags = cflags, ldflags

    def digest(self) -> str:
        """Of sources, flags and compiler; headers are looked at afterwards, see :func:`_unchanged`."""
        executable = Path(shutil.which(self.compiler[0]) or self.compiler[0])
        words = [*self.compiler, str(executable.stat().st_mtime_ns), "", *self.cflags, "", *self.ldflags, ""]
        parts = ["\0".join(words).encode(), *(f"{s}\0".encode() + s.read_bytes() for s in self.sources)]
        return hashlib.sha256(b"\0\0".join(parts)).hexdigest()[:16]

    def library(self, directory: Path, verbose: bool) -> Path:
        """The library's path, compiled now unless it was before."""
        folder = directory / f"{self.name}-{self.digest()}"
        manifest, library = folder / "headers.json", folder / f"lib{self.name}.so"
        if library.exists() and _unchanged(manifest):
            return library
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="build-", dir=folder) as build:
            objects = [Path(build, f"{index}.o") for index in range(len(self.sources))]
            with ThreadPoolExecutor(min(len(objects), os.cpu_count() or 1)) as pool:
                [*pool.map(lambda source, to: self._compile(source, to, verbose), self.sources, objects)]
            out = Path(build, library.name)
            self._run([*self.compiler, *map(str, objects), "-o", str(out), *self.ldflags], verbose)
            headers = {path: _hash(path) for file in objects for path in _headers_of(file.with_suffix(".d"))}
            # Another process may be at the same: each of the two files appears whole, the library first.
            out.replace(library)
            _replace(manifest, lambda temporary: temporary.write_text(json.dumps(headers, indent=1), "utf-8"))
        return library

    def _compile(self, source: Path, to: Path, verbose: bool) -> None:
        flags = self.cflags
        if source.suffix == ".c":
            flags = [*C_FLAGS, *(f for f in flags if not f.startswith(("-std=c++", "-fvisibility-inlines")))]
        self._run([*self.compiler, *flags, "-MMD", "-MT", "out", "-c", str(source), "-o", str(to)], verbose)

    def _run(self, command: list[str], verbose: bool) -> None:
        if verbose:
            print(shlex.join(command), file=sys.stderr)
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        output = (done.stdout + done.stderr).strip()
        if verbose and output:
            print(output, file=sys.stderr)
        if done.returncode:
            raise CompileError(
                f"cpp_extension: compiling {self.name!r} failed with status {done.returncode}:\n{output}\n"
                f"command: {shlex.join(command)}",
                output,
            )


def _replace(target: Path, write: Callable[[Path], object]) -> None:
    """Let ``write`` make a file that then takes the target's place at once."""
    temporary = target.with_name(f"{target.name}.{os.getpid()}.{threading.get_ident()}")
    write(temporary)
    temporary.replace(target)


def _headers_of(dependencies: Path) -> list[str]:
    """The files named in a make rule that the compiler wrote; a space in a name stands behind a backslash."""
    rule = dependencies.read_text("utf-8").partition(":")[2].replace("\\\n", " ").replace("\\ ", "\0")
    return [path.replace("\0", " ") for path in rule.split()]


def _hash(path: str) -> str:
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def _unchanged(manifest: Path) -> bool:
    """Whether the headers are what they were when the library was compiled."""
    try:
        headers: dict[str, str] = json.loads(manifest.read_text("utf-8"))
        return all(_hash(path) == digest for path, digest in headers.items())
    except (OSError, ValueError):
        return False


# --- using ---------------------------------------------------------------------------------------------------------


def _check(name: str, sources: Sequence[object]) -> None:
    if not (name.isascii() and name.isidentifier()):
        raise ValueError(f"cpp_extension: expected a name of letters, digits and underscores, got {name!r}")
    if not sources:
        raise ValueError("cpp_extension: expected at least one source, got none")
    for source in sources:
        if isinstance(source, Path) and not source.is_file():
            raise FileNotFoundError(f"cpp_extension: there is no source file {str(source)!r}")


def _register(name: str, library: Path) -> None:
    """Once per library and process; other code under a name that is taken is the core's to refuse."""
    from tesserack import _native
    from tesserack.backends import _accessors, _discovery

    if _loaded.get(name) == library:
        return
    if name in _loaded:
        raise RuntimeError(
            f"cpp_extension: the backend {name!r} is loaded from {_loaded[name]}, and its code has changed since; "
            "restart to load it anew"
        )
    if name in _discovery.claims():
        owner = _discovery.claims()[name][0]
        raise RuntimeError(f"cpp_extension: the name {name!r} is claimed by {owner}, which is installed; rename yours")
    _native._load_backend(os.fspath(library), name, "cpp_extension")
    _loaded[name] = library
    _accessors.announce([name])
