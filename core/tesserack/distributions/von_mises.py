"""The von Mises distribution on the circle."""

from __future__ import annotations

import math
from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.distributions import constraints
from tesserack.distributions.distribution import Distribution
from tesserack.distributions.utils import broadcast_all, lazy_property

__all__ = ["VonMises"]


def _log_i0(x: Tensor) -> Tensor:
    return ts.special.i0e(x).log() + x  # type: ignore[no-any-return]


class VonMises(Distribution):
    """The density exp(concentration * cos(x - loc)) / (2 pi I0(concentration)) on [-pi, pi]."""

    arg_constraints: Any = {"loc": constraints.real, "concentration": constraints.positive}
    support: Any = constraints.real
    has_rsample: Any = False

    def __init__(self, loc: Any, concentration: Any, validate_args: bool | None = None) -> None:
        self.loc, self.concentration = broadcast_all(loc, concentration)
        super().__init__(self.loc.shape, validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        return self._expanded(VonMises, batch_shape, ("loc", "concentration"), _instance)

    def log_prob(self, value: Tensor) -> Tensor:
        value = self._checked(value)
        kappa = self.concentration
        return kappa * ts.cos(value - self.loc) - math.log(2 * math.pi) - _log_i0(kappa)

    @lazy_property
    def _proposal_r(self) -> Tensor:
        kappa = self.concentration.double()
        tau = 1 + (1 + 4 * kappa**2).sqrt()
        rho = (tau - (2 * tau).sqrt()) / (2 * kappa)
        # For small kappa the closed form cancels: its series there.
        return ts.where(kappa < 1e-5, 1 / kappa + kappa, (1 + rho**2) / (2 * rho))

    def sample(self, sample_shape: Any = ()) -> Tensor:
        """Draws by rejection from a wrapped Cauchy distribution (Best and Fisher 1979)."""
        with ts.no_grad():
            kappa, r, loc = self.concentration.double(), self._proposal_r, self.loc.double()
            angle = ts.zeros(self._extended_shape(sample_shape), dtype=ts.float64, device=loc.device)
            done = ~kappa.isfinite().expand(angle.shape)  # their angles would never be accepted
            while not bool(done.all()):
                u1, u2, u3 = ts.rand((3, *angle.shape), dtype=ts.float64, device=loc.device)
                z = ts.cos(math.pi * u1)
                f = (1 + r * z) / (r + z)
                c = kappa * (r - f)
                accepted = (c * (2 - c) - u2 > 0) | ((c / u2).log() + 1 - c >= 0)
                angle = ts.where(accepted, (u3 - 0.5).sign() * f.clamp(min=-1, max=1).acos(), angle)
                done = done | accepted
            return ((angle + math.pi + loc) % (2 * math.pi) - math.pi).to(self.loc.dtype)

    @property
    def mean(self) -> Tensor:
        """The circular mean."""
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @lazy_property
    def variance(self) -> Tensor:
        """The circular variance, 1 - I1 / I0."""
        return 1 - ts.special.i1e(self.concentration) / ts.special.i0e(self.concentration)  # type: ignore[no-any-return]
