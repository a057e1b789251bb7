"""Linear algebra, with the names of ``torch.linalg``: ``linalg_name`` in the registry is ``linalg.name`` here.

Matrices stand in the last two dimensions, all others are a batch. float32, float64, complex64 and complex128; the cpu
backend computes decompositions by LAPACK, other devices through it, counted as fallbacks.

>>> import tesserack as ts
>>> ts.linalg.solve(ts.tensor([[2.0, 0.0], [0.0, 4.0]]), ts.tensor([2.0, 2.0])).tolist()
[1.0, 0.5]
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tesserack._native import _LinAlgError as LinAlgError
from tesserack.ops.registry import operators

if TYPE_CHECKING:
    from typing import Any

__all__ = [
    "LinAlgError", "cholesky", "cholesky_ex", "cond", "cross", "det", "diagonal", "eig", "eigh", "eigvals",
    "eigvalsh", "householder_product", "inv", "inv_ex", "ldl_factor", "ldl_factor_ex", "ldl_solve", "lstsq",
    "lu", "lu_factor", "lu_factor_ex", "lu_solve", "matmul", "matrix_exp", "matrix_norm", "matrix_power",
    "matrix_rank", "multi_dot", "norm", "pinv", "qr", "slogdet", "solve", "solve_ex", "solve_triangular", "svd",
    "svdvals", "tensorinv", "tensorsolve", "vander", "vecdot", "vector_norm",
]  # fmt: skip

_operators = operators()

cholesky: Any = _operators["linalg_cholesky"]
cholesky_ex: Any = _operators["linalg_cholesky_ex"]
cond: Any = _operators["linalg_cond"]
cross: Any = _operators["linalg_cross"]
det: Any = _operators["linalg_det"]
diagonal: Any = _operators["linalg_diagonal"]
eig: Any = _operators["linalg_eig"]
eigh: Any = _operators["linalg_eigh"]
eigvals: Any = _operators["linalg_eigvals"]
eigvalsh: Any = _operators["linalg_eigvalsh"]
householder_product: Any = _operators["linalg_householder_product"]
inv: Any = _operators["linalg_inv"]
inv_ex: Any = _operators["linalg_inv_ex"]
ldl_factor: Any = _operators["linalg_ldl_factor"]
ldl_factor_ex: Any = _operators["linalg_ldl_factor_ex"]
ldl_solve: Any = _operators["linalg_ldl_solve"]
lstsq: Any = _operators["linalg_lstsq"]
lu: Any = _operators["linalg_lu"]
lu_factor: Any = _operators["linalg_lu_factor"]
lu_factor_ex: Any = _operators["linalg_lu_factor_ex"]
lu_solve: Any = _operators["linalg_lu_solve"]
matmul: Any = _operators["linalg_matmul"]
matrix_exp: Any = _operators["linalg_matrix_exp"]
matrix_norm: Any = _operators["linalg_matrix_norm"]
matrix_power: Any = _operators["linalg_matrix_power"]
matrix_rank: Any = _operators["linalg_matrix_rank"]
multi_dot: Any = _operators["linalg_multi_dot"]
norm: Any = _operators["linalg_norm"]
pinv: Any = _operators["linalg_pinv"]
qr: Any = _operators["linalg_qr"]
slogdet: Any = _operators["linalg_slogdet"]
solve: Any = _operators["linalg_solve"]
solve_ex: Any = _operators["linalg_solve_ex"]
solve_triangular: Any = _operators["linalg_solve_triangular"]
svd: Any = _operators["linalg_svd"]
svdvals: Any = _operators["linalg_svdvals"]
tensorinv: Any = _operators["linalg_tensorinv"]
tensorsolve: Any = _operators["linalg_tensorsolve"]
vander: Any = _operators["linalg_vander"]
vecdot: Any = _operators["linalg_vecdot"]
vector_norm: Any = _operators["linalg_vector_norm"]
