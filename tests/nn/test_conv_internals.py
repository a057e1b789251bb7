"""What programs take from convolutions besides their results: to be called, replaced and made by subclasses."""

from __future__ import annotations

import copy

import pytest
import tesserack as ts
from tesserack import nn
from tesserack.nn import functional as F
from tesserack.nn.modules.conv import _ConvNd
from tesserack.nn.modules.conv_transpose import _ConvTransposeMixin, _ConvTransposeNd


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("mode", ["zeros", "circular"])
def test_the_step_that_convolves_is_called_and_may_be_replaced(dims, mode):
    kind = getattr(nn, f"Conv{dims}d")

    class Doubled(kind):
        def _conv_forward(self, input, weight, bias):
            return super()._conv_forward(input, weight * 2, bias)

    layer = kind(1, 2, 3, padding=1, padding_mode=mode)
    doubled = Doubled(1, 2, 3, padding=1, padding_mode=mode)
    doubled.load_state_dict(layer.state_dict())
    x = ts.rand(1, 1, *[5] * dims)
    assert ts.equal(doubled(x), layer._conv_forward(x, layer.weight * 2, layer.bias))
    assert ts.equal(layer(x), layer._conv_forward(x, layer.weight, layer.bias))
    assert ts.equal(copy.deepcopy(doubled)(x), doubled(x))


def test_the_padding_of_each_edge():
    assert nn.Conv2d(1, 1, 3, padding=(1, 2))._reversed_padding_repeated_twice == (2, 2, 1, 1)
    assert nn.Conv2d(1, 1, 4, padding="same")._reversed_padding_repeated_twice == [1, 2, 1, 2]
    assert nn.Conv1d(1, 1, 4, padding="valid")._reversed_padding_repeated_twice == [0, 0]


def test_classes_of_ones_own_are_made_as_pytorch_makes_them():
    class Convolved(_ConvNd):
        def __init__(self, inputs, outputs, size):
            sizes = (size, size), (1, 1), (0, 0), (1, 1), False, (0, 0)
            super().__init__(inputs, outputs, *sizes, 1, False, "zeros", dtype=ts.float64)

        def forward(self, x):
            return F.conv2d(x, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups)

    assert Convolved(2, 3, 3)(ts.ones(1, 2, 4, 4, dtype=ts.float64)).shape == (1, 3, 2, 2)
    named = {"kernel_size": (3, 3), "stride": (1, 1), "padding": (0, 0), "dilation": (1, 1)}
    rest = {"output_padding": (0, 0), "groups": 2, "bias": True, "padding_mode": "zeros"}
    assert _ConvNd(2, 4, **named, transposed=True, **rest).weight.shape == (2, 2, 3, 3)
    assert _ConvTransposeNd(2, 4, **named, transposed=True, **rest).bias.shape == (4,)
    with pytest.warns(FutureWarning, match="_ConvTransposeMixin"):
        _ConvTransposeMixin(2, 4, **named, transposed=True, **rest)


def test_what_makes_a_transposed_result_as_large_as_asked():
    layer, x = nn.ConvTranspose2d(1, 1, 3, stride=2), ts.ones(1, 1, 4, 4)
    sizes = [2, 2], [0, 0], [3, 3], 2
    assert layer._output_padding(x, [9, 10], *sizes, [1, 1]) == [0, 1]
    assert layer._output_padding(x, [1, 1, 9, 9], *sizes) == [0, 0] and layer._output_padding(x, None, *sizes) == (0, 0)
    assert layer(x, output_size=[9, 10]).shape == (1, 1, 9, 10)
    with pytest.raises(ValueError, match="from 9 to 10"):
        layer(x, output_size=[8, 9])
