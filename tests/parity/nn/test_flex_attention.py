"""Flex attention beside PyTorch's: functions of scores, block masks, shared heads, gradients and errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tesserack as ts
import torch
import torch.nn.attention.flex_attention as flex
from tesserack.nn.attention import flex_attention as ours

pytestmark = pytest.mark.filterwarnings("ignore")

SCORE_MODS = {
    "none": None,
    "distance": lambda score, b, h, q, kv: score + (q - kv) * 0.1,
    "slopes": lambda score, b, h, q, kv: score * (h + 1) - abs(q - kv) * (b + 0.5),
}
MASKS = {
    "none": None,
    "causal": lambda b, h, q, kv: q >= kv,
    "window by head": lambda b, h, q, kv: (q >= kv) & (q - kv <= 4 * (h + 1)),
    "empty rows": lambda b, h, q, kv: kv > q + 10,
}


def data() -> list[Any]:
    draw = np.random.default_rng(3)
    shapes = [(2, 4, 24, 8), (2, 2, 40, 8), (2, 2, 40, 6)]
    return [draw.standard_normal(shape).astype(np.float32) for shape in shapes]


def outcome(package: Any, module: Any, score: str, mask: str) -> list[Any]:
    q, k, v = map(package.tensor, data())
    blocks = MASKS[mask] and module.create_block_mask(MASKS[mask], 2, 4, 24, 40, device="cpu", BLOCK_SIZE=(8, 16))
    request = module.AuxRequest(lse=True)
    out, aux = module.flex_attention(q, k, v, SCORE_MODS[score], blocks, enable_gqa=True, return_aux=request)
    return [out.numpy(), aux.lse.numpy()]


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("score", SCORE_MODS)
def test_values(score: str, mask: str) -> None:
    for mine, wanted in zip(outcome(ts, ours, score, mask), outcome(torch, flex, score, mask), strict=True):
        np.testing.assert_allclose(mine, wanted, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("mask", MASKS)
def test_gradients(mask: str) -> None:
    """PyTorch has none on its cpu: finite differences, also for a tensor that the function refers to."""
    draw = np.random.default_rng(4)
    q, k, v = (ts.tensor(draw.standard_normal((1, 2, 5, 3)), requires_grad=True) for _ in range(3))
    slope = ts.tensor([0.3, -0.2], dtype=ts.float64, requires_grad=True)
    blocks = MASKS[mask] and ours.create_block_mask(MASKS[mask], 1, 2, 5, 5, device="cpu", BLOCK_SIZE=2)

    def run(q: Any, k: Any, v: Any, slope: Any) -> Any:
        return ours.flex_attention(q, k, v, lambda score, b, h, i, j: score + slope[h] * (i - j), blocks)

    assert ts.autograd.gradcheck(run, (q, k, v, slope))


@pytest.mark.parametrize("separate", [True, False])
@pytest.mark.parametrize("mask", [name for name in MASKS if MASKS[name]])
def test_block_masks(mask: str, separate: bool) -> None:
    def parts(module: Any) -> Any:
        made = module.create_block_mask(
            MASKS[mask], 2, 4, 24, 40, device="cpu", BLOCK_SIZE=(8, 16), separate_full_blocks=separate
        )
        return made, made._adjust(16, 20), made[1:, 2]

    names = ["kv_num_blocks", "kv_indices", "full_kv_num_blocks", "full_kv_indices", "q_num_blocks", "q_indices"]
    for mine, wanted in zip(parts(ours), parts(flex), strict=True):
        assert tuple(mine.shape) == tuple(wanted.shape)
        assert mine.to_dense().tolist() == wanted.to_dense().tolist()
        assert mine.sparsity() == pytest.approx(wanted.sparsity())
        assert mine.kv_num_blocks.tolist() == wanted.kv_num_blocks.tolist()
    for name in names:
        a, b = (getattr(parts(module)[0], name) for module in (ours, flex))
        assert (a is None) == (b is None) and (a is None or a.tolist() == b.tolist()), name


def test_blocks_alone_mask_scores() -> None:
    q = k = v = ts.ones(1, 1, 4, 2)
    v = ts.arange(4.0).view(1, 1, 4, 1)
    counts, columns = ts.tensor([[[1, 2]]], dtype=ts.int32), ts.tensor([[[[0, 1], [0, 1]]]], dtype=ts.int32)
    mask = ours.BlockMask.from_kv_blocks(counts, columns, BLOCK_SIZE=2)
    assert ours.flex_attention(q, k, v, block_mask=mask).flatten().tolist() == [0.5, 0.5, 1.5, 1.5]


@pytest.mark.parametrize(
    "change",
    [
        lambda p, q, k, v: (q[0], k[0], v[0]),
        lambda p, q, k, v: (q[..., :4], k, v),
        lambda p, q, k, v: (q[:1], k, v),
        lambda p, q, k, v: (q[:, :3], k, v),
        lambda p, q, k, v: (q, k, v[:, :, :7]),
    ],
)
def test_errors(change: Any) -> None:
    caught = []
    for package, module in ((ts, ours), (torch, flex)):
        with pytest.raises((ValueError, RuntimeError, NotImplementedError)) as error:
            module.flex_attention(*change(package, *map(package.tensor, data())), enable_gqa=True)
        caught.append(error.type)
    assert caught[0] is caught[1]
