"""What Linux tells of the processor, by PyTorch's names."""

from __future__ import annotations

import functools
import os
import platform
import re
from pathlib import Path

__all__ = ["get_capabilities"]

# PyTorch's names of instructions: those that are Linux's too, and Linux's of others.
_X86 = {
    **{name: name for name in (
        "aes", "amx_bf16", "amx_fp16", "amx_int8", "amx_tile", "avx", "avx10_1", "avx10_2", "avx2",
        "avx512_4fmaps", "avx512_4vnniw", "avx512_bf16", "avx512_bitalg", "avx512_fp16", "avx512_vbmi2",
        "avx512_vnni", "avx512_vp2intersect", "avx512_vpopcntdq", "avx_ne_convert", "avx_vnni", "avx_vnni_int16",
        "avx_vnni_int8", "bmi2", "clflush", "clflushopt", "clwb", "f16c", "fma4", "popcnt", "sse", "sse2",
        "sse4_1", "sse4_2", "sse4a", "ssse3",
    )},
    "avx512_bw": "avx512bw", "avx512_cd": "avx512cd", "avx512_dq": "avx512dq", "avx512_f": "avx512f",
    "avx512_ifma": "avx512ifma", "avx512_vbmi": "avx512vbmi", "avx512_vl": "avx512vl", "bmi": "bmi1",
    "fma3": "fma", "lzcnt": "abm", "sha": "sha_ni", "sse3": "pni",
}  # fmt: skip
_ARM = {"neon": "asimd", "fp16_arith": "asimdhp", "bf16": "bf16", "i8mm": "i8mm", "dot": "asimddp", "sve": "sve",
        "sve2": "sve2", "sve_bf16": "svebf16", "atomics": "atomics", "rdm": "asimdrdm", "sme": "sme"}  # fmt: skip


def _text(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""


def _field(text: str, *names: str) -> str:
    """The first value of one of these fields."""
    found = re.search(rf"^({'|'.join(names)})\s*: (.*)$", text, re.MULTILINE)
    return found[2].strip() if found else ""


def _cache(level: int, kinds: tuple[str, ...]) -> int:
    """Bytes of a cache of the first processor; 0 where that is not told."""
    for index in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*"):
        if _text(f"{index}/level").strip() == str(level) and _text(f"{index}/type").strip() in kinds:
            size = re.fullmatch(r"(\d+)([KM]?)", _text(f"{index}/size").strip())
            return int(size[1]) << {"": 0, "K": 10, "M": 20}[size[2]] if size else 0
    return 0


@functools.cache
def _capabilities() -> dict[str, bool | int | str]:
    told, machine = _text("/proc/cpuinfo"), platform.machine()
    flags = set(_field(told, "flags", "Features").split())
    names = _X86 if machine in ("x86_64", "AMD64", "i686") else _ARM if machine in ("aarch64", "arm64") else {}
    logical = os.cpu_count() or 1
    cores = set(re.findall(r"^physical id\s*: (\d+)\n(?:.*\n)*?core id\s*: (\d+)$", told, re.MULTILINE))
    sockets = {socket for socket, _ in cores}
    return {
        "architecture": machine,
        "cpu_name": _field(told, "model name", "Model") or machine,
        "num_logical_cores": logical,
        "num_physical_cores": len(cores) or logical,
        "num_sockets": len(sockets) or 1,
        "l1d_cache_size": _cache(1, ("Data", "Unified")),
        "l2_cache_size": _cache(2, ("Unified",)),
        **{name: flag in flags for name, flag in names.items()},
    }


def get_capabilities() -> dict[str, bool | int | str]:
    """The processor's architecture, name, counts of cores, bytes of caches, and which instructions it has.

    What Linux does not tell is 0 or False.

    >>> found = get_capabilities()
    >>> found["num_logical_cores"] >= 1, isinstance(found["architecture"], str)
    (True, True)
    """
    return dict(_capabilities())
