"""A card: what the owner of a dialect supplies, and how the templates become kernels of a backend.

A backend makes one :class:`Card` and calls ``card.install(backend)``::

    class Acme(Card):
        dialect = ACME                       # the words
        entry = address_of_the_launcher      # a ts_launch_fn of tesserack/launch.h

        def device(self, index): ...         # a Device: limits, and where faults are written
        def compile(self, device, source, name): ...   # source -> binary, and binary -> address, see there

    backend = AcmeBackend()
    Acme().install(backend)

Every template is a function from a :class:`Call` to a ``LaunchPlan`` or NotImplemented, listed in
``tesserack_kernelgen.templates``. The core keeps the plan and repeats it: no template runs twice for one signature.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from tesserack import _native
from tesserack.utils import settings as _switches

from tesserack_kernelgen import launcher
from tesserack_kernelgen.call import FAULTS, Call, Device

if TYPE_CHECKING:
    from tesserack.backends import Backend, LaunchPlan

    from tesserack_kernelgen.dialect import Dialect

__all__ = ["FAULTS", "Call", "Card", "Device", "Statistics"]


@dataclass
class Statistics:
    """Counts since the process began, for tests and for users who wonder."""

    plans: int = 0
    compiled: int = 0
    from_disk: int = 0
    seconds: float = 0.0  # spent on making kernels ready, from text or from disk

    def to_dict(self) -> dict[str, float]:
        """All counts by name, for ``kernel_statistics()`` of a device's module."""
        return {**asdict(self), "launches": self.launches}

    @property
    def launches(self) -> int:
        """Kernels launched, by all cards."""
        return launcher.launches()


class Card:
    """Base of what a dialect's owner writes."""

    dialect: Dialect
    #: Address of the launcher, a ``ts_launch_fn``.
    entry: int

    def __init__(self) -> None:
        self.statistics = Statistics()
        self._kernels: dict[tuple[int, str], int] = {}
        self._sites: list[str] = []
        self._lock = threading.RLock()

    def device(self, index: int) -> Device:
        """What templates need to know of a device. Asked at every plan: keep the answer."""
        raise NotImplementedError

    def compile(self, device: Device, source: str, name: str) -> int:
        """Compile ``source``; the address that the launcher takes for its kernel ``name``. Raises with the log.

        Use :class:`tesserack_kernelgen.cache.DiskCache` to keep binaries, and count in ``statistics``.
        """
        raise NotImplementedError

    def kernel(self, device: Device, source: str, name: str) -> int:
        """The compiled kernel of a text, from memory if it was compiled before."""
        key = (device.index, source)
        with self._lock:
            if key not in self._kernels:
                began = time.perf_counter()
                self._kernels[key] = self.compile(device, source, name)
                self.statistics.seconds += time.perf_counter() - began
            return self._kernels[key]

    def site(self, op: str) -> int:
        """A number for the operator, by which a fault tells where it arose."""
        with self._lock:
            if op not in self._sites:
                self._sites.append(op)
            return self._sites.index(op)

    def fault_error(self, words: Sequence[int]) -> Exception:
        """The exception for what kernels wrote to the four words of a device."""
        code, site, low, high = words
        op = self._sites[site] if site < len(self._sites) else "a kernel"
        value = low | high << 32
        if code == FAULTS["index"]:
            value -= (value >> 63) << 64
            return IndexError(f"{op}: index {value} is out of bounds (found on the device, told at the next wait)")
        if code == FAULTS["weights"]:
            return RuntimeError(
                f"{op}: row {value} of the probability tensor contains either `inf`, `nan` or element < 0, or its "
                "sum of probabilities is 0 (found on the device, told at the next wait)"
            )
        return ZeroDivisionError(f"{op}: integer division by zero (found on the device, told at the next wait)")

    def install(self, backend: Backend, templates: dict[str, Template] | None = None) -> None:
        """Register the templates, all of them unless some are given by operator, as kernels of a backend."""
        from tesserack_kernelgen.templates import TAKES, TEMPLATES

        served = {}
        for op, template in (TEMPLATES if templates is None else templates).items():
            served[op] = backend.kernel(op, changing=True, takes=TAKES.get(op, ()))(self.serve(template))
        self._compile_parts(backend, served)
        # Which kernel adds up by index depends on it, and the core keeps plans.
        for op in ("scatter", "grid_sample_backward"):
            _switches._on_deterministic.append(partial(_native._kernel_changed, backend.name, op))

    def _compile_parts(self, backend: Backend, served: dict[str, Callable[..., Any]]) -> None:
        """Give the backend a compiler of graphs, of kernels that are these templates still."""
        from tesserack_kernelgen import parts
        from tesserack_kernelgen.templates._registry import FUSES

        def claim(device: int, graph: Any) -> Any:
            def fuses(op: str) -> bool:
                return op in FUSES and op in served and (backend._find_kernel(op, device) or (None,))[0] is served[op]

            return parts.claim(graph, fuses)

        backend.claim, backend.compile_part = claim, partial(parts.compile_part, self)

    def serve(self, template: Template) -> Callable[..., Any]:
        """A template as a kernel for :meth:`tesserack.backends.Backend.kernel`.

        Its keyword-only parameters are what the core reads to know which fields of a call to make.
        """

        def kernel(
            *,
            outputs: tuple[Any, ...],
            inputs: tuple[Any, ...],
            params: tuple[Any, ...],
            op: str,
            opcode: Any,
            compute_dtype: Any,
            program: Any,
            device: int,
            epilogue: Any,
            deterministic: bool,
            precision: str,
            prologue: Any,
        ) -> Any:
            compute = None if compute_dtype is None else str(compute_dtype).rpartition(".")[2]
            found = self.device(device)
            self.statistics.plans += 1
            said = epilogue, deterministic, precision, prologue
            return template(Call(self, found, op, opcode, compute, outputs, inputs, params, program, *said))

        return kernel


Template = Callable[[Call], "LaunchPlan | Any"]
