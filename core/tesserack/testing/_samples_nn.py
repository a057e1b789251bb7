"""Samples of convolution, pooling, normalisation and losses.

``x(2, 3)`` is a float tensor of that shape, which takes the dtype under test; see ``Maker`` for the others.
"""

from __future__ import annotations

from typing import Any

from tesserack.testing._inputs import Maker, Sample, SampleTable
from tesserack.testing._inputs import sample as S

__all__ = ["TABLE"]


def _softmax(x: Maker) -> list[Sample]:
    return [S(x(2, 3), 1), S(x(2, 3, 2), 0), S(x(), 0), S(x(0, 3), 1), S(x(3, 37, lo=-9, hi=9), -1, grad=False)]


def _loss(x: Maker, **options: Any) -> list[Sample]:
    return [
        S(x(2, 3), x(2, 3, lo=-3.1, hi=3.3), **options),
        S(x(4), x(4, lo=-3.1, hi=3.3), reduction="none", **options),
        S(x(2, 3), x(2, 3, lo=-3.1, hi=3.3), reduction="sum", **options),
    ]


def _pad_free_conv(x: Maker, *spatial: int) -> list[Sample]:
    n = len(spatial)
    return [
        S(x(2, 2, *spatial), x(3, 2, *[2] * n), x(3)),
        S(x(1, 4, *spatial), x(2, 2, *[2] * n), None, 2, 1, 1, 2),
        S(x(2, *spatial), x(2, 2, *[2] * n), stride=1, padding=1, dilation=2),
        S(x(0, 2, *spatial), x(3, 2, *[2] * n), grad=False),
    ]


def _conv_padding(x: Maker, *spatial: int) -> list[Sample]:
    n = len(spatial)
    return [
        S(x(1, 2, *spatial), x(2, 2, *[3] * n), padding="same"),
        S(x(1, 2, *spatial), x(2, 2, *[2] * n), x(2), padding="valid"),
    ]


def _conv_transpose(x: Maker, *spatial: int) -> list[Sample]:
    n = len(spatial)
    return [
        S(x(1, 2, *spatial), x(2, 3, *[2] * n), x(3)),
        S(x(1, 4, *spatial), x(4, 1, *[2] * n), None, 2, 1, 1, 2),
    ]


