"""Functions as modules, so that what observes a model sees their results too."""

from __future__ import annotations

from typing import Any

import tesserack as ts
from tesserack import Tensor, nn

__all__ = ["FXFloatFunctional", "FloatFunctional"]


class FXFloatFunctional(nn.Module):
    """``add``, ``cat`` and others of tensors as methods, in floating point.

    >>> import tesserack as ts
    >>> FXFloatFunctional().add_relu(ts.tensor([1.0, -3.0]), ts.tensor([1.0, 1.0])).tolist()
    [2.0, 0.0]
    """

    def _seen(self, result: Tensor) -> Tensor:
        return result

    def forward(self, x: Any) -> Any:
        """``RuntimeError``: the methods are what is called."""
        raise RuntimeError(f"{type(self).__name__} is not intended to use the forward. Please use the operation")

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        """``x + y``."""
        return self._seen(ts.add(x, y))

    def add_scalar(self, x: Tensor, y: float) -> Tensor:
        """``x + y`` with a number, which needs no observer."""
        return ts.add(x, y)

    def mul(self, x: Tensor, y: Tensor) -> Tensor:
        """``x * y``."""
        return self._seen(ts.mul(x, y))

    def mul_scalar(self, x: Tensor, y: float) -> Tensor:
        """``x * y`` with a number."""
        return ts.mul(x, y)

    def cat(self, x: list[Tensor], dim: int = 0) -> Tensor:
        """The tensors one after the other."""
        return self._seen(ts.cat(x, dim=dim))

    def add_relu(self, x: Tensor, y: Tensor) -> Tensor:
        """``relu(x + y)``."""
        return self._seen(ts.relu(ts.add(x, y)))

    def matmul(self, x: Tensor, y: Tensor) -> Tensor:
        """``x @ y``."""
        return self._seen(ts.matmul(x, y))


class FloatFunctional(FXFloatFunctional):
    """The same with a module that each result passes through, ``activation_post_process``: an observer, or nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.activation_post_process = nn.Identity()

    def _seen(self, result: Tensor) -> Tensor:
        return self.activation_post_process(result)  # type: ignore[no-any-return]
