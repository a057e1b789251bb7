"""Exported programs of which not all is as it was asked for, with a report that says what."""

from __future__ import annotations

import dataclasses
from typing import Any

from tesserack.fx.export._errors import ExportError
from tesserack.fx.export._export import exported
from tesserack.fx.export.exported_program import ExportedProgram
from tesserack.nn.modules.module import Module

__all__ = ["DraftExportReport", "draft_export"]


@dataclasses.dataclass
class DraftExportReport:
    """Why a program could not be exported as it was asked for."""

    failures: list[str]

    def successful(self) -> bool:
        """Whether it could."""
        return not self.failures

    def __str__(self) -> str:
        if not self.failures:
            return "Congratulations: No issues are found during export, and it was able to soundly produce a graph."
        return "\n".join([f"WARNING: {len(self.failures)} issue(s) found during export:", *self.failures])


def draft_export(
    mod: Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    strict: bool = False,
    preserve_module_call_signature: tuple[str, ...] = (),
    prefer_deferred_runtime_asserts_over_guards: bool = False,
) -> ExportedProgram:
    """As :func:`~tesserack.export.export`, but where sizes that are to vary do not, they are those of the example.

    ``_report`` of the program says so: ``print(program._report)``. What cannot be a graph at all raises ``ExportError``
    here too.

    >>> import tesserack as ts
    >>> str(draft_export(ts.nn.ReLU(), (ts.ones(2),))._report)[:15]
    'Congratulations'
    """
    report = DraftExportReport([])
    try:
        program = exported(mod, args, kwargs or {}, dynamic_shapes)
    except ExportError as error:
        if not dynamic_shapes or "Constraints violated" not in str(error):
            raise
        report.failures.append(str(error))
        program = exported(mod, args, kwargs or {}, None)
    program._report = report
    return program
