"""Every option that modules' constructors take: outputs, gradients and state beside torch's, in train and eval.

Of each module's combinations of options some are drawn; ``TESSERACK_OPTIONS=n`` draws up to n of each.
"""

from __future__ import annotations

import inspect
import itertools
import os
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tesserack as ts
import torch

MOST = int(os.environ.get("TESSERACK_OPTIONS", "3"))
SHAPES = {1: (2, 4, 9), 2: (2, 4, 7, 6), 3: (2, 4, 5, 4, 6)}
IMAGES = SHAPES[2]
BOTH = [True, False]
REDUCTIONS = ["none", "mean", "sum"]
Options = dict[str, list[Any]]

MODULES: dict[str, tuple[Options, tuple[int, ...]]] = {
    "Linear": ({"in_features": [6], "out_features": [3], "bias": BOTH}, (2, 4, 6)),
    "LazyLinear": ({"out_features": [3], "bias": BOTH}, (2, 4, 6)),
    "GroupNorm": (
        {"num_groups": [1, 2, 4], "num_channels": [4], "eps": [1e-5, 0.1], "affine": BOTH, "bias": BOTH},
        IMAGES,
    ),
    "LayerNorm": (
        {"normalized_shape": [6, (7, 6)], "eps": [1e-5, 0.1], "elementwise_affine": BOTH, "bias": BOTH},
        IMAGES,
    ),
    "RMSNorm": ({"normalized_shape": [6, (7, 6)], "eps": [None, 0.1], "elementwise_affine": BOTH}, IMAGES),
    "LocalResponseNorm": ({"size": [1, 2, 3], "alpha": [1e-4, 0.5], "beta": [0.75, 1.5], "k": [1.0, 2.0]}, IMAGES),
    "Unflatten": ({"dim": [1], "unflattened_size": [(2, 2), (4, 1), (-1, 2)]}, IMAGES),
    "Flatten": ({"start_dim": [0, 1, 2], "end_dim": [-1, 2]}, IMAGES),
    "Upsample": (
        {
            "size": [None, (5, 9), (14, 13)],
            "scale_factor": [None, 2, (1.5, 0.7), 0.6],
            "mode": ["nearest", "bilinear", "bicubic", "nearest-exact"],
            "align_corners": [None, True, False],
            "recompute_scale_factor": [None, True],
        },
        IMAGES,
    ),
    "Unfold": ({"kernel_size": [2, (3, 2)], "dilation": [1, 2], "padding": [0, 1], "stride": [1, 2]}, IMAGES),
    "LeakyReLU": ({"negative_slope": [0.01, 0.3]}, IMAGES),
    "ELU": ({"alpha": [1.0, 0.5]}, IMAGES),
    "CELU": ({"alpha": [1.0, 0.5]}, IMAGES),
    "GELU": ({"approximate": ["none", "tanh"]}, IMAGES),
    "Hardtanh": ({"min_val": [-1.0, -0.5], "max_val": [1.0, 0.2]}, IMAGES),
    "Softplus": ({"beta": [1, 2], "threshold": [20, 1]}, IMAGES),
    "Threshold": ({"threshold": [0.1, -0.2], "value": [0.0, 5.0]}, IMAGES),
    "PReLU": ({"num_parameters": [1, 4], "init": [0.25, 0.5]}, IMAGES),
    "GLU": ({"dim": [1, -1]}, IMAGES),
    "Softmax": ({"dim": [0, 1, -1]}, IMAGES),
    "Softmin": ({"dim": [0, 1, -1]}, IMAGES),
    "TransformerEncoderLayer": (
        {
            "d_model": [8],
            "nhead": [2],
            "dim_feedforward": [16],
            "dropout": [0.0],
            "activation": ["relu", "gelu"],
            "layer_norm_eps": [1e-5, 0.1],
            "batch_first": BOTH,
            "norm_first": BOTH,
            "bias": BOTH,
        },
        (3, 2, 8),
    ),
}
RECURRENT: Options = {
    "input_size": [5],
    "hidden_size": [4],
    "num_layers": [1, 2],
    "bias": BOTH,
    "batch_first": BOTH,
    "bidirectional": BOTH,
}
MODULES["RNN"] = ({**RECURRENT, "nonlinearity": ["tanh", "relu"]}, (3, 2, 5))
MODULES["GRU"] = (RECURRENT, (3, 2, 5))
MODULES["LSTM"] = ({**RECURRENT, "proj_size": [0, 2]}, (3, 2, 5))
for _cell in ("RNNCell", "GRUCell", "LSTMCell"):
    _more: Options = {"nonlinearity": ["tanh", "relu"]} if _cell == "RNNCell" else {}
    MODULES[_cell] = ({"input_size": [5], "hidden_size": [4], "bias": BOTH, **_more}, (3, 5))
