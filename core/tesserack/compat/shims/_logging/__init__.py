"""``torch._logging``: levels of PyTorch's loggers, and which of them are heard: what becomes of compiled functions."""

from __future__ import annotations

import importlib.util
import logging
from typing import Any

from tesserack.jit._compile.logs import switch

__all__ = ["getArtifactLogger", "set_logs", "trace_structured", "warning_once"]

_LOGS = {
    "aot", "autograd", "c10d", "ddp", "distributed", "dtensor", "dynamic", "dynamo", "export", "fsdp", "inductor",
    "onnx",
}  # fmt: skip
_ARTIFACTS = {
    "aot_graphs", "aot_joint_graph", "autotuning", "benchmarking", "bytecode", "caching", "compiled_autograd",
    "compiled_autograd_verbose", "compute_dependencies", "cudagraph_static_inputs", "cudagraphs", "ddp_graphs",
    "fusion", "graph", "graph_breaks", "graph_code", "graph_code_verbose", "graph_region_expansion", "graph_sizes",
    "guards", "hierarchical_compile", "incremental", "inductor_metrics", "ir_post_fusion", "ir_pre_fusion",
    "kernel_code", "onnx_diagnostics", "output_code", "overlap", "perf_hints", "post_grad_graphs", "pre_grad_graphs",
    "recompiles", "recompiles_verbose", "schedule", "side_effects", "sym_node", "trace_bytecode", "trace_call",
    "trace_source",
}  # fmt: skip
# Names that only ``modules`` takes, and the environment.
_MORE_LOGS = {"async_compile", "cache", "fake_tensor", "native_dsl", "pp", "torch"}
_MORE_ARTIFACTS = {
    "annotation", "aot_graphs_effects", "auto_chunker", "loop_ordering", "loop_tiling", "node_runtime_estimation",
    "not_implemented", "overlap_scheduling", "trace_shape_events", "verbose_guards",
}  # fmt: skip
_LEVELS = (logging.CRITICAL, logging.ERROR, logging.WARNING, logging.INFO, logging.DEBUG, logging.NOTSET)
_levels: dict[str, Any] = {}


def set_logs(*, all: int | None = None, modules: dict[str, Any] | None = None, **kwargs: Any) -> None:
    """Set the levels of loggers by name, ``dynamo=logging.INFO``; of artifacts ``graph_breaks=True``,
    ``recompiles=True`` and their kin are told as functions are compiled, others are noted. ``TypeError`` for names that
    there are not, ``ValueError`` for what is no level.
    """
    for name in kwargs:
        if name not in _LOGS and name not in _ARTIFACTS:
            raise TypeError(f"set_logs() got an unexpected keyword argument {name!r}")
    heard = {**kwargs, **(modules or {}), "all": all}
    heard = {name: level for name, level in heard.items() if level is not None}
    for name, level in heard.items():
        _check(name, level)
    _levels.clear()
    _levels.update((name, level) for name, level in heard.items() if name != "all")
    switch(name for name, level in heard.items() if level is True or (level and level <= logging.INFO))
    for name, level in _levels.items():
        if isinstance(level, int) and not isinstance(level, bool):
            logging.getLogger(name if "." in name else f"torch._{name}").setLevel(level)


def _check(name: str, level: Any) -> None:
    if name in _ARTIFACTS or name in _MORE_ARTIFACTS:
        if not isinstance(level, bool):
            raise ValueError(f"Expected bool to enable artifact {name}, received {level}")
        return
    known = name == "all" or name in _LOGS or name in _MORE_LOGS
    if not known and name.partition(".")[0] != "torch" and importlib.util.find_spec(name) is None:
        raise ValueError(f"Unrecognized log or artifact name passed to set_logs: {name}")
    if level is True or level not in _LEVELS:
        raise ValueError(
            f"Unrecognized log level for log {'torch' if name == 'all' else name}: {level}, valid level values are: "
            f"{','.join(map(str, _LEVELS))}"
        )


def getArtifactLogger(module_qname: str, artifact_name: str) -> logging.Logger:
    """The logger of a module's artifact."""
    return logging.getLogger(f"{module_qname}.__{artifact_name}")


def trace_structured(*args: Any, **kwargs: Any) -> None:
    """Nothing: no trace is written."""


_warned: set[str] = set()


def warning_once(logger_obj: logging.Logger, *args: Any, **kwargs: Any) -> None:
    """A warning that a logger gives once."""
    if str(args) not in _warned:
        _warned.add(str(args))
        logger_obj.warning(*args, **kwargs)
