"""Layers as classes against torch: values, gradients, texts and states, from one deterministic start."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

IMAGES, SIGNALS = (2, 4, 4, 6), (2, 4, 6)
LAYERS: dict[str, tuple[Callable[[Any], Any], list[tuple[int, ...]]]] = {
    "Hardshrink": (lambda nn: nn.Hardshrink(0.3), [SIGNALS]),
    "Softshrink": (lambda nn: nn.Softshrink(), [SIGNALS]),
    "Tanhshrink": (lambda nn: nn.Tanhshrink(), [SIGNALS]),
    "ZeroPad2d": (lambda nn: nn.ZeroPad2d((1, 0, 2, 1)), [IMAGES]),
    "ZeroPad1d": (lambda nn: nn.ZeroPad1d(1), [SIGNALS]),
    "ConstantPad2d": (lambda nn: nn.ConstantPad2d(1, 2.5), [IMAGES]),
    "ReflectionPad2d": (lambda nn: nn.ReflectionPad2d((1, 2, 3, 0)), [IMAGES]),
    "ReflectionPad1d": (lambda nn: nn.ReflectionPad1d(2), [SIGNALS]),
    "ReplicationPad2d": (lambda nn: nn.ReplicationPad2d(2), [IMAGES]),
    "CircularPad2d": (lambda nn: nn.CircularPad2d(1), [IMAGES]),
    "ReplicationPad3d": (lambda nn: nn.ReplicationPad3d(1), [(1, 2, 2, 3, 2)]),
    "CosineSimilarity": (lambda nn: nn.CosineSimilarity(dim=1), [SIGNALS, SIGNALS]),
    "PairwiseDistance": (lambda nn: nn.PairwiseDistance(p=1, keepdim=True), [(3, 5), (3, 5)]),
    "PixelShuffle": (lambda nn: nn.PixelShuffle(2), [IMAGES]),
    "PixelUnshuffle": (lambda nn: nn.PixelUnshuffle(2), [IMAGES]),
    "ChannelShuffle": (lambda nn: nn.ChannelShuffle(2), [IMAGES]),
    "InstanceNorm1d": (lambda nn: nn.InstanceNorm1d(4), [SIGNALS]),
    "InstanceNorm2d": (lambda nn: nn.InstanceNorm2d(4, affine=True, track_running_stats=True), [IMAGES]),
    "InstanceNorm2d unbatched": (lambda nn: nn.InstanceNorm2d(4), [IMAGES[1:]]),
    "InstanceNorm2d eval": (lambda nn: nn.InstanceNorm2d(4, track_running_stats=True).eval(), [IMAGES]),
    "RMSNorm": (lambda nn: nn.RMSNorm(6), [SIGNALS]),
    "RMSNorm bare": (lambda nn: nn.RMSNorm((4, 6), eps=1e-3, elementwise_affine=False), [SIGNALS]),
    "LocalResponseNorm": (lambda nn: nn.LocalResponseNorm(3), [IMAGES]),
    "Dropout2d eval": (lambda nn: nn.Dropout2d(0.3).eval(), [IMAGES]),
    "MarginRankingLoss": (lambda nn: nn.MarginRankingLoss(0.2), [(5,), (5,), (5,)]),
    "CosineEmbeddingLoss": (lambda nn: Signed(nn.CosineEmbeddingLoss(0.1)), [(5, 3), (5, 3), (5,)]),
    "HingeEmbeddingLoss": (lambda nn: Signed(nn.HingeEmbeddingLoss(reduction="sum")), [(5,), (5,)]),
    "SoftMarginLoss": (lambda nn: Signed(nn.SoftMarginLoss()), [(5,), (5,)]),
    "TripletMarginLoss": (lambda nn: nn.TripletMarginLoss(swap=True), [(5, 3), (5, 3), (5, 3)]),
    "PoissonNLLLoss": (lambda nn: nn.PoissonNLLLoss(full=False), [(5,), (5,)]),
    "ConvTranspose1d": (lambda nn: nn.ConvTranspose1d(4, 6, 3, stride=2, groups=2, output_padding=1), [SIGNALS]),
    "ConvTranspose2d": (lambda nn: nn.ConvTranspose2d(4, 3, (3, 2), 2, padding=1, dilation=2), [IMAGES]),
    "ConvTranspose2d bare": (lambda nn: nn.ConvTranspose2d(4, 3, 2, bias=False), [IMAGES[1:]]),
    "ConvTranspose3d": (lambda nn: nn.ConvTranspose3d(2, 2, 2, 2), [(1, 2, 2, 3, 2)]),
}


class Signed:
    """Takes the sign of the last argument, which the loss wants to be 1 or -1."""

    def __init__(self, loss: Any) -> None:
        self.loss = loss

    def __call__(self, *args: Any) -> Any:
        return self.loss(*args[:-1], args[-1].detach().sign())

    def __repr__(self) -> str:
        return repr(self.loss)

    def state_dict(self) -> dict[str, Any]:
        return self.loss.state_dict()  # type: ignore[no-any-return]


def filled(m: Any, shape: tuple[int, ...], at: int) -> Any:
    values = np.sin(np.arange(1, 1 + np.prod(shape, dtype=int)) * (1.7 + at)).reshape(shape)
    return m.tensor(values.tolist(), dtype=m.float32).reshape(shape)


@pytest.mark.parametrize("name", LAYERS)
def test_layer(compare_program: Callable[..., None], name: str) -> None:
    make, shapes = LAYERS[name]

    def program(m: Any) -> Any:
        layer = make(m.nn)
        state = layer.state_dict()
        with m.no_grad():
            for at, value in enumerate(state.values()):
                if value.dim() and at < 2:
                    value.copy_(filled(m, tuple(value.shape), at))
        inputs = [filled(m, shape, at).requires_grad_() for at, shape in enumerate(shapes)]
        result = layer(*inputs)
        (result * filled(m, tuple(result.shape), 3)).sum().backward()
        grads = [x.grad for x in inputs if x.grad is not None]
        return [repr(layer), list(state), result, grads, list(layer.state_dict().values())]

    compare_program(program)


BAD: dict[str, Callable[[Any], Any]] = {
    "InstanceNorm2d of 2-d": lambda m: m.nn.InstanceNorm2d(3)(m.ones(3, 4)),
    "InstanceNorm channels": lambda m: m.nn.InstanceNorm2d(3, affine=True)(m.ones(1, 4, 2, 2)),
    "TripletMarginLoss margin": lambda m: m.nn.TripletMarginLoss(margin=0),
    "Dropout2d probability": lambda m: m.nn.Dropout2d(1.5),
    "ConvTranspose2d groups": lambda m: m.nn.ConvTranspose2d(3, 4, 2, groups=2),
    "ConvTranspose2d padding_mode": lambda m: m.nn.ConvTranspose2d(2, 2, 2, padding_mode="reflect"),
    "ConvTranspose2d output_size": lambda m: m.nn.ConvTranspose2d(2, 2, 2, stride=2)(m.ones(1, 2, 3, 3), [9, 9]),
}


@pytest.mark.parametrize("name", BAD)
def test_refused(compare_errors: Callable[..., None], name: str) -> None:
    compare_errors(BAD[name])


def test_output_size_of_transposed_convolution(compare_program: Callable[..., None]) -> None:
    def program(m: Any) -> Any:
        layer = m.nn.ConvTranspose2d(2, 3, 3, stride=2, padding=1)
        sizes = [layer(m.ones(1, 2, 4, 4), output_size=size).shape for size in ([7, 7], [8, 7], [1, 3, 8, 8])]
        return [tuple(size) for size in sizes]

    compare_program(program)
