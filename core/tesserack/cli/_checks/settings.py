"""Do environment variables and permissions make sense?"""

from __future__ import annotations

import difflib
import math
import os
from collections.abc import Iterator
from pathlib import Path

from tesserack.backends import why_unavailable
from tesserack.backends._discovery import SettingError, installed_names, plugins_enabled
from tesserack.plugins import Finding
from tesserack.utils.environment import cpu_quota, usable_cpus

__all__ = ["VARIABLES", "check"]

# Every variable that the core reads; a test compares this list with the sources.
VARIABLES = (
    "TESSERACK_CHECKED",
    "TESSERACK_COMM",
    "TESSERACK_DEVICE",
    "TESSERACK_DISABLE_KERNELS",
    "TESSERACK_EXTENSIONS_DIR",
    "TESSERACK_FFT",
    "TESSERACK_KERNEL_CACHE",
    "TESSERACK_LOGS",
    "TESSERACK_PLUGINS",
    "TESSERACK_SHAPES",
    "TESSERACK_SOCKET_IFNAME",
    "TESSERACK_TRACE_RANKS",
)
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def check() -> Iterator[Finding]:
    """All checks of settings."""
    yield from _own_variables()
    yield from _threads()
    yield from _device_files()


def _own_variables() -> Iterator[Finding]:
    backends = [name.upper() for name in installed_names()]  # each may have variables of its own
    for name in sorted(os.environ):
        own = name in VARIABLES or any(name.startswith(f"TESSERACK_{backend}_") for backend in backends)
        if name.startswith("TESSERACK_") and not own:
            near = difflib.get_close_matches(name, VARIABLES, n=1)
            cure = f"did you mean {near[0]}?" if near else f"those there are: {', '.join(VARIABLES)}"
            yield Finding("warning", "environment", f"{name} is set, but nothing reads it", cure)
    try:
        enabled = plugins_enabled()
    except SettingError as error:
        yield Finding("error", "environment", str(error), "unset TESSERACK_PLUGINS")
        return
    if not enabled:
        yield Finding("info", "environment", "TESSERACK_PLUGINS=off hides all backends but the default and all plugins")
    device = os.environ.get("TESSERACK_DEVICE")
    reason = why_unavailable(device) if device else None
    if reason:
        yield Finding("error", "environment", f"TESSERACK_DEVICE={device}: {reason}", "unset or correct it")


def _threads() -> Iterator[Finding]:
    usable, quota = usable_cpus(), cpu_quota()
    granted = min(usable, math.ceil(quota)) if quota else usable
    for name in _THREADS:
        text = os.environ.get(name, "").partition(",")[0]
        if text.isdigit() and int(text) > granted:
            message = f"{name}={text}, but this process may use {granted} processors: threads wait for each other"
            yield Finding("warning", "threads", message, f"export {name}={granted}, or unset it")
    if granted < usable and "OMP_NUM_THREADS" not in os.environ:
        message = f"the container grants {quota:g} of {usable} processors, but one thread for each will be started"
        yield Finding("warning", "threads", message, f"export OMP_NUM_THREADS={granted}")
    if os.environ.get("OMP_WAIT_POLICY", "").lower() == "active":
        message = "OMP_WAIT_POLICY=active keeps idle threads spinning, which slows everything beside them"
        yield Finding("warning", "threads", message, "unset OMP_WAIT_POLICY")


def _device_files(root: Path = Path("/dev/dri")) -> Iterator[Finding]:
    for file in sorted(root.glob("render*")) if root.is_dir() else []:
        if not os.access(file, os.R_OK | os.W_OK):
            cure = f"add yourself to the group {_group(file)}, then log in again"
            yield Finding("warning", "permissions", f"{file} may not be used by this user", cure)


def _group(file: Path) -> str:
    try:
        return file.group()
    except (KeyError, OSError):
        return "that owns it"
