"""Print the twenty slowest tests of logs of pytest, or write them into tests/README.md.

``python tools/slowest.py build/ci/*.log`` reads what ``--durations`` left there (``make test`` asks for it) and prints
them; with ``--write`` they go between the two marks of the page.
"""

from __future__ import annotations

import argparse
import collections
import re
from collections.abc import Iterable
from pathlib import Path

PAGE = Path(__file__).resolve().parent.parent / "tests" / "README.md"
LINE = re.compile(r"^\s*([\d.]+)s (?:setup|call|teardown)\s+(\S.*?)\s*$", re.MULTILINE)
MARKS = ("<!-- slowest: tools/slowest.py --write LOG -->\n", "<!-- end -->\n")


def slowest(logs: Iterable[str], most: int = 20) -> list[tuple[str, float]]:
    """Tests and seconds, setting up and tearing down included."""
    seconds: dict[str, float] = collections.defaultdict(float)
    for log in logs:
        for spent, test in LINE.findall(log):
            seconds[test] += float(spent)
    return sorted(seconds.items(), key=lambda pair: -pair[1])[:most]


def written(page: str, found: list[tuple[str, float]]) -> str:
    """The page with these tests between the marks."""
    head, _, rest = page.partition(MARKS[0])
    _, _, tail = rest.partition(MARKS[1])
    rows = "".join(f"| {spent:.1f} | `{test}` |\n" for test, spent in found)
    return f"{head}{MARKS[0]}| s | slowest |\n| ---: | --- |\n{rows}{MARKS[1]}{tail}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("logs", nargs="+", type=Path)
    parser.add_argument("--write", action="store_true", help="into tests/README.md")
    arguments = parser.parse_args()
    found = slowest(log.read_text(errors="replace") for log in arguments.logs)
    if arguments.write:
        PAGE.write_text(written(PAGE.read_text(), found))
    for test, spent in found:
        print(f"{spent:7.1f} s  {test}")


if __name__ == "__main__":
    main()
