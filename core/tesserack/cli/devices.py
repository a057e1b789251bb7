"""``tesserack devices``: every backend, and every device of those that work."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

from tesserack.backends._discovery import claims
from tesserack.backends._info import all_backends, get
from tesserack.backends._loader import load
from tesserack.cli._checks import backends
from tesserack.cli._checks.backends import link_text
from tesserack.cli._output import add_json_option, print_json, print_table
from tesserack.utils._results import size_text

__all__ = ["configure", "run"]

_OFFERED = ["streams", "events", "peer_copies", "host_memory", "own_allocator", "profiler", "sharing", "recovery"]


def configure(parser: argparse.ArgumentParser) -> None:
    """Options of the subcommand."""
    parser.add_argument("name", nargs="?", help="only this backend, with its capabilities")
    parser.add_argument("--no-load", action="store_true", help="tell what metadata says, load nothing")
    add_json_option(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the table; 1 if a backend asked for by name cannot be used, or if there is none at all."""
    found = _described(arguments.name) if arguments.no_load else _tried(arguments.name)
    if arguments.json:
        print_json(found)
    elif not found:
        print("no backend is installed; install one, for example: pip install tesserack-cpu")
    else:
        _print(found)
        if arguments.name and "capabilities" in found[0]:
            _print_capabilities(found[0]["capabilities"])
    unusable = [record for record in found if record["status"] not in ("ready", "not loaded")]
    return 1 if not found or (arguments.name and unusable) else 0


def _described(name: str | None) -> list[dict[str, Any]]:
    return [asdict(info) for info in ([get(name, load=False)] if name else all_backends(load=False))]


def _tried(name: str | None) -> list[dict[str, Any]]:
    """Each in a process of its own: one that is broken leaves the others to be told."""
    known = claims()
    if name and name not in known:
        load(name)  # raises, and says what is installed
    return [_record(probe) for probe in ([backends.probe(name)] if name else backends.probe_all())]


def _record(probe: backends.Probe) -> dict[str, Any]:
    return {"reason": probe.crash, **probe.record} if probe.crash else probe.record


def _print(found: list[dict[str, Any]]) -> None:
    packages = [f"{record['package'] or '-'} {record['package_version'] or ''}".rstrip() for record in found]
    rows = [(r["name"], package, r["status"], _devices(r)) for r, package in zip(found, packages, strict=True)]
    print_table(("NAME", "PACKAGE", "STATUS", "DEVICES"), rows)
    for record in found:
        if record["reason"]:
            print(f"\n{record['name']}: {record['reason']}")


def _devices(record: dict[str, Any]) -> str:
    if "capabilities" not in record:
        return "-"
    can = record["capabilities"]
    described = [_device(k, device) for k, device in enumerate(can["devices"])]
    missing = f"; lacks {', '.join(can['missing'])}" if can["missing"] else ""
    return f"{', '.join(described)}; {len(can['kernels'])} kernels{missing}"


def _device(index: int, properties: dict[str, Any]) -> str:
    total, free = properties["total_memory"], properties["free_memory"]
    known = f"{size_text(free)} free of " if free else ""  # 0: the driver does not tell
    memory = f", {known}{size_text(total)}" if total else ""
    return f"{index}: {properties['name'] or 'unnamed'}{memory}"


def _print_capabilities(can: dict[str, Any]) -> None:
    switches = [key for key in _OFFERED if can.get(key)]
    print(f"\nvendor    {can['vendor'] or '-'}, version {can['version'] or '-'}")
    print(f"dtypes    {' '.join(can['dtypes'])}")
    print(f"max ndim  {can['max_ndim'] or 'any'}")
    print(f"offers    {' '.join(switches) or '-'}")
    for k, device in enumerate(can["devices"]):
        told = [f"{key} {device[key]}" for key in ("uuid", "bus", "numa_node") if device.get(key) is not None]
        if told:
            print(f"device {k}  {', '.join(told)}")
    for link in can["links"]:
        print(f"link      {link_text(link)}")
    print(f"kernels   {' '.join(can['kernels'])}")
