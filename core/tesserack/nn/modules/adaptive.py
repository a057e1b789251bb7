"""Softmax over very many classes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import tesserack as ts
from tesserack import Tensor
from tesserack.nn import functional as F
from tesserack.nn.modules.container import ModuleList, Sequential
from tesserack.nn.modules.linear import Linear
from tesserack.nn.modules.module import Module

__all__ = ["AdaptiveLogSoftmaxWithLoss"]


class _ASMoutput(NamedTuple):
    output: Tensor
    loss: Tensor


class AdaptiveLogSoftmaxWithLoss(Module):
    """An approximate softmax whose rare classes lie in clusters of smaller width (Grave et al., arXiv:1609.04309).

    Classes are numbered from common to rare; ``cutoffs`` say where clusters begin, and cluster k projects to
    ``in_features / div_value ** k``. Called with (N, in_features) and targets (N), or without N, returns the log
    probability of each target and the mean loss. Raises ``ValueError`` for cutoffs that are not rising integers below
    n_classes, and ``RuntimeError`` for other shapes.

    >>> from tesserack import nn, randn, tensor
    >>> model = nn.AdaptiveLogSoftmaxWithLoss(16, 10, cutoffs=[3, 6])
    >>> tuple(model.log_prob(randn(2, 16)).shape)
    (2, 10)
    """

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        cutoffs: Sequence[int],
        div_value: float = 4.0,
        head_bias: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        ends = list(cutoffs)
        if not ends:
            raise ValueError("cutoffs should be a sequence of length larger than 0")
        if (
            ends != sorted(ends)
            or min(ends) <= 0
            or max(ends) > n_classes - 1
            or len(set(ends)) != len(ends)
            or any(int(end) != end for end in ends)
        ):
            raise ValueError(
                "cutoffs should be a sequence of unique, positive integers sorted in an increasing order, where each "
                "value is between 1 and n_classes-1"
            )
        self.in_features = in_features
        self.n_classes = n_classes
        self.cutoffs = [*ends, n_classes]
        self.div_value = div_value
        self.head_bias = head_bias
        self.shortlist_size = self.cutoffs[0]
        self.n_clusters = len(self.cutoffs) - 1
        self.head_size = self.shortlist_size + self.n_clusters
        place = {"device": device, "dtype": dtype}
        self.head = Linear(in_features, self.head_size, bias=head_bias, **place)
        self.tail = ModuleList()
        for k in range(self.n_clusters):
            width = int(in_features // (div_value ** (k + 1)))
            size = self.cutoffs[k + 1] - self.cutoffs[k]
            self.tail.append(
                Sequential(Linear(in_features, width, bias=False, **place), Linear(width, size, bias=False, **place))
            )

    def reset_parameters(self) -> None:
        """Draw new initial values."""
        self.head.reset_parameters()
        for cluster in self.tail.children():
            for layer in cluster.children():
                layer.reset_parameters()

    def forward(self, input_: Tensor, target_: Tensor) -> _ASMoutput:
        single = target_.ndim == 0
        if target_.ndim > 1 or input_.ndim != target_.ndim + 1:
            raise RuntimeError(
                "0D or 1D target tensor expected, multi-target not supported, with an input of one dim more"
            )
        if not single and input_.shape[0] != target_.shape[0]:
            raise RuntimeError("Input and target should have the same size in the batch dimension.")
        input, target = (input_.unsqueeze(0), target_.unsqueeze(0)) if single else (input_, target_)
        if target.numel() and not 0 <= int(target.min().item()) <= int(target.max().item()) < self.n_classes:
            raise RuntimeError(
                f"Target values should be in [0, {self.n_classes - 1}], but values in range "
                f"[{target.min().item()}, {target.max().item()}] were found. "
            )
        head = F.log_softmax(self.head(input), dim=1)
        common = target < self.shortlist_size
        places = ts.where(common, target, ts.zeros_like(target))
        output = head.new_zeros(target.shape[0])
        for k in range(self.n_clusters):
            low, high = self.cutoffs[k], self.cutoffs[k + 1]
            rows = ts.nonzero((target >= low) & (target < high)).squeeze(1)
            if rows.numel() == 0:
                continue
            within = F.log_softmax(self.tail[k](input.index_select(0, rows)), dim=1)
            chosen = within.gather(1, (target[rows] - low).unsqueeze(1)).squeeze(1)
            output = output.index_add(0, rows, chosen)
            places = places.index_fill(0, rows, self.shortlist_size + k)
        output = output + head.gather(1, places.unsqueeze(1)).squeeze(1)
        loss = (-output).mean()
        return _ASMoutput(output.squeeze(0) if single else output, loss)

    def log_prob(self, input: Tensor) -> Tensor:
        """Log probabilities of all classes, (N, n_classes)."""
        head = F.log_softmax(self.head(input), dim=1)
        parts = [head[:, : self.shortlist_size]]
        for k, cluster in enumerate(self.tail):
            chance = head[:, self.shortlist_size + k].unsqueeze(1)
            parts.append(F.log_softmax(cluster(input), dim=1) + chance)
        return ts.cat(parts, 1)

    def predict(self, input: Tensor) -> Tensor:
        """The most likely class of each row, (N)."""
        return self.log_prob(input).argmax(1)
