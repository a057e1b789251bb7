"""Tables of vectors looked up by index."""

from __future__ import annotations

from typing import Any

from tesserack import Tensor, empty, no_grad
from tesserack.nn import functional as F
from tesserack.nn import init
from tesserack.nn.modules.module import Module
from tesserack.nn.parameter import Parameter

__all__ = ["Embedding", "EmbeddingBag"]


def _empty_row(weight: Tensor, row: int | None) -> None:
    """Zeros in the row of what is padding."""
    if row is not None:
        with no_grad():
            weight[row].fill_(0)


class Embedding(Module):
    """A table of ``num_embeddings`` vectors: integer indices (*) -> (*, embedding_dim).

    Starts standard normal; the row ``padding_idx`` starts at zero and is not trained. ``max_norm`` limits the norm
    of the rows in use. With ``sparse`` the gradient is a sparse tensor of those rows. Raises ``IndexError`` for an
    index outside the table.

    >>> from tesserack import nn, tensor
    >>> table = nn.Embedding(10, 3, padding_idx=0)
    >>> tuple(table(tensor([[1, 2], [0, 9]])).shape), table(tensor([0])).tolist()
    ((2, 2, 3), [[0.0, 0.0, 0.0]])
    """

    weight: Parameter

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
        _weight: Tensor | None = None,
        _freeze: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        if padding_idx is not None:
            if not -num_embeddings <= padding_idx < num_embeddings:
                raise AssertionError(f"Embedding: expected padding_idx within {num_embeddings} rows, got {padding_idx}")
            padding_idx %= num_embeddings
        self.num_embeddings = num_embeddings
        self.embedding_dim = embedding_dim
        self.padding_idx = padding_idx
        self.max_norm = max_norm
        self.norm_type = norm_type
        self.scale_grad_by_freq = scale_grad_by_freq
        self.sparse = sparse
        if _weight is None:
            values = empty((num_embeddings, embedding_dim), device=device, dtype=dtype)
            self.weight = Parameter(values, requires_grad=not _freeze)
            self.reset_parameters()
            return
        if tuple(_weight.shape) != (num_embeddings, embedding_dim):
            raise AssertionError(
                f"Embedding: expected weights of shape {(num_embeddings, embedding_dim)}, got {tuple(_weight.shape)}"
            )
        self.weight = Parameter(_weight, requires_grad=not _freeze)

    @classmethod
    def from_pretrained(
        cls,
        embeddings: Tensor,
        freeze: bool = True,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
    ) -> Embedding:
        """A table holding ``embeddings`` (num, dim), not trained unless ``freeze=False``."""
        if embeddings.ndim != 2:
            raise AssertionError(
                f"Embedding.from_pretrained: expected 2 dimensions, got shape {tuple(embeddings.shape)}"
            )
        rows, cols = embeddings.shape
        return cls(rows, cols, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse, embeddings, freeze)

    def reset_parameters(self) -> None:
        """Draw new initial values."""
        init.normal_(self.weight)
        self._fill_padding_idx_with_zero()

    def _fill_padding_idx_with_zero(self) -> None:
        _empty_row(self.weight, self.padding_idx)

    def forward(self, input: Tensor) -> Tensor:
        return F.embedding(
            input, self.weight, self.padding_idx, self.max_norm, self.norm_type, self.scale_grad_by_freq, self.sparse
        )

    def extra_repr(self) -> str:
        parts = [f"{self.num_embeddings}, {self.embedding_dim}"]
        if self.padding_idx is not None:
            parts.append(f"padding_idx={self.padding_idx}")
        if self.max_norm is not None:
            parts.append(f"max_norm={self.max_norm}")
        if self.norm_type != 2:
            parts.append(f"norm_type={self.norm_type}")
        if self.scale_grad_by_freq:
            parts.append(f"scale_grad_by_freq={self.scale_grad_by_freq}")
        if self.sparse:
            parts.append("sparse=True")
        return ", ".join(parts)


class EmbeddingBag(Module):
    """Sums, means or maxima of bags of rows of a table: indices (N, L), or (L) with offsets (N), -> (N, dim).

    Starts standard normal. See :func:`tesserack.nn.functional.embedding_bag` for the arguments.

    >>> from tesserack import nn, tensor
    >>> tuple(nn.EmbeddingBag(10, 3, mode="sum")(tensor([1, 2, 4]), tensor([0, 2])).shape)
    (2, 3)
    """

    weight: Parameter

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        _weight: Tensor | None = None,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        if padding_idx is not None:
            if not -num_embeddings <= padding_idx < num_embeddings:
                raise AssertionError(
                    f"EmbeddingBag: expected padding_idx within {num_embeddings} rows, got {padding_idx}"
                )
            padding_idx %= num_embeddings
        self.num_embeddings = num_embeddings
        self.embedding_dim = embedding_dim
        self.max_norm = max_norm
        self.norm_type = norm_type
        self.scale_grad_by_freq = scale_grad_by_freq
        self.mode = mode
        self.sparse = sparse
        self.include_last_offset = include_last_offset
        self.padding_idx = padding_idx
        if _weight is None:
            self.weight = Parameter(empty((num_embeddings, embedding_dim), device=device, dtype=dtype))
            self.reset_parameters()
            return
        if tuple(_weight.shape) != (num_embeddings, embedding_dim):
            raise AssertionError(
                f"EmbeddingBag: expected weights of shape {(num_embeddings, embedding_dim)}, got {tuple(_weight.shape)}"
            )
        self.weight = Parameter(_weight)

    @classmethod
    def from_pretrained(
        cls,
        embeddings: Tensor,
        freeze: bool = True,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
    ) -> EmbeddingBag:
        """Bags over a table holding ``embeddings`` (num, dim), not trained unless ``freeze=False``."""
        if embeddings.ndim != 2:
            raise ValueError(
                f"EmbeddingBag.from_pretrained: expected 2 dimensions, got shape {tuple(embeddings.shape)}"
            )
        rows, cols = embeddings.shape
        options = (max_norm, norm_type, scale_grad_by_freq, mode, sparse)
        made = cls(rows, cols, *options, embeddings, include_last_offset, padding_idx)
        made.weight.requires_grad = not freeze
        return made

    def reset_parameters(self) -> None:
        """Draw new initial values."""
        init.normal_(self.weight)
        self._fill_padding_idx_with_zero()

    def _fill_padding_idx_with_zero(self) -> None:
        _empty_row(self.weight, self.padding_idx)

    def forward(self, input: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None) -> Tensor:
        return F.embedding_bag(
            input, self.weight, offsets, self.max_norm, self.norm_type, self.scale_grad_by_freq, self.mode,
            self.sparse, per_sample_weights, self.include_last_offset, self.padding_idx,
        )  # fmt: skip

    def extra_repr(self) -> str:
        parts = [f"{self.num_embeddings}, {self.embedding_dim}"]
        if self.max_norm is not None:
            parts.append(f"max_norm={self.max_norm}")
        if self.norm_type != 2:
            parts.append(f"norm_type={self.norm_type}")
        if self.scale_grad_by_freq:
            parts.append(f"scale_grad_by_freq={self.scale_grad_by_freq}")
        parts.append(f"mode={self.mode!r}")
        if self.padding_idx is not None:
            parts.append(f"padding_idx={self.padding_idx}")
        return ", ".join(parts)
