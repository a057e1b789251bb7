"""``CUDAGraph`` and ``graph``: work of a stream that is captured once and replayed, as ``torch.cuda`` has them."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import tesserack
from tesserack import _native

if TYPE_CHECKING:
    from tesserack_cuda.backend import CUDA

__all__ = ["CAPTURE_MODES", "CUDAGraph", "Recorded", "graph", "graph_pool_handle"]

#: cudaStreamCaptureMode by PyTorch's names.
CAPTURE_MODES = {"global": 0, "thread_local": 1, "relaxed": 2}
_pools = itertools.count(1)


@dataclass
class Recorded:
    """A graph as it was captured, if it is kept, and the executable one, if it was made. 0: there is none."""

    graph: int
    executable: int = 0


def graph_pool_handle() -> tuple[int, int]:
    """A token for the ``pool`` of graphs that are to share memory: what one lets go, the next may use.

    They must be replayed in the order in which they were captured, and not at once.
    """
    return 0, next(_pools)


class CUDAGraph:
    """A graph of work of one device, made by :class:`graph` or by ``capture_begin`` and ``capture_end``.

    Memory that is allocated meanwhile is the graph's until ``reset``, so that addresses stay: of its pool, where later
    work of this graph, or of another with the same pool, uses again what was let go. Nothing is done before ``replay``.
    Random numbers are new in every replay, as if the work had been called.

    Args:
        keep_graph: the captured graph stays for ``raw_cuda_graph``, and is made executable by ``instantiate`` or at
            the first ``replay``.
    """

    _backend: CUDA

    def __init__(self, keep_graph: bool = False):
        self._keep = keep_graph
        self._native: Any = None  # while it is captured, and after
        self._stream: Any = None
        self._ended = self._debug = False
        self._recorded: Recorded | None = None
        self._pool = graph_pool_handle()

    def capture_begin(
        self, pool: Any = None, capture_error_mode: str = "global", check_input_liveness: bool = False
    ) -> None:
        """Begin to capture the current stream, which must not be the default one.

        ``pool`` is of :func:`graph_pool_handle` or another graph's :meth:`pool`: memory is shared with its graphs.
        ``check_input_liveness`` changes nothing: tensors that are read must stay alive.

        Raises:
            RuntimeError: on the default stream, for an unknown mode, while this thread captures, or when this object
                holds a graph already.
        """
        if self._native is not None:
            raise RuntimeError(
                "This CUDAGraph instance already owns a captured graph. To capture a new graph, create a new instance."
            )
        if capture_error_mode not in CAPTURE_MODES:
            raise RuntimeError(
                f"Unknown capture error mode. Expected `global`, `thread_local`, or `relaxed`, got {capture_error_mode}"
            )
        if pool is not None:
            self._pool = _checked_pool(pool)
        device = tesserack.get_device_module(self._backend.name).current_device()
        where = _native.device(f"{self._backend.name}:{device}")
        native, settings = (
            _native._Recording(where, pool=self._pool[0] << 32 ^ self._pool[1]),
            self._backend.capture_settings,
        )
        settings.mode, settings.keep = capture_error_mode, self._keep or self._debug
        native.begin()
        self._native, self._stream = native, _native.current_stream(where)

    def capture_end(self) -> None:
        """End the capture. ``RuntimeError`` where CUDA ended it for what was done meanwhile, and then there is none."""
        if self._native is None or self._ended:
            raise RuntimeError("CUDAGraph.capture_end: expected a capture under way; call capture_begin first")
        try:
            self._native.end(False)
        except BaseException:
            self._native = None
            raise
        self._recorded = self._backend.capture_settings.made
        self._ended = True
        if not self._keep:
            self.instantiate()

    def _cancel(self) -> None:
        """End the capture after an error of the work itself."""
        native, self._native = self._native, None
        if native is not None:
            native.cancel()

    def _captured(self, what: str) -> Recorded:
        if self._recorded is None:
            raise RuntimeError(f"Called CUDAGraph::{what} without a preceding successful capture.")
        return self._recorded

    def instantiate(self) -> None:
        """Make the captured graph executable, anew if it was so; ``capture_end`` has done it unless ``keep_graph``."""
        recorded = self._captured("instantiate")
        if recorded.graph:
            self._backend.instantiate(recorded)
        elif not recorded.executable:
            raise RuntimeError("CUDAGraph.instantiate: the captured graph was not kept")

    def replay(self) -> None:
        """Do the work, in the order of the current stream."""
        if not self._captured("replay").executable:
            self.instantiate()
        current = _native.current_stream(self._stream.device)
        if current == self._stream:
            self._native.replay()
            return
        # On its own stream, whose order keeps the graph's memory apart from what has it later.
        self._stream.wait_stream(current)
        with tesserack.stream(self._stream):
            self._native.replay()
        current.wait_stream(self._stream)

    def reset(self) -> None:
        """Let go of the graph and its memory."""
        if self._native is not None and not self._ended:
            self._cancel()
        self._native, self._recorded, self._ended = None, None, False

    def pool(self) -> tuple[int, int]:
        """The token of the graph's memory pool."""
        return self._pool

    def enable_debug_mode(self) -> None:
        """Keep the captured graph for ``debug_dump``; before the capture."""
        self._debug = True

    def debug_dump(self, debug_path: str) -> None:
        """Write the graph as a DOT file. ``RuntimeError`` without ``enable_debug_mode`` or ``keep_graph``."""
        recorded = self._captured("debug_dump")
        if not recorded.graph:
            raise RuntimeError("CUDAGraph.debug_dump: call enable_debug_mode() before the capture")
        self._backend.driver.runtime.graphDebugDotPrint(recorded.graph, str(debug_path), 1)

    def raw_cuda_graph(self) -> int:
        """The cudaGraph_t. ``RuntimeError`` unless ``keep_graph``."""
        recorded = self._captured("raw_cuda_graph")
        if not self._keep:
            raise RuntimeError(
                "You cannot access the raw cudaGraph_t instance unless CUDAGraph was initialized with keep_graph=true"
            )
        return recorded.graph

    def raw_cuda_graph_exec(self) -> int:
        """The cudaGraphExec_t. ``RuntimeError`` before ``instantiate``."""
        recorded = self._captured("raw_cuda_graph_exec")
        if not recorded.executable:
            raise RuntimeError("You cannot access the raw cudaGraphExec_t instance until instantiate() has been called")
        return recorded.executable


