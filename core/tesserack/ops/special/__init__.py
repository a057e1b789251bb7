"""Special functions, with the names of ``torch.special``: operators and functions made of them.

>>> import tesserack as ts
>>> ts.special.expit(ts.tensor([0.0])).tolist()
[0.5]
"""

from __future__ import annotations

from tesserack.ops.registry import operators
from tesserack.ops.special._elementary import multigammaln, xlog1py
from tesserack.ops.special._incomplete_gamma import gammainc, gammaincc
from tesserack.ops.special._polynomials import (
    chebyshev_polynomial_t,
    chebyshev_polynomial_u,
    chebyshev_polynomial_v,
    chebyshev_polynomial_w,
    hermite_polynomial_h,
    hermite_polynomial_he,
    laguerre_polynomial_l,
    legendre_polynomial_p,
    shifted_chebyshev_polynomial_t,
    shifted_chebyshev_polynomial_u,
    shifted_chebyshev_polynomial_v,
    shifted_chebyshev_polynomial_w,
)

_operators = operators()

airy_ai = _operators["special_airy_ai"]
bessel_j0 = _operators["special_bessel_j0"]
bessel_j1 = _operators["special_bessel_j1"]
bessel_y0 = _operators["special_bessel_y0"]
bessel_y1 = _operators["special_bessel_y1"]
digamma = psi = _operators["digamma"]
entr = _operators["special_entr"]
erf = _operators["erf"]
erfc = _operators["erfc"]
erfcx = _operators["special_erfcx"]
erfinv = _operators["erfinv"]
exp2 = _operators["exp2"]
expit = _operators["sigmoid"]
expm1 = _operators["expm1"]
gammaln = _operators["lgamma"]
i0 = _operators["i0"]
i0e = _operators["special_i0e"]
i1 = _operators["special_i1"]
i1e = _operators["special_i1e"]
log1p = _operators["log1p"]
log_ndtr = _operators["special_log_ndtr"]
log_softmax = _operators["log_softmax"]
logit = _operators["logit"]
logsumexp = _operators["logsumexp"]
modified_bessel_i0 = _operators["special_modified_bessel_i0"]
modified_bessel_i1 = _operators["special_modified_bessel_i1"]
modified_bessel_k0 = _operators["special_modified_bessel_k0"]
modified_bessel_k1 = _operators["special_modified_bessel_k1"]
ndtr = _operators["special_ndtr"]
ndtri = _operators["special_ndtri"]
polygamma = _operators["polygamma"]
round = _operators["round"]
scaled_modified_bessel_k0 = _operators["special_scaled_modified_bessel_k0"]
scaled_modified_bessel_k1 = _operators["special_scaled_modified_bessel_k1"]
sinc = _operators["sinc"]
softmax = _operators["softmax"]
spherical_bessel_j0 = _operators["special_spherical_bessel_j0"]
xlogy = _operators["xlogy"]
zeta = _operators["special_zeta"]

__all__ = [
    "airy_ai",
    "bessel_j0",
    "bessel_j1",
    "bessel_y0",
    "bessel_y1",
    "chebyshev_polynomial_t",
    "chebyshev_polynomial_u",
    "chebyshev_polynomial_v",
    "chebyshev_polynomial_w",
    "digamma",
    "entr",
    "erf",
    "erfc",
    "erfcx",
    "erfinv",
    "exp2",
    "expit",
    "expm1",
    "gammainc",
    "gammaincc",
    "gammaln",
    "hermite_polynomial_h",
    "hermite_polynomial_he",
    "i0",
    "i0e",
    "i1",
    "i1e",
    "laguerre_polynomial_l",
    "legendre_polynomial_p",
    "log1p",
    "log_ndtr",
    "log_softmax",
    "logit",
    "logsumexp",
    "modified_bessel_i0",
    "modified_bessel_i1",
    "modified_bessel_k0",
    "modified_bessel_k1",
    "multigammaln",
    "ndtr",
    "ndtri",
    "polygamma",
    "psi",
    "round",
    "scaled_modified_bessel_k0",
    "scaled_modified_bessel_k1",
    "shifted_chebyshev_polynomial_t",
    "shifted_chebyshev_polynomial_u",
    "shifted_chebyshev_polynomial_v",
    "shifted_chebyshev_polynomial_w",
    "sinc",
    "softmax",
    "spherical_bessel_j0",
    "xlog1py",
    "xlogy",
    "zeta",
]
