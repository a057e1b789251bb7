"""``tesserack trace-ranks FILES``: what ranks last did, side by side: who is behind, and what did not match."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tesserack.cli import CommandError
from tesserack.cli._output import add_json_option, print_json

__all__ = ["configure", "examine", "run"]

_BEGUN = ("started", "failed", "completed")


class _Rank(NamedTuple):
    """One rank's part in a group: its collectives by number."""

    rank: int
    host: str
    entries: dict[int, dict[str, Any]]

    @property
    def last(self) -> int:
        """The number of the last collective that it began, 0 where there is none."""
        return max((number for number, entry in self.entries.items() if entry["state"] in _BEGUN), default=0)

    @property
    def done(self) -> int:
        """The number of the last that it completed."""
        return max((number for number, entry in self.entries.items() if entry["state"] == "completed"), default=0)


def configure(parser: argparse.ArgumentParser) -> None:
    """Options of the subcommand."""
    parser.add_argument("files", nargs="+", type=Path, help="files that ranks wrote, or folders of them")
    parser.add_argument(
        "--last", type=int, default=0, metavar="N", help="show the last N operations of every group too"
    )
    add_json_option(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print what was found; 1 where ranks do not agree."""
    dumps = list(_read(arguments.files))
    report = examine(dumps)
    if arguments.json:
        print_json(report)
    else:
        _print(report, dumps, arguments.last)
    return int(any(group["findings"] for group in report["groups"]) or bool(report["missing"]))


def _read(paths: Iterable[Path]) -> Iterator[dict[str, Any]]:
    from tesserack.distributed._recorder import FORMAT

    files = [file for path in paths for file in (sorted(path.glob("*.json")) if path.is_dir() else [path])]
    if not files:
        raise CommandError("trace-ranks: expected files that ranks wrote (TESSERACK_TRACE_RANKS=FOLDER), got none")
    for file in files:
        try:
            told = json.loads(file.read_text())
        except (OSError, ValueError) as error:
            raise CommandError(f"trace-ranks: expected what a rank wrote, got {file}: {error}") from error
        if not isinstance(told, dict) or told.get("format") != FORMAT:
            raise CommandError(f"trace-ranks: expected what a rank wrote ({FORMAT}), got {file}")
        yield told


def examine(dumps: list[dict[str, Any]]) -> dict[str, Any]:
    """The report as plain data: ranks that wrote nothing, and of each group where its ranks stand and what is wrong."""
    groups: dict[str, dict[str, Any]] = {}
    for dump in dumps:
        for group in dump["groups"]:
            held = groups.setdefault(group["name"], {**group, "by": []})
            entries = {e["number"]: e for e in group["entries"] if e["kind"] == "collective"}
            held["by"].append(_Rank(dump["rank"], dump["host"], entries))
    size = max((dump["size"] for dump in dumps), default=0)
    missing = sorted({*range(size)} - {dump["rank"] for dump in dumps})
    return {"size": size, "missing": missing, "groups": [_examined(group) for group in groups.values()]}


def _examined(group: dict[str, Any]) -> dict[str, Any]:
    ranks = sorted(group["by"])
    stands = {
        rank.rank: {"began": rank.last, "completed": rank.done, "call": _call(rank.entries.get(rank.last))}
        for rank in ranks
    }
    findings = [finding for found in (_mismatch(ranks), _behind(ranks), _errors(ranks)) for finding in found]
    described = {"name": group["name"], "description": group["description"], "engine": group["engine"]}
    return {**described, "ranks": group["ranks"], "stands": stands, "findings": findings}


def _call(entry: dict[str, Any] | None) -> str:
    if entry is None:
        return "nothing"
    of = f" of {entry['of']}" if entry["of"] else ""
    return f"{entry['op']} #{entry['number']}{of} at {entry['where']} ({entry['state']})"


def _mismatch(ranks: list[_Rank]) -> Iterator[str]:
    """The first collective that ranks called differently: another operation, dtype or shape."""
    for number in sorted({number for rank in ranks for number in rank.entries}):
        there = [rank for rank in ranks if number in rank.entries]
        called = {(rank.entries[number]["op"], rank.entries[number]["of"]) for rank in there}
        if len(called) > 1 and not _uneven(called):
            told = "; ".join(f"rank {rank.rank} {_call(rank.entries[number])}" for rank in there)
            yield f"ranks called different collectives: {told}"
            return


def _uneven(called: set[tuple[str, str]]) -> bool:
    """Of these, ranks may give tensors of different sizes."""
    ops = {op for op, _ in called}
    return len(ops) == 1 and ops <= {"all_gather", "all_to_all", "all_to_all_single", "reduce_scatter"}


def _behind(ranks: list[_Rank]) -> Iterator[str]:
    """Who has not begun what others wait in."""
    most = max((rank.last for rank in ranks), default=0)
    late = [rank for rank in ranks if rank.last < most]
    if late:
        first = next(rank for rank in ranks if rank.last == most)
        named = "; ".join(
            f"rank {rank.rank} on {rank.host} last began {_call(rank.entries.get(rank.last))}" for rank in late
        )
        yield f"behind: {named}; others are in {_call(first.entries[most])}"


def _errors(ranks: list[_Rank]) -> Iterator[str]:
    seen = set()
    for rank in ranks:
        for entry in rank.entries.values():
            if "error" in entry and entry["error"] not in seen:
                seen.add(entry["error"])
                yield f"rank {rank.rank}: {entry['error']}"


def _print(report: dict[str, Any], dumps: list[dict[str, Any]], last: int) -> None:
    print(f"{len(dumps)} of {report['size']} ranks wrote what they did")
    if report["missing"]:
        print(f"  !! nothing of rank {', rank '.join(map(str, report['missing']))}: killed, or not asked")
    for group in report["groups"]:
        print(f"group {group['name']} ({group['description']}), {group['engine']}, ranks {group['ranks']}")
        for rank, stand in group["stands"].items():
            print(f"  rank {rank}: completed #{stand['completed']}, last began {stand['call']}")
        for finding in group["findings"]:
            print(f"  XX {finding}")
        if not group["findings"]:
            print("  ok all ranks called the same, and stand at the same number")
        if last:
            _timeline(group["name"], dumps, last)


def _timeline(name: str, dumps: list[dict[str, Any]], last: int) -> None:
    told = [
        (entry["called"], dump["rank"], entry)
        for dump in dumps
        for group in dump["groups"]
        if group["name"] == name
        for entry in group["entries"]
    ]
    told.sort(key=lambda each: each[:2])
    for called, rank, entry in told[-last:]:
        print(f"  {called - told[0][0]:10.4f} s  rank {rank}  {_call(entry)}")
