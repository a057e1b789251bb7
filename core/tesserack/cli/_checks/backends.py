"""Can each backend be used? Tried in a process of its own, since a broken library may take the process with it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from tesserack import _native
from tesserack.backends._discovery import SettingError, claims
from tesserack.plugins import Finding

__all__ = ["Probe", "check", "probe_all"]

_PROGRAM = """
import dataclasses, json, sys
from tesserack import backends
info = backends.get(sys.argv[1])
record = dataclasses.asdict(info)
for key in ("missing", "unused"):
    record[key] = backends.capabilities(sys.argv[1])[key] if info.available else []
print("\\n" + json.dumps(record))
"""
_SECONDS = 120


@dataclass(frozen=True)
class Probe:
    """What came of using one backend: the description, or how the process ended."""

    record: dict[str, Any]
    crash: str = ""


def probe_all() -> list[Probe]:
    """Every claimed name. ``TESSERACK_PLUGINS`` holds here too; a wrong value of it is told by another check."""
    try:
        return [_probe(name) for name in claims()]
    except SettingError:
        return []


def _probe(name: str) -> Probe:
    claim = claims()[name][0]
    unknown = {"name": name, "status": "crashed", "package": claim.package, "package_version": claim.version}
    command = [sys.executable, "-c", _PROGRAM, name]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return Probe({**unknown, "status": "hung"}, f"did not answer within {_SECONDS} seconds")
    lines = done.stdout.strip().splitlines()
    if done.returncode == 0 and lines:
        return Probe(json.loads(lines[-1]))
    last = (done.stderr.strip().splitlines() or ["without a message"])[-1]
    ended = signal.Signals(-done.returncode).name if done.returncode < 0 else f"exit status {done.returncode}"
    return Probe(unknown, f"ended the process ({ended}): {last}")


def check(probed: Iterable[Probe]) -> Iterator[Finding]:
    """One finding per backend, and one if there is none."""
    default = _native._declared_default()
    names = []
    for probe in probed:
        names.append(probe.record["name"])
        yield _judge(probe)
        yield from _unused(probe.record)
    if default not in names:
        cure = f"pip install tesserack-{default}"
        yield Finding("error", "backends", f"{default}, the default device, is not installed", cure)


def _unused(record: dict[str, Any]) -> Iterator[Finding]:
    """Kernels under names that nothing asks for."""
    for name, why in (record.get("unused") or {}).items():
        message = f"{record['package']} {record['package_version']} has a kernel {name!r}, which is never called"
        yield Finding("warning", f"backend {record['name']}", message, why)


def _judge(probe: Probe) -> Finding:
    record = probe.record
    subject = f"backend {record['name']}"
    package = f"{record['package']} {record['package_version']}"
    if probe.crash:
        return Finding("error", subject, f"{package} {probe.crash}", f"reinstall {record['package']}, then its driver")
    status, reason = record["status"], record["reason"]
    if status == "ready":
        count = f"{record['device_count']} device" + ("s" if record["device_count"] > 1 else "")
        if record["missing"]:
            missing = f"{package} lacks required kernels: {', '.join(record['missing'])}"
            return Finding("warning", subject, missing, "they run on the cpu; see tesserack ops --device")
        return Finding("ok", subject, f"{package}, {count}")
    if status == "no device":
        return Finding("warning", subject, f"{package} finds no device: {reason}", "install the device's driver")
    if status == "conflict":
        return Finding("error", subject, reason, "uninstall all but one of them")
    message, _, cure = reason.rpartition("; ")
    return Finding("error", subject, message, cure)