for _dims, _shape in SHAPES.items():
    _windows: Options = {"kernel_size": [2, 3], "stride": [None, 1, 2], "padding": [0, 1], "ceil_mode": BOTH}
    _norm: Options = {
        "num_features": [4],
        "eps": [1e-5, 1e-2],
        "affine": BOTH,
        "bias": BOTH,
        "track_running_stats": BOTH,
    }
    MODULES |= {
        f"Conv{_dims}d": (
            {
                "in_channels": [4],
                "out_channels": [6],
                "kernel_size": [1, 2, 3, (3,) * _dims],
                "stride": [1, 2],
                "padding": [0, 1, "same", "valid"],
                "dilation": [1, 2],
                "groups": [1, 2],
                "bias": BOTH,
                "padding_mode": ["zeros", "reflect", "replicate", "circular"],
            },
            _shape,
        ),
        f"ConvTranspose{_dims}d": (
            {
                "in_channels": [4],
                "out_channels": [6],
                "kernel_size": [2, 3],
                "stride": [1, 2, 3],
                "padding": [0, 1],
                "output_padding": [0, 1],
                "groups": [1, 2],
                "bias": BOTH,
                "dilation": [1, 2],
                "padding_mode": ["zeros"],
            },
            _shape,
        ),
        f"MaxPool{_dims}d": ({**_windows, "dilation": [1, 2], "return_indices": BOTH}, _shape),
        f"AvgPool{_dims}d": (
            {**_windows, "count_include_pad": BOTH, **({"divisor_override": [None, 3]} if _dims > 1 else {})},
            _shape,
        ),
        f"BatchNorm{_dims}d": ({**_norm, "momentum": [0.1, 0.5, None]}, _shape),
        f"InstanceNorm{_dims}d": ({**_norm, "momentum": [0.1, 0.5]}, _shape),
        f"AdaptiveAvgPool{_dims}d": ({"output_size": [1, 3, 5]}, _shape),
        f"AdaptiveMaxPool{_dims}d": ({"output_size": [1, 3, 4], "return_indices": BOTH}, _shape),
        f"LPPool{_dims}d": (
            {"norm_type": [1.0, 2.0, 3.0], "kernel_size": [2, 3], "stride": [None, 1], "ceil_mode": BOTH},
            _shape,
        ),
        f"ConstantPad{_dims}d": ({"padding": [1, -1], "value": [0.0, 2.5]}, _shape),
        f"LazyConv{_dims}d": (
            {"out_channels": [3], "kernel_size": [2], "bias": BOTH, "stride": [1, 2]},
            _shape,
        ),
    }
    for _pad in ("ReflectionPad", "ReplicationPad", "ZeroPad", "CircularPad"):
        MODULES[f"{_pad}{_dims}d"] = ({"padding": [1, 2, (1, 0) * _dims]}, _shape)

LOSSES: dict[str, tuple[Options, str]] = {
    "MSELoss": ({}, "any"),
    "L1Loss": ({}, "any"),
    "SmoothL1Loss": ({"beta": [1.0, 0.3]}, "any"),
    "HuberLoss": ({"delta": [1.0, 0.3]}, "any"),
    "BCEWithLogitsLoss": ({}, "zero or one"),
    "MultiLabelSoftMarginLoss": ({}, "zero or one"),
    "PoissonNLLLoss": ({"log_input": BOTH, "full": BOTH, "eps": [1e-8, 0.1]}, "counts"),
    "SoftMarginLoss": ({}, "sign"),
    "HingeEmbeddingLoss": ({"margin": [1.0, 0.3]}, "sign"),
    "CrossEntropyLoss": ({"label_smoothing": [0.0, 0.2], "ignore_index": [-100, 2]}, "class"),
    "NLLLoss": ({"ignore_index": [-100, 2]}, "class"),
    "MultiMarginLoss": ({"p": [1, 2], "margin": [0.5, 1.0]}, "class"),
}


def combinations(name: str, options: Options) -> Iterator[dict[str, Any]]:
    every = list(itertools.product(*options.values()))
    for values in every if len(every) <= MOST else random.Random(name).sample(every, MOST):
        yield dict(zip(options, values, strict=True))


def flat(values: Any) -> list[Any]:
    if isinstance(values, (list, tuple)):
        return [leaf for value in values for leaf in flat(value)]
    return [] if values is None else [values]


def run(module: Any, inputs: list[Any], train: bool) -> list[Any]:
    """Outputs, gradients of inputs and parameters, and the state afterwards."""
    module.train(train)
    outputs = flat(module(*inputs))
    recorded = [o for o in outputs if o.requires_grad]
    for p in module.parameters():
        p.grad = None
    if recorded:
        sum((o * o).sum() + (o * 0.3).sum() for o in recorded).backward()
    grads = [x.grad for x in inputs if x.requires_grad] + [p.grad for p in module.parameters()]
    found = [*outputs, *(g for g in grads if g is not None), *module.state_dict().values()]
    return [np.asarray(value.detach().numpy()) for value in found]


