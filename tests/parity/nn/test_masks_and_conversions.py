"""Masks of a wrong size, conversions to another layout, layouts of shuffled pixels, beside PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
@pytest.mark.parametrize("which", ["src_mask", "tgt_mask"])
@pytest.mark.parametrize("batch_first", [False, True])
def test_a_causal_mask_of_another_size_is_refused(
    compare_program: Callable[..., None], which: str, batch_first: bool
) -> None:
    def program(m: Any) -> list[Any]:
        model = m.nn.Transformer(8, 2, 1, 1, 8, dropout=0.0, batch_first=batch_first)
        src, tgt = (m.ones(2, n, 8) if batch_first else m.ones(n, 2, 8) for n in (5, 4))
        said: list[Any] = []
        for size in (3, 4, 5, 6):
            try:
                said.append(tuple(model(src, tgt, **{which: model.generate_square_subsequent_mask(size)}).shape))
            except RuntimeError:
                said.append("refused")
        return said

    compare_program(program)


def test_a_conversion_to_another_layout_makes_parameters(compare_program: Callable[..., None]) -> None:
    def program(m: Any) -> list[Any]:
        layer = m.nn.Linear(3, 2)
        before = layer.weight
        layer.weight.grad = m.ones(2, 3)
        layer._apply(lambda t: t.to_sparse())
        return [layer.weight is before, before.layout is m.strided, layer.weight.layout is m.sparse_coo,
                layer.weight.grad.layout is m.sparse_coo, isinstance(layer.weight, m.nn.Parameter),
                layer.weight.requires_grad]  # fmt: skip

    compare_program(program)


@pytest.mark.parametrize("name", ["PixelShuffle", "PixelUnshuffle"])
@pytest.mark.parametrize("shape", [(2, 8, 4, 4), (1, 8, 2, 6), (8, 4, 4)])
def test_shuffled_pixels_keep_channels_last(compare_program: Callable[..., None], name: str, shape: Any) -> None:
    def program(m: Any) -> list[Any]:
        x = m.arange(m.ones(shape).numel()).reshape(shape)
        x = x.contiguous(memory_format=m.channels_last) if len(shape) == 4 else x
        y = getattr(m.nn, name)(2)(x)
        return [y, y.stride(), y.is_contiguous()]

    compare_program(program)
