"""Samples of indexing, order, joining, copies, views and tensors made from nothing.

``x(2, 3)`` is a float tensor of that shape, which takes the dtype under test; see ``Maker`` for the others.
"""

from __future__ import annotations

from typing import Any

from tesserack.testing._inputs import Maker, Sample, SampleTable
from tesserack.testing._inputs import sample as S

__all__ = ["TABLE"]


def _joined(x: Maker) -> list[Sample]:
    return [S([x(2, 3), x(1, 3)]), S([x(2, 3), x(2, 2)], 1), S([x(0, 3), x(2, 3)], -2), S([x(3)])]


def _sections(x: Maker) -> list[Sample]:
    return [S(x(4, 2, 4), 2), S(x(4, 4, 2), 2)]


def _scatter_like(x: Maker) -> list[Sample]:
    return [
        S(x(3, 4), 0, x.given([[0, 1, 2, 0], [2, 0, 1, 1]]), x(2, 4)),
        S(x(3, 4), 1, x.given([[3, 0], [1, 2]]), x(3, 3)),
        S(x(3), 0, x.given([2]), x(1)),
        S(x(0, 3), 0, x.index(1, 0, 3), x(0, 3)),
    ]


def _index_like(x: Maker) -> list[Sample]:
    return [
        S(x(3, 4), 0, x.given([2, 0]), x(2, 4)),
        S(x(3, 4), 1, x.given([1, 3, 0]), x(3, 3)),
        S(x(5), 0, x.given([1]), x(1)),
    ]


def _index_fill(x: Maker, value: Any) -> list[Sample]:
    return [S(x(3, 4), 0, x.given([2, 0]), value), S(x(3, 4), -1, x.given([1, 1]), value)]


def _move(x: Maker) -> list[Sample]:
    return [S(x(2, 3, 4), 0, 2), S(x(2, 3), -1, 0), S(x(0, 3), 1, 0)]


def _move_list(x: Maker) -> list[Sample]:
    return [S(x(2, 3, 4), [0, 1], [2, 0])]


def _at_least(x: Maker) -> list[Sample]:
    return [S(x()), S(x(3)), S(x(2, 3))]


def _one_view(x: Maker) -> list[Sample]:
    return [S(x(2, 3)), S(x()), S(x(0, 3))]


def _matrices(x: Maker) -> list[Sample]:
    return [S(x(2, 3)), S(x(2, 3, 4)), S(x(0, 3))]


def _stacked_matrices(x: Maker) -> list[Sample]:
    return [S(x(2, 3, 4)), S(x(3, 2)), S(x(0, 3))]


def _sorted(x: Maker) -> list[Sample]:
    return [S(x.apart(2, 3)), S(x.apart(3, 2), 0, True), S(x()), S(x(0, 3)), S(x.apart(2, 33), grad=False)]


def _filled(x: Maker, *values: Any) -> list[Sample]:
    return [S(x(2, 3), *values), S(x(), *values), S(x(0, 3), *values)]


