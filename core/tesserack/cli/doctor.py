"""``tesserack doctor``: what this environment is, what is wrong with it, and what to do about it."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tesserack import plugins
from tesserack.backends._discovery import SettingError
from tesserack.cli._checks import backends, packages, settings
from tesserack.cli._output import add_json_option, print_json
from tesserack.plugins import Finding
from tesserack.plugins._loading import call_each
from tesserack.utils import environment as _environment

__all__ = ["configure", "examine", "run"]

_MARKS = {"ok": "ok", "info": "--", "warning": "!!", "error": "XX"}


def configure(parser: argparse.ArgumentParser) -> None:
    """Options of the subcommand."""
    parser.add_argument("--strict", action="store_true", help="exit with 1 for warnings too")
    parser.add_argument("--log", type=Path, metavar="FILE", help="write down what results depend on, as JSON")
    parser.add_argument(
        "--distributed",
        action="store_true",
        help="try what ranks need: names, ports, memory, clocks, speed",
    )
    add_json_option(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the report; 1 if something is wrong."""
    if arguments.distributed:
        return _ranks(arguments)
    report = examine()
    if arguments.json:
        print_json(report)
    else:
        _print(report)
    if arguments.log:
        _log(report, arguments.log)
        print(f"log: {arguments.log}", file=sys.stderr if arguments.json else sys.stdout)
    bad = {"error", "warning"} if arguments.strict else {"error"}
    return int(any(finding["level"] in bad for finding in report["findings"]))


def _ranks(arguments: argparse.Namespace) -> int:
    """What ranks need: told by the first of them, and by each that something is wrong with."""
    from tesserack.cli._checks import distributed
    from tesserack.distributed._rendezvous import launched

    findings = [asdict(finding) for finding in distributed.check()]
    rank = (launched(os.environ) or (0, 1))[0]
    if rank:
        findings = [finding for finding in findings if finding["level"] == "error"]
    if arguments.json:
        print_json({"rank": rank, "findings": findings})
    elif findings:
        _print_findings(findings, f"rank {rank}: findings" if rank else "findings")
    bad = {"error", "warning"} if arguments.strict else {"error"}
    return int(any(finding["level"] in bad for finding in findings))


def _log(report: dict[str, Any], path: Path) -> None:
    """The report beside versions of all packages, seeds, switches and the state of the code in this folder."""
    from tesserack.utils.reproducibility import describe_run

    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**describe_run(Path.cwd()), "doctor": report}, indent=1) + "\n", encoding="utf-8")


def examine() -> dict[str, Any]:
    """The whole report as plain data. Every backend is tried in a process of its own, which may die."""
    probed = backends.probe_all()
    report = _environment.describe()
    report["backends"] = [probe.record for probe in probed]
    findings = [*backends.check(probed), *packages.check(), *settings.check(), *_from_plugins()]
    report["plugins"] = {"loaded": plugins.loaded(), "failed": plugins.failures()}
    report["findings"] = [asdict(finding) for finding in findings]
    return report


def _from_plugins() -> Iterable[Finding]:
    """What plugins check, and what is wrong with plugins themselves."""
    try:
        plugins.load()
    except SettingError:
        return  # told by the check of settings
    except plugins.PluginError as error:
        cure = "uninstall it or install another version"
        yield from (Finding("error", "plugins", line, cure) for line in str(error).splitlines())
    try:
        for plugin, given in call_each("tesserack_doctor"):
            for finding in given or ():
                good = isinstance(finding, Finding)
                yield finding if good else Finding("error", "plugins", f"{plugin} gave {finding!r}, no Finding")
    except plugins.PluginError as error:
        yield Finding("error", "plugins", str(error), "report it to the authors of the plugin")


def _print(report: dict[str, Any]) -> None:
    for section in ("tesserack", "python", "system", "cpu", "memory", "environment"):
        print(section)
        for key, value in report[section].items():
            shown = " ".join(value) if isinstance(value, list) else value
            print(f"  {key.replace('_', ' ')}: {shown}")
    print("hardware on the bus" + ("" if report["hardware"] else ": none seen"))
    for card in report["hardware"]:
        print("  " + ", ".join(f"{key} {value or 'none'}" for key, value in card.items()))
    print("packages")
    for name, version in report["packages"].items():
        print(f"  {name} {version}")
    _print_findings(report["findings"])


def _print_findings(findings: list[dict[str, Any]], title: str = "findings") -> None:
    print(title)
    for finding in findings:
        cure = f"\n     -> {finding['cure']}" if finding["cure"] else ""
        print(f"  {_MARKS[finding['level']]} {finding['subject']}: {finding['message']}{cure}")
