"""The launcher's command line: ``torchrun``'s options."""

from __future__ import annotations

import argparse
import os
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

__all__ = ["LaunchConfig", "make_parser", "parse"]


@dataclass
class LaunchConfig:
    """What is to be started, where and how often."""

    command: list[str]  #: the program and its arguments
    how: str = "script"  #: "script", "module" or "program" (of any language)
    min_nodes: int = 1
    max_nodes: int = 1
    nproc_per_node: int = 1
    node_rank: int = 0
    master_addr: str = "127.0.0.1"
    master_port: int = 0  #: 0: a free one
    rdzv_backend: str = "static"
    rdzv_endpoint: str = ""
    rdzv_id: str = "none"
    rdzv_timeout: float = 600.0
    last_call: float = 5.0  #: seconds that those who are enough wait for more
    keep_alive_interval: float = 5.0  #: seconds between a machine's signs of life
    keep_alive_attempts: int = 3  #: as many may be missing
    keeps_store: bool | None = None  #: whether the machines' store is here; None: if nobody has it yet
    max_restarts: int = 0
    monitor_interval: float = 0.1
    log_dir: str = ""
    redirects: dict[int, int] = field(default_factory=dict)  #: by local rank: 1 output, 2 errors, 3 both; -1: all
    tee: dict[int, int] = field(default_factory=dict)
    role: str = "default"
    torch: bool = True  #: "import torch" means this package in the program
    run_options: list[str] = field(default_factory=list)  #: of `tesserack run`


def _nodes(text: str) -> tuple[int, int]:
    low, _, high = text.partition(":")
    try:
        found = int(low), int(high or low)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected N or MIN:MAX, got {text!r}") from None
    if not 1 <= found[0] <= found[1]:
        raise argparse.ArgumentTypeError(f"expected 1 <= MIN <= MAX, got {text!r}")
    return found


def _processes(text: str) -> int:
    if text in ("auto", "gpu", "cpu"):
        if text != "cpu":
            import tesserack

            device = tesserack.get_default_device()
            count = tesserack.get_device_module(device.type).device_count()
            if count > 1 or text == "gpu":
                return int(count)
        return os.cpu_count() or 1
    count = int(text)
    if count < 1:
        raise argparse.ArgumentTypeError(f"expected at least one process, got {text}")
    return count


def _streams(text: str) -> dict[int, int]:
    """``3`` for every rank, or ``0:1,1:2``."""
    if ":" not in text:
        return {-1: int(text)}
    return {int(rank): int(kind) for rank, _, kind in (part.partition(":") for part in text.split(","))}


#: What ``--rdzv-conf`` is asked for, by the field that it sets.
_CONF: dict[str, tuple[str, Callable[[str], Any]]] = {
    "timeout": ("rdzv_timeout", float),
    "join_timeout": ("rdzv_timeout", float),
    "last_call_timeout": ("last_call", float),
    "keep_alive_interval": ("keep_alive_interval", float),
    "keep_alive_max_attempt": ("keep_alive_attempts", int),
    "is_host": ("keeps_store", lambda text: text.lower() in ("1", "true", "t", "yes", "y")),
}


def _conf(text: str) -> dict[str, Any]:
    """``KEY=VALUE,...`` as fields; other keys, of other kinds of meeting, are left out."""
    found: dict[str, Any] = {}
    for key, _, value in (pair.strip().partition("=") for pair in text.split(",")):
        if key in _CONF:
            field_name, kind = _CONF[key]
            try:
                found[field_name] = kind(value)
            except ValueError:
                raise argparse.ArgumentTypeError(f"expected a number for {key}, got {value!r}") from None
    return found


