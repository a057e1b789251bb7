"""Starting a program on several ranks of this machine, and keeping it going: what ``tesserack launch`` runs.

``python -m tesserack launch`` takes ``torchrun``'s options; :func:`main` is ``torch.distributed.run.main``.
"""

from tesserack.distributed.launcher._agent import Agent, ChildFailedError
from tesserack.distributed.launcher._options import LaunchConfig, make_parser, parse
from tesserack.distributed.launcher._ports import free_port

__all__ = ["Agent", "ChildFailedError", "LaunchConfig", "free_port", "main", "make_parser", "parse"]


def main(args: list[str] | None = None) -> None:
    """Run the launcher with these words, by default those of the command line. Raises what :meth:`Agent.run` does."""
    import sys

    Agent(parse(sys.argv[1:] if args is None else args)).run()
