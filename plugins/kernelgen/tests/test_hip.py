"""The kernels that a broad set of operators takes in the HIP dialect compile, by hiprtc, which needs no device."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable

import pytest
from families import FAMILIES, recorded
from tesserack.testing import seeds
from tesserack_kernelgen import DiskCache
from tesserack_kernelgen.batch import join
from tesserack_kernelgen.cuda import CUDA
from tesserack_kernelgen.hip import HIP, Compiler

# A data centre's card of 64 lanes, and a desktop's of 32.
ARCHITECTURES = ("gfx90a", "gfx1030")
BATCH = 40  # kernels in one text
VARIANTS = 8  # texts of one kernel, without FULL=1
# In a process of its own: other tests of this one may have compiled by PoCL, whose LLVM hiprtc's does not stand.
COMPILED = """
import sys
from tesserack_kernelgen.hip import Compiler
sys.stdout.buffer.write(Compiler().compile(sys.stdin.read(), *sys.argv[1:]))
"""


@pytest.fixture(scope="module")
def hiprtc() -> Compiler:
    """The compiler. Skips where it is not installed."""
    try:
        return Compiler()
    except OSError as error:
        pytest.skip(str(error))


def chosen(family: Callable[[str], None]) -> list[tuple[str, str]]:
    """Some of the texts of every kernel that a family takes; all of them with FULL=1."""
    pytest.importorskip("tesserack_reference")
    by_name: dict[str, list[str]] = {}
    for source, name in recorded(family, HIP).items():
        by_name.setdefault(name, []).append(source)
    assert by_name
    step = {name: 1 if seeds.full() else -(-len(texts) // VARIANTS) for name, texts in by_name.items()}
    return [(source, name) for name, texts in sorted(by_name.items()) for source in texts[:: step[name]]]


def compiled(text: str, *words: str) -> subprocess.CompletedProcess[bytes]:
    """What the compiler makes of a text for an architecture, with options behind it, and says."""
    command = [sys.executable, "-c", COMPILED, *words]
    return subprocess.run(command, input=text.encode(), capture_output=True, check=False)


def check(hiprtc: Compiler, text: str, architecture: str) -> None:
    """Compile a text, unless the disk cache knows that the very same has compiled before."""
    options = () if seeds.full() else ("-O0",)
    cache, key = DiskCache(), DiskCache.key(text, architecture, str(hiprtc.version), *options, "compiles")
    if cache.get(key) is None:
        done = compiled(text, architecture, *options)
        assert done.stdout.startswith((b"\x7fELF", b"__CLANG_OFFLOAD_BUNDLE__")), done.stderr.decode()
        cache.put(key, b"yes")


@pytest.mark.parametrize("architecture", ARCHITECTURES if seeds.full() else ARCHITECTURES[:1])
@pytest.mark.parametrize("family", FAMILIES, ids=lambda f: f.__name__)
def test_every_variant_compiles(family: Callable[[str], None], architecture: str, hiprtc: Compiler) -> None:
    kernels = chosen(family)
    for start in range(0, len(kernels), BATCH):
        check(hiprtc, join(HIP.text("", True), kernels[start : start + BATCH])[0], architecture)


def test_an_error_carries_the_log(hiprtc: Compiler) -> None:
    done = compiled('extern "C" __global__ void k() { nonsense(); }', "gfx90a")
    assert done.returncode == 1 and re.search(r"RuntimeError: .*gfx90a.*nonsense", done.stderr.decode(), re.DOTALL)


def test_a_missing_compiler_says_what_to_install() -> None:
    with pytest.raises(OSError, match=r"no compiler, .*libnowhere\.so.*install ROCm's hiprtc"):
        Compiler("libnowhere.so")


def test_the_dialects_differ_in_half_precision_alone() -> None:
    ours, theirs = set(HIP.prelude.splitlines()), set(CUDA.prelude.splitlines())
    assert "asm(" not in HIP.prelude
    defined = {line.split("(")[0].removeprefix("#define ") for line in ours - theirs if line.startswith("#define")}
    assert defined == {"LOAD_HALF", "STORE_HALF_F32", "STORE_HALF_F64"}
    assert {line.split("(")[0] for line in theirs if line.startswith("#define")} == {
        line.split("(")[0] for line in ours if line.startswith("#define")
    }
