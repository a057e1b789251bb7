"""Code compiled at run time: what is compiled again and what is not, what is said when that fails, backends."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest
import tesserack as ts
from tesserack.utils import cpp_extension
from tesserack.utils.cpp_extension import CompileError, load, load_inline

SOURCE = 'extern "C" __attribute__((visibility("default"))) int answer() { return VALUE; }\n'

# A device without kernels of its own: what it computes, it has the cpu do.
BACKEND = """
#include <tesserack/backend.hpp>
#include <cstdlib>
#include <stdexcept>
struct Device {
  static int count(std::string& reason) { reason = "unplugged"; return DEVICES; }
  static void describe(int, ts_properties& out) { out.dtypes = (1 << TS_COMPLEX64) - 1; }
  static void* allocate(int, size_t bytes, void*) { return bytes > (1 << 30) ? nullptr : std::malloc(bytes); }
  static void release(int, void* handle, size_t, void*) { std::free(handle); }
  static void copy_from_host(int, void* dst, int64_t at, const void* src, size_t bytes, void*) {
    if (bytes == 13) tesserack::backend::fail(TS_VALUE_ERROR, "thirteen bytes");
    if (bytes == 14) throw std::runtime_error("fourteen bytes");
    if (bytes == 15) throw 15;
    std::memcpy(static_cast<char*>(dst) + at, src, bytes);
  }
  static void copy_to_host(int, void* dst, const void* src, int64_t at, size_t bytes, void*) {
    std::memcpy(dst, static_cast<const char*>(src) + at, bytes);
  }
  static void copy_within(int, void* dst, int64_t to, const void* src, int64_t from, size_t bytes, void*) {
    std::memmove(static_cast<char*>(dst) + to, static_cast<const char*>(src) + from, bytes);
  }
  static void synchronize(int, void*) {}
};
void fill(const tesserack::backend::Call& call) { throw std::runtime_error("fill of " NAME); }
TS_KERNEL("fill", fill);
TESSERACK_BACKEND(Device, NAME, "com.example." NAME, "2.0");
"""


@pytest.fixture(autouse=True)
def _compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache of the test's own, and a compiler or no test."""
    try:
        cpp_extension.find_compiler()
    except CompileError as error:
        pytest.skip(str(error))
    monkeypatch.setenv("TESSERACK_EXTENSIONS_DIR", str(tmp_path / "cache"))


def answer(library: Path) -> int:
    return ctypes.CDLL(str(library)).answer()


def compile_inline(value: int, **options: object) -> Path:
    return load_inline("sample", SOURCE.replace("VALUE", str(value)), is_backend=False, **options)


def test_compiled_once_per_content(tmp_path: Path):
    first = compile_inline(1)
    stamp = first.stat().st_mtime_ns
    assert first == compile_inline(1) and first.stat().st_mtime_ns == stamp and first.name == "libsample.so"
    second = compile_inline(2)
    assert second != first and (answer(first), answer(second)) == (1, 2)
    assert compile_inline(1, extra_cflags=["-O0"]) != first and compile_inline(1, extra_ldflags=["-lm"]) != first
    assert tmp_path / "cache" in first.parents
    elsewhere = compile_inline(1, build_directory=tmp_path / "mine")
    assert tmp_path / "mine" in elsewhere.parents and answer(elsewhere) == 1


def test_headers_are_watched(tmp_path: Path):
    source, header = tmp_path / "a b.cpp", tmp_path / "va lue.h"
    source.write_text('#include "va lue.h"\n' + SOURCE)
    (tmp_path / "other.cpp").write_text("int unused() { return 0; }\n")
    header.write_text("#define VALUE 3\n")
    library = load("sample", [source, tmp_path / "other.cpp"], is_backend=False)
    stamp = library.stat().st_mtime_ns
    assert answer(library) == 3 and load("sample", [source, tmp_path / "other.cpp"], is_backend=False) == library
    assert library.stat().st_mtime_ns == stamp
    header.write_text("#define VALUE 4\n")
    again = load("sample", [source, tmp_path / "other.cpp"], is_backend=False)
    program = f"import ctypes; print(ctypes.CDLL({str(again)!r}).answer())"  # this process has the old one open
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout == b"4\n"


def test_damaged_cache_is_made_anew():
    library = compile_inline(5)
    (library.parent / "headers.json").write_text("{")
    library.write_bytes(b"")
    assert compile_inline(5) == library and answer(library) == 5


