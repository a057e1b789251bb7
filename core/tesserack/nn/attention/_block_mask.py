"""Which blocks of a matrix of attention scores count: the ``BlockMask`` of flex attention (Dong et al., 2412.05496)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tesserack as ts
from tesserack import Tensor

__all__ = ["BlockMask", "create_block_mask", "create_mask", "noop_mask"]

BLOCK = 128  # tokens along either side of a block, by default
MaskMod = Callable[..., Tensor]
_PARTS = (
    *("kv_num_blocks", "kv_indices", "full_kv_num_blocks", "full_kv_indices"),
    *("q_num_blocks", "q_indices", "full_q_num_blocks", "full_q_indices"),
)


def noop_mask(batch: Tensor, head: Tensor, token_q: Tensor, token_kv: Tensor) -> Tensor:
    """The mask that lets every score count: a bool tensor () on the device of ``batch``.

    >>> import tesserack as ts
    >>> noop_mask(ts.tensor(0), ts.tensor(0), ts.tensor(1), ts.tensor(2))
    tensor(True)
    """
    return batch.new_ones((), dtype=ts.bool)


def places(sizes: Sequence[int], device: Any) -> list[Tensor]:
    """Batch, head, query and key of every score, int32, each along its own dim of four."""
    shapes = [[size if d == at else 1 for d in range(4)] for at, size in enumerate(sizes)]
    return [ts.arange(n, dtype=ts.int32, device=device).view(s) for n, s in zip(sizes, shapes, strict=True)]


def create_mask(
    mod_fn: Callable[..., Tensor], B: int | None, H: int | None, Q_LEN: int, KV_LEN: int, device: Any = None
) -> Tensor:
    """What a ``mask_mod(b, h, q, kv)`` says of every score: (B, H, Q_LEN, KV_LEN), B and H 1 where None.

    A ``score_mod(score, b, h, q, kv)`` gives False where it turns 0 into minus infinity. ``mod_fn`` is called
    once, with tensors that broadcast to all places, and may use any operator and index any tensor by them.

    >>> create_mask(lambda b, h, q, kv: q >= kv, None, None, 2, 3, device="cpu")
    tensor([[[[ True, False, False],
              [ True,  True, False]]]])
    """
    sizes = (B or 1, H or 1, Q_LEN, KV_LEN)
    at = places(sizes, device)
    if _takes_scores(mod_fn):
        return ts.isneginf(mod_fn(ts.zeros(sizes, device=device), *at)).logical_not().expand(sizes).contiguous()
    return mod_fn(*at).expand(sizes).contiguous()


def _takes_scores(mod_fn: Callable[..., Tensor]) -> bool:
    """Whether it is a score_mod, by the number of its arguments without a default."""
    import inspect

    plain = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    found = inspect.signature(mod_fn).parameters.values()
    count = sum(p.kind in plain and p.default is p.empty for p in found)
    if count not in (4, 5):
        raise AssertionError(f"mod_fn: expected 4 arguments (b, h, q, kv) or 5 with a score first, got {count}")
    return count == 5


def _pair(size: int | tuple[int, int]) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else (int(size[0]), int(size[1]))


def _ordered(blocks: Tensor) -> tuple[Tensor, Tensor]:
    """(..., R, C) of bools as how many of each row are set, and the columns with these first; int32."""
    counts = blocks.sum(dim=-1).to(ts.int32)
    order = ts.argsort(blocks.to(ts.int32), dim=-1, descending=True, stable=True)
    return counts, order.to(ts.int32).contiguous()


def _dense(counts: Tensor, indices: Tensor) -> Tensor:
    """The blocks that :func:`_ordered` described, (..., R, C) int32."""
    columns = indices.shape[-1]
    listed = ts.arange(columns, device=counts.device) < counts[..., None]
    return ts.zeros(indices.shape, dtype=ts.int32, device=counts.device).scatter_(-1, indices.long(), listed.int())


def _named(parts: Sequence[Any]) -> dict[str, Any]:
    return dict(zip(_PARTS, parts, strict=False))


class BlockMask:
    """The blocks of scores that count, row by row: how many, and which; partly masked ones apart from full ones.

    ``seq_lengths`` are the lengths of queries and keys in tokens; ``kv_num_blocks`` (B, H, rows) int32 counts blocks
    that count in part, of which ``kv_indices`` (B, H, rows, columns) has the columns first; ``full_*`` likewise those
    that count whole, and ``q_*`` the same by columns. Made by :func:`create_block_mask`.

    >>> mask = create_block_mask(lambda b, h, q, kv: q >= kv, None, None, 4, 4, device="cpu", BLOCK_SIZE=2)
    >>> mask.shape, mask.sparsity()
    ((1, 1, 4, 4), 25.0)
    """

    def __init__(
        self,
        seq_lengths: tuple[int, int],
        kv_num_blocks: Tensor,
        kv_indices: Tensor,
        full_kv_num_blocks: Tensor | None,
        full_kv_indices: Tensor | None,
        q_num_blocks: Tensor | None,
        q_indices: Tensor | None,
        full_q_num_blocks: Tensor | None,
        full_q_indices: Tensor | None,
        BLOCK_SIZE: tuple[int, int] = (BLOCK, BLOCK),
        mask_mod: MaskMod = noop_mask,
    ) -> None:
        if kv_indices.ndim < 2:
            raise RuntimeError("BlockMask must have at least 2 dimensions")
        if (full_kv_num_blocks is None) != (full_kv_indices is None):
            raise AssertionError("full_kv_num_blocks and full_kv_indices must be both provided or omitted")
        self.seq_lengths = seq_lengths
        self.kv_num_blocks, self.kv_indices = kv_num_blocks, kv_indices
        self.full_kv_num_blocks, self.full_kv_indices = full_kv_num_blocks, full_kv_indices
        self.q_num_blocks, self.q_indices = q_num_blocks, q_indices
        self.full_q_num_blocks, self.full_q_indices = full_q_num_blocks, full_q_indices
        self.BLOCK_SIZE = BLOCK_SIZE
        self.mask_mod = mask_mod

    @classmethod
    def from_kv_blocks(
        cls,
        kv_num_blocks: Tensor,
        kv_indices: Tensor,
        full_kv_num_blocks: Tensor | None = None,
        full_kv_indices: Tensor | None = None,
        BLOCK_SIZE: int | tuple[int, int] = BLOCK,
        mask_mod: MaskMod | None = None,
        seq_lengths: tuple[int, int] | None = None,
        compute_q_blocks: bool = True,
    ) -> BlockMask:
        """A mask from its rows; what its columns say follows."""
        if kv_indices.ndim < 2:
            raise RuntimeError("BlockMask must have at least 2 dimensions")
        size = _pair(BLOCK_SIZE)
        by_column: list[Any] = [None] * 4
        if compute_q_blocks:
            by_column[:2] = _ordered(_dense(kv_num_blocks, kv_indices).transpose(-2, -1).bool())
            if full_kv_num_blocks is not None and full_kv_indices is not None:
                by_column[2:] = _ordered(_dense(full_kv_num_blocks, full_kv_indices).transpose(-2, -1).bool())
        if seq_lengths is None:
            seq_lengths = (kv_indices.shape[-2] * size[0], kv_indices.shape[-1] * size[1])
        full = (full_kv_num_blocks, full_kv_indices)
        parts: list[Any] = [kv_num_blocks, kv_indices, *full, *by_column]
        return cls(seq_lengths, **_named(parts), BLOCK_SIZE=size, mask_mod=mask_mod or noop_mask)

    @property
    def shape(self) -> tuple[int, ...]:
        """(B, H, query length, key length)."""
        return (*self.kv_indices.shape[:-2], *self.seq_lengths)

    def __str__(self) -> str:
        return f"BlockMask(shape={self.shape}, sparsity={self.sparsity():.2f}%, \n{self.to_string()}\n)"

    def __repr__(self) -> str:
        listed = [f"    {name}={None if part is None else part.shape},\n" for name, part in self._parts().items()]
        rest = f"    BLOCK_SIZE={self.BLOCK_SIZE},\n    shape={self.shape},\n    sparsity={self.sparsity():.2f}%,\n"
        name = getattr(self.mask_mod, "__name__", self.mask_mod)
        return f"BlockMask(\n{''.join(listed)}{rest}    mask_mod={name}\n)"

    def __getitem__(self, index: Any) -> BlockMask:
        """The mask of some batches, heads and rows of blocks; it has no ``mask_mod``, whose places would be others."""
        index = index if isinstance(index, tuple) else (index,)
        kept = tuple(slice(i + n if i < 0 else i, (i + n if i < 0 else i) + 1) if isinstance(i, int) else i
                     for i, n in zip(index, self.kv_num_blocks.shape, strict=False))  # fmt: skip
        taken: list[Any] = [None if part is None else part[kept] for part in list(self._parts().values())[:4]]
        lengths = (min(self.seq_lengths[0], taken[1].shape[-2] * self.BLOCK_SIZE[0]), self.seq_lengths[1])
        return self._of_rows(taken, None, lengths)

    def _of_rows(self, rows: list[Any], mask_mod: MaskMod | None, lengths: tuple[int, int]) -> BlockMask:
        size, columns = self.BLOCK_SIZE, self.q_indices is not None
        return BlockMask.from_kv_blocks(
            **_named(rows), BLOCK_SIZE=size, mask_mod=mask_mod, seq_lengths=lengths, compute_q_blocks=columns
        )

    def _parts(self) -> dict[str, Tensor | None]:
        return {name: getattr(self, name) for name in _PARTS}

    def as_tuple(self, flatten: bool = True) -> tuple[Any, ...]:
        """Lengths, the eight tensors, block size and mask_mod; numbers of pairs one by one with ``flatten``."""
        lengths, size = (self.seq_lengths, self.BLOCK_SIZE) if flatten else ((self.seq_lengths,), (self.BLOCK_SIZE,))
        return (*lengths, *self._parts().values(), *size, self.mask_mod)

    def numel(self) -> int:
        """How many scores there are, masked or not."""
        count = 1
        for size in self.shape:
            count *= size
        return count

    def sparsity(self) -> float:
        """The share of scores, in percent, that lie in no block that counts."""
        blocks = self.kv_num_blocks.sum()
        if self.full_kv_num_blocks is not None:
            blocks = blocks + self.full_kv_num_blocks.sum()
        dense = int(blocks) * self.BLOCK_SIZE[0] * self.BLOCK_SIZE[1]
        return 100 * (1 - dense / self.numel())

    def to_dense(self) -> Tensor:
        """1 for every block that counts, in part or whole, (B, H, rows, columns) int32."""
        dense = _dense(self.kv_num_blocks, self.kv_indices)
        if self.full_kv_num_blocks is None or self.full_kv_indices is None:
            return dense
        return dense | _dense(self.full_kv_num_blocks, self.full_kv_indices)

    def to_string(self, grid_size: int | tuple[int, int] = (20, 20), limit: int = 4) -> str:
        """A picture of the first masks, at most ``limit``: a square per block or, of many, per group of blocks."""
        dense = self.to_dense().float()
        rows, columns = dense.shape[-2:]
        high, wide = (rows, columns) if grid_size == -1 else _pair(grid_size)
        cells = ts.nn.functional.adaptive_avg_pool2d(
            dense.flatten(0, -3)[:, None], (min(rows, high), min(columns, wide))
        )
        shown, lines = cells[:limit, 0].tolist(), []
        for number, grid in enumerate(shown):
            place = divmod(number, dense.shape[-3]) if dense.ndim == 4 else number
            lines.append(f"{place}")
            lines += ["".join("██" if cell == 1 else "░░" if cell else "  " for cell in row) for row in grid]
        return "\n".join(lines + ["..."] * (len(cells) > limit))

    def to(self, device: Any) -> BlockMask:
        """The same mask on a device."""
        moved: list[Any] = [None if part is None else part.to(device) for part in self._parts().values()]
        return BlockMask(self.seq_lengths, **_named(moved), BLOCK_SIZE=self.BLOCK_SIZE, mask_mod=self.mask_mod)

    def _adjust(self, new_q_len: int, new_kv_len: int) -> BlockMask:
        """The mask of the first queries and keys."""
        rows, columns = -(-new_q_len // self.BLOCK_SIZE[0]), -(-new_kv_len // self.BLOCK_SIZE[1])
        kept: list[Any] = [*_ordered(_dense(self.kv_num_blocks, self.kv_indices)[..., :rows, :columns].bool())]
        if self.full_kv_num_blocks is not None and self.full_kv_indices is not None:
            kept += _ordered(_dense(self.full_kv_num_blocks, self.full_kv_indices)[..., :rows, :columns].bool())
        return self._of_rows(kept, self.mask_mod, (new_q_len, new_kv_len))


def create_block_mask(
    mask_mod: MaskMod,
    B: int | None,
    H: int | None,
    Q_LEN: int,
    KV_LEN: int,
    device: Any = None,
    BLOCK_SIZE: int | tuple[int, int] = BLOCK,
    _compile: bool = False,
    separate_full_blocks: bool = True,
) -> BlockMask:
    """The blocks in which ``mask_mod(b, h, q, kv)`` lets a score count; B, H are None where it does not ask for them.

    With ``separate_full_blocks`` those in which all scores count are listed apart.

    >>> create_block_mask(noop_mask, None, None, 4, 4, device="cpu", BLOCK_SIZE=2).full_kv_num_blocks.tolist()
    [[[2, 2]]]
    """
    rows, columns = _pair(BLOCK_SIZE)
    mask = create_mask(mask_mod, B, H, Q_LEN, KV_LEN, device).bool()
    padded = ts.nn.functional.pad(mask, (0, -KV_LEN % columns, 0, -Q_LEN % rows))
    high, wide = padded.shape[-2] // rows, padded.shape[-1] // columns
    counts = padded.view(*padded.shape[:2], high, rows, wide, columns).sum(dim=(3, 5))
    full = counts == rows * columns if separate_full_blocks else ts.zeros_like(counts, dtype=ts.bool)
    listed: list[Any] = [*_ordered((counts > 0) & ~full)]
    if separate_full_blocks:
        listed += _ordered(full)
    size, lengths = (rows, columns), (Q_LEN, KV_LEN)
    return BlockMask.from_kv_blocks(**_named(listed), BLOCK_SIZE=size, mask_mod=mask_mod, seq_lengths=lengths)
