"""Sequences that fill the unit cube evenly. Direction numbers and scrambling are SciPy's: ``pip install scipy``."""

from __future__ import annotations

from typing import Any

import tesserack as ts
from tesserack import Tensor

__all__ = ["SobolEngine"]


class SobolEngine:
    """Points of the Sobol sequence in ``dimension`` dims, in [0, 1), by the direction numbers of Joe and Kuo (2008).

    The first point of a sequence that is not scrambled is 0, as in PyTorch, and all are PyTorch's; ``scramble`` draws a
    linear matrix scramble and a digital shift from ``seed`` (Matousek 1998), others than PyTorch's.

    Raises:
        ValueError: unless 1 <= dimension <= 21201.
        ModuleNotFoundError: where SciPy is not installed.

    >>> import tesserack as ts
    >>> engine = ts.quasirandom.SobolEngine(2)
    >>> engine.draw(4).tolist()
    [[0.0, 0.0], [0.5, 0.5], [0.75, 0.25], [0.25, 0.75]]
    >>> engine.fast_forward(2).draw().tolist(), engine.num_generated
    ([[0.625, 0.125]], 7)
    """

    MAXBIT = 30
    MAXDIM = 21201

    def __init__(self, dimension: int, scramble: bool = False, seed: int | None = None) -> None:
        if not 1 <= dimension <= self.MAXDIM:
            raise ValueError(f"Supported range of dimensionality for SobolEngine is [1, {self.MAXDIM}]")
        self.dimension, self.scramble, self.seed = dimension, scramble, seed
        self.num_generated = 0
        self._start = seed if seed is not None else int(ts.randint(0, 2**31 - 1, ()).item()) if scramble else 0
        self._sequence = self._make()

    def _make(self) -> Any:
        try:
            from scipy.stats import qmc
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError("SobolEngine: needs SciPy; pip install scipy", name="scipy") from error
        return qmc.Sobol(self.dimension, scramble=self.scramble, bits=self.MAXBIT, seed=self._start)

    def draw(self, n: int = 1, out: Tensor | None = None, dtype: Any = None) -> Tensor:
        """The next ``n`` points: (n, dimension), of the default dtype or ``dtype``; written to ``out`` if given."""
        import warnings

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # that the number of points is no power of two
            points = self._sequence.random(n)
        self.num_generated += n
        found = ts.from_numpy(points).to(ts.get_default_dtype() if dtype is None else dtype)
        return found if out is None else out.resize_(found.shape).copy_(found)

    def draw_base2(self, m: int, out: Tensor | None = None, dtype: Any = None) -> Tensor:
        """The next ``2**m`` points. ``ValueError`` if the number of all drawn would then be no power of two."""
        n, total = 2**m, self.num_generated + 2**m
        if total & (total - 1):
            raise ValueError(
                "The balance properties of Sobol' points require n to be a power of 2. "
                f"{self.num_generated} points have been previously generated, then: "
                f"n={self.num_generated}+2**{m}={total}. If you still want to do this, please use 'SobolEngine.draw()'."
            )
        return self.draw(n, out, dtype)

    def reset(self) -> SobolEngine:
        """Back to the first point."""
        self._sequence.reset()
        self.num_generated = 0
        return self

    def fast_forward(self, n: int) -> SobolEngine:
        """Leave out the next ``n`` points."""
        self._sequence.fast_forward(n)
        self.num_generated += n
        return self

    def __repr__(self) -> str:
        parts = [f"dimension={self.dimension}"]
        if self.scramble:
            parts.append("scramble=True")
        if self.seed is not None:
            parts.append(f"seed={self.seed}")
        return f"{type(self).__name__}({', '.join(parts)})"