def test_flags_and_output(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "value.h").write_text("#define VALUE 6\n")
    text = '#include "value.h"\n#warning noticed\n' + SOURCE
    library = load_inline(
        "sample", text, ["-DUNUSED"], extra_include_paths=[tmp_path / "there"], verbose=True, is_backend=False
    )
    shown = capfd.readouterr().err
    assert answer(library) == 6 and "-DUNUSED" in shown and "-std=c++20" in shown and "noticed" in shown


def test_errors_show_what_the_compiler_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    with pytest.raises(CompileError, match="compiling 'sample' failed with status 1") as caught:
        load_inline("sample", "int f() { return nothing_of_the_kind; }", is_backend=False)
    assert "nothing_of_the_kind" in str(caught.value) and "sample.cpp:1:" in caught.value.output
    with pytest.raises(CompileError, match=r"undefined reference to `?.*elsewhere"):
        load_inline("sample", "int elsewhere(); int f() { return elsewhere(); }", is_backend=False)
    with pytest.raises(ValueError, match="letters, digits and underscores, got 'a-b'"):
        load_inline("a-b", SOURCE)
    with pytest.raises(ValueError, match="at least one source"):
        load("sample", [])
    with pytest.raises(FileNotFoundError, match=r"no source file '.*nowhere\.cpp'"):
        load("sample", tmp_path / "nowhere.cpp")
    monkeypatch.setenv("CXX", "no-such-compiler -m64")
    with pytest.raises(CompileError, match=r"CXX='no-such-compiler', which is not there; install g\+\+ or set CXX"):
        compile_inline(7)
    monkeypatch.delenv("CXX")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(CompileError, match=r"g\+\+, clang\+\+ or c\+\+ on the path"):
        compile_inline(7)


def test_threads_compile_together():
    found: list[Path] = []
    threads = [threading.Thread(target=lambda: found.append(compile_inline(8))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 1 and answer(found[0]) == 8


def run(program: str) -> str:
    """What a process prints that can make backends: a device cannot be taken back."""
    prelude = f"import tesserack as ts\nfrom tesserack.utils.cpp_extension import load_inline\nBACKEND = {BACKEND!r}\n"
    environment = {**os.environ, "PYTHONPATH": str(Path(ts.__file__).parent.parent)}
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", prelude + textwrap.dedent(program)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"exit status {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_a_backend():
    out = run("""
        ts.backends.set_fallback("allow")
        assert not hasattr(ts.ones(1), "quick")
        def make(name, devices, **options):
            return load_inline(name, f'#define NAME "{name}"\\n#define DEVICES {devices}\\n' + BACKEND, **options)
        print(make("quick", 2).name, make("quick", 2).name)
        # Compiled without hidden visibility, as by hand: the two must not find each other's kernels.
        make("other", 0, extra_cflags=["-fvisibility=default"])
        make("third", 1, extra_cflags=["-fvisibility=default"])
        x = ts.tensor([1.0, 2.0]).to("quick:1")
        print((x + 1).tolist(), x.device, x.is_quick, ts.ones(1).cpu().quick().device, "quick" in ts.backends.list())
        print(ts.backends.why_unavailable("other").partition(": ")[2])
        for name in ("quick", "third"):
            try:
                ts.full((2,), 3.0, device=name)
            except RuntimeError as error:
                print(error)
        for count in (13, 14, 15):
            try:
                ts.ones(count, dtype=ts.uint8).to("quick")
            except (RuntimeError, ValueError) as error:
                print(type(error).__name__, error)
        try:
            ts.empty(1 << 31, dtype=ts.uint8, device="quick")
        except ts.OutOfMemoryError as error:
            print("OutOfMemoryError", "2147483648" in str(error) or error)
        for name, devices in (("quick", 3), ("cpu", 1)):
            try:
                make(name, devices)
            except RuntimeError as error:
                print(error)
        try:
            load_inline("wrong", '#define NAME "right"\\n#define DEVICES 1\\n' + BACKEND)
        except RuntimeError as error:
            print(error)
    """)
    lines = out.splitlines()
    assert lines[0] == "libquick.so libquick.so"
    assert lines[1] == "[2.0, 3.0] quick:1 True quick:0 True"
    assert "unplugged" in lines[2]
    assert lines[3:8] == [
        "fill: fill of quick",
        "fill: fill of third",
        "ValueError copy_from_host: thirteen bytes",
        "RuntimeError copy_from_host: fourteen bytes",
        "RuntimeError copy_from_host: unknown C++ exception in a backend",
    ]
    assert lines[8] == "OutOfMemoryError True"
    assert "'quick' is loaded from" in lines[9] and "restart to load it anew" in lines[9]
    assert "the name 'cpu' is claimed by tesserack-cpu" in lines[10]
    assert "calls itself 'right', but is announced as 'wrong'" in lines[11]
