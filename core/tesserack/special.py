"""Special functions, with the names of ``torch.special``: the operators themselves, some under a second name.

>>> import tesserack as ts
>>> ts.special.expit(ts.tensor([0.0])).tolist()
[0.5]
"""

from __future__ import annotations

from tesserack._registry import operators

_operators = operators()

digamma = psi = _operators["digamma"]
erf = _operators["erf"]
erfc = _operators["erfc"]
erfinv = _operators["erfinv"]
exp2 = _operators["exp2"]
expit = _operators["sigmoid"]
expm1 = _operators["expm1"]
gammaln = _operators["lgamma"]
log1p = _operators["log1p"]
log_softmax = _operators["log_softmax"]
logit = _operators["logit"]
logsumexp = _operators["logsumexp"]
polygamma = _operators["polygamma"]
round = _operators["round"]
sinc = _operators["sinc"]
softmax = _operators["softmax"]
xlogy = _operators["xlogy"]

__all__ = [
    "digamma", "erf", "erfc", "erfinv", "exp2", "expit", "expm1", "gammaln", "log1p", "log_softmax", "logit",
    "logsumexp", "polygamma", "psi", "round", "sinc", "softmax", "xlogy",
]  # fmt: skip
