"""``tesserack run SCRIPT``: a script, unchanged, with another default device."""

from __future__ import annotations

import runpy
import sys
from dataclasses import dataclass, field
from pathlib import Path

import tesserack
from tesserack import BackendUnavailableError
from tesserack.cli import CommandError

__all__ = ["run"]

USAGE = """usage: tesserack run [--device NAME] (SCRIPT | -m MODULE) [--device NAME] [--] [ARGUMENT ...]

Runs a script as python would, with another default device.

  --device NAME  the default device: before SCRIPT or right after it
  -m             run a module by name
  --             what follows belongs to the script, also a --device of its own"""


@dataclass
class Request:
    """What the words of the command line ask for."""

    script: str = ""
    module: bool = False
    device: str | None = None
    arguments: list[str] = field(default_factory=list)


def run(words: list[str]) -> int:
    """Run the script; 0, unless the script leaves with a status of its own."""
    if words[:1] in (["-h"], ["--help"]):
        print(USAGE)
        return 0
    request = _parse(words)
    if request.device is not None:
        _set_device(request.device)
    sys.argv = [request.script, *request.arguments]
    try:
        if request.module:
            sys.path.insert(0, "")
            runpy.run_module(request.script, run_name="__main__", alter_sys=True)
        else:
            _run_file(Path(request.script))
    except BackendUnavailableError as error:
        # An error of the script: shown with its traceback, as python shows it.
        sys.excepthook(type(error), error, error.__traceback__)
        return 1
    return 0


def _set_device(name: str) -> None:
    try:
        tesserack.set_default_device(name)
    except (RuntimeError, ValueError) as error:
        raise CommandError(f"run: {error}") from error


def _run_file(path: Path) -> None:
    if not path.exists():
        raise CommandError(f"run: there is no file {str(path)!r}")
    sys.path.insert(0, str(path.resolve().parent if path.is_file() else path))
    runpy.run_path(str(path), run_name="__main__")


def _parse(words: list[str]) -> Request:
    request, left = Request(), [*words]
    while left and left[0].startswith("-"):
        if left[0] == "-m":
            request.module = True
            del left[0]
        elif not _take_device(request, left):
            raise CommandError(f"run: unknown option {left[0]!r}; options of the script follow the script\n{USAGE}")
    if not left:
        raise CommandError(f"run: expected a script\n{USAGE}")
    request.script = left.pop(0)
    _take_device(request, left)
    request.arguments = left[1:] if left[:1] == ["--"] else left
    return request


def _take_device(request: Request, left: list[str]) -> bool:
    """Takes ``--device NAME`` or ``--device=NAME`` off the front, if it stands there."""
    if not left or left[0].partition("=")[0] != "--device":
        return False
    word, _, name = left.pop(0).partition("=")
    if not name and not left:
        raise CommandError(f"run: {word} needs the name of a device")
    request.device = name or left.pop(0)
    return True
