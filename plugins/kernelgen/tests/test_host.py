"""Kernels that the host's C++ compiler makes: the header once, everything from disk the second time."""

from __future__ import annotations

import ctypes
import shutil
from pathlib import Path

import pytest
from tesserack_kernelgen import HostCompiler

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="compiles with g++")
HEADER = "#include <cmath>\nstatic inline int twice(int x) { return 2 * x; }"


def kernel(add: int) -> str:
    return f'{HEADER}\nextern "C" int run(int x) {{ return twice(x) + {add}; }}'


def call(address: int, x: int) -> int:
    return int(ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)(address)(x))


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TESSERACK_KERNEL_CACHE", str(tmp_path / "kernels"))
    return tmp_path


def test_a_second_process_compiles_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    address, compiled = HostCompiler(HEADER).function(kernel(1), "run")
    assert compiled and call(address, 20) == 41
    again = HostCompiler(HEADER)
    monkeypatch.setattr(again, "_run", None)  # what would compile
    address, compiled = again.function(kernel(1), "run")
    assert not compiled and call(address, 20) == 41


def test_the_header_is_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    compiler, runs = HostCompiler(HEADER), list[tuple[str, ...]]()
    run = compiler._run
    monkeypatch.setattr(compiler, "_run", lambda *arguments: (runs.append(arguments), run(*arguments)))
    assert [call(compiler.function(kernel(k), "run")[0], 3) for k in (1, 2, 3)] == [7, 8, 9]
    assert [arguments[0] for arguments in runs] == ["-x", "-include", "-include", "-include"]
    assert call(compiler.function('extern "C" int run(int x) { return -x; }', "run")[0], 3) == -3  # without the header


def test_a_header_that_cannot_be_precompiled_is_read_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = HostCompiler(HEADER)
    run = compiler._run

    def refuse(*arguments: str) -> None:
        if "-x" in arguments:
            raise RuntimeError("no such language")
        run(*arguments)

    monkeypatch.setattr(compiler, "_run", refuse)
    assert call(compiler.function(kernel(5), "run")[0], 3) == 11


def test_what_to_link_stands_after_the_kernel_and_in_the_key() -> None:
    """Functions of another library are found; without it the same text is another kernel."""
    text = f'{HEADER}\nextern "C" int run(int x) {{ return twice((int)lgamma(x)); }}'  # log(4!) is 3.178
    address, compiled = HostCompiler(HEADER, link=("-nostdlib", "-lm")).function(text, "run")
    assert compiled and call(address, 5) == 6
    assert not HostCompiler(HEADER, link=("-nostdlib", "-lm")).function(text, "run")[1]
    assert HostCompiler(HEADER).function(text, "run")[1]


def test_what_does_not_compile_is_told() -> None:
    with pytest.raises(RuntimeError, match=r"g\+\+: a kernel does not compile:[^$]*nowhere"):
        HostCompiler(HEADER).function(f'{HEADER}\nextern "C" int run(int x) {{ return nowhere(x); }}', "run")
