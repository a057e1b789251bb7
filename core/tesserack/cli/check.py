"""``tesserack check FILE:NAME --input AXES``: a model's shapes, found by rules alone."""

from __future__ import annotations

import argparse
import dataclasses
import inspect
from typing import Any

from tesserack import device
from tesserack.cli import CommandError
from tesserack.cli._output import add_json_option, print_json
from tesserack.cli.target import TorchPrograms, find_target, kind_of
from tesserack.nn.modules.module import Module
from tesserack.utils.shapes._inputs import InputText
from tesserack.utils.shapes._report import try_shapes

__all__ = ["configure", "run"]

_NO_TENSORS = (int, float, bool, str, "int", "float", "bool", "str")  # also as `from __future__ import annotations`


def configure(parser: argparse.ArgumentParser) -> None:
    """Options of the subcommand."""
    parser.add_argument(
        "target", metavar="FILE:NAME", help="a module, a class, a function that builds one, or a function of tensors"
    )
    parser.add_argument(
        "--input",
        action="append",
        default=[],
        metavar="AXES",
        help="axes of an input, such as 'batch 3 224 224' or 'int64[batch time]' or 'mask=bool[batch time]'; one each",
    )
    parser.add_argument("--no-torch", action="store_true", help='"import torch" means PyTorch in the file')
    add_json_option(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print modules and totals, or the first mismatch, with status 1."""
    try:
        inputs = [InputText.parse(text) for text in arguments.input]
    except ValueError as error:
        raise CommandError(f"check: {error}") from None
    if not inputs:
        raise CommandError("check: expected --input with the axes of each input, such as --input 'batch 3 224 224'")
    with TorchPrograms(not arguments.no_torch) as programs:
        model = _model(find_target(arguments.target, "check"), arguments.target)
        programs.settle()
        try:
            report = try_shapes(model, *inputs)
        except (TypeError, ValueError) as error:
            raise CommandError(f"check: {arguments.target}: {error}") from None
    if arguments.json:
        print_json(dataclasses.asdict(report))
    else:
        print(report)
    return int(report.mismatch is not None)


def _model(target: Any, text: str) -> Any:
    """A module or a function of tensors: what needs no arguments is called, and builds without memory."""
    if isinstance(target, Module):
        return target
    if not callable(target):
        raise CommandError(f"check: expected {text} to be a module or a function, got {type(target).__name__}")
    needed = [
        parameter.name
        for parameter in inspect.signature(target).parameters.values()
        if parameter.default is parameter.empty and parameter.kind in (0, 1, 3)
    ]
    if isinstance(target, type) and needed:
        raise CommandError(f"check: {text} needs {', '.join(needed)}; name a function that builds it")
    plain = [name for name in needed if inspect.signature(target).parameters[name].annotation in _NO_TENSORS]
    if plain and plain == needed:
        raise CommandError(
            f"check: {text} takes {', '.join(plain)}, no tensors; give them in a function without arguments, "
            f"`def build(): return {target.__name__}(...)`, and name that"
        )
    if needed:
        return target
    try:
        built = _built(target)
    except Exception as error:
        raise CommandError(f"check: {text} fails: {type(error).__name__}: {error}", status=1) from error
    if not isinstance(built, Module) and not inspect.isfunction(built):
        raise CommandError(f"check: expected {text} to return a module, got {kind_of(built)}")
    return built


def _built(build: Any) -> Any:
    """What it returns; without memory, unless it asks a tensor for its values while it builds."""
    try:
        with device("meta"):
            return build()
    except (NotImplementedError, RuntimeError) as error:
        if "meta tensor" not in str(error):
            raise
        return build()