def make_parser() -> argparse.ArgumentParser:
    """The parser of the launcher's words."""
    parser = argparse.ArgumentParser(
        prog="tesserack launch", description="Start a program on several ranks. Options are torchrun's."
    )
    add = parser.add_argument
    add("--nnodes", type=_nodes, default=(1, 1), metavar="N|MIN:MAX", help="how many machines (default: 1)")
    add("--nproc-per-node", "--nproc_per_node", type=_processes, default=1, metavar="N", help="ranks on each; or auto")
    add("--rdzv-backend", "--rdzv_backend", default=None, choices=("static", "c10d", "etcd"), help="how they meet")
    add("--rdzv-endpoint", "--rdzv_endpoint", default="", metavar="HOST:PORT", help="where they meet")
    add("--rdzv-id", "--rdzv_id", default="none", help="the job's name, the same on each machine")
    add("--rdzv-conf", "--rdzv_conf", type=_conf, default={}, metavar="KEY=VALUE,...", help=", ".join(_CONF))
    add("--standalone", action="store_true", help="one machine, with a port that is free")
    add("--max-restarts", "--max_restarts", type=int, default=0, help="how often ranks that fail are started again")
    add("--monitor-interval", "--monitor_interval", type=float, default=0.1, help="seconds between looks at them")
    add("--start-method", "--start_method", default="spawn", help=argparse.SUPPRESS)
    add("--event-log-handler", "--event_log_handler", default="null", help=argparse.SUPPRESS)
    add("--role", default="default", help="a name for these ranks")
    add("-m", "--module", action="store_true", help="the program is a module's name")
    add("--no-python", "--no_python", action="store_true", help="the program is run as it is")
    add("--run-path", "--run_path", action="store_true", help=argparse.SUPPRESS)
    add("--log-dir", "--log_dir", default="", help="where output is written, a folder for each rank")
    add(
        "-r",
        "--redirects",
        type=_streams,
        default={},
        help="what goes there alone: 1 output, 2 errors, 3 both; or RANK:K",
    )
    add("-t", "--tee", type=_streams, default={}, help="what goes there too")
    add("--local-ranks-filter", "--local_ranks_filter", default="", help=argparse.SUPPRESS)
    add("--node-rank", "--node_rank", type=int, default=0, help="this machine's number")
    add("--master-addr", "--master_addr", default="127.0.0.1", help="the first machine's address")
    add(
        "--master-port",
        "--master_port",
        type=int,
        default=0,
        help="a port of its (default: a free one, 29500 for several)",
    )
    add("--local-addr", "--local_addr", default=None, help=argparse.SUPPRESS)
    add("--no-torch", action="store_true", help='"import torch" means PyTorch in the program')
    add("--torch-random", action="store_true", help="draw PyTorch's random numbers of the cpu, bit by bit")
    add("--device", default=None, help="the default device of each rank")
    add("script", metavar="PROGRAM", help="what is started")
    add("arguments", nargs=argparse.REMAINDER, metavar="...", help="its arguments")
    return parser


def parse(words: list[str]) -> LaunchConfig:
    """The words of a command line. Ends the process with status 2 where they are wrong, as ``argparse`` does."""
    parser = make_parser()
    told = parser.parse_args(words)
    if told.no_python and told.module:
        parser.error("--no-python and --module: expected one of them")
    if told.torch_random and (told.no_torch or told.no_python):
        parser.error("--torch-random goes with neither --no-torch nor --no-python")
    # Machines that may come and go have no numbers of their own.
    backend = told.rdzv_backend or ("c10d" if told.nnodes[0] < told.nnodes[1] and told.rdzv_endpoint else "static")
    config = LaunchConfig(
        [told.script, *told.arguments],
        how="program" if told.no_python else "module" if told.module else "script",
        min_nodes=told.nnodes[0],
        max_nodes=told.nnodes[1],
        nproc_per_node=told.nproc_per_node,
        node_rank=told.node_rank,
        master_addr=told.master_addr,
        master_port=told.master_port,
        rdzv_backend=backend,
        rdzv_endpoint=told.rdzv_endpoint,
        rdzv_id=told.rdzv_id,
        max_restarts=told.max_restarts,
        monitor_interval=told.monitor_interval,
        log_dir=told.log_dir,
        redirects=told.redirects,
        tee=told.tee,
        role=told.role,
        torch=not told.no_torch,
        run_options=[
            *(["--device", told.device] if told.device else []),
            *(["--torch-random"] if told.torch_random else []),
        ],
        **told.rdzv_conf,
    )
    if told.standalone:
        config.min_nodes = config.max_nodes = 1
        config.rdzv_backend, config.master_addr, config.master_port = "static", "127.0.0.1", 0
        config.rdzv_id = uuid.uuid4().hex[:12]
    elif config.rdzv_backend == "static" and config.rdzv_endpoint:
        host, _, port = config.rdzv_endpoint.rpartition(":")
        config.master_addr, config.master_port = host or config.rdzv_endpoint, int(port) if host else 29500
    if config.max_nodes > 1 and config.rdzv_backend == "static" and config.master_port == 0:
        config.master_port = 29500
    return config
