"""The kernels that a broad set of operators takes in the HIP dialect compile, by hiprtc, which needs no device."""

from __future__ import annotations

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


def check(hiprtc: Compiler, text: str, architecture: str) -> None:
    """Compile a text, unless the disk cache knows that the very same has compiled before."""
    options = () if seeds.full() else ("-O0",)
    cache, key = DiskCache(), DiskCache.key(text, architecture, str(hiprtc.version), *options, "compiles")
    if cache.get(key) is None:
        assert hiprtc.compile(text, architecture, *options).startswith((b"\x7fELF", b"__CLANG_OFFLOAD_BUNDLE__"))
        cache.put(key, b"yes")


@pytest.mark.parametrize("architecture", ARCHITECTURES if seeds.full() else ARCHITECTURES[:1])
@pytest.mark.parametrize("family", FAMILIES, ids=lambda f: f.__name__)
def test_every_variant_compiles(family: Callable[[str], None], architecture: str, hiprtc: Compiler) -> None:
    kernels = chosen(family)
    for start in range(0, len(kernels), BATCH):
        check(hiprtc, join(HIP.text("", True), kernels[start : start + BATCH])[0], architecture)


def test_an_error_carries_the_log(hiprtc: Compiler) -> None:
    with pytest.raises(RuntimeError, match=r"gfx90a.*nonsense"):
        hiprtc.compile('extern "C" __global__ void k() { nonsense(); }', "gfx90a")


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
