"""How a tensor lies along one dim of a mesh: ``Shard``, ``Replicate``, ``Partial``."""

from __future__ import annotations

from typing import Any

__all__ = ["Partial", "Placement", "Replicate", "Shard"]


class Placement:
    """How a tensor lies along one dim of a mesh: one of the classes of this module."""

    def _key(self) -> tuple[Any, ...]:
        return ()

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash((type(self).__name__, self._key()))

    def is_shard(self, dim: int | None = None) -> bool:
        """Whether ranks hold parts (along ``dim``)."""
        return isinstance(self, Shard) and dim in (None, self.dim)

    def is_replicate(self) -> bool:
        """Whether every rank holds the whole."""
        return isinstance(self, Replicate)

    def is_partial(self, reduce_op: str | None = None) -> bool:
        """Whether the ranks' tensors have yet to be combined (by ``reduce_op``)."""
        return isinstance(self, Partial) and reduce_op in (None, self.reduce_op)


class Shard(Placement):
    """Each rank along the mesh dim holds a part of the tensor's ``dim``, cut as ``chunk`` cuts: the first ranks hold
    ``ceil(n / ranks)`` each, the last what is left, which may be nothing.

    >>> Shard(0), Shard(0) == Shard(0), Shard(1).is_shard(0)
    (Shard(dim=0), True, False)
    """

    def __init__(self, dim: int) -> None:
        self.dim = dim

    def _key(self) -> tuple[Any, ...]:
        return (self.dim,)

    def __repr__(self) -> str:
        return f"Shard(dim={self.dim})"

    def __str__(self) -> str:
        return f"S({self.dim})"

    def parts(self, size: int, ranks: int) -> list[list[tuple[int, int]]]:
        """For each rank the ``(start, length)`` of what it holds of a dim of ``size``."""
        width = -(-size // ranks) if size else 0
        return [[(min(size, width * r), max(0, min(size, width * (r + 1)) - width * r))] for r in range(ranks)]

    @staticmethod
    def local_shard_size_and_offset(curr_local_size: int, num_chunks: int, rank: int) -> tuple[int, int]:
        """The length and the start of a rank's part of a dim."""
        start, length = Shard(0).parts(curr_local_size, num_chunks)[rank][0]
        return length, start


class _StridedShard(Shard):
    """Parts of a dim that a later dim of the mesh has cut into ``split_factor`` pieces first: each rank holds its part
    of every piece, as data parallelism over tensor parallelism does.

    >>> _StridedShard(0, split_factor=2).parts(8, 2)
    [[(0, 2), (4, 2)], [(2, 2), (6, 2)]]
    """

    def __init__(self, dim: int, *, split_factor: int) -> None:
        super().__init__(dim)
        self.split_factor = split_factor

    def _key(self) -> tuple[Any, ...]:
        return self.dim, self.split_factor

    def __repr__(self) -> str:
        return f"_StridedShard(dim={self.dim}, sf={self.split_factor})"

    def __str__(self) -> str:
        return f"_S({self.dim}, {self.split_factor})"

    def parts(self, size: int, ranks: int) -> list[list[tuple[int, int]]]:
        found: list[list[tuple[int, int]]] = [[] for _ in range(ranks)]
        for pieces in Shard(0).parts(size, self.split_factor):
            first, length = pieces[0]
            for rank, inner in enumerate(Shard(0).parts(length, ranks)):
                found[rank].append((first + inner[0][0], inner[0][1]))
        return found


class Replicate(Placement):
    """Every rank along the mesh dim holds the whole tensor.

    >>> Replicate() == Replicate(), Replicate().is_replicate()
    (True, True)
    """

    def __repr__(self) -> str:
        return "Replicate()"

    def __str__(self) -> str:
        return "R"


class Partial(Placement):
    """Every rank along the mesh dim holds a tensor of the whole shape, and the value is all of them combined by
    ``reduce_op``: ``"sum"``, ``"avg"``, ``"product"``, ``"max"``, ``"min"``. Operators make it; reading reduces it.

    >>> Partial(), Partial("max").is_partial("max")
    (Partial(sum), True)
    """

    ALL_REDUCE_OPS = ("sum", "avg", "product", "max", "min", "band", "bor", "bxor")

    def __init__(self, reduce_op: str = "sum") -> None:
        if reduce_op not in self.ALL_REDUCE_OPS:
            raise ValueError(f"Partial: expected one of {', '.join(self.ALL_REDUCE_OPS)}, got {reduce_op!r}")
        self.reduce_op = reduce_op

    def _key(self) -> tuple[Any, ...]:
        return (self.reduce_op,)

    def __repr__(self) -> str:
        return f"Partial({self.reduce_op})"

    def __str__(self) -> str:
        return f"P({self.reduce_op})"