def outcome(make: Any) -> tuple[Any, str | None]:
    try:
        return make(), None
    except Exception as error:
        return None, type(error).__name__


def compare(name: str, options: dict[str, Any], inputs: list[Any]) -> None:
    torch.manual_seed(0)
    theirs, refused = outcome(lambda: getattr(torch.nn, name)(**options).double())
    ours, refused_here = outcome(lambda: getattr(ts.nn, name)(**options).double())
    assert (refused is None) == (refused_here is None), (options, refused, refused_here)
    if refused is not None:
        return
    mine = [ts.tensor(x.numpy()) for x in inputs]
    if name.startswith("Lazy"):
        theirs(*inputs), ours(*mine)
    ours.load_state_dict({key: ts.tensor(value.numpy()) for key, value in theirs.state_dict().items()})
    for train in (True, False):
        beside = [x.clone().requires_grad_(x.is_floating_point() and k == 0) for k, x in enumerate(inputs)]
        here = [x.clone().requires_grad_(x.is_floating_point() and k == 0) for k, x in enumerate(mine)]
        expected, failed = outcome(lambda b=beside, t=train: run(theirs, b, t))
        got, failed_here = outcome(lambda h=here, t=train: run(ours, h, t))
        assert (failed is None) == (failed_here is None), (options, train, failed, failed_here)
        if failed is None:
            assert len(expected) == len(got), options
            for k, (a, b) in enumerate(zip(expected, got, strict=True)):
                assert a.shape == b.shape
                assert np.allclose(a, b, rtol=1e-7, atol=1e-9, equal_nan=True), (options, train, k)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", MODULES)
def test_modules(name: str) -> None:
    options, shape = MODULES[name]
    for chosen in combinations(name, options):
        torch.manual_seed(1)
        compare(name, chosen, [torch.randn(*shape, dtype=torch.float64)])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", LOSSES)
def test_losses(name: str) -> None:
    options, targets = LOSSES[name]
    for chosen in combinations(name, {**options, "reduction": REDUCTIONS}):
        torch.manual_seed(2)
        x, y = torch.randn(4, 5, dtype=torch.float64), torch.randn(4, 5, dtype=torch.float64)
        if targets == "class":
            y = torch.tensor([1, 4, 0, 2])
        elif targets == "counts":
            y = y.abs() * 3
            x = x if chosen["log_input"] else x.abs()
        elif targets != "any":
            y = y.sign() if targets == "sign" else (y > 0).double()
        compare(name, chosen, [x, y])


@pytest.mark.parametrize("scaled", BOTH)
@pytest.mark.parametrize("padding", [None, 3, -1])
def test_tables(padding: int | None, scaled: bool) -> None:
    indices = torch.tensor([[1, 2, 3, 3], [0, 3, 5, 1]])
    for limit, norm in ((None, 2.0), (0.5, 2.0), (0.5, 1.0)):
        options = {"padding_idx": padding, "max_norm": limit, "norm_type": norm, "scale_grad_by_freq": scaled}
        compare("Embedding", {"num_embeddings": 6, "embedding_dim": 4, **options}, [indices])


def test_gradients_of_bags_by_frequency() -> None:
    """PyTorch's counts go wrong where padding is left out, so they are counted here."""
    weight = ts.ones(6, 1).requires_grad_()
    indices = ts.tensor([[1, 2, 3, 3], [0, 3, 5, 1]])
    ts.nn.functional.embedding_bag(indices, weight, mode="sum", padding_idx=2, scale_grad_by_freq=True).sum().backward()
    assert weight.grad is not None
    assert weight.grad.flatten().tolist() == [1, 1, 0, 1, 0, 1]


def test_the_options_are_all_there() -> None:
    """What a constructor takes and no case here exercises is of devices and dtypes, or named here."""
    elsewhere = {"device", "dtype", "inplace", "size_average", "reduce", "weight", "pos_weight", "ceil_mode", "dropout"}
    elsewhere |= {"min_value", "max_value"}  # older names of another
    missing = {}
    for name, (options, _) in MODULES.items():
        taken = {p for p in inspect.signature(getattr(torch.nn, name)).parameters if p not in ("args", "kwargs")}
        lazy = {"dilation", "groups", "padding", "padding_mode"} if name.startswith("Lazy") else set()
        if untried := taken - set(options) - elsewhere - lazy - {"proj_size"}:
            missing[name] = untried
    assert missing == {}
