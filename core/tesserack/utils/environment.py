"""Facts about the machine and the installation, read from the system without naming any vendor."""

from __future__ import annotations

import os
import platform
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import tesserack
from tesserack import _native
from tesserack.backends._discovery import GROUP
from tesserack.plugins._loading import GROUP as PLUGINS

__all__ = ["cpu_quota", "describe", "related_distributions", "usable_cpus"]

# Instruction sets that decide which kernels run, as the kernel of the system spells them.
_FEATURES = (
    *("sse4_2", "avx", "f16c", "fma", "avx2", "avx512f", "avx512bw", "avx512_bf16", "avx512_vnni", "amx_tile"),
    *("amx_bf16", "asimd", "sve", "bf16", "i8mm"),
)
# Classes of PCI devices: displays and processing accelerators.
_CLASSES = {"03": "display", "12": "accelerator"}
_VARIABLES = ("TESSERACK_", "OMP_", "GOMP_", "KMP_", "OPENBLAS_", "MKL_", "LD_LIBRARY_PATH", "LD_PRELOAD")


def describe() -> dict[str, Any]:
    """Everything ``tesserack doctor`` prints but backends, plugins and findings."""
    return {
        "tesserack": {
            "version": tesserack.__version__,
            "abi": ".".join(map(str, _native._abi_version())),
            "folder": str(Path(tesserack.__file__).parent),
        },
        "python": {
            "version": platform.python_version(),
            "implementation": platform.python_implementation(),
            "executable": sys.executable,
            "prefix": sys.prefix,
        },
        "system": {"platform": platform.platform(), "libc": " ".join(platform.libc_ver()).strip() or "unknown"},
        "cpu": _cpu(),
        "memory": _memory(),
        "environment": {k: v for k, v in sorted(os.environ.items()) if k.startswith(_VARIABLES)},
        "hardware": _hardware(),
        "packages": {d.name: d.version for d in related_distributions()},
    }


def related_distributions() -> list[metadata.Distribution]:
    """The core, everything whose name begins as the core's, and everything with an entry point of ours."""
    found: dict[str, metadata.Distribution] = {}
    for distribution in metadata.distributions():
        name = str(getattr(distribution, "name", None) or "").lower()
        try:
            ours = any(point.group in (GROUP, PLUGINS) for point in distribution.entry_points)
        except Exception:
            ours = True  # its entry points cannot be read: a check says so
        if name == "tesserack" or name.startswith("tesserack-") or ours:
            found.setdefault(name, distribution)
    return [found[name] for name in sorted(found)]


# --- the machine ---------------------------------------------------------------------------------------------------


def usable_cpus() -> int:
    """Processors this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def cpu_quota(root: Path = Path("/sys/fs/cgroup")) -> float | None:
    """Processors' worth of time that a container grants; None without a limit."""
    text = _read(root / "cpu.max").split()
    if len(text) == 2 and text[0].isdigit():
        return int(text[0]) / int(text[1])
    quota, period = _read(root / "cpu" / "cpu.cfs_quota_us"), _read(root / "cpu" / "cpu.cfs_period_us")
    return int(quota) / int(period) if quota.isdigit() and period.isdigit() else None


def _cpu() -> dict[str, Any]:
    fields: dict[str, str] = {}
    for line in _read(Path("/proc/cpuinfo")).splitlines():
        key, _, value = line.partition(":")
        fields.setdefault(key.strip().lower(), value.strip())
    flags = (fields.get("flags") or fields.get("features") or "").split()
    return {
        "model": fields.get("model name") or platform.processor() or platform.machine(),
        "machine": platform.machine(),
        "count": os.cpu_count() or 1,
        "usable": usable_cpus(),
        "quota": cpu_quota(),
        "features": [feature for feature in _FEATURES if feature in flags],
    }


def _memory() -> dict[str, Any]:
    sizes = dict(line.split(":", 1) for line in _read(Path("/proc/meminfo")).splitlines() if ":" in line)
    return {
        "total": sizes.get("MemTotal", "unknown").strip(),
        "available": sizes.get("MemAvailable", "unknown").strip(),
    }


def _hardware(root: Path = Path("/sys/bus/pci/devices")) -> list[dict[str, str]]:
    cards = []
    for device in sorted(root.iterdir()) if root.is_dir() else []:
        code = _read(device / "class").removeprefix("0x")
        if code[:2] in _CLASSES:
            driver = device / "driver"
            cards.append(
                {
                    "address": device.name,
                    "kind": _CLASSES[code[:2]],
                    "vendor": _read(device / "vendor"),
                    "device": _read(device / "device"),
                    "driver": driver.resolve().name if driver.exists() else "",
                }
            )
    return cards


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""
