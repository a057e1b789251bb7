"""``tesserack run SCRIPT``: a program as it is, on another device; ``import torch`` means Tesserack in it."""

from __future__ import annotations

import runpy
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tesserack
from tesserack.backends._discovery import SettingError
from tesserack.cli import CommandError
from tesserack.cli._output import tell

__all__ = ["OPTIONS", "Request", "begin", "execute", "parse", "print_report", "run"]

OPTIONS = """  --device NAME  the default device
  --as-cuda      "cuda" means that device, torch.cuda answers for it, and the default is the cpu
  --scope NAMES  only these packages, separated by commas, see Tesserack as torch (__main__ is the program)
  --no-torch     "import torch" means PyTorch
  --torch-random draw PyTorch's random numbers of the cpu, bit by bit
  --report       at the end, say which names of PyTorch's the program touched and which are missing
  -m             run a module by name
  -c             run a text, as a program
  --             what follows belongs to the program, also options spelled as these

Options stand before SCRIPT or right after it."""

USAGE = f"""usage: tesserack run [OPTION ...] (SCRIPT | - | -m MODULE | -c TEXT) [OPTION ...] [--] [ARGUMENT ...]

Runs a program as python would, with another default device; "import torch" means Tesserack in it.

{OPTIONS}"""

BESIDE = """tesserack run: --device {0} sets the default device, as torch.set_default_device does: what comes from
NumPy, files and loaders stays on the cpu. Move it with .to("{0}"), or add --as-cuda for programs that choose "cuda"."""


@dataclass
class Request:
    """What the words of the command line ask for; ``command`` is whose they are."""

    command: str = "run"
    script: str = ""
    module: bool = False
    text: bool = False
    device: str | None = None
    scope: list[str] | None = None
    as_cuda: bool = False
    torch: bool = True
    report: bool = False
    torch_random: bool = False
    arguments: list[str] = field(default_factory=list)


def run(words: list[str]) -> int:
    """Run the program; 0, unless it leaves with a status of its own."""
    if words[:1] in (["-h"], ["--help"]):
        print(USAGE)
        return 0
    request = parse(words, "run", USAGE)
    begin(request)
    try:
        return execute(request)
    finally:
        if request.report:
            print_report()


def begin(request: Request) -> None:
    """Set the device and what ``import torch`` means, as asked for."""
    command = request.command
    if request.device is not None and not request.as_cuda:
        _set_device(request.device, command)
    if request.torch:
        from tesserack import compat

        random = "torch" if request.torch_random else None
        card = request.device if request.as_cuda else None
        try:
            compat.enable(request.scope, device=card, as_cuda=request.as_cuda, report=request.report, random=random)
        except (RuntimeError, ValueError) as error:
            raise CommandError(f"{command}: {error}") from error
    sys.argv = ["-c" if request.text else request.script, *request.arguments]


def execute(request: Request) -> int:
    """Run the program, whose errors are shown with its own traceback."""
    try:
        if request.module:
            sys.path.insert(0, "")
            runpy.run_module(request.script, run_name="__main__", alter_sys=True)
        elif request.text:
            sys.path.insert(0, "")
            _run_text(request.script)
        elif request.script == "-":
            sys.path.insert(0, "")
            _run_text(sys.stdin.read(), "<stdin>")
        else:
            _run_file(Path(request.script), request.command)
    except (CommandError, SettingError, BrokenPipeError):
        raise
    except (Exception, KeyboardInterrupt) as error:
        error.__traceback__ = _within_program(error.__traceback__)
        sys.excepthook(type(error), error, error.__traceback__)
        if request.device and not request.as_cuda and "on the same device" in str(error):
            tell(BESIDE.format(request.device))
        return 130 if isinstance(error, KeyboardInterrupt) else 1
    return 0


def _within_program(trace: types.TracebackType | None) -> types.TracebackType | None:
    """A traceback from where the program begins, without what started it."""
    while trace is not None and trace.tb_frame.f_code.co_filename in (__file__, "<frozen runpy>", runpy.__file__):
        trace = trace.tb_next
    return trace


def _set_device(name: str, command: str) -> None:
    try:
        tesserack.set_default_device(name)
    except (RuntimeError, ValueError) as error:
        raise CommandError(f"{command}: {error}") from error


def _run_text(text: str, name: str = "<string>") -> None:
    """As ``python -c`` and ``python -``: what it defines is ``__main__``'s."""
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    exec(compile(text, name, "exec"), vars(main))


def _run_file(path: Path, command: str) -> None:
    if not path.exists():
        raise CommandError(f"{command}: there is no file {str(path)!r}")
    if path.is_dir() and not (path / "__main__.py").exists():
        raise CommandError(f"{command}: {str(path)!r} is a folder without a __main__.py; give a script in it")
    sys.path.insert(0, str(path.resolve().parent if path.is_file() else path))
    runpy.run_path(str(path), run_name="__main__")


def print_report() -> None:
    """Print which names of PyTorch's the program touched."""
    from tesserack.compat import _sources, report

    _sources.add_to(report(), sys.argv[0])
    tell("\n".join(report().lines()))


# --- the command line ----------------------------------------------------------------------------------------------


def parse(words: list[str], command: str, usage: str) -> Request:
    """The words of ``command``. ``CommandError`` with its usage where they make no sense."""
    request, left = Request(command), [*words]
    while left and left[0].startswith("-") and left[0] != "-":
        if left[0] in ("-m", "-c"):
            request.module, request.text = left[0] == "-m", left[0] == "-c"
            del left[0]
            if request.text:
                break
        elif not _take_option(request, left):
            raise CommandError(
                f"{command}: unknown option {left[0]!r}; options of the script follow the script\n{usage}"
            )
    if not left:
        raise CommandError(f"{command}: expected a script\n{usage}")
    request.script = left.pop(0)
    while _take_option(request, left):
        pass
    request.arguments = left[1:] if left[:1] == ["--"] else left
    _check(request)
    return request


def _check(request: Request) -> None:
    if not request.torch and (request.as_cuda or request.report or request.torch_random or request.scope is not None):
        raise CommandError(
            f"{request.command}: --no-torch goes with none of --as-cuda, --report, --scope and --torch-random"
        )


_SWITCHES: dict[str, Callable[[Request], Any]] = {
    "--as-cuda": lambda request: setattr(request, "as_cuda", True),
    "--no-torch": lambda request: setattr(request, "torch", False),
    "--torch-random": lambda request: setattr(request, "torch_random", True),
    "--report": lambda request: setattr(request, "report", True),
}


def _take_option(request: Request, left: list[str]) -> bool:
    """Takes one of our options, such as ``--device NAME`` or ``--device=NAME``, off the front if one stands there."""
    if not left:
        return False
    if left[0] in _SWITCHES:
        _SWITCHES[left.pop(0)](request)
        return True
    word, equals, value = left[0].partition("=")
    if word not in ("--device", "--scope"):
        return False
    if not value and len(left) < 2:
        raise CommandError(
            f"{request.command}: {word} needs {'the name of a device' if word == '--device' else 'names'}"
        )
    del left[0]
    value = value if equals else left.pop(0)
    if word == "--device":
        request.device = value
    else:
        request.scope = [name for name in value.split(",") if name]
    return True
