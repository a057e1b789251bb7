"""Convolution and its gradients by cuDNN's graphs; generated kernels where it is not installed or has no engine.

A graph and its engine are chosen once per signature of a call; the core repeats the plan through a launcher in C.
"""

from __future__ import annotations

import functools
import math
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tesserack.backends import WORKSPACE, Block, Buffer, Launch, LaunchPlan, Patch
from tesserack_kernelgen import launcher
from tesserack_kernelgen.card import Call
from tesserack_kernelgen.dtypes import ITEMSIZE, name_of
from tesserack_kernelgen.templates import TEMPLATES
from tesserack_kernelgen.templates.pointwise import copy_cast

from tesserack_cuda.cudnn import CONSTANTS, TYPES, Library, NotSupported, Status
from tesserack_cuda.placed import Placed, add_bias, along_channels, generated

if TYPE_CHECKING:
    from tesserack_cuda.backend import CUDA
    from tesserack_cuda.card import CUDACard

__all__ = ["Convolutions"]

_ALIGNED = 16  # what a plan knows of the addresses: offsets are the same modulo this
_MOST_WORKSPACE = 1 << 30
_BETWEEN, _BIAS = 100, 3  # uid of what is in no memory; number of the bias in the call
_DIRECTIONS = {
    "convolution": ("CONVOLUTION_FORWARD", "CONVOLUTION_FORWARD", ("Y", "X", "W"), 0),
    "convolution_backward_input": ("CONVOLUTION_BACKWARD_DATA", "CONVOLUTION_BWD_DATA", ("DX", "DY", "W"), 1),
    "convolution_backward_weight": ("CONVOLUTION_BACKWARD_FILTER", "CONVOLUTION_BWD_FILTER", ("DW", "DY", "X"), 1),
}


class Convolutions:
    """The three kernels for the devices of a backend. ``install`` registers them in place of the generated ones."""

    def __init__(self, backend: CUDA, card: CUDACard):
        self._backend, self._card = backend, card
        self._lock = threading.RLock()  # of the handles by which engines are chosen

    @functools.cached_property
    def library(self) -> Library | None:
        """cuDNN, or None where it is not installed."""
        found = self._backend.driver.library("cudnn")
        return None if found is None else Library(found)

    def install(self) -> None:
        """Register the kernels."""
        for op in _DIRECTIONS:
            self._backend.kernel(op)(self._kernel(op))

    def _kernel(self, op: str) -> Callable[..., Any]:
        generated = TEMPLATES[op]

        def planned(call: Call) -> Any:
            tensors = [x for x in (*call.outputs, *call.inputs) if x is not None]
            known = all(hasattr(x, "strides") and name_of(x.dtype) in TYPES for x in tensors)
            if known and self.library is not None:
                with self._lock, self._backend.relaxed():
                    plan = self._plan(call)
                if plan is not None:
                    return plan
            return generated(call)

        return self._card.serve(planned)

    def _plan(self, call: Call) -> LaunchPlan | None:
        """The launches of a call; None where cuDNN has no engine for it. :class:`Status` where it fails."""
        device, operands = call.device.index, [*call.outputs, *call.inputs]
        self._backend.on(device)
        first, *rest = (Placed.of(x, k) for k, x in enumerate(operands[:3]))
        window = call.params[_DIRECTIONS[call.op][3] :][:3]
        bias = operands[_BIAS] if len(operands) > _BIAS else None
        unwanted = _unwanted(first, call.precision, call.deterministic)
        work = _Work(self, device, call.op, [first, *rest], window, unwanted)
        if bias is not None:
            # As one graph, else apart: engines without tensor cores, which float32 may ask for, add no bias.
            return work.plan(bias) or work.plan(None, added=bias)
        return work.plan(None)


def _unwanted(out: Placed, precision: str, deterministic: bool) -> set[int]:
    """Notes of engines that round more than was permitted, or differ from run to run."""
    names = ["NONDETERMINISTIC"] if deterministic else []
    if name_of(out.dtype) == "float32":
        names += ["DOWN_CONVERT_INPUTS", *["TENSOR_CORE"] * (precision == "highest")]
    return {CONSTANTS[f"CUDNN_NUMERICAL_NOTE_{name}"] for name in names}