TABLE: SampleTable = {
    # gather and scatter
    "gather": lambda x: [
        S(x(3, 4), 0, x.given([[0, 1, 2, 0], [2, 2, 0, 1]])),
        S(x(3, 4), 1, x.given([[3], [0]])),
        S(x(), 0, x.given(0)),
        S(x(0, 3), 0, x.index(1, 0, 3)),
    ],
    "index_select": lambda x: [
        S(x(3, 4), 0, x.given([2, 0, 2])),
        S(x(3, 4), -1, x.given([1])),
        S(x(), 0, x.given([0])),
        S(x(3, 0), 0, x.given([1, 1])),
        S(x(3, 4), 0, x.index(1, 0)),
    ],
    "take": lambda x: [S(x(3, 4), x.given([[0, 11], [-1, 5]])), S(x(3), x.index(1, 0))],
    "take_along_dim": lambda x: [S(x(3, 4), x.given([[0], [2], [1]]), 1), S(x(3, 4), x.given([0, 11]))],
    "index_put": lambda x: [
        S(x(3, 4), [x.given([0, 2])], x(2, 4)),
        S(x(3, 4), [None, x.given([1, 1])], x(), True),
        S(x(3, 4), [x.given([0, 2]), x.given([1, 3])], x(2)),
    ],
    "index_put_": lambda x: [S(x(3, 4), [x.given([0, 2])], x(2, 4)), S(x(3, 4), [x.mask(3)], x())],
    **dict.fromkeys(("scatter.src", "scatter_.src", "scatter_add", "scatter_add_"), _scatter_like),
    **{
        name: lambda x: [S(x(3, 4), 0, x.given([[0, 1, 2, 0]]), 2), S(x(3), -1, x.given([2]), 1.5)]
        for name in ("scatter.value", "scatter_.value")
    },
    "scatter_reduce.two": lambda x: [
        *(
            S(x(3, 2), 0, x.given([[0, 1], [0, 0], [2, 1]]), x(3, 2), how)
            for how in ("sum", "prod", "mean", "amax", "amin")
        ),
        S(x(3), 0, x.given([0, 0]), x(2), "mean", include_self=False),
    ],
    "scatter.reduce": lambda x: [
        S(x(3), 0, x.given([0, 0]), x(2), reduce="add", grad=False),
        S(x(3), 0, x.given([0, 2]), x(2), reduce="multiply", grad=False),
    ],
    "scatter.value_reduce": lambda x: [
        S(x(3), 0, x.given([0, 0]), 2, reduce="add", grad=False),
        S(x(3), 0, x.given([0, 2]), 2, reduce="multiply", grad=False),
    ],
    **{
        name: lambda x: [*_index_like(x), S(x(3), 0, x.given([1, 1]), x(2), alpha=2)]
        for name in ("index_add", "index_add_")
    },
    **dict.fromkeys(("index_copy", "index_copy_"), _index_like),
    **{name: lambda x: _index_fill(x, 2) for name in ("index_fill.int_Scalar", "index_fill_.int_Scalar")},
    **{name: lambda x: _index_fill(x, x()) for name in ("index_fill.int_Tensor", "index_fill_.int_Tensor")},
    "index_reduce": lambda x: [
        S(x(3, 2), 0, x.given([0, 0, 2]), x(3, 2), how) for how in ("prod", "mean", "amax", "amin")
    ],
    "put": lambda x: [
        S(x(3, 4), x.given([[0, 11], [-2, 5]]), x(2, 2)),
        S(x(3), x.given([1, 1]), x(2), True),
        S(x(3), x.index(1, 0), x(0)),
    ],
    "masked_select": lambda x: [S(x(2, 3), x.mask(2, 3)), S(x(2, 3), x.mask(3)), S(x(0), x.mask(0))],
    "masked_scatter": lambda x: [S(x(2, 3), x.mask(2, 3), x(4)), S(x(2, 3), x.mask(3), x(6))],
    "nonzero": lambda x: [S(x.given([[0.0, 1.0], [2.0, 0.0]])), S(x()), S(x(0, 3))],
    "argwhere": lambda x: [S(x.given([[0.0, 1.0], [2.0, 0.0]])), S(x(0, 3))],
    "where": lambda x: [S(x.given([[0.0, 1.0], [2.0, 0.0]])), S(x(0, 3))],
    # order
    **dict.fromkeys(("sort", "argsort"), _sorted),
    "msort": lambda x: [S(x.apart(3, 2)), S(x.apart(4))],
    "topk": lambda x: [
        S(x.apart(2, 4), 2),
        S(x.apart(4, 2), 1, 0, False),
        S(x.apart(5), 0),
        S(x.apart(2, 33), 4, grad=False),
    ],
    "mode": lambda x: [
        S(x.apart(2, 4)),
        S(x.given([[3.0, 1.0, 3.0, 1.0], [2.0, 2.0, 5.0, 5.0]]), grad=False),  # equal values part when one is moved
        S(x.given([[3.0, 1.0], [3.0, 2.0], [4.0, 1.0]]), 0, True, grad=False),
        S(x(), 0),
    ],
    **{
        name: lambda x: [
            S(x.apart(2, 5), x.given([0.0, 0.4, 1.0], grad=False)),
            S(x.apart(3, 4), x.given(0.3, grad=False), 0),
            S(x.apart(2, 5), x.given([0.3], grad=False), 1, True, interpolation="midpoint"),
            S(x.apart(2, 3, 2), x.given([0.3, 0.8], grad=False), 1, interpolation="lower"),
        ]
        for name in ("quantile", "nanquantile")
    },
    **{
        f"{name}.scalar": lambda x: [
            S(x.apart(2, 5), 0.4),
            S(x.apart(2, 3, 2), 0.3, 1),
            S(x.apart(2, 5), 0.6, 1, True, interpolation="higher"),
            S(x.apart(2, 5), 0.6, None, True, interpolation="nearest"),
            S(x.given([[1.0, float("nan"), 3.0, 2.0], [4.0, 3.0, 2.0, 1.0]]), 0.4, 1, grad=False, only="floating"),
        ]
        for name in ("quantile", "nanquantile")
    },
    "kthvalue": lambda x: [S(x.apart(2, 4), 2), S(x.apart(4, 2), 4, 0, True)],
    "searchsorted.Tensor": lambda x: [
        S(x.given([-1.5, 0.5, 1.5]), x(2, 3)),
        S(x.given([[-1.0, 2.0], [0.0, 1.0]]), x(2, 4), right=True, only="numeric"),  # as truth values: not sorted
        S(x.given([1.0, 2.0]), x(0), out_int32=True),
    ],
    "searchsorted.Scalar": lambda x: [S(x.given([-1.5, 0.5, 1.5]), 1), S(x.given([1.0, 2.0]), 2, side="right")],
    "bucketize.Tensor": lambda x: [S(x(2, 3), x.given([-1.5, 0.5, 1.5])), S(x(3), x.given([0.0, 1.0]), right=True)],
    "bucketize.Scalar": lambda x: [S(1, x.given([-1.5, 0.5, 1.5]))],
    "bincount": lambda x: [S(x.given([0, 2, 2, 5])), S(x.given([1, 0]), x(2), 4, grad=False), S(x.index(1, 0))],
    "histc": lambda x: [S(x(9), 4, -2, 2), S(x.given([[0.0, 1.0, 2.25], [3.0, 4.0, 0.5]]), 3)],
    "isin.Tensor_Tensor": lambda x: [
        S(x.given([[1.0, 2.0], [3.0, 4.0]]), x.given([2.0, 4.0])),
        S(x.given([1.0, 2.0]), x.given([2.0]), invert=True),
    ],
    "isin.Tensor_Scalar": lambda x: [S(x.given([1.0, 2.0]), 2)],
    "isin.Scalar_Tensor": lambda x: [S(2, x.given([1.0, 2.0]))],
    # joining and splitting
    **dict.fromkeys(("cat", "concat", "concatenate"), _joined),
    "stack": lambda x: [S([x(2, 3), x(2, 3)]), S([x(2), x(2), x(2)], -1), S([x(), x()]), S([x(0), x(0)], 1)],
    **{
        name: lambda x: [S([x(2, 3), x(2, 3)]), S([x(3), x(3)]), S([x(), x()])]
        for name in ("hstack", "vstack", "row_stack", "dstack", "column_stack")
    },
    "unbind": lambda x: [S(x(2, 3)), S(x(2, 3), -1), S(x(2, 0), 0)],
    "split": lambda x: [S(x(5, 2), 2), S(x(2, 3), 3, 1), S(x(0, 2), 1)],
    **{name: lambda x: [S(x(5, 2), [1, 4]), S(x(2, 3), [0, 3], 1)] for name in ("split.sizes", "split_with_sizes")},
    "chunk": lambda x: [S(x(5, 2), 2), S(x(2, 3), 5, 1)],
    "tensor_split.sections": lambda x: [S(x(5, 2), 2), S(x(2, 3), 4, 1)],
    "tensor_split.indices": lambda x: [S(x(5, 2), [1, 3]), S(x(2, 3), [2, 1], 1)],
    **{f"{name}.int": _sections for name in ("hsplit", "vsplit", "dsplit")},
    **{f"{name}.array": lambda x: [S(x(4, 4, 4), [1, 3])] for name in ("hsplit", "vsplit", "dsplit")},
    "meshgrid": lambda x: [S([x(2), x(3)]), S([x(2), x(), x(3)], indexing="xy")],
    "combinations": lambda x: [S(x(4)), S(x(3), 3, True), S(x(2), 3), S(x(3), 0, grad=False)],
    "cartesian_prod": lambda x: [S([x(2), x(3)]), S([x(2), x(0), x(1)]), S([x(3)])],
    "broadcast_tensors": lambda x: [S([x(2, 1), x(3)]), S([x(), x(0)])],
    **{f"{name}.Sequence": lambda x: [S([x(), x(2)])] for name in ("atleast_1d", "atleast_2d", "atleast_3d")},
    # diagonals, blocks, and copies with a view replaced
    "diag": lambda x: [S(x(3)), S(x(2, 3)), S(x(2), -1), S(x(3, 2), 1), S(x(0))],
    "diag_embed": lambda x: [S(x(3)), S(x(2, 3), 1), S(x(2, 3), -2, 0, 2), S(x(0, 2))],
    "diagflat": lambda x: [S(x(3)), S(x(2, 2), 1), S(x())],
    "fill_diagonal_": lambda x: [
        S(x(3, 2), 2),
        S(x(5, 2), 2, True),
        S(x(2, 4), 1),
        S(x(2, 2, 2), 1),
        S(x(0, 3), 1),
    ],
    "block_diag": lambda x: [S([x(2, 2), x(1, 3)]), S([x(), x(2), x(2, 1)]), S([x(0), x(1, 1)])],
    "select_scatter": lambda x: [S(x(2, 3), x(3), 0, 1), S(x(2, 3), x(2), -1, -1)],
    "slice_scatter": lambda x: [
        S(x(4, 2), x(2, 2), 0, 1, 3),
        S(x(2, 5), x(2, 3), 1, step=2),
        S(x(2, 3), x(2, 0), 1, 3),
    ],
    "diagonal_scatter": lambda x: [S(x(3, 3), x(3)), S(x(2, 3), x(2), 1), S(x(2, 3, 2), x(3, 2), 0, 0, 2)],
    # copies and rearrangements
    "clone": _one_view,
    "copy_": lambda x: [S(x(2, 3), x(2, 3)), S(x(2, 3), x(3)), S(x(), x())],
    "fill_": lambda x: _filled(x, 2),
    "fill_.Tensor": lambda x: [S(x(2, 3), x()), S(x(0), x())],
    "zero_": _one_view,
    "contiguous": _one_view,
    "constant_pad_nd": lambda x: [S(x(2, 3), [1, 2]), S(x(2, 3), [0, 1, 2, -1], 1.5), S(x(0, 2), [1, 1], 2)],
    "pad": lambda x: [
        S(x(2, 3), [1, 2]),
        S(x(2, 3), [1, 1, 0, 2], value=2.0),
        S(x(1, 2, 4), [2, 1], "reflect"),
        S(x(1, 3, 4), [2, 1], "replicate"),
        S(x(1, 2, 3, 3), [1, 2, 0, 1], "circular"),
    ],
    "tril": lambda x: [S(x(3, 3)), S(x(2, 2, 4), 1), S(x(0, 3), -1)],
    "triu": lambda x: [S(x(3, 3)), S(x(2, 2, 4), 1), S(x(0, 3), -1)],
    "repeat": lambda x: [S(x(2, 3), [2, 1]), S(x(3), [2, 0, 2]), S(x(), [2])],
    "tile": lambda x: [S(x(2, 3), [2]), S(x(3), [2, 1, 2])],
    "repeat_interleave.Tensor": lambda x: [S(x.given([1, 0, 2]))],
    "repeat_interleave.self_Tensor": lambda x: [S(x(3, 2), x.given([1, 0, 2]), 0), S(x(2, 2), x.given([2]))],
    "repeat_interleave.self_int": lambda x: [S(x(2, 3), 2), S(x(2, 3), 2, 1)],
    "roll": lambda x: [S(x(2, 3), 1), S(x(2, 3), [1, -1], [0, 1]), S(x(0, 3), 1, 0)],
    "flip": lambda x: [S(x(2, 3), [0]), S(x(2, 3), [0, -1]), S(x(0, 3), [1]), S(x(), [])],
    "fliplr": _matrices,
    "flipud": _matrices,
    "rot90": lambda x: [S(x(2, 3)), S(x(2, 3, 2), 3, [0, 2]), S(x(2, 2), 2)],
    # views
    "view": lambda x: [S(x(2, 3), [3, 2]), S(x(2, 3), [-1]), S(x(), [1, 1]), S(x(0, 3), [3, 0])],
    "reshape": lambda x: [S(x(2, 3), [3, -1]), S(x(2, 3), [6]), S(x(1), []), S(x(0, 3), [0])],
    "view_as": lambda x: [S(x(2, 3), x.const(3, 2))],
    "reshape_as": lambda x: [S(x(2, 3), x.const(6))],
    **{
        name: lambda x: [S(x(2, 3), 0, 1), S(x(2, 3, 4), -1, 0), S(x(), 0, -1)]
        for name in ("transpose.int", "swapaxes", "swapdims", "transpose_", "swapaxes_", "swapdims_")
    },
    **dict.fromkeys(("t", "t_"), lambda x: [S(x(2, 3)), S(x(3)), S(x())]),
    "permute": lambda x: [S(x(2, 3, 4), [2, 0, 1]), S(x(2, 3), [-1, 0]), S(x(), [])],
    "expand": lambda x: [S(x(2, 1), [2, 3]), S(x(3), [2, -1]), S(x(), [2]), S(x(1, 3), [0, 3])],
    "expand_as": lambda x: [S(x(2, 1), x.const(2, 3))],
    "broadcast_to": lambda x: [S(x(2, 1), [2, 3]), S(x(), [0])],
    **dict.fromkeys(("squeeze", "squeeze_"), lambda x: [S(x(1, 3, 1)), S(x(2, 3)), S(x())]),
    **dict.fromkeys(("squeeze.dim", "squeeze_.dim"), lambda x: [S(x(1, 3), 0), S(x(2, 3), 1), S(x(), 0)]),
    **dict.fromkeys(("squeeze.dims", "squeeze_.dims"), lambda x: [S(x(1, 3, 1), [0, -1])]),
    **dict.fromkeys(("unsqueeze", "unsqueeze_"), lambda x: [S(x(2, 3), 1), S(x(2), -1), S(x(), 0)]),
    "flatten": lambda x: [S(x(2, 3, 2)), S(x(2, 3, 2), 1), S(x())],
    "ravel": _one_view,
    "unflatten": lambda x: [S(x(2, 6), 1, [2, -1]), S(x(4), 0, [2, 2])],
    **{f"{name}.int": _move for name in ("movedim", "moveaxis")},
    **{f"{name}.intlist": _move_list for name in ("movedim", "moveaxis")},
    "adjoint": _stacked_matrices,
    **dict.fromkeys(("real", "conj", "resolve_conj", "resolve_neg"), _one_view),
    **dict.fromkeys(("atleast_1d", "atleast_2d", "atleast_3d"), _at_least),
    "select.int": lambda x: [S(x(2, 3), 0, 1), S(x(2, 3), -1, -2)],
    "narrow": lambda x: [S(x(4, 3), 0, 1, 2), S(x(2, 3), 1, -2, 1), S(x(2, 3), 0, 2, 0)],
    "diagonal": lambda x: [S(x(3, 4)), S(x(2, 3, 4), 1, 2, 0), S(x(3, 3), -2), S(x(2, 2), 5)],
    "unfold": lambda x: [S(x(5), 0, 3, 1), S(x(2, 4), 1, 2, 2), S(x(), 0, 1, 1)],
    **dict.fromkeys(
        ("as_strided", "as_strided_"),
        lambda x: [S(x(6), [2, 2], [2, 1], 1), S(x(6), [3, 3], [1, 1]), S(x(2, 3), [2], [0], 4)],
    ),
    # to and from other dtypes
    **dict.fromkeys(("float", "double", "half", "bfloat16", "cpu"), _one_view),
    **dict.fromkeys(("long", "int", "short", "char", "byte", "bool"), _one_view),
    "type_as": lambda x: [S(x(2, 3), x.given([1, 2])), S(x(2, 3), x.mask(2))],
    "detach": _one_view,
    # made from nothing
    "zeros": lambda x: [S([2, 3]), S([]), S([0, 3])],
    "ones": lambda x: [S([2, 3]), S([]), S([0, 3])],
    "full": lambda x: [S([2, 3], 2.5), S([], True), S([0], 3)],
    "scalar_tensor": lambda x: [S(2.5), S(3)],
    "eye": lambda x: [S(3), S(0)],
    "eye.m": lambda x: [S(2, 3), S(3, 0)],
    "zeros_like": _one_view,
    "ones_like": _one_view,
    "full_like": lambda x: _filled(x, 2),
    "new_zeros": lambda x: [S(x(2), [2, 3])],
    "new_ones": lambda x: [S(x(2), [2, 3])],
    "new_full": lambda x: [S(x(2), [2, 3], 2)],
    "arange": lambda x: [S(5), S(2.5), S(0)],
    "arange.start": lambda x: [S(1, 5), S(-1.5, 2)],
    "arange.start_step": lambda x: [S(1, 9, 3), S(5, 0, -2), S(0.0, 1.0, 0.25)],
    "linspace": lambda x: [S(0, 1, 5), S(3.0, -2.0, 4), S(2, 5, 1), S(0, 1, 0)],
    "logspace": lambda x: [S(0, 2, 3), S(-1, 1, 4, 2.0)],
    "tril_indices": lambda x: [S(3, 3), S(2, 4, 1), S(0, 3)],
    "triu_indices": lambda x: [S(3, 3), S(2, 4, 1), S(0, 3)],
}
