"""``tesserack launch PROGRAM``: a program on several ranks, with ``torchrun``'s options."""

from __future__ import annotations

from tesserack.cli import CommandError

__all__ = ["run"]


def run(words: list[str]) -> int:
    """Start the ranks and wait for them; 1 where they fail."""
    from tesserack.distributed import DistError
    from tesserack.distributed.launcher import Agent, ChildFailedError, parse

    config = parse(words)
    try:
        Agent(config).run()
    except (ChildFailedError, DistError, OSError) as error:
        raise CommandError(str(error), 1) from error
    return 0
