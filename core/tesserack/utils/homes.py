"""Where modules live that go by a shorter name: ``tesserack.linalg`` is ``tesserack/ops/linalg.py``.

Public names stay where PyTorch has them; their files lie with their kind. Names that files of earlier versions hold, of
what was pickled by reference, are answered too.
"""

from __future__ import annotations

import importlib.util
import sys
from importlib.machinery import ModuleSpec

TYPE_CHECKING = False  # typing takes a good part of the time to import the package
if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType
    from typing import Any

__all__ = ["HOMES", "PUBLIC", "home", "install", "public_name"]

# Public modules, below `tesserack`.
PUBLIC = {
    "array_api": "ops.array_api",
    "compiler": "jit.compiler",
    "dispatch": "library.dispatch",
    "fft": "ops.fft",
    "futures": "utils.futures",
    "hub": "utils.hub",
    "linalg": "ops.linalg",
    "masked": "ops.masked",
    "metrics": "utils.metrics",
    "overrides": "_tensor.overrides",
    "profiler": "utils.profiler",
    "quasirandom": "ops.quasirandom",
    "random": "ops.random",
    "return_types": "_tensor.return_types",
    "signal": "ops.signal",
    "special": "ops.special",
    "types": "_tensor.types",
}
# Where pickles of earlier versions look for functions and classes.
_EARLIER = {
    "_cache": "utils.cache",
    "_capture": "backends.recording",
    "_copies": "ops.copies",
    "_creation": "ops.creation",
    "_custom_check": "library._check",
    "_custom_gradient": "library._gradient",
    "_custom_schema": "library._schema",
    "_floats": "ops.floats",
    "_foreach": "ops.foreach",
    "_functions": "_tensor.functions",
    "_hashes": "ops.hashes",
    "_headers": "utils.headers",
    "_histograms": "ops.histograms",
    "_lowrank": "ops.lowrank",
    "_mutation": "ops.mutation",
    "_nonzero_unique": "ops.nonzero_unique",
    "_norm_statistics": "ops.normalization",
    "_norms": "ops.norms",
    "_numpy_names": "ops.numpy_names",
    "_pending": "_tensor.pending",
    "_pickling": "_tensor.pickling",
    "_positional": "ops.layers",
    "_registry": "ops.registry",
    "_results": "ops.results",
    "_safetensors": "serialization._safetensors",
    "_segments": "ops.segments",
    "_shards": "serialization._shards",
    "_spectral": "ops.spectral",
    "_streams": "backends.streams",
    "_switches": "utils.settings",
    "_symbolic": "ops.control_flow",
    "_tensor_aliases": "_tensor.aliases",
    "_tensor_methods": "_tensor.methods",
    "_tensor_str": "_tensor.printing",
    "_tools": "cli._stubs",
    "_torch_file": "serialization._torch_file",
    "_torch_pickle": "serialization._torch_pickle",
    "_torch_writer": "serialization._torch_writer",
    "_typed": "_tensor.typed",
    "_typed_storage": "storage._typed",
    "_untyped_storage": "storage._untyped",
    "_variadic": "ops.products",
    "_warnings": "utils.warnings",
    "_wrapper_subclass": "_tensor.subclass",
    "compat.aten": "aten",
}
HOMES = {f"tesserack.{name}": f"tesserack.{place}" for name, place in (_EARLIER | PUBLIC).items()}
_NAMES = {f"tesserack.{place}": f"tesserack.{name}" for name, place in PUBLIC.items()}


def _replaced(name: str, table: dict[str, str]) -> str | None:
    """The name with its beginning replaced, as many words as the table has; None where it has none."""
    head = name
    while head.count("."):
        if head in table:
            return table[head] + name[len(head) :]
        head = head.rpartition(".")[0]
    return None


def home(name: str) -> str:
    """The module that a full name stands for: ``tesserack.ops.linalg`` for ``tesserack.linalg``."""
    return _replaced(name, HOMES) or name


def public_name(name: str) -> str:
    """The name that programs use for a module: ``tesserack.linalg`` for ``tesserack.ops.linalg``."""
    return _replaced(name, _NAMES) or name


class _Finder:
    """Answers for a module's other name with the module itself, so that there is one of each."""

    @classmethod
    def find_spec(cls, name: str, path: Sequence[str] | None = None, target: Any = None) -> ModuleSpec | None:
        place = _replaced(name, HOMES) if name.startswith("tesserack.") else None
        own = importlib.util.find_spec(place) if place else None
        if own is None:
            return None
        spec = ModuleSpec(name, cls, origin=own.origin, loader_state=own)  # type: ignore[arg-type]
        spec.has_location = own.has_location
        return spec

    @staticmethod
    def create_module(spec: ModuleSpec) -> ModuleType:
        return importlib.import_module(spec.loader_state.name)

    @staticmethod
    def exec_module(module: ModuleType) -> None:
        if module.__spec__:
            module.__spec__ = module.__spec__.loader_state  # back to its own, which the import has replaced

    @staticmethod
    def get_code(name: str) -> Any:
        """For ``python -m``."""
        spec = importlib.util.find_spec(home(name))
        return spec.loader.get_code(spec.name) if spec and spec.loader else None  # type: ignore[attr-defined]


def install() -> None:
    """Have imports answered for the names of this module."""
    if _Finder not in sys.meta_path:
        sys.meta_path.insert(0, _Finder)  # type: ignore[arg-type]
