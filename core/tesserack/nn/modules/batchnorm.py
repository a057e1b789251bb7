"""Normalisation by the statistics of a batch."""

from __future__ import annotations

from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.nn import functional as F
from tesserack.nn import init
from tesserack.nn.modules.module import Module
from tesserack.nn.parameter import Parameter

__all__ = ["BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "SyncBatchNorm"]


class _NormBase(Module):
    """What normalisations by running statistics share; a subclass states which numbers of dimensions it takes."""

    _version = 2  # 2 added num_batches_tracked to the state
    _dimensions: tuple[int, ...]
    weight: Parameter | None
    bias: Parameter | None
    running_mean: Tensor | None
    running_var: Tensor | None
    num_batches_tracked: Tensor | None

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.num_features = num_features
        self.eps = eps
        self.momentum = momentum
        self.affine = affine
        self.track_running_stats = track_running_stats
        for name, wanted in (("weight", affine), ("bias", affine and bias)):
            values = Parameter(ts.empty((num_features,), device=device, dtype=dtype)) if wanted else None
            self.register_parameter(name, values)
        statistics: tuple[Tensor | None, ...] = (None, None, None)
        if track_running_stats:
            statistics = (
                ts.zeros((num_features,), device=device, dtype=dtype),
                ts.ones((num_features,), device=device, dtype=dtype),
                ts.tensor(0, dtype=ts.int64, device=device),
            )
        for name, buffer in zip(("running_mean", "running_var", "num_batches_tracked"), statistics, strict=True):
            self.register_buffer(name, buffer)
        self.reset_parameters()

    def reset_running_stats(self) -> None:
        """Forget the batches seen: mean 0, variance 1."""
        if self.track_running_stats:
            self.running_mean.zero_()  # type: ignore[union-attr]
            self.running_var.fill_(1)  # type: ignore[union-attr]
            self.num_batches_tracked.zero_()  # type: ignore[union-attr]

    def reset_parameters(self) -> None:
        """Running statistics as at the start, weight 1, bias 0."""
        self.reset_running_stats()
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def _check_input_dim(self, input: Tensor) -> None:
        if input.ndim not in self._dimensions:
            allowed = " or ".join(f"{n}D" for n in self._dimensions)
            raise ValueError(
                f"{type(self).__name__}: expected {allowed} input (got {input.dim()}D input), of shape "
                f"{tuple(input.shape)}"
            )

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        version = local_metadata.get("version")
        key = prefix + "num_batches_tracked"
        if (version is None or version < 2) and self.num_batches_tracked is not None and key not in state_dict:
            state_dict[key] = self.num_batches_tracked
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )

    def extra_repr(self) -> str:
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
            f"bias={self.bias is not None}, track_running_stats={self.track_running_stats}"
        )


class _BatchNorm(_NormBase):
    """Normalisation by the statistics of a batch, or those kept."""

    def forward(self, input: Tensor) -> Tensor:
        self._check_input_dim(input)
        training = self.training
        momentum = 0.0 if self.momentum is None else self.momentum
        if training and self.track_running_stats and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            if self.momentum is None:  # a plain average over all batches
                momentum = 1.0 / float(self.num_batches_tracked.item())
        mean, var = self.running_mean, self.running_var
        use_batch = training or (mean is None and var is None)
        if training and not self.track_running_stats:
            mean = var = None
        return F.batch_norm(input, mean, var, self.weight, self.bias, use_batch, momentum, self.eps)


class BatchNorm1d(_BatchNorm):
    """Normalise each of C features over a batch (N, C) or (N, C, L); see :class:`BatchNorm2d`.

    >>> from tesserack import nn, ones
    >>> nn.BatchNorm1d(3)(ones(4, 3)).abs().max().item() < 1e-6
    True
    """

    _dimensions = (2, 3)


class BatchNorm2d(_BatchNorm):
    """Normalise each of C channels over a batch (N, C, H, W) (Ioffe and Szegedy, arXiv:1502.03167).

    In training the statistics are those of the batch, and running averages are kept:
    ``running = (1 - momentum) * running + momentum * batch`` (variance unbiased); ``momentum=None`` keeps the plain
    average. In evaluation the running averages are used, if ``track_running_stats``.

    >>> from tesserack import nn, ones
    >>> layer = nn.BatchNorm2d(3)
    >>> layer
    BatchNorm2d(3, eps=1e-05, momentum=0.1, affine=True, bias=True, track_running_stats=True)
    >>> tuple(layer(ones(2, 3, 4, 4)).shape), layer.num_batches_tracked.item()
    ((2, 3, 4, 4), 1)
    """

    _dimensions = (4,)


class BatchNorm3d(_BatchNorm):
    """Normalise each of C channels over a batch (N, C, D, H, W); see :class:`BatchNorm2d`.

    >>> from tesserack import nn, ones
    >>> tuple(nn.BatchNorm3d(2)(ones(2, 2, 3, 3, 3)).shape)
    (2, 2, 3, 3, 3)
    """

    _dimensions = (5,)


class SyncBatchNorm(_BatchNorm):
    """Batch normalisation over the batches of all processes; of one process that of :class:`BatchNorm2d`, for any rank.

    Takes (N, C) and (N, C, *). In training, mean and variance are those of the batches of all ranks of
    ``process_group`` (by default all of the program's), which may differ in size.

    >>> from tesserack import nn, ones
    >>> tuple(nn.SyncBatchNorm(3)(ones(4, 3, 2)).shape)
    (4, 3, 2)
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        process_group: Any = None,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias)
        self.process_group = process_group

    def _check_input_dim(self, input: Tensor) -> None:
        if input.ndim < 2:
            raise ValueError(f"expected at least 2D input (got {input.ndim}D input)")
        if input.shape[1] == 0:
            raise ValueError("SyncBatchNorm number of input channels should be non-zero")

    def forward(self, input: Tensor) -> Tensor:
        if not self.training:  # ranks may evaluate alone
            return super().forward(input)
        from tesserack.nn.modules._sync_batch_norm import joined, ranks

        if ranks(self.process_group) <= 1:
            return super().forward(input)
        self._check_input_dim(input)
        return joined(self, input)

    @classmethod
    def convert_sync_batchnorm(cls, module: Module, process_group: Any = None) -> Module:
        """The module with every batch normalisation in it, itself included, made a SyncBatchNorm of the same tensors.

        >>> from tesserack import nn
        >>> nn.SyncBatchNorm.convert_sync_batchnorm(nn.Sequential(nn.BatchNorm2d(2)))[0].num_features
        2
        """
        converted: Module = module
        if isinstance(module, _BatchNorm) and not isinstance(module, SyncBatchNorm):
            converted = cls(
                module.num_features, module.eps, module.momentum, module.affine, module.track_running_stats,
                process_group,
            )  # fmt: skip
            for table in ("_parameters", "_buffers"):
                for name, tensor in getattr(module, table).items():
                    getattr(converted, table)[name] = tensor
            converted.training = module.training
        for name, child in list(module._modules.items()):
            if child is not None:
                converted.add_module(name, cls.convert_sync_batchnorm(child, process_group))
        return converted