class _Work:
    """One convolution: how its tensors are laid out, its graph, and the launches around it."""

    def __init__(
        self,
        made: Convolutions,
        device: int,
        op: str,
        tensors: list[Placed],
        window: Sequence[Sequence[int]],
        unwanted: set[int],
    ):
        assert made.library is not None
        self._library, self._backend, self._card = made.library, made._backend, made._card
        self._device, self._op, self._window, self._unwanted = device, op, window, unwanted
        self._given = tensors
        self._dtype = name_of(tensors[0].dtype)
        self._wide = "DOUBLE" if self._dtype == "float64" else "FLOAT"
        self._descriptors: list[int] = []
        roles = _DIRECTIONS[op][2]
        self._weight = next(k for k, role in enumerate(roles) if role.endswith("W"))
        images = [x for k, x in enumerate(tensors) if k != self._weight]
        last = all(x.lies(True) for x in images) and not all(x.lies(False) for x in images)
        # Engines want one layout of all three; the core gives weights by filters, so they are turned on the way.
        self._staged = last and not tensors[self._weight].lies(True)
        self._tensors = [x.told(last) for x in tensors]
        if self._staged:
            weight = tensors[self._weight]
            self._tensors[self._weight] = Placed(weight.shape, weight.packed(True), weight.dtype, 0, WORKSPACE)

    # --- the graph ------------------------------------------------------------------------------------------------

    def _describe(self, kind: str, **attributes: tuple[str, Any]) -> int:
        made = self._library.describe(kind, **attributes)
        self._descriptors.append(made)
        return made

    def _tensor(self, x: Placed, uid: int, dtype: str, virtual: bool = False) -> int:
        return self._describe(
            "TENSOR",
            TENSOR_UNIQUE_ID=("INT64", uid),
            TENSOR_DATA_TYPE=("DATA_TYPE", TYPES[dtype]),
            TENSOR_DIMENSIONS=("INT64", [*x.shape]),
            TENSOR_STRIDES=("INT64", [*x.strides]),
            TENSOR_BYTE_ALIGNMENT=("INT64", math.gcd(x.byte_offset, _ALIGNED)),
            TENSOR_IS_VIRTUAL=("BOOLEAN", virtual),
        )

    def _graph(self, bias: Placed | None) -> int:
        """The finalized graph; uids are numbers of operands, from 1 on."""
        kind, prefix, roles, _ = _DIRECTIONS[self._op]
        compute = TYPES["float64" if self._wide == "DOUBLE" else "float32"]
        parts = dict(
            zip(roles, (self._tensor(x, k + 1, self._dtype) for k, x in enumerate(self._tensors)), strict=True)
        )
        result = parts["Y"] if bias is not None else 0
        if bias is not None:
            between = "float64" if self._wide == "DOUBLE" else "float32"
            parts["Y"] = self._tensor(self._tensors[0], _BETWEEN, between, virtual=True)
        stride, padding, dilation = (
            [one] * (len(p) == 1) + [*p] for one, p in zip((1, 0, 1), self._window, strict=True)
        )
        window = self._describe(
            "CONVOLUTION",
            CONVOLUTION_COMP_TYPE=("DATA_TYPE", compute),
            CONVOLUTION_CONV_MODE=("CONVOLUTION_MODE", CONSTANTS["CUDNN_CROSS_CORRELATION"]),
            CONVOLUTION_SPATIAL_DIMS=("INT64", len(stride)),
            CONVOLUTION_PRE_PADDINGS=("INT64", padding),
            CONVOLUTION_POST_PADDINGS=("INT64", padding),
            CONVOLUTION_FILTER_STRIDES=("INT64", stride),
            CONVOLUTION_DILATIONS=("INT64", dilation),
        )
        told: dict[str, tuple[str, Any]] = {
            f"OPERATION_{prefix}_{role}": ("BACKEND_DESCRIPTOR", x) for role, x in parts.items()
        }
        told |= {f"OPERATION_{prefix}_CONV_DESC": ("BACKEND_DESCRIPTOR", window)}
        told |= {f"OPERATION_{prefix}_ALPHA": (self._wide, 1.0), f"OPERATION_{prefix}_BETA": (self._wide, 0.0)}
        operations = [self._describe(f"OPERATION_{kind}", **told)]
        if bias is not None:
            operations.append(self._sum(parts["Y"], bias, result, compute))
        return self._describe(
            "OPERATIONGRAPH",
            OPERATIONGRAPH_HANDLE=("HANDLE", self._library.handle(self._device, "plans").address),
            OPERATIONGRAPH_OPS=("BACKEND_DESCRIPTOR", operations),
        )

    def _sum(self, between: int, bias: Placed, result: int, compute: int) -> int:
        addition = self._describe(
            "POINTWISE",
            POINTWISE_MODE=("POINTWISE_MODE", CONSTANTS["CUDNN_POINTWISE_ADD"]),
            POINTWISE_MATH_PREC=("DATA_TYPE", compute),
        )
        return self._describe(
            "OPERATION_POINTWISE",
            OPERATION_POINTWISE_PW_DESCRIPTOR=("BACKEND_DESCRIPTOR", addition),
            OPERATION_POINTWISE_XDESC=("BACKEND_DESCRIPTOR", between),
            OPERATION_POINTWISE_BDESC=("BACKEND_DESCRIPTOR", self._tensor(bias, _BIAS + 1, self._dtype)),
            OPERATION_POINTWISE_YDESC=("BACKEND_DESCRIPTOR", result),
        )

    def _engine(self, graph: int) -> tuple[int, int] | None:
        """The first plan that the heuristics offer and that is permitted, and its workspace.

        An engine that fails is passed over where another serves; where none does, its failure is told.
        """
        failure: Status | None = None
        for mode in ("A", "FALLBACK"):
            rest = self._library.configurations(graph, mode)
            while rest:
                configuration = rest.pop(0)
                try:
                    if not self._unwanted & self._library.notes(configuration):
                        plan, workspace = self._library.plan(self._device, configuration)
                        if workspace <= _MOST_WORKSPACE:
                            self._library.destroy(rest)
                            return plan, workspace
                        self._library.destroy([plan])
                except NotSupported:
                    pass
                except Status as error:
                    failure = failure or error
                self._library.destroy([configuration])
        if failure is not None:
            raise failure
        return None

    # --- launches -------------------------------------------------------------------------------------------------

    def plan(self, bias: Any, added: Any = None) -> LaunchPlan | None:
        """The launches, with a bias in the graph, or ``added`` after it; None where no engine is found."""
        self._descriptors = []
        shaped = None if bias is None else along_channels(bias, self._tensors[0], _BIAS)
        try:
            found = self._engine(self._graph(shaped))
        except NotSupported:
            found = None
        except Status:
            self._library.destroy(reversed(self._descriptors))
            raise
        if found is None:
            self._library.destroy(reversed(self._descriptors))
            return None
        plan, workspace = found
        tensors = [*self._tensors, *([] if shaped is None else [shaped])]
        start = -(-workspace // 256) * 256
        if self._staged:
            workspace = start + tensors[self._weight].numel * ITEMSIZE[self._dtype]
        launches = [self._execution(plan, tensors, workspace, start)]
        if self._staged:
            given = self._given[self._weight]
            apart = Placed(given.shape, given.packed(True), given.dtype, start, WORKSPACE)
            if self._weight == 0:
                launches.append(self._generated(copy_cast, given, apart))
            else:
                launches.insert(0, self._generated(copy_cast, apart, given))
        if added is not None:
            launches.append(self._generated(add_bias, self._given[0], along_channels(added, self._given[0], _BIAS)))
        return LaunchPlan(launches, workspace)

    def _execution(self, plan: int, tensors: list[Placed], workspace: int, start: int) -> Launch:
        library, sources = self._library, [x.source for x in tensors]
        handle, named = library.handle(self._device, "launches"), library.addresses
        kernel = launcher.cudnn_graph(
            create=named["cudnnBackendCreateDescriptor"],
            destroy=named["cudnnBackendDestroyDescriptor"],
            set_attribute=named["cudnnBackendSetAttribute"],
            finalize=named["cudnnBackendFinalize"],
            execute=named["cudnnBackendExecute"],
            set_stream=named["cudnnSetStream"],
            set_context=self._backend.driver.set_context,
            context=int(self._backend.driver.driver.ctxGetCurrent()),
            handle=handle.address,
            lock=handle.lock,
            plan=plan,
            workspace_bytes=workspace,
            uids=tuple(k + 1 for k in range(len(tensors))),
            staged=tuple(start if source == WORKSPACE else -1 for source in sources),
            n_tensors=len(tensors),
        )
        used = [source for source in sources if source != WORKSPACE]
        arguments: list[Buffer | Block] = [Buffer(source) for source in used]
        if workspace:
            arguments.append(Buffer(WORKSPACE))
        arguments.append(Block(bytes(8 * len(used)), [Patch(8 * k, "offset", x, "q") for k, x in enumerate(used)]))
        return Launch(launcher.address("cudnn"), kernel, (1, 1, 1), (1, 1, 1), arguments)

    def _generated(self, template: Callable[[Call], Any], out: Placed, x: Placed) -> Launch:
        return generated(self._card, self._device, self._op, template, out, x)
