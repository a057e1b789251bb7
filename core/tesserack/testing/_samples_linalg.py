"""Samples of linear algebra whose results are determined: no signs of vectors, no triangle that is not read."""

from __future__ import annotations

from tesserack.testing._inputs import Maker, Sample, SampleTable
from tesserack.testing._inputs import sample as S

__all__ = ["EXACT", "OTHERS", "TABLE"]


def _square(x: Maker) -> list[Sample]:
    return [S(x(3, 3)), S(x(2, 2, 2)), S(x(1, 1)), S(x(0, 0)), S(x(2, 0, 0))]


TABLE: SampleTable = {
    **dict.fromkeys(("linalg_det", "det", "linalg_slogdet", "slogdet"), _square),
    "logdet": lambda x: [S(x.given([[2.3, 0.4], [0.7, 1.9]])), S(x.given([[0.4, 2.3], [1.9, 0.7]]), grad=False)],
    "linalg_svdvals": lambda x: [S(x(3, 3)), S(x(2, 3)), S(x(2, 3, 2)), S(x(0, 3)), S(x(9, 7), grad=False)],
    "linalg_pinv.atol_rtol_float": lambda x: [
        S(x(3, 2)),
        S(x(2, 3)),
        S(x(2, 2, 2), rtol=1e-3),
        S(x(0, 3)),
        S(x(3, 3), atol=2.5, grad=False),
    ],
    "linalg_pinv": lambda x: [S(x(3, 2), 1e-4)],
    "linalg_matrix_rank.atol_rtol_float": lambda x: [S(x(3, 2)), S(x(2, 2, 2), atol=2.2), S(x(0, 2))],
    "linalg_matrix_rank": lambda x: [S(x(3, 2), 2.2)],
    **{
        name: lambda x: [S(x(2, 2), 3), S(x(2, 3, 3), 2), S(x(2, 2), 1), S(x(2, 2), 0, grad=False)]
        for name in ("linalg_matrix_power", "matrix_power")
    },
    **{
        name: lambda x: [S(x(3, 3)), S(x(2, 2, 2)), S(x(1, 1)), S(x(0, 0)), S(x(3, 3, lo=-9, hi=2), grad=False)]
        for name in ("linalg_matrix_exp", "matrix_exp")
    },
    "linalg_multi_dot": lambda x: [S([x(2, 3), x(3, 4), x(4, 2)]), S([x(2), x(2, 3), x(3)])],
    "linalg_vander": lambda x: [S(x(3)), S(x(2, 3), N=4)],
    "vander": lambda x: [S(x(3)), S(x(3), 2), S(x(2), 4, True)],
    "linalg_vecdot": lambda x: [S(x(2, 3), x(3)), S(x(2, 3), x(2, 1), dim=0)],
    "linalg_diagonal": lambda x: [S(x(2, 3)), S(x(2, 3, 2), offset=1, dim1=0, dim2=1)],
    "linalg_matmul": lambda x: [S(x(2, 3), x(3, 2)), S(x(3), x(3))],
}

# They take float32 and float64 alone (and complex numbers, which have tests of their own).
EXACT = frozenset(TABLE) - {"linalg_vander", "vander", "linalg_vecdot", "linalg_diagonal", "linalg_matmul"}

# Factors, of which there are several, what reads a triangle alone, and what refuses the singular matrices that samples
# become when they are expanded: tests of their own know what to expect.
OTHERS = frozenset(
    (
        "linalg_inv",
        "inverse",
        "linalg_solve",
        "linalg_solve_ex",
        "linalg_inv_ex",
        "linalg_solve_triangular",
        "triangular_solve",
        "linalg_tensorinv",
        "linalg_tensorsolve",
        "linalg_cond",
        "linalg_cond.p_str",
        "pinverse",
        "cholesky",
        "cholesky_inverse",
        "geqrf",
        "linalg_cholesky",
        "linalg_cholesky_ex",
        "linalg_eig",
        "linalg_eigh",
        "linalg_eigvals",
        "linalg_eigvalsh",
        "linalg_ldl_factor",
        "linalg_ldl_factor_ex",
        "linalg_lu",
        "linalg_lu_factor",
        "linalg_lu_factor_ex",
        "linalg_matrix_rank.atol_rtol_tensor",
        "linalg_pinv.atol_rtol_tensor",
        "linalg_qr",
        "linalg_svd",
        "qr",
        "svd",
    )
)
