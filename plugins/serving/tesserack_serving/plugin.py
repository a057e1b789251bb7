"""The hooks: ``tesserack serve``."""

from __future__ import annotations

import argparse
from typing import Any

__all__ = ["tesserack_commands"]


def tesserack_commands(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command; what serves is imported when it is called."""
    parser = subparsers.add_parser(
        "serve",
        help="serve a model, or a folder of models, over HTTP and gRPC",
        description="Serve models over the Open Inference Protocol: JSON, binary tensors and gRPC.",
    )
    add = parser.add_argument
    add("target", nargs="?", metavar="FILE:NAME", help="what builds the model: a module, a class or a function")
    add("--weights", default="", metavar="FILE", help="its state: safetensors, or a file of PyTorch's")
    add("--device", default="cpu", metavar="NAMES", help="one device or several, separated by commas (default: cpu)")
    add("--name", metavar="NAME", help="the model's name (default: that of its file)")
    add("--input", action="append", default=[], metavar="INPUT", help="such as 'x=float32[batch 3 224 224]'; one each")
    add("--no-torch", action="store_true", help='"import torch" means PyTorch in its file')
    add("--repository", default="", metavar="FOLDER", help="serve the models of a folder; more may be loaded later")
    add("--load", action="append", metavar="NAME", help="of the folder's models, only these at the beginning")
    add("--host", default="127.0.0.1", choices=("127.0.0.1", "0.0.0.0", "::"))
    add("--port", type=int, default=8000, help="of HTTP (default: 8000)")
    add("--grpc-port", type=int, default=8001, help="of gRPC, 0 for none (default: 8001)")
    add("--workers", type=int, default=1, help="processes on each device (default: 1)")
    add("--frontends", type=int, default=1, help="processes that speak HTTP and gRPC (default: 1)")
    add("--max-batch", type=int, default=8, help="rows that run together at most (default: 8)")
    add(
        "--batch-delay", type=float, default=0.0, metavar="SECONDS", help="how long a batch waits for more (default: 0)"
    )
    add("--no-batching", action="store_true", help="requests run one by one")
    add("--queue", type=int, default=128, help="requests of a model that wait or run; more get 429 (default: 128)")
    add("--timeout", type=float, default=30.0, metavar="SECONDS", help="for an answer, then 504 (default: 30)")
    add(
        "--drain",
        type=float,
        default=30.0,
        metavar="SECONDS",
        help="for what was accepted, after SIGTERM (default: 30)",
    )
    add("--grace", type=float, default=0.0, metavar="SECONDS", help="from SIGTERM to the end of listening (default: 0)")
    add("--max-request", type=int, default=64, metavar="MB", help="the largest request (default: 64)")
    add("--trace", default="", metavar="FOLDER", help="where traces go, when /v2/trace/setting asks for them")
    parser.set_defaults(run=_run)


def _run(arguments: Any) -> int:
    from tesserack_serving.command import run

    return run(arguments)
