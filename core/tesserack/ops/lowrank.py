"""Factors of a few columns: low rank by random projections, extreme eigenvalues; and LU by its older name."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

import tesserack as ts
from tesserack.autograd._underived import underived
from tesserack.utils.warnings import warn_once

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tesserack import Tensor

__all__ = ["lobpcg", "lu", "pca_lowrank", "svd_lowrank"]


class SvdLowrank(NamedTuple):
    U: Tensor
    S: Tensor
    V: Tensor


def lu(A: Tensor, pivot: bool = True, get_infos: bool = False, out: Any = None) -> Any:
    """(LU, pivots), and info with ``get_infos``: ``linalg.lu_factor_ex``, to be preferred. Raises ``LinAlgError`` for
    matrices with a zero on U's diagonal unless ``get_infos``.
    """
    warn_once(
        "torch.lu is deprecated in favor of torch.linalg.lu_factor / torch.linalg.lu_factor_ex and will be removed in "
        "a future PyTorch release."
    )
    found = ts.linalg.lu_factor_ex(A, pivot=pivot) if get_infos else ts.linalg.lu_factor(A, pivot=pivot)
    result = tuple(found)
    if out is None:
        return result
    for target, value in zip(out, result, strict=True):
        target.resize_(value.shape).copy_(value)
    return out


def approximate_basis(A: Tensor, q: int, niter: int | None = 2, M: Tensor | None = None) -> Tensor:
    """Orthonormal columns that nearly span those of A - M (Halko et al., arXiv:0909.4061, algorithm 4.4)."""

    def times(x: Tensor) -> Tensor:
        return A @ x if M is None else A @ x - M @ x

    def adjoint_times(x: Tensor) -> Tensor:
        return A.mH @ x if M is None else A.mH @ x - M.mH @ x

    start = ts.randn(A.shape[-1], q, dtype=A.dtype, device=A.device)
    basis = ts.linalg.qr(times(start)).Q
    for _ in range(2 if niter is None else niter):
        basis = ts.linalg.qr(adjoint_times(basis)).Q
        basis = ts.linalg.qr(times(basis)).Q
    return basis  # type: ignore[no-any-return]


def svd_lowrank(A: Tensor, q: int | None = 6, niter: int | None = 2, M: Tensor | None = None) -> SvdLowrank:
    """(U, S, V) of ``q`` singular values, nearly the largest, of A (..., m, n), or of A - M: A is near U diag(S) V^H.

    Random: draws from the default generator (Halko et al., arXiv:0909.4061, algorithm 5.1).
    """
    q, niter = 6 if q is None else q, 2 if niter is None else niter
    M = None if M is None else M.broadcast_to(A.shape)
    wide = A.shape[-2] < A.shape[-1]
    a, m = (A.mH, None if M is None else M.mH) if wide else (A, M)
    basis = approximate_basis(a, q, niter, m)
    small = (a.mH @ basis).mH  # sparse matrices are the first factor
    small = small if m is None else small - basis.mH @ m
    u, s, vh = ts.linalg.svd(small, full_matrices=False)
    u, v = basis @ u, vh.mH
    return SvdLowrank(v, s, u) if wide else SvdLowrank(u, s, v)


def pca_lowrank(A: Tensor, q: int | None = None, center: bool = True, niter: int = 2) -> SvdLowrank:
    """(U, S, V) of ``q`` principal components (6 at most unless given) of the rows of A (..., m, n).

    Raises ``ValueError`` unless 0 <= q <= min(m, n) and niter >= 0.
    """
    m, n = A.shape[-2:]
    if q is None:
        q = min(6, m, n)
    elif not 0 <= q <= min(m, n):
        raise ValueError(
            f"pca_lowrank: q(={q}) must be non-negative integer and not greater than min(m, n)={min(m, n)}"
        )
    if niter < 0:
        raise ValueError(f"pca_lowrank: niter(={niter}) must be non-negative integer")
    if not A.is_floating_point() and not A.is_complex():
        raise ValueError(f"pca_lowrank: input dtype must be floating-point, got {A.dtype}")
    if center and A.is_sparse:
        return svd_lowrank(A, q, niter, A.sum(-2, keepdim=True).to_dense() / m)
    return svd_lowrank(A - A.mean(-2, keepdim=True) if center else A, q, niter)


def _orthonormal(x: Tensor, B: Tensor | None) -> Tensor:
    """Columns that span those of x, orthonormal in B; what depends on others is dropped."""
    w, v = ts.linalg.eigh(x.mH @ (x if B is None else B @ x))
    keep = w > w.max() * ts.finfo(x.dtype).eps * x.shape[-1]
    return x @ (v[:, keep] / w[keep].sqrt())  # type: ignore[no-any-return]


def _lobpcg(
    A: Tensor, B: Tensor | None, X: Tensor, iK: Tensor | None, niter: int, tol: float, largest: bool, tracker: Any
) -> tuple[Tensor, Tensor]:
    """Locally optimal block preconditioned conjugate gradients (Knyazev, 2001), with an orthonormal basis."""
    k, basis, P = X.shape[-1], X, None
    norm = ts.linalg.vector_norm(A if A.layout == ts.strided else (A.coalesce() if A.is_sparse else A).values())
    state = SimpleNamespace(
        A=A,
        B=B,
        iK=iK,
        X=X,
        E=None,
        R=None,
        tvars={},
        fvars={"A_norm": float(norm)},
        iparams={"m": A.shape[-1], "n": k, "k": k, "niter": niter},
        fparams={"tol": tol},
        bparams={"largest": largest},
        ivars={"istep": 0},
        bvars={"force_stop": False},
    )
    for iteration in range(niter + 1):
        basis = _orthonormal(basis, B)
        values, vectors = ts.linalg.eigh(basis.mH @ (A @ basis))
        order = values.argsort(descending=largest)[:k]
        E, new = values[order], basis @ vectors[:, order]
        P = None if iteration == 0 else new - X @ (X.mH @ (new if B is None else B @ new))
        X = new
        R = A @ X - (X if B is None else B @ X) * E
        scale = ts.linalg.vector_norm(X, dim=-2) * (E.abs() + norm)
        done = ts.linalg.vector_norm(R, dim=-2) / scale < tol
        if tracker is not None:
            state.X, state.E, state.R = X, E, R
            state.ivars.update(istep=iteration, iterations_left=niter - iteration, converged_count=int(done.sum()))
            tracker(state)
        if state.bvars["force_stop"] or bool(done.all()):
            break
        W = R if iK is None else iK @ R
        basis = ts.cat([X, W] if P is None else [X, W, P], -1)
    return E, X


def lobpcg(
    A: Tensor,
    k: int | None = None,
    B: Tensor | None = None,
    X: Tensor | None = None,
    n: int | None = None,
    iK: Tensor | None = None,
    niter: int | None = None,
    tol: float | None = None,
    largest: bool | None = None,
    method: str | None = None,
    tracker: Any = None,
    ortho_iparams: dict[str, int] | None = None,
    ortho_fparams: dict[str, float] | None = None,
    ortho_bparams: dict[str, bool] | None = None,
) -> tuple[Tensor, Tensor]:
    """The ``k`` largest (or smallest) eigenvalues of symmetric A (..., m, m), and their vectors; of A x = E B x with B.

    Starts from ``X``, or random vectors, ``n`` of them; ``iK`` preconditions. Both methods are one, which keeps its
    basis orthonormal. ``tracker(state)`` is called in each round with the eigenvalues, vectors and residuals so far as
    ``state.E``, ``X`` and ``R`` and their numbers in ``ivars``; with ``bvars["force_stop"] = True`` it ends the rounds.
    Raises ``ValueError`` unless 3 k <= m. Where a gradient by A is wanted, the same pairs are taken from all of A's,
    densely: as ``linalg.eigh``, whose gradient needs eigenvalues that differ. There is none by B.
    """
    k = (1 if X is None else X.shape[-1]) if k is None else k
    m = A.shape[-1]
    if 3 * max(k, n or 0) > m:
        raise ValueError(f"lobpcg: LPBPCG algorithm is not applicable when the number of A rows (={m}) is smaller than "
                         f"3 x the number of requested eigenpairs (={k})")  # fmt: skip
    if method not in (None, "basic", "ortho"):
        raise ValueError(f"lobpcg: expected method 'basic' or 'ortho', got {method!r}")
    tol = ts.finfo(A.dtype).eps ** 0.5 if tol is None else tol
    with ts.no_grad():
        if X is None:
            X = ts.randn(*A.shape[:-1], n or k, dtype=A.dtype, device=A.device)
        batch = A.shape[:-2]

        def flat(t: Tensor) -> list[Tensor]:
            if t.dim() == 2 and not batch:
                return [t]  # of any layout
            return list(t.expand(*batch, *t.shape[-2:]).reshape(-1, *t.shape[-2:]))

        matrices, starts = flat(A), flat(X)
        metrics: Sequence[Tensor | None] = [None] * len(matrices) if B is None else flat(B)
        inverses: Sequence[Tensor | None] = [None] * len(matrices) if iK is None else flat(iK)
        rounds = 1000 if niter is None or niter < 0 else niter
        found = []
        for a, b, x, inverse in zip(matrices, metrics, starts, inverses, strict=True):
            e, v = _lobpcg(a, b, x, inverse, rounds, tol, largest is not False, tracker)
            found.append((e[:k], v[:, :k]))
        values, vectors = (ts.stack([pair[j] for pair in found]) for j in (0, 1))
    values, vectors = values.reshape(*batch, k), vectors.reshape(*batch, m, k)
    if not ts.is_grad_enabled() or not (A.requires_grad or (B is not None and B.requires_grad)):
        return values, vectors
    if B is not None:
        return underived("lobpcg", (values, vectors), A, B)  # type: ignore[return-value]
    return _differentiable(A, values, vectors)


def _differentiable(A: Tensor, values: Tensor, vectors: Tensor) -> tuple[Tensor, Tensor]:
    """These eigenpairs of A, found again among all of its own, which have gradients; vectors with the same signs."""
    dense = A.to_dense() if A.layout is not ts.strided else A
    all_values, all_vectors = ts.linalg.eigh((dense + dense.mH) / 2)
    with ts.no_grad():  # the largest part of each vector lies along the one that it is
        parts = all_vectors.mH @ vectors
        places = parts.abs().argmax(-2)
        signs = parts.gather(-2, places.unsqueeze(-2)).sgn()
    chosen = all_vectors.gather(-1, places.unsqueeze(-2).expand_as(vectors))
    return all_values.gather(-1, places), chosen * signs
