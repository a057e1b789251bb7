"""Samples of pointwise operators with more than operands, reductions, scans and products of matrices.

``x(2, 3)`` is a float tensor of that shape, which takes the dtype under test; see ``Maker`` for the others.
"""

from __future__ import annotations

from typing import Any

from tesserack.testing._inputs import Maker, Sample, SampleTable
from tesserack.testing._inputs import sample as S

__all__ = ["TABLE"]

_MOMENTS = ("var", "std", "var_mean", "std_mean")


def _reduce(x: Maker) -> list[Sample]:
    return [S(x(2, 3)), S(x()), S(x(0, 3), grad=False), S(x(3, 41), grad=False)]


def _reduce_dim(x: Maker) -> list[Sample]:
    return [
        S(x(2, 3), 1),
        S(x(2, 3, 2), [0, -1], keepdim=True),
        S(x(2, 3), 0),
        S(x(), 0),
        S(x(0, 3), 1),
        S(x(2, 3), None),
        S(x(5, 3, 37), [0, 2], grad=False),
    ]


def _reduce_one_dim(x: Maker) -> list[Sample]:
    return [
        S(x.apart(2, 3), 1),
        S(x.apart(2, 3, 2), -2, keepdim=True),
        S(x(), 0),
        S(x(0, 3), 1),
        S(x.apart(3, 29), 1, grad=False),
    ]


def _moments(x: Maker) -> list[Sample]:
    return [S(x(2, 3)), S(x(7), False), S(x(3, 41), grad=False)]


def _moments_dim(x: Maker) -> list[Sample]:
    return [S(x(2, 3), 1), S(x(2, 3, 2), [0, 2], False, True), S(x(4, 3, 7), [1], grad=False)]


def _moments_correction(x: Maker) -> list[Sample]:
    return [S(x(2, 5), correction=2), S(x(3, 2), [0], keepdim=True), S(x(2, 3), -1, correction=0)]


def _scan(x: Maker) -> list[Sample]:
    return [S(x(2, 3), 1), S(x(3, 2), 0), S(x(), 0), S(x(0, 3), 1), S(x(2, 71), 1, grad=False)]


def _filled(x: Maker, *values: Any) -> list[Sample]:
    return [S(x(2, 3), *values), S(x(), *values), S(x(0, 3), *values)]


def _arithmetic(x: Maker) -> list[Sample]:
    return [
        S(x(2, 3), x(2, 3)),
        S(x(3, 1), x(2)),
        S(x(), x(2, 3)),
        S(x(0, 3), x(1, 3)),
        S(x(2, 2), 2),
        S(3, x(3)),
        S(x(3, 23), x(3, 23), grad=False),
    ]


