"""``torch.cuda.random``."""

from __future__ import annotations

from tesserack.compat.shims._card_functions import functions as _functions

_NAMES = (
    *("get_rng_state", "get_rng_state_all", "set_rng_state", "set_rng_state_all", "manual_seed", "manual_seed_all"),
    *("seed", "seed_all", "initial_seed"),
)
globals().update({name: function for name, function in _functions("cuda").items() if name in _NAMES})

__all__ = [*_NAMES]
