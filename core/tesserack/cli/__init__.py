"""The command ``tesserack``: subcommands are found in a table and imported when they are called.

Exit status: 0 done, 1 the thing asked about is not in order, 2 wrong usage or nothing to work on.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import importlib
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from tesserack.cli._output import tell

__all__ = ["COMMANDS", "CommandError", "import_part", "main"]

# Name: (module with `configure(parser)` and `run(arguments)`, help).
COMMANDS = {
    "devices": ("tesserack.cli.devices", "list backends: package, status or why they cannot be used, memory"),
    "doctor": ("tesserack.cli.doctor", "report on the environment: what is wrong and how to mend it"),
    "ops": ("tesserack.cli.ops", "list operators; --required: what a backend must have; --device: what one has"),
    "explain": ("tesserack.cli.explain", "show the path that a call of an operator takes"),
    "run": ("tesserack.cli.run", "run a program on another device, with tesserack as its torch"),
    "compile": ("tesserack.cli.compile", "run a program with its modules compiled, and say what that gained"),
    "launch": ("tesserack.cli.launch", "run a program on several ranks, with torchrun's options"),
    "trace-ranks": ("tesserack.cli.trace_ranks", "line up what ranks last did: who is behind, what did not match"),
    "check": ("tesserack.cli.check", "try a model's shapes by rules alone: first mismatch, or modules and totals"),
    "conform": ("tesserack.cli.conform", "test a backend against the contract"),
    "new-backend": ("tesserack.cli.new_backend", "write the skeleton of a backend's package"),
}

# Name: (distribution, extra of ours that installs it) of commands that plugins of this project bring.
BROUGHT = {"serve": ("tesserack-serving", "serving")}

# These have rules of their own for options: they get all words after the command, as `run(words)`.
WORDS = ("compile", "conform", "launch", "run")


class CommandError(Exception):
    """A mistake of the user's: printed without traceback, with exit status ``status``."""

    def __init__(self, message: str, status: int = 2) -> None:
        super().__init__(message)
        self.status = status


class _Parser(argparse.ArgumentParser):
    def _print_message(self, message: str, file: Any = None) -> None:
        if message and file is sys.stdout and file is not None:
            file.write(message)  # where it cannot be written, that is an error
        else:
            super()._print_message(message, file)


def make_parser(command: str | None = None) -> argparse.ArgumentParser:
    """The parser of the command line; only ``command``, if it is a built-in one, gets its options."""
    parser = _Parser(prog="tesserack", description="Tesserack's command line.")
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    subparsers: Any = parser.add_subparsers(dest="command", metavar="COMMAND")
    for name, (module, text) in COMMANDS.items():
        if name == command and name not in WORDS:
            _add_command(subparsers, name, import_part(module, name), text)
        else:
            subparsers.add_parser(name, help=text)
    if command not in COMMANDS:
        _add_plugins(subparsers)
    if command in BROUGHT and command not in subparsers.choices:
        package, extra = BROUGHT[command]
        raise CommandError(
            f"{command}: this command comes with {package}, which is not installed or cannot be used: "
            f"pip install 'tesserack[{extra}]'"
        )
    return parser


def import_part(module: str, command: str) -> Any:
    """A module that a command needs. ``CommandError`` if it was not installed."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        raise CommandError(f"{command}: this installation was made without {module}") from error


def _add_command(
    subparsers: argparse._SubParsersAction[argparse.ArgumentParser], name: str, module: Any, text: str
) -> None:
    parser = subparsers.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
    module.configure(parser)
    parser.set_defaults(run=module.run)


def _add_plugins(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Subcommands of installed plugins; one that fails is reported and does no harm to the others."""
    from tesserack.backends._discovery import none_in, plugins_enabled

    # Asked before tesserack.plugins is imported: without plugins --help stays quick.
    if not plugins_enabled() or none_in("tesserack.plugins"):
        return
    from tesserack import plugins
    from tesserack.plugins._loading import call_each

    try:
        plugins.load()
    except plugins.PluginError as error:
        tell(f"tesserack: warning: {error}")
    try:
        for _ in call_each("tesserack_commands", subparsers=subparsers):
            pass
    except plugins.PluginError as error:
        tell(f"tesserack: warning: {error}")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status.

    >>> main(["ops", "--required"])  # doctest: +ELLIPSIS
    KERNEL ...
    0
    """
    given = [*(sys.argv[1:] if argv is None else argv)]
    try:
        return _written(given)
    except CommandError as error:
        tell(f"tesserack: error: {error}")
        return error.status
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader of a pipe has gone: nothing more can be said, also not while closing.
        _drop_output()
        return 141
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT) or error.filename is not None:
            raise
        _drop_output()
        tell(f"tesserack: error: the output could not be written: {error.strerror}")
        return 1


def _written(given: list[str]) -> int:
    """Runs a command; what cannot be written is told here, not while the interpreter ends."""
    try:
        status = _dispatch(given)
    except SystemExit:  # of the parser, after a text of help
        _flush()
        raise
    _flush()
    return status


def _flush() -> None:
    """Write out what was printed; a program may have closed its output, or set None or anything else there."""
    with contextlib.suppress(AttributeError, ValueError):  # of which Python tells when it ends
        sys.stdout.flush()


def _drop_output() -> None:
    """Let what was not written go nowhere, as Python tries again when it ends."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        except (AttributeError, ValueError):
            continue


def _dispatch(given: list[str]) -> int:
    command = next((word for word in given if not word.startswith("-")), None)
    if command in WORDS and given[0] == command:
        module = import_part(COMMANDS[command][0], command)
        return _expecting_errors(lambda: module.run(given[1:]))
    arguments = make_parser(command).parse_args(given)
    if arguments.version:
        from tesserack import __version__

        print(f"tesserack {__version__}")
        return 0
    if arguments.command is None:
        make_parser().print_help()
        return 2
    return _expecting_errors(lambda: arguments.run(arguments))


def _expecting_errors(run: Callable[[], int | None]) -> int:
    """Runs the command; what Tesserack raises by design is the user's to read, not a crash."""
    from tesserack import BackendUnavailableError
    from tesserack.backends._discovery import SettingError

    try:
        return int(run() or 0)
    except (BackendUnavailableError, SettingError) as error:
        raise CommandError(str(error), status=1) from error
