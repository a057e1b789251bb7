"""Keys and values in pages: which belong to whom, and attention over them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import tesserack as ts
from tesserack import Tensor
from tesserack.nn import functional as F

__all__ = ["Chunk", "PagedCache", "Pass"]


class PagedCache:
    """Pages of ``block`` tokens each, lent to sequences and given back. The memory is taken at the first pass."""

    def __init__(self, blocks: int, block: int, device: str) -> None:
        self.blocks, self.block, self.device = blocks, block, device
        self._free = [*range(blocks - 1, -1, -1)]
        self._layers: list[tuple[Tensor, Tensor]] = []

    @property
    def free(self) -> int:
        """How many pages are nobody's."""
        return len(self._free)

    def take(self, count: int) -> list[int] | None:
        """That many pages, or None if there are fewer."""
        if count > len(self._free):
            return None
        return [self._free.pop() for _ in range(count)]

    def give_back(self, blocks: Sequence[int]) -> None:
        """Pages that nobody reads any more."""
        self._free.extend(blocks)

    def layer(self, number: int, k: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of a layer, (tokens, heads, size); heads and size are those of ``k`` (1, heads, n, size)."""
        if number == len(self._layers):
            shape = (self.blocks * self.block, k.shape[1], k.shape[3])
            pair = (ts.zeros(shape, dtype=k.dtype, device=k.device), ts.zeros(shape, dtype=k.dtype, device=k.device))
            self._layers.append(pair)
        return self._layers[number]


@dataclass
class Chunk:
    """New tokens of one sequence: ``done`` were computed before them, ``blocks`` hold all of it."""

    tokens: list[int]
    done: int
    blocks: list[int]


@dataclass
class _Group:
    """Sequences with equally many new tokens, which attend as one batch."""

    rows: Tensor  # (sequences * new), places in the pass
    slots: Tensor  # (sequences * longest), where their keys lie, padded with slot 0
    mask: Tensor  # (sequences, 1, new, longest): key's place <= query's
    count: int
    new: int


class Pass:
    """One call of the model: the packed tokens of all chunks, and attention for them."""

    def __init__(self, cache: PagedCache, chunks: Sequence[Chunk]) -> None:
        self.cache, device, block = cache, cache.device, cache.block
        places = [place for c in chunks for place in range(c.done, c.done + len(c.tokens))]
        slots = [
            c.blocks[p // block] * block + p % block for c in chunks for p in range(c.done, c.done + len(c.tokens))
        ]
        self.tokens = ts.tensor([[token for c in chunks for token in c.tokens]], dtype=ts.int64, device=device)
        self.places = ts.tensor(places, dtype=ts.int64, device=device)
        self._slots = ts.tensor(slots, dtype=ts.int64, device=device)
        self._layer = 0
        by_size: dict[int, list[tuple[int, Chunk]]] = {}
        start = 0
        for c in chunks:
            by_size.setdefault(len(c.tokens), []).append((start, c))
            start += len(c.tokens)
        self._groups = [self._group(new, members) for new, members in by_size.items()]
        order = [row for new, members in by_size.items() for s, _ in members for row in range(s, s + new)]
        back = sorted(range(start), key=order.__getitem__)
        self._order = None if back == [*range(start)] else ts.tensor(back, dtype=ts.int64, device=device)

    def _group(self, new: int, members: Sequence[tuple[int, Chunk]]) -> _Group:
        cache, device = self.cache, self.cache.device
        pages = max(-(-(c.done + new) // cache.block) for _, c in members)
        held = ts.tensor([(c.blocks + [0] * pages)[:pages] for _, c in members], dtype=ts.int64, device=device)
        slots = held[:, :, None] * cache.block + ts.arange(cache.block, device=device)
        done = ts.tensor([c.done for _, c in members], dtype=ts.int64, device=device)
        queries = done[:, None] + ts.arange(new, device=device)
        mask = ts.arange(pages * cache.block, device=device) <= queries[:, None, :, None]
        rows = ts.tensor([row for s, _ in members for row in range(s, s + new)], dtype=ts.int64, device=device)
        return _Group(rows, slots.reshape(-1), mask, len(members), new)

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Attention of every new token to its own sequence up to itself; keeps ``k`` and ``v``."""
        keys, values = self.cache.layer(self._layer, k)
        self._layer += 1
        keys.index_copy_(0, self._slots, k[0].transpose(0, 1))
        values.index_copy_(0, self._slots, v[0].transpose(0, 1))
        found = [self._attend(group, q, keys, values) for group in self._groups]
        packed = found[0] if len(found) == 1 else ts.cat(found, 1)
        if self._order is not None:
            packed = packed.index_select(1, self._order)
        return packed[None]

    def _attend(self, group: _Group, q: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """(heads, the group's tokens, size)"""
        heads, size, count, new = q.shape[1], q.shape[3], group.count, group.new
        mine = q[0] if len(self._groups) == 1 else q[0].index_select(1, group.rows)
        mine = mine.reshape(heads, count, new, size).transpose(0, 1)
        k, v = (self._gather(group, whole, heads) for whole in (keys, values))
        out = F.scaled_dot_product_attention(mine, k, v, attn_mask=group.mask)
        return out.transpose(0, 1).reshape(heads, count * new, size)

    def _gather(self, group: _Group, whole: Tensor, heads: int) -> Tensor:
        found = (
            whole.index_select(0, group.slots).reshape(group.count, -1, whole.shape[1], whole.shape[2]).transpose(1, 2)
        )
        return found if whole.shape[1] == heads else found.repeat_interleave(heads // whole.shape[1], 1)
