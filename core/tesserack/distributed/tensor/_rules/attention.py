"""Attention: parts by batch and by heads."""

from __future__ import annotations

from collections.abc import Iterator

from tesserack.distributed.tensor._call import Call, Strategy, rule
from tesserack.distributed.tensor._rules.pointwise import broadcast, shards_of
from tesserack.distributed.tensor._spec import DTensorSpec
from tesserack.distributed.tensor.placement_types import Placement, Shard

# Which of the arguments is the mask.
_MASK = {
    "_scaled_dot_product_flash_attention_for_cpu": -1,
    "_attention": 3,
    "attention_blocks": 3,
    "attention_rows": 3,
    "attention_blocks_backward": 4,
    "attention_rows_backward": 4,
}


@rule(*_MASK)
def _attention(call: Call, mesh_dim: int) -> Iterator[Strategy]:
    at = _MASK[call.name]
    mask = call.kwargs.get("attn_mask") if at < 0 else call.args[at]
    if call.name.startswith("attention_rows") and call.args[-1 - (call.name.endswith("backward"))]:
        return  # with dropout
    scores = (*call.specs[0].shape[:-1], call.specs[2].shape[-2])
    batch = len(scores) - 2
    for cut in [c for c in shards_of(call, mesh_dim) if c.dim < batch]:
        if len({s.shape[cut.dim] for s in call.specs if s is not mask}) == 1:
            yield Strategy((cut,), tuple(_placed(s, mask, scores, cut) for s in call.specs))


def _placed(spec: DTensorSpec, mask: DTensorSpec | None, scores: tuple[int, ...], cut: Shard) -> Placement:
    return broadcast(spec, scores, cut) if spec is mask else cut
