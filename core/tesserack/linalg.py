"""Linear algebra, with the names of ``torch.linalg``: ``linalg_name`` in the registry is ``linalg.name`` here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tesserack._registry import operators

if TYPE_CHECKING:
    from typing import Any

__all__ = ["cross", "matrix_norm", "norm", "vector_norm"]

cross: Any = operators()["linalg_cross"]
matrix_norm: Any = operators()["linalg_matrix_norm"]
norm: Any = operators()["linalg_norm"]
vector_norm: Any = operators()["linalg_vector_norm"]
