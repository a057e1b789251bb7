"""A device that computes as the reference backend does, while every call is planned in a dialect too."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable
from typing import Any

import tesserack as ts
import tesserack_reference
from tesserack import _native
from tesserack_kernelgen.card import Call
from tesserack_kernelgen.dialect import Dialect
from tesserack_kernelgen.record import Recorder
from tesserack_kernelgen.templates import TEMPLATES

__all__ = ["Planner"]

_numbers = itertools.count()


class Planner(tesserack_reference.Reference):
    """Registered under a name of its own, for good: one for each dialect, since a process has room for some twenty."""

    def __init__(self, dialect: Dialect) -> None:
        self.name = f"{dialect.name}plans{next(_numbers)}"
        super().__init__()
        self.recorder = Recorder(dialect)
        self._kernels.update(tesserack_reference.backend._kernels)
        for op, template in TEMPLATES.items():
            known = tesserack_reference.backend._kernels.get(op)
            self.kernel(op)(self._planned(template, known[0] if known else None))
        register: Any = _native
        register._register_python_backend(self, __file__)

    def record(self, calls: Callable[[str], None]) -> dict[str, str]:
        """The kernels that calls take on the device of a name, whatever was called before: names by text."""
        self.recorder._kernels.clear()
        self.recorder.sources = {}
        calls(self.name)
        return self.recorder.sources

    def _planned(self, template: Any, function: Callable[..., Any] | None) -> Callable[..., Any]:
        def planned(call: Call) -> Any:
            template(call)
            return NotImplemented if function is None else _as_asked(function, call)

        return self.recorder.serve(planned)


def _as_asked(function: Callable[..., Any], call: Call) -> Any:
    """Call a kernel with the fields of a call that its signature names, as the core does."""
    fields = {**call._asdict(), "device": call.device.index}
    fields["compute_dtype"] = None if call.compute is None else getattr(ts, call.compute)
    named = [p.name for p in inspect.signature(function).parameters.values() if p.kind is p.KEYWORD_ONLY]
    rest = [x for field in ("outputs", "inputs", "params") if field not in named for x in fields[field]]
    return function(*rest, **{name: fields[name] for name in named})
