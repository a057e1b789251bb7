"""Telling in which module of a model an error arose."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tesserack.nn.modules.module import Module

_PREFIX = "in module "
# Looked at after a call that failed, with its module, arguments and error; may raise another error.
LOOKS: list[Callable[[Any, tuple[Any, ...], dict[str, Any], Exception], None]] = []


def note_module(error: Exception, module: Module) -> None:
    """Attach, or complete, the note that names the module ``error`` came from, seen from ``module``.

    Called at every level the error passes, innermost first, so the last call leaves the full path.
    """
    if not hasattr(error, "add_note"):  # Python 3.10
        return
    own = error.__dict__
    origin = own.setdefault("_tesserack_module", module)
    notes = [note for note in own.get("__notes__", ()) if not str(note).startswith(_PREFIX)]
    own["__notes__"] = [*notes, _PREFIX + _describe(origin, module)]


def _describe(origin: Module, root: Module) -> str:
    path = next((name for name, module in root.named_modules() if module is origin), "")
    where = f"{type(root).__name__}.{path}" if path else type(root).__name__
    children = len(origin._modules)
    return where if children else f"{where}: {origin!r}"
