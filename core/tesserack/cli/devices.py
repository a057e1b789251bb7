"""``tesserack devices``: every backend, and every device of those that work."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

from tesserack.backends._info import BackendInfo, all_backends, capabilities, get
from tesserack.cli._output import add_json_option, print_json, print_table, size

__all__ = ["configure", "run"]


def configure(parser: argparse.ArgumentParser) -> None:
    """Options of the subcommand."""
    parser.add_argument("name", nargs="?", help="only this backend, with its capabilities")
    parser.add_argument("--no-load", action="store_true", help="tell what metadata says, load nothing")
    add_json_option(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the table; 1 if a backend asked for by name cannot be used, or if there is none at all."""
    load = not arguments.no_load
    found = [get(arguments.name, load)] if arguments.name else all_backends(load)
    if arguments.json:
        print_json([_record(info) for info in found])
    elif not found:
        print("no backend is installed; install one, for example: pip install tesserack-cpu")
    else:
        _print(found)
        if arguments.name and found[0].available:
            _print_capabilities(capabilities(arguments.name))
    unusable = [info for info in found if not info.available and info.status != "not loaded"]
    return 1 if not found or (arguments.name and unusable) else 0


def _record(info: BackendInfo) -> dict[str, Any]:
    record = asdict(info)
    if info.available:
        record["capabilities"] = capabilities(info.name)
    return record


def _print(found: list[BackendInfo]) -> None:
    rows = [(i.name, f"{i.package or '-'} {i.package_version or ''}".rstrip(), i.status, _devices(i)) for i in found]
    print_table(("NAME", "PACKAGE", "STATUS", "DEVICES"), rows)
    for info in found:
        if info.reason:
            print(f"\n{info.name}: {info.reason}")


def _devices(info: BackendInfo) -> str:
    if not info.available:
        return "-"
    can = capabilities(info.name)
    described = [_device(k, device) for k, device in enumerate(can["devices"])]
    missing = f"; lacks {', '.join(can['missing'])}" if can["missing"] else ""
    return f"{', '.join(described)}; {len(can['kernels'])} kernels{missing}"


def _device(index: int, properties: dict[str, Any]) -> str:
    total, free = properties["total_memory"], properties["free_memory"]
    memory = f", {size(free)} free of {size(total)}" if total else ""
    return f"{index}: {properties['name'] or 'unnamed'}{memory}"


def _print_capabilities(can: dict[str, Any]) -> None:
    switches = [key for key in ("streams", "events", "peer_copies", "host_memory", "own_allocator") if can[key]]
    print(f"\nvendor    {can['vendor'] or '-'}, version {can['version'] or '-'}")
    print(f"dtypes    {' '.join(can['dtypes'])}")
    print(f"max ndim  {can['max_ndim'] or 'any'}")
    print(f"offers    {' '.join(switches) or '-'}")
    print(f"kernels   {' '.join(can['kernels'])}")
