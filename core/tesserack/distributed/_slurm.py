"""What Slurm tells the tasks of a step: who they are, and on which node the first of them runs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

__all__ = ["expanded", "master", "port"]

_FIRST_PORT, _PORTS = 20000, 10000  # below those that systems hand out by themselves


def _split(text: str) -> Iterator[str]:
    """The names of a list: at commas outside of brackets."""
    depth, begin = 0, 0
    for at, letter in enumerate(text):
        depth += (letter == "[") - (letter == "]")
        if depth not in (0, 1):
            raise ValueError(f"expected a list of nodes as Slurm writes them, got {text!r}")
        if letter == "," and depth == 0:
            yield text[begin:at]
            begin = at + 1
    if depth:
        raise ValueError(f"expected a list of nodes as Slurm writes them, got {text!r}")
    yield text[begin:]


def _numbers(text: str) -> Iterator[str]:
    """``"1-3,07"``: numbers and ranges, as wide as the first of a range is written."""
    for part in text.split(","):
        found = re.fullmatch(r"(\d+)(?:-(\d+))?", part)
        if found is None or (found[2] and int(found[2]) < int(found[1])):
            raise ValueError(f"expected numbers or ranges of nodes, got [{text}]")
        for number in range(int(found[1]), int(found[2] or found[1]) + 1):
            yield str(number).zfill(len(found[1]))


def expanded(nodes: str) -> Iterator[str]:
    """The nodes of a list such as ``rack[1-2]n[08-10],login``, in its order. ``ValueError`` of what is none.

    >>> list(expanded("gpu[08-10],login"))
    ['gpu08', 'gpu09', 'gpu10', 'login']
    """
    for name in _split(nodes):
        before, bracket, rest = name.partition("[")
        if not bracket:
            yield name
            continue
        inside, _, after = rest.partition("]")
        for number in _numbers(inside):
            for end in expanded(after):
                yield before + number + end


def master(environ: Mapping[str, str]) -> str | None:
    """The host of the first task; None where no step of Slurm's runs this process.

    A step on one node needs no name. Of ``SLURM_LAUNCH_NODE_IPADDR`` nothing is taken: it is where srun was called.
    """
    nodes = environ.get("SLURM_STEP_NODELIST") or environ.get("SLURM_JOB_NODELIST")
    if not nodes or "SLURM_STEP_NUM_TASKS" not in environ:
        return None
    if environ.get("SLURM_STEP_NUM_NODES", environ.get("SLURM_NNODES")) == "1":
        return "127.0.0.1"
    return next(expanded(nodes))


def port(environ: Mapping[str, str]) -> int:
    """A port that each step has to itself, as far as numbers go: the same for all of its tasks."""
    job, step = int(environ.get("SLURM_JOB_ID", "0")), int(environ.get("SLURM_STEP_ID", "0"))
    return _FIRST_PORT + (job * 31 + step) % _PORTS
