"""``tesserack explain OP``: the path that a call takes."""

from __future__ import annotations

import argparse

import tesserack
from tesserack.backends import capabilities
from tesserack.cli import CommandError
from tesserack.cli._output import add_json_option, print_json
from tesserack.library import dispatch

__all__ = ["configure", "run"]


def configure(parser: argparse.ArgumentParser) -> None:
    """Options of the subcommand."""
    parser.add_argument("op", help="an operator, such as softmax; one overload of it is written sum.dim")
    parser.add_argument("--device", metavar="NAME", help="for tensors on this device (default: the default device)")
    parser.add_argument("--requires-grad", action="store_true", help="for tensors that require gradients")
    add_json_option(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the path."""
    device = tesserack.device(arguments.device) if arguments.device else tesserack.get_default_device()
    tensor = tesserack.empty(0, device=device, requires_grad=arguments.requires_grad)
    try:
        text = dispatch.explain(arguments.op, tensor)
        schemas = dispatch.schemas(arguments.op)
    except RuntimeError as error:
        raise CommandError(f"{error}; tesserack ops lists them") from error
    path = [line.strip() for line in text.splitlines()[1:]]
    if arguments.json:
        print_json({"operator": arguments.op, "device": str(device), "schemas": schemas, "path": path})
        return 0
    print(text)
    if device.type != "meta":
        _print_kernel(arguments.op.partition(".")[0], device.type)
    return 0


def _print_kernel(op: str, name: str) -> None:
    kernels = capabilities(name)["kernels"]
    if op in kernels:
        print(f"  {name} has a kernel named {op!r}, for {' '.join(kernels[op])}")
