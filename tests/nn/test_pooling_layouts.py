"""Pooling and shuffling of innermost channels, pooling of nothing, and what its gradients hold on to."""

import pytest
import tesserack as ts
from tesserack import nn

LAYOUTS = {4: ts.channels_last, 5: ts.channels_last_3d}
WINDOWS = [
    lambda dims: getattr(nn, f"MaxPool{dims}d")(2, return_indices=True),
    lambda dims: getattr(nn, f"AvgPool{dims}d")(2),
    lambda dims: getattr(nn, f"AdaptiveMaxPool{dims}d")(3, return_indices=True),
    lambda dims: getattr(nn, f"AdaptiveMaxPool{dims}d")(2),
    lambda dims: getattr(nn, f"AdaptiveAvgPool{dims}d")(3),
    lambda dims: getattr(nn, f"AdaptiveAvgPool{dims}d")(1),
]


def outputs(module, x):
    result = module(x)
    return result if isinstance(result, tuple) else (result,)


@pytest.mark.parametrize("dims", [2, 3])
@pytest.mark.parametrize("make", WINDOWS)
def test_channels_that_are_innermost_stay_so(make, dims, device):
    plain = ts.rand(2, 4, *(4, 6, 5)[:dims], device=device)
    inner = plain.to(memory_format=LAYOUTS[dims + 2])
    for got, want in zip(outputs(make(dims), inner), outputs(make(dims), plain), strict=True):
        assert got.is_contiguous(memory_format=LAYOUTS[dims + 2]) and want.is_contiguous()
        ts.testing.assert_close(got.contiguous(), want)


@pytest.mark.parametrize("make", WINDOWS[:5])
def test_every_other_of_innermost_channels_are_innermost_in_the_result(make, device):
    x = ts.rand(2, 6, 4, 6, device=device).to(memory_format=ts.channels_last)[:, ::2]
    for got, want in zip(outputs(make(2), x), outputs(make(2), x.contiguous()), strict=True):
        assert got.is_contiguous(memory_format=ts.channels_last)
        ts.testing.assert_close(got.contiguous(), want)


def test_layers_of_every_other_innermost_channel_keep_them_innermost(device):
    x = ts.rand(2, 6, 4, 6, device=device).to(memory_format=ts.channels_last)[:, ::2]
    for layer in (nn.Conv2d(3, 4, 1).to(device), nn.BatchNorm2d(3).to(device)):
        got = layer(x)
        assert got.is_contiguous(memory_format=ts.channels_last) and not got.is_contiguous()
        ts.testing.assert_close(got, layer(x.contiguous()), rtol=1e-4, atol=1e-5)


def test_a_mean_of_each_plane_has_the_strides_of_innermost_channels(device):
    x = ts.rand(2, 3, 4, 5, device=device).to(memory_format=ts.channels_last)
    assert nn.AdaptiveAvgPool2d(1)(x).stride() == (3, 1, 3, 3)


def test_what_is_put_back_lies_as_what_was_taken(device):
    x = ts.rand(2, 3, 4, 6, device=device).to(memory_format=ts.channels_last)
    values, places = nn.MaxPool2d(2, return_indices=True)(x)
    back = nn.MaxUnpool2d(2)(values, places)
    assert back.is_contiguous(memory_format=ts.channels_last)
    ts.testing.assert_close(back.contiguous(), nn.MaxUnpool2d(2)(values.contiguous(), places.contiguous()))


@pytest.mark.parametrize("make", [WINDOWS[0], WINDOWS[2]])
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_places_changed_before_the_backward_pass_are_told(make, dims, device):
    x = ts.rand(1, 2, *(4, 6, 6)[:dims], device=device, requires_grad=True)
    values, places = make(dims)(x)
    places.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        values.sum().backward()


@pytest.mark.parametrize("name", ["AdaptiveAvgPool", "AdaptiveMaxPool"])
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_adaptive_pooling_of_an_empty_first_dim_is_empty(name, dims, device):
    pool = getattr(nn, f"{name}{dims}d")(2)
    for lead in ((0,), (0, 3)):
        x = ts.ones(*lead, *(4,) * dims, device=device, requires_grad=True)
        y = pool(x)
        assert y.shape == (*lead, *(2,) * dims)
        y.sum().backward()
        assert x.grad.shape == x.shape
    with pytest.raises(RuntimeError, match="non-zero size"):
        pool(ts.ones(1, 3, *(4,) * (dims - 1), 0, device=device))


@pytest.mark.parametrize("name", ["AdaptiveAvgPool", "AdaptiveMaxPool"])
@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("dtype", [ts.int32, ts.uint8, ts.bool])
def test_adaptive_pooling_of_whole_numbers_is_refused(name, dims, dtype, device):
    with pytest.raises(NotImplementedError, match="not implemented for"):
        getattr(nn, f"{name}{dims}d")(2)(ts.ones(1, 3, *(4,) * dims, dtype=dtype, device=device))


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_unpooling_nothing_is_part_of_the_graph(dims, device):
    x = ts.ones(0, 2, *(3,) * dims, device=device, requires_grad=True)
    places = ts.ones(0, 2, *(3,) * dims, dtype=ts.int64, device=device)
    y = getattr(nn, f"MaxUnpool{dims}d")(2)(x, places)
    y.sum().backward()
    assert y.shape == (0, 2, *(6,) * dims) and x.grad.shape == x.shape


@pytest.mark.parametrize("dims", [2, 3])
def test_random_windows_may_be_none_and_are_told_when_too_many(dims, device):
    pool, x = getattr(nn.functional, f"fractional_max_pool{dims}d"), ts.rand(1, 2, *(5,) * dims, device=device)
    assert pool(x, 2, output_size=(0, *(2,) * (dims - 1))).shape == (1, 2, 0, *(2,) * (dims - 1))
    for options in ({"kernel_size": (1,)}, {"output_size": ()}, {"output_size": 9}):
        with pytest.raises(RuntimeError, match="fractional_max_pool"):
            pool(x, **{"kernel_size": 2, "output_size": 2} | options)


@pytest.mark.parametrize("name", ["max_pool3d", "avg_pool3d", "max_pool2d", "avg_pool2d"])
def test_a_picture_without_channels_is_refused_and_a_batch_of_none_is_not(name: str) -> None:
    pool, dims = getattr(ts.nn.functional, name), int(name[-2])
    with pytest.raises(RuntimeError):
        pool(ts.ones(0, *[4] * dims), 2)
    assert pool(ts.ones(0, 3, *[4] * dims), 2).shape == (0, 3, *[2] * dims)


@pytest.mark.parametrize("make", [nn.ChannelShuffle, nn.PixelShuffle, nn.PixelUnshuffle])
@pytest.mark.parametrize("dims", [4, 5])
def test_shuffled_channels_stay_innermost(make, dims, device):
    plain = ts.rand(2, *((8,), (4, 4))[dims - 4], 8, 6, device=device)
    inner = plain.to(memory_format=LAYOUTS[dims])
    got, want = make(2)(inner), make(2)(plain)
    assert got.is_contiguous(memory_format=LAYOUTS[dims]) and want.is_contiguous()
    ts.testing.assert_close(got.contiguous(), want)