TABLE: SampleTable = {
    "polygamma": lambda x: [
        S(0, x(2, 3, lo=0.15, hi=3.4)),
        S(1, x(2, 3, lo=0.15, hi=3.4)),
        S(1, x(2, 3, lo=-2.9, hi=0.4), only="floating"),
        S(2, x(4, lo=0.2, hi=3.4)),
        S(3, x(4, lo=-3.4, hi=2.4), grad=False, only="floating"),
    ],
    # pointwise, with arguments that signatures do not explain
    "threshold": lambda x: _filled(x, 0.5, 2),
    "hardshrink": lambda x: [*_filled(x), S(x(2, 3), 1)],
    "softshrink": lambda x: [*_filled(x), S(x(2, 3), 1)],
    "ldexp": lambda x: [S(x(2, 3), x.given([1, -2, 3])), S(x(3), x(2, 3, lo=-1, hi=3))],
    **{
        name: lambda x: [
            S(x.given([[12, 18, -8]]), x.given([[4], [0], [27]]), grad=False),
            S(x(2, 3, lo=-11, hi=11), x(3, lo=-11, hi=11), grad=False),
            S(x(0, 3), x(3), grad=False),
        ]
        for name in ("gcd", "lcm")
    },
    "hardtanh": lambda x: [*_filled(x), S(x(2, 3), -1, 2)],
    "leaky_relu": lambda x: [*_filled(x), S(x(2, 3), 0.2, only="floating")],
    "elu": lambda x: [*_filled(x), S(x(2, 3), 1.5, 2, 0.5)],
    "softplus": lambda x: [*_filled(x), S(x(2, 3), 2, 1)],
    "gelu": lambda x: [*_filled(x), S(x(2, 3), approximate="tanh"), S(x(3, 23, lo=-9, hi=9), grad=False)],
    "prelu": lambda x: [S(x(2, 3), x(3)), S(x(4), x(1)), S(x(2, 3, 2), x(3)), S(x(), x(1))],
    "glu": lambda x: [S(x(2, 4)), S(x(4, 3), 0)],
    "add": lambda x: [*_arithmetic(x), S(x(2, 3), x(3), alpha=2)],
    "sub": lambda x: [*_arithmetic(x), S(x(2, 3), x(3), alpha=2)],
    "rsub": lambda x: [S(x(2, 3), x(3)), S(x(2, 3), 2), S(x(3), x(3), alpha=2)],
    "clamp": lambda x: [
        S(x(2, 3), -1, 1),
        S(x(2, 3), x(3, lo=-2, hi=-1), None),
        S(x(2, 3), x(2, 1), x(3)),
        S(x(0, 3), None, 1),
    ],
    "clamp_min": lambda x: [S(x(2, 3), 1), S(x(2, 3), x(3)), S(x(), -1)],
    "clamp_max": lambda x: [S(x(2, 3), 1), S(x(2, 3), x(3)), S(x(), -1)],
    "positive": lambda x: [S(x(2, 3), only="numeric"), S(x(), only="numeric")],
    "div.mode": lambda x: [
        S(x(2, 3), x.positive(2, 3, grad=False), rounding_mode=None),
        S(x(2, 3, lo=-7, hi=7), x(3, lo=1.3, hi=3), rounding_mode="trunc", only="numeric"),
        S(x(2, 3, lo=-7, hi=7), x(3, lo=-3, hi=-1.3), rounding_mode="floor", only="signed"),
        S(x(0, 3), 2, rounding_mode="floor"),
    ],
    "pow": lambda x: [
        S(x.positive(2, 3), x.positive(3)),
        S(x.positive(2, 3), x(3), only="floating"),
        S(x(2, 3), 2),
        S(x.positive(2, 3), 0.5),
        S(2, x.positive(3)),
        S(x.positive(), x.positive()),
        S(x(0, 3), 3),
        S(x.positive(3, 23), x.positive(3, 23), grad=False),
    ],
    "float_power": lambda x: [S(x.positive(2, 3), x(3)), S(x.positive(2, 3), 2), S(2, x(3))],
    "addcmul": lambda x: [S(x(2, 3), x(3), x(2, 1)), S(x(2), x(2), x(2), value=2)],
    "addcdiv": lambda x: [S(x(2, 3), x(3), x.positive(2, 1)), S(x(2), x(2), x.positive(2), value=2)],
    "lerp": lambda x: [S(x(2, 3), x(3), x(2, 1)), S(x(2), x(2), 0.3), S(x(2), x(2), 0.7)],
    "nan_to_num": lambda x: [
        S(x(2, 3)),
        S(x.given([1.0, float("nan"), float("inf"), -float("inf")]), 3.0, 4.0, 5.0, grad=False, only="floating"),
    ],
    "round.decimals": lambda x: [S(x(2, 3), decimals=1), S(x(2, 3, lo=-90, hi=90), decimals=-1), S(x(0), decimals=2)],
    "logit": lambda x: [S(x(2, 3, lo=0.05, hi=0.95)), S(x(2, 3, lo=-0.2, hi=1.2), 0.1)],
    "where.self": lambda x: [
        S(x.mask(2, 3), x(2, 3), x(3)),
        S(x.mask(2, 1), x(3), 2),
        S(x.mask(2), 1.5, x(2)),
        S(x.mask(0, 3), x(1, 3), x(3)),
        S(x.mask(), x(), x(2)),
    ],
    "masked_fill": lambda x: [S(x(2, 3), x.mask(3), 2), S(x(2, 3), x.mask(2, 1), x()), S(x(), x.mask(), 1)],
    "isclose": lambda x: [S(x(2, 3), x(3)), S(x.given([1.0, 2.0]), x.given([1.0, 2.00001])), S(x(2), x(2), 0.0, 2.0)],
    "allclose": lambda x: [S(x(2, 3), x(2, 3)), S(x.given([1.0, 2.0]), x.given([1.0, 2.0])), S(x(2), x(2), 0.0, 9.0)],
    "equal": lambda x: [S(x(2, 3), x(2, 3)), S(x.given([1.0, 2.0]), x.given([1.0, 2.0])), S(x(2), x(3))],
    **{
        name: lambda x: [
            S(x.given([[2.0, -1.0, 0.0]]), x.given([[2.0], [1.0]])),
            S(x(3, 23), x(3, 23)),
            S(x(2), 1),
            S(1, x(2)),
            S(x(0, 3), x(3)),
        ]
        for name in ("eq", "ne", "lt", "le", "gt", "ge")
    },
    **{
        name: lambda x: [
            S(x.given([[6.0, 3.0, 1.0]]), x.given([[2.0], [1.0]])),
            S(x.given([1.0, 5.0]), 2),
            S(9, x.given([1.0, 3.0])),
            S(x(0, 3), x(3)),
        ]
        for name in ("bitwise_left_shift", "bitwise_right_shift")
    },
    # reductions
    **dict.fromkeys(("sum", "mean", "any", "all"), _reduce),
    "prod": lambda x: [S(x(2, 3)), S(x()), S(x(0, 3), grad=False), S(x.given([0.0, 2.5, 1.5]), grad=True)],
    **dict.fromkeys(("sum.dim", "mean.dim"), _reduce_dim),
    **{name: lambda x: [*_reduce_dim(x), S(x(2, 3))] for name in ("any.dims", "all.dims")},
    "prod.dim_int": lambda x: [
        S(x(2, 3), 1),
        S(x(2, 3), -2, True),
        S(x(), 0),
        S(x(0, 3), 1),
        S(x(0, 3), 0, grad=False),
        S(x.given([[0.0, 2.5], [0.0, 1.5]]), 0),
    ],
    "count_nonzero": lambda x: [S(x(2, 3)), S(x(2, 3), 1), S(x(2, 3, 2), [0, 2]), S(x(0, 3))],
    "nansum": lambda x: [
        S(x(2, 3)),
        S(x.given([[1.0, float("nan")], [2.0, 3.0]]), 1, grad=False, only="floating"),
        S(x(2, 3), [0], True),
    ],
    "nanmean": lambda x: [
        S(x(2, 3)),
        S(x.given([[1.0, float("nan")], [2.0, 3.0]]), 1, grad=False, only="floating"),
        S(x(2, 3), [0], True),
    ],
    "sum_to_size": lambda x: [S(x(2, 3), [3]), S(x(2, 3), [2, 1]), S(x(2, 3), [])],
    **{name: lambda x: [S(x.apart(2, 3)), S(x()), S(x.apart(3, 41), grad=False)] for name in ("max", "min")},
    **dict.fromkeys(("max.dim", "min.dim", "median.dim", "nanmedian.dim"), _reduce_one_dim),
    **{name: lambda x: [S(x.apart(2, 3), x(3)), S(x(), x(2))] for name in ("max.other", "min.other")},
    **{
        name: lambda x: [
            S(x.apart(2, 3)),
            S(x.apart(2, 3), 1),
            S(x.apart(2, 3, 2), [0, -1], True),
            S(x(), 0),
            S(x(0, 3), 1),
        ]
        for name in ("amax", "amin")
    },
    "aminmax": lambda x: [S(x.apart(2, 3)), S(x.apart(2, 3), dim=1, keepdim=True)],
    **{
        name: lambda x: [
            S(x.apart(2, 3)),
            S(x.apart(2, 3), 1),
            S(x.apart(3, 2), 0, True),
            S(x()),
            S(x.given([1.0, 3.0, 3.0, 0.0, 0.0])),
            S(x.apart(3, 37), 1),
        ]
        for name in ("argmax", "argmin")
    },
    **{name: lambda x: [S(x.apart(2, 3)), S(x.apart(4)), S(x())] for name in ("median", "nanmedian")},
    **dict.fromkeys(_MOMENTS, _moments),
    **{f"{name}.dim": _moments_dim for name in _MOMENTS},
    **{f"{name}.correction": _moments_correction for name in _MOMENTS},
    "logsumexp": lambda x: [
        S(x(2, 3), 1),
        S(x(2, 3, 2), [0, 2], True),
        S(x(), 0),
        S(x(2, 33, lo=-50, hi=90), 1, grad=False),
    ],
    "linalg_vector_norm": lambda x: [
        S(x(2, 3)),
        S(x(2, 3), 1, 1),
        S(x(2, 3), 3, [0], True),
        S(x.apart(2, 3), float("inf"), [0, 1]),
        S(x(2, 3), 0, 1),
    ],
    "linalg_matrix_norm": lambda x: [
        S(x.apart(2, 3), 1),
        S(x.apart(2, 3, 2), float("inf"), [0, 2], True),
        S(x.apart(2, 3, 2), -1, [2, 0]),
        S(x.apart(3, 2), float("-inf")),
    ],
    "linalg_matrix_norm.str_ord": lambda x: [S(x(2, 3)), S(x(2, 3, 2), "fro", [0, 1], True)],
    "linalg_norm": lambda x: [S(x(2, 3)), S(x(4), 3), S(x(2, 3), None, 1), S(x.apart(2, 3), 1), S(x(2, 3, 2), 1, [2])],
    "linalg_norm.ord_str": lambda x: [S(x(2, 3), "fro"), S(x(2, 3, 2), "fro", [0, 2], True)],
    "unravel_index": lambda x: [S(x.given([[0, 5], [3, 4]]), [2, 3]), S(x.given(7), [2, 2, 2])],
    "norm": lambda x: [S(x(2, 3)), S(x(2, 3), 3, 1), S(x.apart(2, 3), float("inf"), [0], True)],
    "norm.name": lambda x: [S(x(2, 3), "fro"), S(x(2, 3), "fro", [0, 1], True)],
    "dist": lambda x: [S(x(2, 3), x(2, 3)), S(x(2, 3), x(3), 1), S(x.apart(2, 3), x(1), float("inf"))],
    "pdist": lambda x: [S(x(4, 3)), S(x(3, 2), 1.0), S(x(1, 2))],
    "renorm": lambda x: [S(x(2, 3), 2, 0, 1.5), S(x(3, 2, 2), 1, -1, 2)],
    "cov": lambda x: [
        S(x(3, 4)),
        S(x(5), correction=0),
        S(x(2, 4), fweights=x.given([1, 2, 1, 3])),
        S(x(2, 3), aweights=x.const(3), fweights=x.given([2, 1, 1]), only="floating"),
    ],
    "corrcoef": lambda x: [S(x(3, 4)), S(x(5))],
    "trace": lambda x: [S(x(3, 3)), S(x(2, 3)), S(x(0, 2))],
    # differences and integrals
    "diff": lambda x: [
        S(x(2, 4)),
        S(x(4, 2), 2, 0),
        S(x(2, 3), 1, -1, x(2, 1), x(2, 2)),
        S(x(3), 0),
        S(x(2, 2), 3),
        S(x(0, 3)),
    ],
    **{
        f"{name}.x": lambda x: [S(x(2, 4), x(4)), S(x(3, 2), x(3, 2), dim=0), S(x(2, 3), x(2, 3))]
        for name in ("trapezoid", "trapz", "cumulative_trapezoid")
    },
    **{
        f"{name}.dx": lambda x: [S(x(2, 4)), S(x(3, 2), dx=2, dim=0), S(x(3), dx=0.5)]
        for name in ("trapezoid", "trapz", "cumulative_trapezoid")
    },
    # scans
    **dict.fromkeys(("cumsum", "logcumsumexp"), _scan),
    "cumprod": lambda x: [*_scan(x), S(x.given([0.0, 2.5, 0.0, 1.5]), 0)],
    **{
        name: lambda x: [
            S(x.apart(2, 3), 1),
            S(x.apart(3, 2), 0),
            S(x(), 0),
            S(x(0, 3), 1),
            S(x.apart(2, 41), 1, grad=False),
        ]
        for name in ("cummax", "cummin")
    },
    # products of matrices
    "matmul": lambda x: [
        S(x(2, 3), x(3, 2)),
        S(x(3), x(3)),
        S(x(2, 3), x(3)),
        S(x(3), x(3, 2)),
        S(x(2, 1, 2, 3), x(2, 3, 2)),
        S(x(3), x(2, 3, 2)),
        S(x(0, 3), x(3, 2)),
        S(x(2, 0), x(0, 3)),
        S(x(33, 17), x(17, 9), grad=False),
    ],
    "mm": lambda x: [
        S(x(2, 3), x(3, 4)),
        S(x(2, 0), x(0, 3)),
        S(x(0, 3), x(3, 2)),
        S(x(19, 70), x(70, 21), grad=False),
    ],
    "bmm": lambda x: [
        S(x(2, 2, 3), x(2, 3, 2)),
        S(x(0, 2, 3), x(0, 3, 2)),
        S(x(2, 2, 0), x(2, 0, 3)),
        S(x(3, 9, 17), x(3, 17, 5), grad=False),
    ],
    "mv": lambda x: [S(x(2, 3), x(3)), S(x(2, 0), x(0))],
    **{name: lambda x: [S(x(3), x(3)), S(x(0), x(0)), S(x(57), x(57), grad=False)] for name in ("dot", "vdot")},
    "inner": lambda x: [S(x(2, 3), x(4, 3)), S(x(3), x(3)), S(x(2, 3), x())],
    "outer": lambda x: [S(x(2), x(3)), S(x(0), x(3))],
    "addmm": lambda x: [
        S(x(2, 4), x(2, 3), x(3, 4)),
        S(x(4), x(2, 3), x(3, 4), beta=2, alpha=3, only="numeric"),
        S(x(2, 4), x(2, 0), x(0, 4)),
    ],
    "_addmm_activation": lambda x: [
        S(x(2, 4), x(2, 3), x(3, 4), only="floating"),
        S(x(4), x(2, 3), x(3, 4), beta=2, alpha=3, use_gelu=True, only="floating"),
    ],
    "baddbmm": lambda x: [
        S(x(2, 2, 2), x(2, 2, 3), x(2, 3, 2)),
        S(x(2), x(2, 2, 3), x(2, 3, 2), beta=2, alpha=3, only="numeric"),
    ],
    "addmv": lambda x: [S(x(2), x(2, 3), x(3)), S(x(), x(2, 3), x(3), beta=2, alpha=3)],
    "addr": lambda x: [S(x(2, 3), x(2), x(3)), S(x(3), x(2), x(3), beta=2, alpha=3)],
    "addbmm": lambda x: [S(x(2, 4), x(3, 2, 3), x(3, 3, 4)), S(x(4), x(1, 2, 3), x(1, 3, 4), beta=2, alpha=3)],
    "linear": lambda x: [
        S(x(2, 3), x(4, 3), x(4)),
        S(x(3), x(4, 3)),
        S(x(2, 1, 3), x(4, 3), x(4)),
        S(x(0, 3), x(4, 3), x(4)),
        S(x(21, 40), x(18, 40), x(18), grad=False),
    ],
    "bilinear": lambda x: [S(x(2, 3), x(2, 2), x(4, 3, 2), x(4)), S(x(3), x(2), x(1, 3, 2))],
    "einsum": lambda x: [
        S("ij,jk->ik", [x(2, 3), x(3, 2)]),
        S("bij,bj", [x(2, 2, 3), x(2, 3)]),
        S("ii->i", [x(3, 3)]),
        S("...i,i->...", [x(2, 2, 3), x(3)]),
        S("i,j", [x(2), x(0)]),
    ],
    "tensordot": lambda x: [S(x(2, 3, 4), x(3, 4, 2)), S(x(2, 3), x(3, 2), 1), S(x(2), x(2), 0)],
    "tensordot.dims": lambda x: [S(x(2, 3, 4), x(4, 2, 2), [0, 2], [1, 0])],
    "kron": lambda x: [S(x(2, 2), x(1, 3)), S(x(2), x(2, 2)), S(x(), x(2))],
    "chain_matmul": lambda x: [S([x(2, 3), x(3, 4), x(4, 2)]), S([x(2, 2)])],
    "cross": lambda x: [S(x(2, 3), x(2, 3)), S(x(3, 2), x(3, 1), 0)],
    "linalg_cross": lambda x: [S(x(2, 3), x(1, 3)), S(x(3, 2), x(3, 2), dim=0)],
    "pairwise_distance": lambda x: [S(x(2, 3), x(2, 3)), S(x(3), x(2, 3), 1.0, keepdim=True)],
    "cosine_similarity": lambda x: [S(x(2, 3), x(2, 3)), S(x(3, 2), x(3, 1), 0)],
    "cdist": lambda x: [
        S(x(2, 3), x(4, 3)),
        S(x(2, 2, 3), x(2, 1, 3), 1.0),
        S(x.apart(2, 3), x.apart(3, 3), float("inf")),
        S(x(2, 1, 3), x(4, 3), compute_mode="use_mm_for_euclid_dist"),
        S(x(27, 2), x(3, 2), grad=False),
    ],
    "scaled_dot_product_attention": lambda x: [
        S(x(1, 2, 3, 2), x(1, 2, 4, 2), x(1, 2, 4, 3)),
        S(x(2, 3, 2), x(2, 3, 2), x(2, 3, 2), is_causal=True, scale=0.3),
        S(x(2, 3, 2), x(2, 4, 2), x(2, 4, 2), x.given([[True, False, True, True]])),
        S(x(2, 3, 2), x(2, 4, 2), x(2, 4, 2), x.const(3, 4)),
    ],
}
