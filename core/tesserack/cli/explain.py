"""``tesserack explain OP``: the path that a call takes, and what it comes down to on a card."""

from __future__ import annotations

import argparse
from typing import Any

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
    name = schemas[0].partition("(")[0]
    lowering = dispatch.lowering(name)
    kernels = {} if device.type == "meta" else capabilities(device.type)["kernels"]
    parts = _parts(name) if lowering["decomposes"] else None
    if arguments.json:
        print_json({"operator": arguments.op, "device": str(device), "schemas": schemas, "path": path,
                    "lowering": {**lowering, "parts": parts}})  # fmt: skip
        return 0
    print(text)
    _print_lowering(lowering, parts, kernels, device.type)
    return 0


def _print_lowering(lowering: dict[str, Any], parts: list[str] | None, kernels: dict[str, Any], device: str) -> None:
    """The kernel with its operands and parameters where the card has it; what the operator is made of where not."""
    spec = lowering["kernel"]

    def there(name: str) -> str:
        return f"for {' '.join(kernels[name])}" if name in kernels else f"which {device} does not have"

    if lowering["code"]:
        print(f"  computed by code: {lowering['code']}")
    for name in lowering["asks"]:
        print(f"  which asks for kernel {name!r}, {there(name)}, and does without where there is none")
    if spec:
        print(f"  kernel {spec['name']!r}, {there(spec['name'])}")
        for kind in ("operands", "parameters"):
            for name, how in spec[kind]:
                print(f"    {kind[:-1]} {how if kind == 'parameters' else f'{name}: {how}'}")
    if parts is not None:
        print(f"  {'otherwise ' if spec else ''}made of {' '.join(parts) or 'other operators'}")
    elif spec:
        print("  otherwise the cpu's kernel, by copies that are counted")


def _parts(name: str) -> list[str]:
    """What the decomposition calls, for the first of the operator's samples that it takes on the meta device."""
    from tesserack.testing import cases, samples

    for sample in samples.samples(name):
        dtype = next((d for d in ("float32", "int64", "complex64") if cases.claims(name, sample, d)), None)
        if dtype is None:
            continue
        args, kwargs = cases.build(sample, getattr(tesserack, dtype), tesserack.device("meta"), "contiguous")
        with dispatch.decompositions(name) as seen:
            try:
                cases.call(name, args, kwargs)
            except NotImplementedError:  # it reads values
                continue
        if seen:
            return list(dict.fromkeys(seen))
    return []