def _checked_pool(pool: Any) -> tuple[int, int]:
    if isinstance(pool, tuple) and len(pool) == 2 and all(isinstance(n, int) and 0 <= n < 1 << 32 for n in pool):
        return pool
    raise TypeError(f"capture: expected a pool of graph_pool_handle() or CUDAGraph.pool(), got {pool!r}")


class graph:
    """A context whose work is captured in a :class:`CUDAGraph`, on ``stream`` or one of its own.

    Args:
        cuda_graph: what holds the graph.
        pool: a token of :func:`graph_pool_handle` or :meth:`CUDAGraph.pool`; by default one of the graph's own.
        stream: that work goes to meanwhile; by default one that all captures on the device share.
        capture_error_mode: which calls of other threads end the capture: "global", "thread_local" or "relaxed".
        enable_annotations: must be False: kernels are not annotated.
        check_input_liveness: changes nothing.
    """

    _backend: CUDA
    default_capture_stream: Any = None

    def __init__(
        self,
        cuda_graph: CUDAGraph,
        pool: Any = None,
        stream: Any = None,
        capture_error_mode: str = "global",
        enable_annotations: bool = False,
        check_input_liveness: bool = False,
    ):
        if enable_annotations:
            raise ValueError("graph: expected enable_annotations=False, since kernels are not annotated")
        self._module = tesserack.get_device_module(self._backend.name)
        kept = type(self).default_capture_stream
        if stream is None and (kept is None or kept.device.index != self._module.current_device()):
            kept = type(self).default_capture_stream = self._module.Stream()
        self.capture_stream = kept if stream is None else stream
        self.cuda_graph, self.pool, self.capture_error_mode = cuda_graph, pool, capture_error_mode
        self.stream_ctx = tesserack.stream(self.capture_stream)

    def __enter__(self) -> None:
        self._module.synchronize()
        self._module.empty_cache()
        self.stream_ctx.__enter__()
        try:
            self.cuda_graph.capture_begin(pool=self.pool, capture_error_mode=self.capture_error_mode)
        except BaseException:
            self.stream_ctx.__exit__()
            raise

    def __exit__(self, kind: Any = None, *error: Any) -> None:
        try:
            if kind is None:
                self.cuda_graph.capture_end()
            else:
                self.cuda_graph._cancel()
        finally:
            self.stream_ctx.__exit__()
