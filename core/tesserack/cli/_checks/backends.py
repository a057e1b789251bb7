"""Can each backend be used? Tried in a process of its own, since a broken library may take the process with it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from tesserack import _native
from tesserack.backends._discovery import SettingError, claims
from tesserack.plugins import Finding

__all__ = ["Probe", "check", "link_text", "probe", "probe_all"]

_PROGRAM = """
import dataclasses, json, sys
from tesserack import backends
name, answer = sys.argv[1:]
info = backends.get(name)
record = dataclasses.asdict(info)
if info.available:
    try:
        record["capabilities"] = backends.capabilities(name)
    except Exception as error:
        told = f"asking what it can do raised {type(error).__name__}: {error}"
        record.update(status="failed", reason=f"{told}; report this to the authors of {info.package}")
with open(answer, "w") as file:
    json.dump(record, file)
"""
_SECONDS = 60
_AT_ONCE = 4


@dataclass(frozen=True)
class Probe:
    """What came of using one backend: the description, or how the process ended."""

    record: dict[str, Any]
    crash: str = ""


def probe_all() -> list[Probe]:
    """Every claimed name. ``TESSERACK_PLUGINS`` holds here too; a wrong value of it is told by another check."""
    try:
        names = [*claims()]
    except SettingError:
        return []
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return [*pool.map(probe, names)]


def probe(name: str) -> Probe:
    """One claimed name."""
    claim = claims()[name][0]
    unknown = {"name": name, "status": "crashed", "package": claim.package, "package_version": claim.version}
    with tempfile.TemporaryDirectory() as folder:
        answer, noise = os.path.join(folder, "answer"), os.path.join(folder, "noise")
        status = _run([sys.executable, "-c", _PROGRAM, name, answer], noise)
        if status is None:
            return Probe({**unknown, "status": "hung"}, f"did not answer within {_SECONDS} seconds")
        with contextlib.suppress(OSError, ValueError), open(answer, encoding="utf-8") as file:
            return Probe(json.load(file))
        with open(noise, encoding="utf-8", errors="replace") as file:
            last = (file.read().strip().splitlines() or ["without a message"])[-1]
    ended = signal.Signals(-status).name if status < 0 else f"exit status {status}"
    return Probe(unknown, f"ended the process ({ended}): {last}")


def _run(command: list[str], noise: str) -> int | None:
    """The exit status, or None where it had to be ended. What it writes goes to a file: a pipe that a child of the
    child holds open would keep us waiting."""
    with open(noise, "wb") as out:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=hasattr(os, "killpg")
        )
        try:
            return process.wait(_SECONDS)
        except subprocess.TimeoutExpired:
            return None
        finally:
            with contextlib.suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def check(probed: Iterable[Probe]) -> Iterator[Finding]:
    """One finding per backend, and one if there is none."""
    default = _native._declared_default()
    names = []
    for tried in probed:
        names.append(tried.record["name"])
        yield _judge(tried)
        yield from _unused(tried.record)
    if default not in names:
        cure = f"pip install tesserack-{default}"
        yield Finding("error", "backends", f"{default}, the default device, is not installed", cure)


def _unused(record: dict[str, Any]) -> Iterator[Finding]:
    """Kernels under names that nothing asks for."""
    for name, why in record.get("capabilities", {}).get("unused", {}).items():
        message = f"{record['package']} {record['package_version']} has a kernel {name!r}, which is never called"
        yield Finding("warning", f"backend {record['name']}", message, why)


def link_text(link: dict[str, Any]) -> str:
    """One of ``capabilities["links"]``, for people."""
    way = "directly" if link["direct"] else "through the host"
    speed = f" at {link['bandwidth'] / 1e9:.1f} GB/s" if link["bandwidth"] else ""
    return f"{link['source']} copies to {link['target']} {way}{speed}"


def _judge(tried: Probe) -> Finding:
    record = tried.record
    subject = f"backend {record['name']}"
    package = f"{record['package']} {record['package_version']}"
    if tried.crash:
        return Finding("error", subject, f"{package} {tried.crash}", f"reinstall {record['package']}, then its driver")
    status, reason = record["status"], record["reason"]
    if status == "ready":
        count = f"{record['device_count']} device" + ("s" if record["device_count"] > 1 else "")
        if record["capabilities"]["missing"]:
            missing = f"{package} lacks required kernels: {', '.join(record['capabilities']['missing'])}"
            return Finding("warning", subject, missing, "they run on the cpu; see tesserack ops --device")
        told = "; ".join(map(link_text, record["capabilities"].get("links", [])))
        return Finding("ok", subject, f"{package}, {count}{f'; {told}' if told else ''}")
    if status == "no device":
        return Finding("warning", subject, f"{package} finds no device: {reason}", "install the device's driver")
    if status == "conflict":
        return Finding("error", subject, reason, "uninstall all but one of them")
    message, _, cure = reason.rpartition("; ")
    return Finding("error", subject, message, cure)
