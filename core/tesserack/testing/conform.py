"""``tesserack conform NAME``: what a device must do to be trusted, and how far it gets.

Runs the conformance kit on a device, prints a table and the level reached (*boots*, *trains*, *complete*), and writes a
report. Needs the extra ``tesserack[test]``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

    from tesserack.testing.conformance.results import Results

__all__ = ["main"]

_STOPPED = 130
_NEEDED = ("numpy", "scipy", "pytest", "rich")


def main(argv: Sequence[str] | None = None) -> int:
    """Run with the arguments of a command line. 0: the level asked for is reached, or nothing failed; 1: it is not;
    2: the device or a package is missing, or an argument is wrong; 130: somebody ended the run."""
    missing = _missing()
    if missing:
        print(f"conform: {', '.join(missing)} not installed; try: pip install 'tesserack[test]'", file=sys.stderr)
        return 2
    try:
        arguments = _parser().parse_args(argv)
    except SystemExit as exit:
        return int(exit.code or 0)
    problem = _problem(arguments)
    if problem:
        print(f"conform: {problem}", file=sys.stderr)
        return 2
    return _conform(arguments)


def _missing() -> list[str]:
    from importlib.util import find_spec

    return [name for name in _NEEDED if find_spec(name) is None]


def _parser() -> argparse.ArgumentParser:
    from tesserack.testing.conformance.areas import AREAS, LEVELS

    parser = argparse.ArgumentParser(
        prog="tesserack conform",
        description="Test a device: every operator against a float64 reference, gradients, copies, memory, training.",
        epilog="Levels: " + "; ".join(f"{name}: {means}" for name, means in LEVELS.items()) + ".",
    )
    parser.add_argument("device", metavar="NAME", help="the device, as in tesserack.device(NAME)")
    parser.add_argument("--level", choices=[*LEVELS], help="test what this level needs, and fail unless it is reached")
    parser.add_argument("--areas", metavar="NAME,NAME", help=f"only these of the areas {', '.join(AREAS)}")
    parser.add_argument("--report", type=Path, metavar="DIR", help="write report.html, report.json and badge.svg here")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results as JSON; - for standard output")
    parser.add_argument(
        "--expected-failures",
        type=Path,
        metavar="FILE",
        help="lines of 'test-pattern  # reason [until=YYYY-MM-DD] [lacks=CAPABILITY]'; a pass or a past date fails",
    )
    parser.add_argument("--quick", action="store_true", help="a sample of the tests, under a minute on a cpu")
    parser.add_argument("--thorough", action="store_true", help="each dtype of each operator, in every layout")
    parser.add_argument("-x", "--stop", action="store_true", help="stop at the first failure: begin with its cause")
    parser.add_argument("-k", dest="expression", metavar="EXPR", help="only tests that match, as in pytest")
    parser.add_argument("--case", action="append", metavar="ID", help="only this test, by its id in a report")
    parser.add_argument(
        "--timeout", type=float, default=300, metavar="SECONDS", help="a test that takes longer hangs (default: 300)"
    )
    return parser


def _problem(arguments: argparse.Namespace) -> str | None:
    """What is wrong with the arguments, before anything runs."""
    import tesserack as ts
    from tesserack.testing import expected_failures
    from tesserack.testing.conformance.areas import AREAS

    if arguments.expected_failures:
        try:
            expected_failures.read(arguments.expected_failures)
        except (OSError, ValueError) as error:
            return str(error)
    unknown = [name for name in _areas(arguments) if name not in AREAS]
    if unknown:
        return f"--areas: expected some of {', '.join(AREAS)}, got {unknown[0]!r}"
    if arguments.timeout <= 0:
        return f"--timeout: expected a positive number of seconds, got {arguments.timeout:g}"
    reference = ts.backends.why_unavailable("cpu")
    if reference:
        return f"results are compared with those of the cpu backend, which is missing: {reference}"
    return _unusable(str(arguments.device))


def _unusable(name: str) -> str | None:
    """Why the device cannot be tested. Found out by a process of its own: a card may crash, hang, or print."""
    import tesserack as ts
    from tesserack.backends._discovery import claims
    from tesserack.cli._checks.backends import probe

    kind = name.partition(":")[0]
    if kind not in claims():
        return ts.backends.why_unavailable(kind)  # registered by this process, or not there at all
    tried = probe(kind)
    package = f"{tried.record['package']} {tried.record['package_version']}"
    if tried.crash:
        return f"{kind} from {package}: asked for its devices, it {tried.crash}"
    return None if tried.record["status"] == "ready" else str(tried.record["reason"])


def _areas(arguments: argparse.Namespace) -> tuple[str, ...]:
    return tuple(arguments.areas.split(",")) if arguments.areas else ()


def _conform(arguments: argparse.Namespace) -> int:
    from rich.console import Console

    from tesserack.testing.conformance import run
    from tesserack.testing.conformance.areas import LEVELS
    from tesserack.testing.conformance.report.progress import progress

    # Results on standard output leave it to them alone.
    console = Console(stderr=str(arguments.json) == "-")
    options = run.Options(
        arguments.device,
        arguments.level or [*LEVELS][-1],
        arguments.expected_failures,
        arguments.quick,
        arguments.expression,
        arguments.timeout,
        _areas(arguments),
        tuple(arguments.case or ()),
        arguments.stop,
        arguments.thorough,
    )
    try:
        with progress(console, arguments.device) as watch:
            results = run.run(options, watch)
    except run.KitError as error:
        print(f"conform: {error}", file=sys.stderr)
        return 2
    except run.Stopped as stopped:
        print(f"conform: {arguments.device}: {stopped}", file=sys.stderr, flush=True)
        if stopped.results.cases:
            _tell(arguments, stopped.results, console, options.level)
        return _STOPPED
    _tell(arguments, results, console, options.level)
    return _status(results, arguments.level)


def _tell(arguments: argparse.Namespace, results: Results, console: Console, level: str) -> None:
    """The table, and the files that were asked for."""
    from tesserack.testing.conformance.report import terminal, to_json, write_json, write_report

    terminal.show(console, results, level)
    if str(arguments.json) == "-":
        print(to_json(results))
    elif arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        write_json(results, arguments.json)
    if arguments.report:
        write_report(results, arguments.report)
        console.print(f"report: {arguments.report / 'report.html'}")


def _status(results: Any, level: str | None) -> int:
    if level and not results.partial:
        return 1 if results.obstacles(level) else 0
    return 1 if results.failures() or not results.cases or (results.unused and not results.partial) else 0


if __name__ == "__main__":
    sys.exit(main())
