"""Means over small groups often, and over large ones seldom."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

from tesserack.distributed import _world
from tesserack.distributed.algorithms.model_averaging import utils
from tesserack.distributed.algorithms.model_averaging.averagers import ModelAverager

__all__ = ["HierarchicalModelAverager"]


class HierarchicalModelAverager(ModelAverager):
    """Takes means over groups of growing size, each in its own period: the largest group whose turn has come.

    ``period_group_size_dict`` says for each period how large its groups are, the smallest first; the last is the whole
    group. Raises ``ValueError`` where sizes shrink or do not divide.
    """

    def __init__(
        self, period_group_size_dict: OrderedDict[int, int], warmup_steps: int = 0, process_group: Any = None
    ) -> None:
        super().__init__(process_group)
        if not period_group_size_dict:
            raise ValueError("Arg ``period_group_size_dict`` must not be empty.")
        self._periods = list(period_group_size_dict)
        sizes = list(period_group_size_dict.values())
        if self._periods[0] <= 0 or self._periods != sorted(self._periods) or sizes != sorted(sizes):
            raise ValueError("Arg ``period_group_size_dict``: expected periods above 0 and sizes that do not shrink")
        whole = _world.get_world_size(self.process_group)
        if sizes[-1] != whole:
            raise ValueError(
                f"The last value in arg ``period_process_group_dict`` {sizes[-1]} must be equal to the size of arg "
                f"``process_group`` {whole}."
            )
        if any(later % size for size, later in pairwise(sizes)):
            raise ValueError(f"Arg ``period_group_size_dict``: expected each size to divide the next, got {sizes}")
        self.period_process_group_dict: OrderedDict[int, Any] = OrderedDict()
        for period, size in period_group_size_dict.items():
            group = self.process_group if size == whole else _world.new_subgroups(size, self.process_group)[0]
            self.period_process_group_dict[period] = group
        if warmup_steps < 0:
            raise ValueError("Arg ``warmup_steps`` must be a non-negative number.")
        self.warmup_steps = warmup_steps

    def _find_process_group(self) -> Any:
        """The largest group whose turn has come; None of none."""
        for period in reversed(self._periods):
            if self.step % period == 0:
                return self.period_process_group_dict[period]
        return None

    def average_parameters(self, params: Iterable[Any]) -> None:
        """Count a step, and take the mean over the largest group whose turn has come."""
        if self.step >= self.warmup_steps:
            group = self._find_process_group()
            if group is not None:
                utils.average_parameters_or_parameter_groups(params, group)
        self.step += 1