TABLE: SampleTable = {
    "pixel_shuffle": lambda x: [S(x(1, 4, 2, 3), 2), S(x(4, 1, 2), 2)],
    "pixel_unshuffle": lambda x: [S(x(1, 1, 4, 2), 2), S(x(2, 2, 4), 2)],
    "channel_shuffle": lambda x: [S(x(2, 4, 3), 2), S(x(1, 6, 2, 1), 3)],
    # convolution and pooling
    "conv1d": lambda x: _pad_free_conv(x, 5),
    "conv2d": lambda x: [*_pad_free_conv(x, 4, 3), S(x(2, 3, 9, 8), x(4, 3, 3, 3), x(4), padding=(1, 0), grad=False)],
    "conv3d": lambda x: _pad_free_conv(x, 3, 3, 3)[:2],
    "conv1d.padding": lambda x: _conv_padding(x, 5),
    "conv2d.padding": lambda x: _conv_padding(x, 4, 3),
    "conv3d.padding": lambda x: _conv_padding(x, 3, 2, 3)[:1],
    "conv_transpose1d": lambda x: _conv_transpose(x, 4),
    "conv_transpose2d": lambda x: _conv_transpose(x, 3, 2),
    "conv_transpose3d": lambda x: _conv_transpose(x, 2, 2, 2)[:1],
    **{
        name: lambda x: [
            S(x.apart(1, 2, 5, 4), 2),
            S(x.apart(2, 5, 4), [3, 2], 1, 1),
            S(x.apart(1, 1, 6, 6), 2, [2, 3], 0, 2, True),
        ]
        for name in ("max_pool2d", "max_pool2d_with_indices")
    },
    **{
        name: lambda x: [S(x.apart(1, 2, 5), 2), S(x.apart(2, 6), 3, 1, 1), S(x.apart(1, 1, 7), 2, 3, 0, 2, True)]
        for name in ("max_pool1d", "max_pool1d_with_indices")
    },
    "avg_pool2d": lambda x: [
        S(x(1, 2, 5, 4), 2),
        S(x(2, 5, 4), [3, 2], 2, 1, True, False),
        S(x(1, 1, 4, 4), 2, divisor_override=3),
    ],
    "avg_pool1d": lambda x: [S(x(1, 2, 5), 2), S(x(2, 6), 3, 2, 1, True, False)],
    "adaptive_avg_pool2d": lambda x: [S(x(1, 2, 5, 4), [2, 3]), S(x(2, 4, 4), 1)],
    "adaptive_avg_pool1d": lambda x: [S(x(1, 2, 5), 3), S(x(2, 4), 1)],
    "adaptive_max_pool2d_with_indices": lambda x: [S(x.apart(1, 2, 5, 4), [2, 3]), S(x.apart(2, 4, 4), 1)],
    "im2col": lambda x: [
        S(x(1, 2, 4, 3), 2),
        S(x(2, 5, 4), [2, 3], [1, 1], [1, 0], [2, 1]),
        S(x(1, 1, 5, 5), 2, 2, 1, 2),
        S(x(0, 2, 3, 3), 2, grad=False),
    ],
    "col2im": lambda x: [
        S(x(1, 8, 6), [4, 3], 2),
        S(x(12, 6), [5, 4], [2, 3], [1, 1], [1, 0], [2, 1]),
        S(x(1, 4, 9), [5, 5], 2, 2, 1, 2),
    ],
    "interpolate": lambda x: [
        S(x(1, 2, 3, 4), [5, 2]),
        S(x(1, 2, 5), None, [1.7]),
        S(x(1, 1, 2, 2, 3), [3, 4, 4], mode="nearest-exact"),
        S(x(1, 2, 5), [3], mode="linear"),
        S(x(1, 2, 4), None, [1.7], "linear", False, True),
        S(x(1, 2, 3, 4), [5, 7], mode="bilinear"),
        S(x(1, 2, 3, 4), [5, 2], mode="bilinear", align_corners=True),
        S(x(1, 2, 3, 4), None, [1.5, 0.6], "bilinear"),
        S(x(1, 1, 3, 4), [5, 3], mode="bicubic"),
        S(x(1, 1, 3, 4), [4, 7], mode="bicubic", align_corners=True),
        S(x(1, 1, 2, 3, 2), [3, 2, 4], mode="trilinear"),
        S(x(1, 1, 5, 7), [3, 4], mode="area"),
        S(x(1, 1, 7, 6), [3, 4], mode="bilinear", antialias=True),
        S(x(1, 1, 9, 6), [4, 8], mode="bicubic", antialias=True),
        S(x(1, 1, 9, 6), [4, 8], mode="lanczos", antialias=True),
    ],
    "adaptive_max_pool2d": lambda x: [S(x.apart(1, 2, 5, 4), [2, 3]), S(x.apart(2, 4, 4), 1)],
    # normalisation
    **dict.fromkeys(("softmax", "log_softmax", "softmin"), _softmax),
    "layer_norm": lambda x: [
        S(x(2, 5), [5], x(5), x(5)),
        S(x(2, 2, 3), [2, 3]),
        S(x(0, 5), [5], x(5)),
        S(x(3, 67), [67], x(67), x(67), grad=False),
    ],
    "rms_norm": lambda x: [S(x(2, 5), [5], x(5)), S(x(2, 2, 3), [2, 3], None, 0.1)],
    "group_norm": lambda x: [S(x(2, 4, 3), 2, x(4), x(4)), S(x(2, 4), 1)],
    "instance_norm": lambda x: [
        S(x(2, 2, 5)),
        S(x(2, 2, 5), None, None, x(2), x(2)),
        S(x(2, 2, 3), x.const(2), x.const(2), use_input_stats=False),
    ],
    "batch_norm": lambda x: [
        S(x(3, 2), None, None, x(2), x(2), True),
        S(x(2, 2, 3), x.const(2), x.const(2), x(2), x(2)),
        S(x(2, 2, 2, 3), x.const(2), x.const(2), None, None, True, 0.3, 1e-3, grad=False),
    ],
    "normalize": lambda x: [S(x(2, 3)), S(x(2, 3), 1.0, 0)],
    "local_response_norm": lambda x: [S(x(1, 4, 3), 2), S(x(1, 5, 2, 2), 3, 0.1, 0.5, 2.0)],
    # losses
    **dict.fromkeys(("mse_loss", "l1_loss"), _loss),
    "smooth_l1_loss": lambda x: [*_loss(x), S(x(2, 3), x(2, 3, lo=-3.1, hi=3.3), beta=0.4)],
    "huber_loss": lambda x: [*_loss(x), S(x(2, 3), x(2, 3, lo=-3.1, hi=3.3), delta=0.4)],
    "binary_cross_entropy": lambda x: [
        S(x(2, 3, lo=0.1, hi=0.9), x.const(2, 3, lo=0, hi=1)),
        S(x(3, lo=0.1, hi=0.9), x.const(3, lo=0, hi=1), x.const(3), reduction="none"),
    ],
    "binary_cross_entropy_with_logits": lambda x: [
        S(x(2, 3), x.const(2, 3, lo=0, hi=1)),
        S(x(2, 3), x.const(2, 3, lo=0, hi=1), x.const(3), reduction="sum", pos_weight=x.const(3)),
    ],
    "kl_div": lambda x: [
        S(x(2, 3), x.const(2, 3)),
        S(x(2, 3), x(2, 3), reduction="batchmean", log_target=True, only="numeric"),
        S(x(2, 3), x.const(2, 3), reduction="none"),
    ],
    "margin_ranking_loss": lambda x: [
        S(x(4), x(4), x.given([1.0, -1.0, 1.0, -1.0], grad=False)),
        S(x(4), x(4), x.given([1.0, -1.0, 1.0, -1.0], grad=False), 0.5, reduction="none"),
    ],
    "hinge_embedding_loss": lambda x: [
        S(x(4), x.given([1.0, -1.0, 1.0, -1.0], grad=False)),
        S(x(4), x.given([1.0, -1.0, 1.0, -1.0], grad=False), 0.7, reduction="sum"),
    ],
    "soft_margin_loss": lambda x: [
        S(x(4), x.given([1.0, -1.0, 1.0, -1.0], grad=False)),
        S(x(2), x.given([1.0, -1.0], grad=False), reduction="none"),
    ],
    "cosine_embedding_loss": lambda x: [
        S(x(2, 3), x(2, 3), x.given([1.0, -1.0], grad=False)),
        S(x(3), x(3), x.given(-1.0, grad=False), -0.9),
    ],
    "triplet_margin_loss": lambda x: [
        S(x(2, 3), x(2, 3), x(2, 3)),
        S(x(2, 3), x(2, 3), x(2, 3), 2.0, swap=True, reduction="none"),
    ],
    "poisson_nll_loss": lambda x: [
        S(x(4), x.const(4)),
        S(x.positive(4), x.const(4, lo=1.2, hi=5), False, True, reduction="sum"),
    ],
    "nll_loss": lambda x: [
        S(x(3, 4), x.given([0, 3, 1])),
        S(x(3, 4), x.given([0, -100, 1]), x.const(4), reduction="sum"),
        S(x(4), x.given(2)),
        S(x(2, 3, 2), x.given([[0, 2], [1, 1]]), ignore_index=1, reduction="none"),
    ],
    "cross_entropy": lambda x: [
        S(x(3, 4), x.given([0, 3, 1])),
        S(x(3, 4), x.given([0, -100, 1]), x.const(4), label_smoothing=0.2),
        S(x(2, 3, 2), x.given([[0, 2], [1, 1]]), reduction="sum"),
        S(x(3, 4), x.const(3, 4)),
    ],
    "embedding": lambda x: [
        S(x.given([[0, 2], [1, 0]]), x(3, 2)),
        S(x.given(1), x(3, 2), 1, grad=False),
        S(x.index(1, 0), x(3, 2)),
    ],
    "embedding_bag": lambda x: [
        S(x.given([[0, 2], [1, 0]]), x(3, 2)),
        S(x.given([0, 2, 1, 1]), x(3, 2), x.given([0, 1, 1]), mode="sum", per_sample_weights=x(4)),
        S(x.given([0, 2, 1, 1]), x(3, 2), x.given([0, 2, 4]), mode="mean", include_last_offset=True),
        S(x.given([0, 2, 1]), x(3, 2), x.given([0, 1]), mode="max"),
        S(x.given([0, 2, 1, 0]), x(3, 2), x.given([0, 1]), mode="mean", padding_idx=0),
    ],
    "one_hot": lambda x: [S(x.given([0, 2, 1])), S(x.given([[0, 2]]), 4)],
    "dropout": lambda x: [S(x(2, 3), 0.0), S(x(2, 3), 0.5, False)],
}
